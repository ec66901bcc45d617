"""Lines on standard error with the time of day, for commands that run for long."""

import sys
import time


def said(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def silent(text: str) -> None:
    """Prints nothing, for `--quiet`."""
