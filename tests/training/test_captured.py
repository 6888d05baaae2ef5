"""Training steps as CUDA graphs, on a GPU and on the stand-in for CuPy: they leave what the host leaves."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cupy_fixtures import no_device_is_kept, stub  # noqa: F401  fixtures

import bppsa_cupy as bp
from bppsa_cupy.devices import Device, get_device, rules
from bppsa_cupy.devices.cuda import CudaDevice

Make = Callable[[Device | str], bp.Sequential]


@pytest.fixture(params=["stand-in", pytest.param("GPU", marks=pytest.mark.gpu)])
def cuda(request: pytest.FixtureRequest) -> CudaDevice:
    """A CudaDevice on the stand-in for CuPy, and on a GPU."""
    return request.getfixturevalue("stub") if request.param == "stand-in" else get_device("cuda")


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
        np.testing.assert_allclose(theirs.state_dict()[name], array, rtol=1e-9, atol=1e-11, err_msg=name)


@pytest.mark.parametrize("make", [rnn, images, tagger])
@pytest.mark.parametrize("optimizer", [bp.SGD, bp.Adam])
def test_steps_on_graphs_are_those_of_the_host(
    make: Make, optimizer: type, cuda: CudaDevice, rng: np.random.Generator
) -> None:
    """With two shapes in turn, learning rates and hyper-parameters that change, clipping and dropout."""
    nets = [make(device) for device in ("host", cuda)]
    optimizers = [optimizer(net.parameters, lr=0.05) for net in nets]
    steps = [
        bp.CapturedStep(net, instance, clip=0.5, label_smoothing=0.1)
        for net, instance in zip(nets, optimizers, strict=True)
    ]
    for turn in range(8):
        x, labels = batch_of(nets[0], rng, (3, 2)[turn % 2])
        lengths = np.array([7, 3, 5])[: len(x)] if make is tagger else None
        if turn == 5:
            for instance in optimizers:
                instance.weight_decay = 0.1
        results = []
        for step, instance in zip(steps, optimizers, strict=True):
            instance.lr_factor = 1 / (1 + turn)
            results.append(step(x, labels, lengths, label_lengths=lengths))
        ours, theirs = results
        np.testing.assert_allclose(theirs.loss, ours.loss, rtol=1e-9)
        np.testing.assert_allclose(theirs.gradient_norm, ours.gradient_norm, rtol=1e-9)
        assert steps[1].ran.startswith("one CUDA graph" if turn > 1 else "launch by launch: the first call")
        assert_same_parameters(*nets)
    assert nets[0].random_state == nets[1].random_state and optimizers[1].steps == 8


@pytest.mark.parametrize("chunk_steps, length", [(3, 18), (8, 40)])
def test_chunks_are_reduced_beside_the_forward_pass(
    chunk_steps: int, length: int, cuda: CudaDevice, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parameters have the bits of steps without a second stream, also where samples end early; the graph has
    the launches of every segment."""
    monkeypatch.setattr(rules, "GPU_CHUNKS", -(-length // chunk_steps))
    monkeypatch.setattr(rules, "GPU_SEGMENT_STEPS", chunk_steps)
    x, labels = rng.standard_normal((3, 3, length, 3)), rng.integers(0, 4, (3, 3))
    results, counts = [], []
    for segments in (1, 3):
        monkeypatch.setattr(rules, "GPU_SEGMENTS", segments)
        layers = [bp.GRU(3, 5, num_layers=2, outputs="last"), bp.Linear(5, 4)]
        net = bp.Sequential(layers, (length, 3), dtype="float64", device=cuda, seed=1)
        step = bp.CapturedStep(net, bp.SGD(net.parameters), method="blelloch")
        for turn in range(3):
            before = cuda.launched.copy()
            step(x[turn], labels[turn], np.array([length, 2, length - 1]))
        assert step.ran == "one CUDA graph"
        counts.append(cuda.launched - before)
        results.append(net.parameters.to_host())
    for name, array in results[0].items():
        np.testing.assert_array_equal(results[1][name], array, err_msg=name)
    segments = -(-length // rules.segment_length(length, chunk_steps))
    assert segments > 1 and counts[1]["gru_forward"] == counts[0]["gru_forward"] - 1 + segments
    assert counts[1]["gru_reduce"] == counts[0]["gru_reduce"] - 1 + segments


def test_a_gradient_that_is_not_finite_is_blocked(cuda: CudaDevice, rng: np.random.Generator) -> None:
    net = rnn(cuda)
    optimizer = bp.Adam(net.parameters)
    step = bp.CapturedStep(net, optimizer)
    x, labels = batch_of(net, rng, 3)
    for turn in range(5):
        before = net.parameters.to_host()
        assert step(np.where(turn == 3, np.nan, x), labels).blocked == (turn == 3)
        same = [np.array_equal(array, before[name]) for name, array in net.parameters.to_host().items()]
        assert all(same) == (turn == 3)
    assert optimizer.steps == 4


def test_masks_plans_modes_and_momentum_that_change_are_captured_anew(
    cuda: CudaDevice, rng: np.random.Generator
) -> None:
    def make(device: Device | str) -> bp.Sequential:
        layers = [bp.Flatten(), bp.Linear(8, 6), bp.Tanh(), bp.Dropout(0.5), bp.Linear(6, 4)]
        return bp.Sequential(layers, (8,), dtype="float64", device=device, seed=1)

    nets = [make(device) for device in ("host", cuda)]
    optimizers = [bp.SGD(net.parameters, lr=0.05) for net in nets]
    steps = [bp.CapturedStep(net, optimizer) for net, optimizer in zip(nets, optimizers, strict=True)]
    mask = rng.random((6, 8)) < 0.5
    for turn in range(14):
        x, labels = batch_of(nets[0], rng, 3)
        losses = []
        for net, optimizer, step in zip(nets, optimizers, steps, strict=True):
            if turn == 3:
                optimizer.momentum = 0.9
            if turn == 12:
                net.set_masks({"1.weight": mask})
            if turn == 6:
                net.parameters["1.weight"][...] *= 0.5
            if turn in (7, 9):
                net.training = turn == 9
            losses.append(step(x, labels).loss)
        np.testing.assert_allclose(losses[1], losses[0], rtol=1e-9)
        assert_same_parameters(*nets)
        if turn in (2, 5, 6, 8, 11):
            assert steps[1].ran == "one CUDA graph"
    assert "the host cannot wait" in steps[1].ran


@pytest.mark.parametrize("optimizer", [bp.SGD, bp.Adam])
def test_a_captured_step_makes_few_python_calls(
    optimizer: type, stub: CudaDevice, rng: np.random.Generator
) -> None:
    """Calls in files of the package; the learning rate changes before the counted step."""
    net = rnn(stub)
    instance = optimizer(net.parameters)
    step, (x, labels) = bp.CapturedStep(net, instance), batch_of(net, rng, 3)
    for _ in range(4):
        step(x, labels)
    instance.lr_factor = 0.5
    folder, calls = str(Path(bp.__file__).parent), []

    def count(frame: Any, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(folder):
            calls.append(frame.f_code.co_name)

    sys.setprofile(count)
    try:
        step(x, labels)
    finally:
        sys.setprofile(None)
    assert step.ran == "one CUDA graph" and len(calls) <= 25, calls


def test_what_cannot_be_captured_is_told(stub: CudaDevice, rng: np.random.Generator) -> None:
    layers = [bp.RNN(3, 5, outputs="last", forward_method="newton"), bp.Linear(5, 4)]
    net = bp.Sequential(layers, (9, 3), dtype="float64", device=stub)
    x, labels = batch_of(net, rng, 3)
    step = bp.CapturedStep(net, bp.SGD(net.parameters))
    for _ in range(3):
        step(x, labels)
    assert "the host cannot wait" in step.ran
    hooked = bp.CapturedStep(net, bp.SGD(net.parameters), gradient_hook=lambda net: None)
    hooked(x, labels)
    assert "hook" in hooked.ran

    plain = rnn(stub)

    def waiting(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        float(scores[0, 0])
        return bp.mse_loss(scores, labels)

    step = bp.CapturedStep(plain, bp.SGD(plain.parameters), waiting)
    target = rng.standard_normal((3, 4))
    step(x, target)
    with pytest.warns(RuntimeWarning, match="launch by launch"):
        step(x, target)
    step(x, target)
    assert "the capture failed" in step.ran and plain.random_state["passes"] == 3
