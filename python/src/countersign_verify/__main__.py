"""``python -m countersign_verify``, and what the command ``countersign`` starts."""

from __future__ import annotations

import sys


def main() -> int:
    """:returns: the exit status."""
    try:
        from .cli.main import main as run
    except ImportError as error:
        print(f"countersign: this installation is not whole ({error}): install it again", file=sys.stderr)
        return 2
    return run()


if __name__ == "__main__":
    sys.exit(main())
