"""What a run ran on."""

import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import pfedes


def environment() -> dict[str, Any]:
    """Versions, processor and the source's commit: what it takes to explain a difference."""
    packages = ("torch", "numpy", "safetensors", "scikit-learn", "pydantic")
    return {
        "pfedes": pfedes.__version__,
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
    """The commit of a source checkout; None for an installed package."""
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
        tracked = subprocess.run(
            ["git", "ls-files", "--error-unmatch", __file__],
            cwd=Path(__file__).parent,
            capture_output=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() if tracked.returncode == 0 else None


def processor() -> str:
    """The name of the CPU, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((li.split(":", 1)[1].strip() for li in lines if li.startswith("model name")), "")
