"""`run.log`: what happened in a run, with times."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from logging.handlers import MemoryHandler
from pathlib import Path
from typing import Any

from pfedes.files import open_private, writing

log = logging.getLogger(__name__)

FORMAT = "%(asctime)s %(levelname)s %(message)s"


class _Quiet(logging.FileHandler):
    """Says nothing about a full disk: whoever writes what matters will say it.

    What happened may name files and data: the log is for its owner alone.
    """

    def _open(self) -> Any:  # a file of text
        return open_private(self.baseFilename, self.mode, self.encoding)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (the library's name)
        pass


@contextmanager
def logging_into(path: Path) -> Iterator[None]:
    """Appends what pfedes logs to a file."""
    logger = logging.getLogger("pfedes")
    with writing(path):
        file = _Quiet(path, encoding="utf-8")
    file.setFormatter(logging.Formatter(FORMAT))
    level = logger.level
    logger.addHandler(file)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(file)
        file.close()


@contextmanager
def noting_a_stop(continuing: str) -> Iterator[None]:
    """Logs that a signal ended the work, and what continues it: its terminal may be closed."""
    try:
        yield
    except KeyboardInterrupt as stop:
        # For the file alone: on the screen, the command says so itself.
        log.info("stopped by %s; %s continues", stop or "the keyboard", continuing)
        raise


@contextmanager
def run_log() -> Iterator[Callable[[Path], None]]:
    """Collects what is logged, and writes it once the run has a directory.

    Yields the function to call then. A run that fails before leaves no file.
    """
    logger = logging.getLogger("pfedes")
    level = logger.level
    memory = MemoryHandler(capacity=1000, flushLevel=logging.CRITICAL + 1)
    files: list[_Quiet] = []

    def log_into(directory: Path) -> None:
        path = directory / "run.log"
        with writing(path):
            file = _Quiet(path, encoding="utf-8")
        file.setFormatter(logging.Formatter(FORMAT))
        files.append(file)
        logger.addHandler(file)
        memory.setTarget(file)
        memory.flush()
        logger.removeHandler(memory)

    logger.addHandler(memory)
    logger.setLevel(logging.INFO)
    try:
        yield log_into
    finally:
        logger.setLevel(level)
        logger.removeHandler(memory)
        for file in files:
            logger.removeHandler(file)
            file.close()


class Collected(logging.Handler):
    """Keeps what is logged until it is sent along with an answer."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def begin(self) -> None:
        """From now on all that we log comes here, and nowhere else."""
        logger = logging.getLogger("pfedes")
        logger.addHandler(self)
        logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    def take(self) -> str:
        text = "\n".join(self.lines)
        self.lines.clear()
        return text
