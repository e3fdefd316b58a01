"""Rebuilds the paper's tables and figures, and measures language models as it does."""

import sys

from training.paper.commands import main

if __name__ == "__main__":
    sys.exit(main())
