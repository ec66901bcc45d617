"""The versions, the processor and the command of a run: `environment.json`."""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from pfedes.version import __version__


def environment() -> dict[str, Any]:
    """Time, versions, processor and the source's commit: what explains a difference."""
    packages = ("torch", "numpy", "safetensors", "scikit-learn", "pydantic")
    return {
        "begun": datetime.now(UTC).isoformat(sep=" ", timespec="minutes"),
        "pfedes": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
        "torch_build": torch.__version__,
        "system": platform.platform(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "command": sys.argv,
    }


def _commit() -> str | None:
    """The commit of a source checkout, and whether it was changed; None for a package."""
    try:
        _git("ls-files", "--error-unmatch", __file__)
        changed = _git("status", "--porcelain", "--untracked-files=no", ".")
        return _git("rev-parse", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*arguments: str) -> str:
    answer = subprocess.run(
        ["git", *arguments],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=5,
        check=True,
    )
    return answer.stdout.strip()


def processor() -> str:
    """The name of the CPU, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((li.split(":", 1)[1].strip() for li in lines if li.startswith("model name")), "")
