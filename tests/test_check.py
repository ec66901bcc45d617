"""Ways to get a model or data wrong: each is found before anybody waits for it, with a remedy."""

import re
import textwrap
from pathlib import Path

import pytest

from pfedes.cli import execute

GOOD_MODEL = """
def model(classes, shape):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], classes))
"""
GOOD_DATA = """
def data():
    images = np.random.default_rng(0).integers(0, 256, (60, 8, 8), dtype=np.uint8)
    labels = np.arange(60) % 3
    return {"train": (images[:40], labels[:40]), "test": (images[40:], labels[40:])}
"""


def checked(capsys: pytest.CaptureFixture[str], code: str, more: str = "") -> tuple[int, str]:
    """Exit code and all that was said about a participant with this model and data."""
    start = "import numpy as np\nimport torch\nfrom torch import nn\n"
    Path("own.py").write_text(start + textwrap.dedent(code))
    Path("p.toml").write_text(
        "name = 'ada'\nmodel = 'own.py:model'\ndata = 'own.py:data'\n"
        + (more if "classes" in more else f"classes = ['a', 'b', 'c']\n{more}")
    )
    code_found = execute(["check", "p.toml"])
    said = capsys.readouterr()
    return code_found, " ".join((said.out + said.err).split())


def test_what_is_right_passes_and_shows_what_would_leave(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, said = checked(capsys, GOOD_MODEL + GOOD_DATA)
    assert code == 0, said
    assert "ada can take part" in said
    assert "579 parameters" in said
    assert "3 x 8 x 8" in said
    for line in (
        "conv1.weight 8 x 3 x 3 x 3 float32 216 numbers",
        "conv2.bias 3 float32 3 numbers",
        "loss float",
    ):
        assert line in said


@pytest.mark.parametrize("terms", ["", "participants = ['ada', 'ben']"])
def test_what_stays_over_a_network_is_not_listed(
    terms: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """FLOPs and seconds would tell the architecture, also where the terms name nobody yet."""
    Path("terms.toml").write_text(f"[federation]\nclasses = ['a', 'b', 'c']\n{terms}")
    own = f"import numpy as np\nfrom torch import nn\n{GOOD_MODEL}{GOOD_DATA}"
    Path("own.py").write_text(own)
    Path("p.toml").write_text("name = 'ada'\nmodel = 'own.py:model'\ndata = 'own.py:data'\n")
    assert execute(["check", "p.toml", "--federation", "terms.toml"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line]
    assert {"loss", "samples", "state"} <= set(listed)
    assert not {"flops", "seconds"} & set(listed)


MODELS = {
    "no such function": ("", "own.py:model': unknown function 'model'; known: data"),
    "returns no module": ("def model(c, s): return 3", "returned an int: it must return"),
    "takes other arguments": (
        "def model(): return nn.Linear(1, 1)",
        "; it is called with these two, and must build the model",
    ),
    "raises": ("def model(c, s): raise OSError('no weights')", "OSError: no weights"),
    "wrong input size": (
        "def model(c, s): return nn.Sequential(nn.Flatten(), nn.Linear(7, c))",
        "; size its layers by the shape",
    ),
    "wrong number of classes": (
        "def model(c, s): return nn.Sequential(nn.Flatten(), nn.Linear(192, 5))",
        "expected 2 x 3: one number for each of the federation's classes",
    ),
    "auxiliary outputs": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(192, 3)
            def forward(self, x):
                return self.a(x.flatten(1)), x
        def model(c, s): return M()
        """,
        "returns a tuple of 2: it must return the logits alone",
    ),
    "evaluation mode": (
        "def model(c, s): return nn.Sequential(nn.Flatten(), nn.Linear(192, c)).eval()",
        "in evaluation mode: do not call .eval() on it",
    ),
    "frozen": (
        """
        def model(c, s):
            m = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.Linear(8, c))
            m[1].requires_grad_(False)
            return m
        """,
        "2 of 4 parameters are frozen, 1.weight first: call requires_grad_(True)",
    ),
    "double precision": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(192, 3).double()
            def forward(self, x):
                return self.a(x.flatten(1).double())
        def model(c, s): return M()
        """,
        "a.weight is torch.float64: call .float() on the model",
    ),
    "unused layer": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(192, 3), nn.Linear(3, 3)
            def forward(self, x):
                return self.a(x.flatten(1))
        def model(c, s): return M()
        """,
        "no gradient arrives at 2 parameters, b.weight first",
    ),
    "input detached": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(192, 3)
            def forward(self, x):
                return self.a(x.detach().flatten(1))
        def model(c, s): return M()
        """,
        "no gradient reaches the input of the model: remove detach()",
    ),
    "NaN": (
        """
        def model(c, s):
            m = nn.Sequential(nn.Flatten(), nn.Linear(192, c))
            nn.init.constant_(m[1].weight, float('nan'))
            return m
        """,
        "answers with NaN or infinity: check its initial weights",
    ),
    "nothing to train": (
        """
        class M(nn.Module):
            def forward(self, x):
                return x.flatten(1)[:, :3]
        def model(c, s): return M()
        """,
        "the model has no parameters: register its layers",
    ),
}


@pytest.mark.parametrize(("code", "what"), MODELS.values(), ids=MODELS)
def test_wrong_models(code: str, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    found, said = checked(capsys, textwrap.dedent(code) + GOOD_DATA)
    assert found == 2
    assert what in said


DATA = {
    "no such function": ("", "own.py:data': unknown function 'data'; known: model"),
    "raises": ("def data(): raise KeyError('disk')", "KeyError: 'disk'"),
    "no test data": (
        "def data(): return {'train': (np.ones((4, 8, 8)), [0, 1, 0, 1])}",
        "no 'test'",
    ),
    "another word": ("def data(): return {'training': 1}", "unknown part 'training'; did you mean"),
    "no arrays": ("def data(): return 7", "gave a int; expected a mapping"),
    "lengths differ": (
        "def data(): x = np.zeros((4, 8, 8), np.uint8); return (x, [0]), (x, [0]), (x, [0])",
        "4 inputs, but 1 labels: give one each",
    ),
    "labels out of range": (
        "def data(): x = np.zeros((4, 8, 8), np.uint8); y = [0, 1, 2, 3]; "
        "return {'train': (x, y), 'test': (x, y)}",
        "labels 0..3, but 3 classes: name yours in the right order with classes",
    ),
    "unknown class": (
        "def data(): x = np.zeros((2, 8, 8), np.uint8); y = ['a', 'd']; "
        "return {'train': (x, y), 'test': (x, y)}",
        "unknown class 'd'; known: a, b, c",
    ),
    "labels that are no classes": (
        "def data(): x = np.zeros((2, 8, 8), np.uint8); y = [0.5, 1.5]; "
        "return {'train': (x, y), 'test': (x, y)}",
        "labels of type float64: use whole numbers or names",
    ),
    "channels": (
        "def data(): x = np.zeros((4, 8, 8, 2), np.uint8); y = [0, 1, 0, 1]; "
        "return {'train': (x, y), 'test': (x, y)}",
        "inputs have 2 channels, the federation 3",
    ),
    "one class only": (
        "def data(): x = np.random.default_rng(0).integers(0, 256, (20, 8, 8), dtype=np.uint8); "
        "y = [1] * 20; return {'train': (x, y), 'test': (x, y)}",
        "all training samples are of one class: training needs at least two",
    ),
    "all the same": (
        "def data(): x = np.zeros((20, 8, 8), np.uint8); y = [0, 1] * 10; "
        "return {'train': (x, y), 'test': (x, y)}",
        "all inputs are the same number",
    ),
    "nothing in it": (
        "def data(): x = np.zeros((0, 8, 8), np.uint8); "
        "y = np.zeros(0, np.int64); return {'train': (x, y), 'val': (x, y), 'test': (x, y)}",
        "the train data is empty: give it samples",
    ),
    "sizes differ": (
        "def data(): x = np.zeros((20, 8, 8), np.uint8); z = np.zeros((20, 9, 9), np.uint8); "
        "y = [0, 1] * 10; return {'train': (x, y), 'test': (z, y)}",
        "between train, val and test: (8, 8, 3), (9, 9, 3); bring all to one",
    ),
}


@pytest.mark.parametrize(("code", "what"), DATA.values(), ids=DATA)
def test_wrong_data(code: str, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    found, said = checked(capsys, GOOD_MODEL + code)
    assert found == 2
    assert what in said


def test_several_problems_are_named_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    code = """
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(192, 3), nn.Linear(3, 3)
        def forward(self, x):
            return self.a(x.detach().flatten(1))
    def model(c, s): return M().eval()
    """
    found, said = checked(capsys, textwrap.dedent(code) + DATA["one class only"][0])
    assert found == 2
    for what in ("one class", "evaluation mode", "no gradient arrives", "no gradient reaches"):
        assert what in said
    assert "ada cannot take part yet: 4 problems" in said
    assert re.search(r"1\. .* 2\. .* 3\. .* 4\. ", said)


def test_data_and_model_that_cannot_be_loaded_are_named_together(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found, said = checked(capsys, "def data(): return 7")
    assert found == 2
    assert re.search(r"1\. data gave a int; .* 2\. model = .*unknown function 'model'", said)
    assert "ada cannot take part yet: 2 problems" in said


def test_probable_mistakes_are_noted(capsys: pytest.CaptureFixture[str]) -> None:
    found, said = checked(
        capsys,
        GOOD_MODEL
        + """
def data():
    x = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    y = np.arange(40) % 2
    return {"train": (x, y), "test": (x[:5], [2, 2, 2, 2, 2])}
""",
    )
    assert found == 0
    assert "note: the test data has 1 classes that are not in the training data" in said
    assert "note: the test data has no samples of 2 classes of the training data" in said
    assert "test samples are in the training data too" in said


def test_a_models_output_with_a_field_logits(capsys: pytest.CaptureFixture[str]) -> None:
    found, said = checked(
        capsys,
        """
from types import SimpleNamespace
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(192, 3)
    def forward(self, x):
        return SimpleNamespace(logits=self.a(x.flatten(1)), other=x)
def model(c, s): return M()
"""
        + GOOD_DATA,
    )
    assert found == 0, said


def test_the_classes_must_have_names(capsys: pytest.CaptureFixture[str]) -> None:
    found, said = checked(capsys, GOOD_MODEL + GOOD_DATA, "classes = []")
    assert found == 2
    assert "the names of the classes are missing: set classes = [...]" in said
