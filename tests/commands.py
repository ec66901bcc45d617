"""The command line, as a user types it."""

import io
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from pfedes.cli import execute

Done = subprocess.CompletedProcess[str]
MAIN = [sys.executable, "-c", "from pfedes.__main__ import main; main()"]


def command(*arguments: str, **environment: str) -> Done:
    """Runs a command in this process: the same code from the arguments to the exit code.

    An interpreter that imports torch takes seconds. Tests of what a process is (signals, exit
    codes that a shell sees, imports, what outlives it) use `process`.
    """
    out, err = io.StringIO(), io.StringIO()
    with _environment(environment), redirect_stdout(out), redirect_stderr(err):
        try:
            code = execute(list(arguments))
        finally:
            logging.getLogger("pfedes").handlers.clear()  # it would write to `err`
    return Done(arguments, code, out.getvalue(), err.getvalue())


def process(*arguments: str, **environment: str) -> Done:
    """Runs a command in a process of its own, as the installed one starts."""
    return subprocess.run(
        [*MAIN, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
        check=False,
    )


def refused(*arguments: str, **environment: str) -> str:
    """The one line that a wrong command line gets. Nothing is written."""
    before = sorted(Path().rglob("*"))
    done = command(*arguments, **environment)
    assert sorted(Path().rglob("*")) == before
    return complaint(done)


def complaint(done: Done) -> str:
    """What a command printed that a user's mistake ended: one line, and code 2."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("pfedes: ")
    return line


@contextmanager
def _environment(changes: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
