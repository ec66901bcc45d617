"""The models have exactly the sizes of the paper."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from pfedes import Extractor, ModelError
from pfedes.errors import ConfigError
from pfedes.models import MODELS, build_model
from pfedes.models.convolution import ImageConv2d
from pfedes.models.extractor import Activation

PARAMETERS = {
    ("cnn1", 10): 2_621_558,
    ("cnn2", 10): 1_815_142,
    ("cnn3", 10): 1_320_558,
    ("cnn4", 10): 1_060_358,
    ("cnn5", 10): 670_058,
    ("cnn1", 100): 2_666_648,
    ("cnn2", 100): 1_860_232,
    ("cnn3", 100): 1_365_648,
    ("cnn4", 100): 1_105_448,
    ("cnn5", 100): 715_148,
}


def _size(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(("name", "classes"), PARAMETERS)
def test_parameter_counts(name: str, classes: int) -> None:
    assert _size(build_model(name, classes, (3, 32, 32))) == PARAMETERS[name, classes]


def test_the_extractor_has_443_parameters_and_keeps_the_shape() -> None:
    extractor = Extractor()
    assert _size(extractor) == 443
    assert extractor(torch.zeros(2, 3, 32, 32)).shape == (2, 3, 32, 32)


@pytest.mark.parametrize(
    ("activation", "low", "high"), [("relu", 0.0, None), ("none", None, None), ("tanh", -1.0, 1.0)]
)
def test_final_activations(activation: Activation, low: float | None, high: float | None) -> None:
    torch.manual_seed(0)
    out = Extractor(final_activation=activation)(50 * torch.randn(4, 3, 8, 8))
    assert low is None or out.min() >= low
    assert high is None or out.max() <= high
    assert activation == "relu" or out.min() < 0


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 64, 48), (4, 16, 16)])
def test_the_first_linear_layer_follows_the_input(name: str, shape: tuple[int, int, int]) -> None:
    assert build_model(name, 7, shape)(torch.zeros(2, *shape)).shape == (2, 7)


def test_images_that_are_too_small_are_refused() -> None:
    with pytest.raises(ModelError, match="15x32 are too small"):
        build_model("cnn1", 10, (3, 15, 32))


def test_an_unknown_model_gets_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 'cnn1'"):
        build_model("cnn11", 10, (3, 32, 32))


@pytest.mark.parametrize(
    ("inputs", "outputs", "kernel", "padding", "height"),
    [
        (3, 16, 5, 0, 32),  # the gradient of the input goes by rows
        (8, 3, 3, 1, 32),  # the output goes by rows, the sides of the weights' are exchanged
        (1, 2, 3, 1, 16),  # both
        (8, 3, 3, 0, 34),  # the sides have different sizes
        (8, 3, 3, 1, 30),  # not a multiple of the rows at once
        (3, 8, 3, 1, 30),
        (3, 8, 3, 3, 12),  # more padding than kernel
    ],
)
def test_convolutions_of_images_are_convolutions(
    inputs: int, outputs: int, kernel: int, padding: int, height: int
) -> None:
    torch.manual_seed(0)
    ours = ImageConv2d(inputs, outputs, kernel, padding=padding).double()
    torch.manual_seed(0)
    plain = nn.Conv2d(inputs, outputs, kernel, padding=padding).double()
    x = torch.randn(5, inputs, height, 20, dtype=torch.float64)
    found = []
    for layer in (ours, plain):
        image = x.clone(memory_format=torch.channels_last).requires_grad_()
        with FlopCounterMode(display=False) as counter:
            result = layer(image)
            result.sin().sum().backward()
        assert layer.bias is not None
        grads = image.grad, layer.weight.grad, layer.bias.grad
        found.append((result, *grads, counter.get_total_flops()))
    torch.testing.assert_close(*found, check_stride=False)
