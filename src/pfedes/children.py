"""Starting further Python processes."""

import os
import sys


def python(*arguments: str) -> list[str]:
    """A command line of this Python that does not import from the present directory."""
    return [sys.executable, "-P", *arguments]


def same_imports() -> dict[str, str]:
    """The environment of a process that finds the modules this one finds, and no others."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
