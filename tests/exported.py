"""Using exported models where there is no pfedes."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from pfedes.export import onnx

WITHOUT_PFEDES = """
import sys

class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pfedes":
            raise ImportError("there is no pfedes here")

sys.meta_path.insert(0, Nowhere())
sys.path.insert(0, ".")
try:
    import pfedes
except ImportError:
    pass
else:
    raise SystemExit("pfedes can be imported")
"""

needs_onnx = pytest.mark.skipif(
    any(find_spec(name) is None for name in onnx.PACKAGES),
    reason="needs the extra 'onnx': pip install 'pfedes[onnx]'",
)


def elsewhere(code: str, directory: Path) -> str:
    """What a program prints in a process that cannot import pfedes, in an exported directory."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PFEDES"))}
    done = subprocess.run(
        [sys.executable, "-P", "-c", WITHOUT_PFEDES + code],
        cwd=directory,
        env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def snippets(directory: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (directory / "README.md").read_text(), re.DOTALL)
