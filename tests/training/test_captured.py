"""Training steps as CUDA graphs, on the stand-in for CuPy: they leave what launches one by one leave."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cupy_fixtures import no_device_is_kept, stub  # noqa: F401  fixtures
from cupy_stub_streams import Graph

import bppsa_cupy as bp
from bppsa_cupy.devices import Device
from bppsa_cupy.devices.cuda import CudaDevice

Make = Callable[[Device | str], bp.Sequential]


def rnn(device: Device | str) -> bp.Sequential:
    layers = [bp.RNN(3, 5, outputs="last"), bp.Linear(5, 4)]
    return bp.Sequential(layers, (9, 3), dtype="float64", device=device, seed=1)


def images(device: Device | str) -> bp.Sequential:
    layers = [
        bp.Conv2d(2, 3, 3, bias=False), bp.BatchNorm2d(3), bp.ReLU(), bp.MaxPool2d(2), bp.Dropout(0.4),
        bp.Flatten(), bp.Linear(12, 4),
    ]  # fmt: skip
    return bp.Sequential(layers, (2, 6, 6), dtype="float64", device=device, seed=1)


def tagger(device: Device | str) -> bp.Sequential:
    layers = [bp.GRU(3, 5, outputs="all"), bp.Linear(5, 4)]
    return bp.Sequential(layers, (None, 3), dtype="float64", device=device, seed=1)


def batch_of(net: bp.Sequential, rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
    shape = [7 if length is None else length for length in net.input_shape]
    labels = rng.integers(0, 4, (size, 7) if net.input_shape[0] is None else size)
    return rng.standard_normal((size, *shape)), labels


def assert_same_parameters(ours: bp.Sequential, theirs: bp.Sequential) -> None:
    for name, array in ours.state_dict().items():
        np.testing.assert_allclose(theirs.state_dict()[name], array, rtol=1e-10, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("make", [rnn, images, tagger])
@pytest.mark.parametrize("optimizer", [bp.SGD, bp.Adam])
def test_steps_on_graphs_are_those_of_the_host(
    make: Make, optimizer: type, stub: CudaDevice, rng: np.random.Generator
) -> None:
    """With two shapes in turn, learning rates and hyper-parameters that change, clipping and dropout."""
    nets = [make(device) for device in ("host", stub)]
    optimizers = [optimizer(net.parameters, lr=0.05) for net in nets]
    steps = [
        bp.CapturedStep(net, own, clip=0.5, label_smoothing=0.1)
        for net, own in zip(nets, optimizers, strict=True)
    ]
    graphs = len(Graph.made)
    for turn in range(8):
        x, labels = batch_of(nets[0], rng, (3, 2)[turn % 2])
        lengths = np.array([7, 3, 5])[: len(x)] if make is tagger else None
        if turn == 5:
            for own in optimizers:
                own.weight_decay = 0.1
        found = []
        for step, own in zip(steps, optimizers, strict=True):
            own.lr_factor = 1 / (1 + turn)
            found.append(step(x, labels, lengths, label_lengths=lengths))
        ours, theirs = found
        np.testing.assert_allclose(theirs.loss, ours.loss, rtol=1e-10)
        np.testing.assert_allclose(theirs.gradient_norm, ours.gradient_norm, rtol=1e-9)
        assert steps[1].ran.startswith("one CUDA graph" if turn > 1 else "launch by launch: the first step")
        assert_same_parameters(*nets)
    assert len(Graph.made) - graphs <= 2 + 2 * 8, "nested graphs of the first steps, and one per shape"
    assert nets[0].random_state == nets[1].random_state and optimizers[1].steps == 8


def test_a_step_is_one_graph_and_few_calls(stub: CudaDevice, rng: np.random.Generator) -> None:
    net = rnn(stub)
    step = bp.CapturedStep(net, bp.Adam(net.parameters))
    x, labels = batch_of(net, rng, 3)
    for _ in range(3):
        step(x, labels)
    calls, launches, launch = [], [], Graph.launch
    package = str(Path(bp.__file__).parent)

    def count(frame: object, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(package):
            calls.append(frame.f_code.co_qualname)

    Graph.launch = lambda graph, stream: (launches.append(graph), launch(graph, stream))
    sys.setprofile(count)
    try:
        step(x, labels)
    finally:
        sys.setprofile(None)
        Graph.launch = launch
    assert len(launches) == 1
    assert len(calls) <= 25, calls
