"""The `pfedes` command, and `python -m pfedes`."""

import sys

from pfedes.fleet.process import begin, keep_freed_memory


def main() -> None:
    """Runs the command line: 0 done, 1 failed, 2 wrong input, 130 interrupted."""
    begin()
    keep_freed_memory()
    # Only now, since it takes time: half an import must not continue.
    from pfedes.cli import execute

    sys.exit(execute(sys.argv[1:]))


if __name__ == "__main__":
    main()
