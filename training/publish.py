"""The former name of `training.compress_preset`, to be removed after this release."""

import sys

from training.compress_preset import main

if __name__ == "__main__":
    print("training.publish is now called training.compress_preset.", file=sys.stderr)
    sys.exit(main())
