"""``python -m countersign``."""

import sys

from .cli import main

sys.exit(main())
