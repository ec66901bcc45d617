"""`python -m pfedes` is the `pfedes` command."""

from pfedes.cli import main

main()
