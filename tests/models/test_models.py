"""Built-in models, and models by file or module."""

import pytest
import torch
from marks import some_rows
from tolerances import assert_close
from torch import nn

import bppsa_cupy as bp
from bppsa_cupy.models import build_model, find_factory

SIZES = {
    "lenet5": 62006, "vgg11": 9225610, "vgg16": 15253578, "alexnet": 23272266, "resnet20": 269722,
    "resnet56": 853018, "resnet110": 1727962, "resnet224": 3575066, "resnet362": 5811034,
}  # fmt: skip

#: Of many parameters or many layers.
LARGE = "alexnet", "vgg16", "resnet110", "resnet224", "resnet362"


@pytest.mark.parametrize(
    "name, parameters",
    some_rows(
        *((name, size) for name, size in SIZES.items() if name not in LARGE),
        long=[(name, SIZES[name]) for name in LARGE],
    ),
)
def test_sizes_are_the_known_ones(name, parameters):
    net = build_model(name, device="host")
    assert sum(array.size for array in net.parameters.values()) == parameters
    assert net.output_shape == (10,)


def convolutions(*steps):
    """PyTorch's modules: a pair of numbers is MaxPool2d's arguments, more are Conv2d's and a ReLU."""
    for step in steps:
        yield from [nn.MaxPool2d(*step)] if len(step) == 2 else [nn.Conv2d(*step), nn.ReLU()]


def vgg11_of_torch():
    """Configuration A as torchvision has it for its features, and one linear layer."""
    sizes = [(3, 64), "M", (64, 128), "M", (128, 256), (256, 256), "M", (256, 512), (512, 512), "M"]
    sizes += [(512, 512), (512, 512), "M"]
    steps = [(2, 2) if size == "M" else (*size, 3, 1, 1) for size in sizes]
    return [*convolutions(*steps), nn.Flatten(), nn.Linear(512, 10)]


def vgg16_of_torch():
    """Configuration D with batch normalisation, and three linear layers."""
    modules, before = [], 3
    for channels, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            modules += [nn.Conv2d(before, channels, 3, 1, 1), nn.BatchNorm2d(channels), nn.ReLU()]
            before = channels
        modules.append(nn.MaxPool2d(2))
    for _ in range(2):
        modules += [nn.Dropout(), nn.Linear(512, 512), nn.ReLU()]
    return [*modules[:-6], nn.Flatten(), *modules[-6:], nn.Linear(512, 10)]


def alexnet_of_torch(first, second, pool, features, classes):
    steps = (first, pool, second, pool, (192, 384, 3, 1, 1), (384, 256, 3, 1, 1), (256, 256, 3, 1, 1), pool)
    return [
        *convolutions(*steps), nn.Flatten(), nn.Dropout(), nn.Linear(features, 4096), nn.ReLU(),
        nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, classes),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "shape", "classes", "make"),
    [
        ("vgg11", (3, 32, 32), 10, vgg11_of_torch),
        *some_rows(
            long=[
                ("vgg16", (3, 32, 32), 10, vgg16_of_torch),
                (
                    "alexnet", (3, 32, 32), 10,
                    lambda: alexnet_of_torch((3, 64, 3, 2, 1), (64, 192, 3, 1, 1), (2, 2), 1024, 10),
                ),
                (
                    "alexnet", (3, 224, 224), 1000,  # as torchvision: 61100840 parameters, 1.3 GB
                    lambda: alexnet_of_torch((3, 64, 11, 4, 2), (64, 192, 5, 1, 2), (3, 2), 9216, 1000),
                ),
            ]
        ),
    ],
)  # fmt: skip
def test_scores_are_those_of_pytorchs_layers(name, shape, classes, make):
    torch.manual_seed(1)
    model = nn.Sequential(*make()).double().eval()
    state = model.state_dict()
    net = build_model(name, input_shape=shape, classes=classes, dtype="float64", device="host").eval()
    assert [type(layer).__name__ for layer in net.layers] == [type(m).__name__ for m in model]
    net.load_state_dict(state, by_order=True)
    x = torch.randn(1, *shape, dtype=torch.float64)
    with torch.no_grad():
        assert_close(net.forward(x.numpy()), model(x).numpy(), 9216)
    assert list(state) == list(net.state_dict())


def test_a_model_of_the_users_own(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import bppsa_cupy as bp\n"
        "def tiny(input_shape=(2,), **options):\n"
        "    return bp.Sequential([bp.Linear(input_shape[0], 3)], input_shape, **options)\n"
        "def wrong(**options):\n"
        "    return 3\n",
        encoding="utf-8",
    )
    assert build_model(f"{file}:tiny", device="host").output_shape == (3,)
    assert build_model(f"{file}:tiny", input_shape=(5,), device="host").input_shape == (5,)
    with pytest.raises(bp.BppsaError, match="return a Sequential from the factory"):
        build_model(f"{file}:wrong", device="host")
    with pytest.raises(bp.BppsaError, match="has no function 'absent'"):
        find_factory(f"{file}:absent")
    file.write_text("import nothing_of_that_name\n", encoding="utf-8")
    with pytest.raises(bp.BppsaError, match="raises ModuleNotFoundError"):
        find_factory(f"{file}:tiny")
