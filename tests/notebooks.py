"""What stands for a notebook where there is none, and a method as a cell would define it."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

import pytest
from torch import nn

from pfedes.methods import Client, Context, Method, MethodConfig, Payload, Upload, fit_labels


class CellConfig(MethodConfig):
    name: Literal["cell_method"] = "cell_method"


class CellMethod(Method[CellConfig]):
    """Shares nothing: as little as a method can do."""

    Config = CellConfig
    display_name = "Mine & only"

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        return Upload(fit_labels(client, ctx))


def extractor_of_a_cell(shape: tuple[int, ...]) -> nn.Module:
    """What a notebook would define as its extractor."""
    return nn.Conv2d(shape[0], shape[0], 3, padding=1)


class Screen:
    """An output of a cell: everything that it showed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shown: list[str] = []
        ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
        kernel = SimpleNamespace(kernel=object())
        vars(ipython)["get_ipython"] = lambda: kernel
        vars(display)["display"] = self.display
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def display(self, thing: Any, *, display_id: bool) -> "Screen":
        assert display_id
        self.update(thing)
        return self

    def update(self, thing: Any) -> None:
        self.shown.append(thing._repr_html_())
