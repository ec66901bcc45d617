"""The README's example works as printed."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
LINK = r"(!?)\[[^\]]*\]\(([^)#]+)\)"


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
    for _, target in re.findall(LINK, README.read_text()):
        assert target.startswith("https://") or (README.parent / target).exists(), target


def test_it_is_one_page_with_two_commands_a_result_and_six_links() -> None:
    text = README.read_text()
    assert len(text.splitlines()) < 70
    assert re.findall(r"^    (.+?) +#", text, re.MULTILINE) == ["make demo", "make test"]
    figures = [target for mark, target in re.findall(LINK, text) if mark]
    assert [target for target in figures if target.startswith("results/")] == figures[1:]
    assert len(figures) == 2  # how it works, and the result
    assert len([target for mark, target in re.findall(LINK, text) if not mark]) == 6
