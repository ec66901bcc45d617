"""The README's example works as printed."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_python_example() -> None:
    """Two runs of the default configuration take the time."""
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    pfedes, standalone, model = done.stdout.splitlines()
    assert re.fullmatch(r"pfedes 0\.\d{3} runs/pfedes-digits", pfedes)
    assert re.fullmatch(r"standalone 0\.\d{3} runs/standalone-digits", standalone)
    assert model.startswith("CNN ")


def test_the_files_it_points_to_are_there() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert target.startswith("https://") or (README.parent / target).exists(), target
