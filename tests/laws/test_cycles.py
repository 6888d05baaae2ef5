"""Passes leave no reference cycles, so that reference counts free their memory without the collector."""

import gc
import types
from collections.abc import Callable

import numpy as np
import pytest
import torch
from marks import some

import bppsa_cupy as bp
import bppsa_cupy.torch as bt

Step = Callable[[int], object]
RNG = np.random.default_rng(0)


def values(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def parameters(layer: bp.Layer) -> dict[str, np.ndarray]:
    return {name: values(*shape) / 9 for name, shape in layer.parameter_shapes().items()}


def functional(layer: bp.Layer) -> Step:
    weights = parameters(layer)

    def step(length: int) -> None:
        x = values(2, length, 4)
        y, saved = bp.functional.forward(layer, weights, x)
        bp.functional.vjp(saved, y)
        bp.functional.jacobians(layer, weights, x)

    return step


def network(method: str, *layers: bp.Layer, shape: tuple[int | None, ...]) -> Step:
    net = bp.Sequential(layers, shape, dtype="float64", device="host")
    if method != "auto":
        net.use(net.plan())

    def step(length: int) -> None:
        x = values(3, length, 4) if None in shape else values(length, *shape)
        net.backward(net.forward(x), method=method)
        net.transposed_jacobians()

    return step


def new_network(length: int) -> None:
    cnn = bp.Conv2d(1, 2, 3), bp.ReLU(), bp.Flatten(), bp.Linear(8, 3)
    network("linear", *cnn, shape=(1, 4, 4))(length)
    network("auto", bp.GRU(4, 3), bp.MinGRU(3, 4), bp.Linear(4, 2), shape=(None, 4))(length)


def module(layer: torch.nn.Module) -> Step:
    layer.double()

    def step(length: int) -> None:
        x = torch.randn(2, length, 4, dtype=torch.float64, requires_grad=True)
        y = layer(x)
        y[0].sum().backward()

    return step


LAYERS = (
    bp.RNN(4, 3), bp.GRU(4, 3, 2, bidirectional=True), bp.LSTM(4, 3), bp.MinGRU(4, 4),
    bp.MinLSTM(4, 4), bp.SRU(4, 4), bp.QRNN(4, 4), bp.RGLRU(4), bp.LRU(4, 2), bp.DiagonalSSM(4, 2),
)  # fmt: skip
CNN = bp.Conv2d(1, 2, 3), bp.BatchNorm2d(2), bp.ReLU(), bp.MaxPool2d(2), bp.Flatten(), bp.Linear(2, 3)
PRUNED = bp.Conv2d(1, 2, 3, mask=np.arange(18).reshape(2, 1, 3, 3) % 2 == 0)
STEPS: dict[str, Step] = {
    **{f"functional {type(layer).__name__}": functional(layer) for layer in LAYERS},
    "network": network("auto", bp.LSTM(4, 3, 2), bp.Linear(3, 2), shape=(None, 4)),
    "CNN": network("auto", PRUNED, *CNN[2:4], bp.Residual([bp.Tanh()]), *CNN[4:], shape=(1, 4, 4)),
    **{f"CNN {way}": network(way, CNN[0], *CNN[2:], shape=(1, 4, 4)) for way in ("linear", "blelloch")},
    "new networks": new_network,
    "torch LSTM": module(bt.LSTM(4, 3, 2, batch_first=True, bidirectional=True)),
    "torch MinGRU": module(bt.MinGRU(4, 4)),
}
#: Those whose kernels other quick tests do not compile.
LONG = [f"functional {name}" for name in ("MinLSTM", "SRU", "DiagonalSSM")]


def is_ours(thing: object) -> bool:
    definition = thing if isinstance(thing, types.FunctionType) else type(thing)
    return str(definition.__module__).startswith("bppsa_cupy.")


@pytest.fixture(autouse=True, scope="module")
def older_objects() -> None:
    """The collector leaves out what was there before these tests, which takes it most of its time."""
    gc.collect()
    gc.freeze()


@pytest.mark.parametrize("name", some(*(name for name in STEPS if name not in LONG), long=LONG))
def test_nothing_waits_for_the_collector(name: str) -> None:
    step = STEPS[name]
    step(5)
    gc.collect()
    gc.disable()
    try:
        for length in (4, 9, 6, 7, 3):
            step(length)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        assert {type(thing).__name__ for thing in gc.garbage if is_ours(thing)} == set()
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
