"""Real `pfedes` processes, to which something is to happen."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from commands import MAIN
from pfedes import Config


class Started:
    """A process group of its own that runs, or resumes, what belongs into a directory."""

    def __init__(self, directory: Path, config: Config) -> None:
        self.directory = directory
        self.errors = directory.with_suffix(".err")
        settings = directory.with_suffix(".toml")
        settings.write_text(config.to_toml())
        resuming = (directory / "state").is_dir()
        words = ["resume", directory] if resuming else ["run", settings, "--out", directory]
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [*MAIN, *map(str, words)],
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        self.pid = self.process.pid

    @property
    def said(self) -> str:
        return self.errors.read_text()

    def end(self) -> int:
        """Its exit code, once it is done."""
        return self.process.wait(timeout=240)

    def wait_until(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 240
        while not reached():
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def wait_for_round(self, round: int) -> None:
        manifest = self.directory / "state" / "manifests" / f"{round:05d}.json"
        self.wait_until(manifest.exists)
