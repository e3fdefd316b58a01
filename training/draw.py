"""The former name of `training.plot_pretraining`, to be removed after this release."""

import sys

from training.plot_pretraining import main

if __name__ == "__main__":
    print("training.draw is now called training.plot_pretraining.", file=sys.stderr)
    sys.exit(main())
