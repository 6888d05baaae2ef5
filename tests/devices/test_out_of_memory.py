"""A device that is full at any allocation of a training step: a named error, restoring a checkpoint changes
all or nothing, and a capture that fails is ended; through CudaDevice on the stand-in for CuPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cupy_fixtures import no_device_is_kept, stub  # noqa: F401  fixtures
from cupy_stub_memory import CUDARuntimeError, Memory
from cupy_stub_streams import Stream

import bppsa_cupy as bp
from bppsa_cupy.data.dataset import Dataset, Split
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.errors import DeviceError, PassError
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.training.checkpoint import restore, snapshot
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.settings import Settings

pytestmark = pytest.mark.long

NAMED = r"^cuda: (an array needs \d+ bytes|an allocation failed).*, \d+ are free: use a smaller batch"


def images() -> list[bp.Layer]:
    return [
        bp.Conv2d(1, 2, 3), bp.BatchNorm2d(2), bp.Dropout(0.2), bp.MaxPool2d(2), bp.Sigmoid(), bp.Flatten(),
        bp.Linear(8, 3), bp.Tanh(),
    ]  # fmt: skip


def newton() -> list[bp.Layer]:
    return [bp.RNN(2, 3, forward_method="newton", outputs="last"), bp.Linear(3, 3)]


#: Layers, their input shape and the method.
CASES: dict[str, tuple[Callable[[], list[bp.Layer]], tuple[int, ...], str]] = {
    "images, bp": (images, (1, 6, 6), "bp"),
    "images, blelloch": (images, (1, 6, 6), "blelloch"),
    "GRU, by chunks": (lambda: [bp.GRU(2, 3, outputs="last"), bp.Linear(3, 3)], (6, 2), "blelloch"),
    "RNN, Newton": (newton, (6, 2), "bp"),
}


def make(name: str, device: CudaDevice) -> tuple[bp.Sequential, bp.Optimizer]:
    layers, shape, method = CASES[name]
    net = bp.Sequential(layers(), shape, seed=0, dtype="float64", device=device)
    if method == "blelloch":
        net.use(net.plan(batch_size=2, schedules=["blelloch"]))
    return net, bp.Adam(net.parameters, lr=0.1)


def step(name: str, net: bp.Sequential, optimizer: bp.Optimizer) -> None:
    _, shape, method = CASES[name]
    y = net.forward(np.ones((2, *shape)), into=net.last_pass)
    _, gradient = bp.cross_entropy(y, np.array([0, 2]), device=net.device)
    net.backward(gradient, method)
    bp.clip_grad_norm(net.gradients, 0.1)
    optimizer.step(net.gradients)


def state_of(net: bp.Sequential, optimizer: bp.Optimizer) -> dict[str, Any]:
    """Bits of all that training changes."""
    state = optimizer.state_dict()
    arrays = {**net.parameters.to_host(), **net.buffers.to_host(), **state["arrays"]}
    bits = {name: (array.shape, array.tobytes()) for name, array in arrays.items()}
    return {"steps": state["steps"], "random": dict(net.random_state), **bits}


@pytest.mark.parametrize("name", CASES)
def test_a_step_that_runs_out_names_the_bytes_and_runs_later(name: str, stub: CudaDevice) -> None:
    """At every allocation in turn of two steps, the second of which captures graphs."""
    for _ in range(2):  # the first time loads the kernels
        net = make(name, stub)
        with Memory.ending_after(None):
            for _ in range(2):
                step(name, *net)
            count = Memory.taken
    assert count
    for most in range(count):
        net = make(name, stub)
        with Memory.ending_after(most), pytest.raises(DeviceError, match=NAMED):
            for _ in range(2):
                step(name, *net)
        step(name, *net)


def test_restoring_a_checkpoint_may_be_tried_again(stub: CudaDevice) -> None:
    inputs = np.random.default_rng(0).standard_normal((4, 1, 6, 6)).astype(np.float32)
    dataset = Dataset("drawn", (1, 6, 6), 3, Split(inputs, np.array([0, 1, 2, 0]), None), None, None)
    net, optimizer = make("images, bp", stub)
    settings = Settings(method="bp", batch_size=2, iterations=1)
    train(net, dataset, optimizer, settings)
    checkpoint, after = snapshot(net, optimizer, settings, dataset, 1, 2), state_of(net, optimizer)
    with Memory.ending_after(None):
        restore(*make("images, bp", stub), checkpoint, settings, dataset)
        net, optimizer = make("images, bp", stub)
        Memory.taken = 0
        restore(net, optimizer, checkpoint, settings, dataset)
        count = Memory.taken
    assert count
    for most in range(count):
        net, optimizer = make("images, bp", stub)
        with Memory.ending_after(most), pytest.raises(DeviceError, match=NAMED):
            restore(net, optimizer, checkpoint, settings, dataset)
        restore(net, optimizer, checkpoint, settings, dataset)
        assert state_of(net, optimizer) == after, most


def test_a_pass_that_failed_has_no_backward_pass(stub: CudaDevice) -> None:
    net, _ = make("images, bp", stub)
    y = net.forward(np.ones((2, 1, 6, 6)))
    with Memory.ending_after(3), pytest.raises(DeviceError, match=NAMED):
        net.forward(np.ones((3, 1, 6, 6)), into=net.last_pass)
    with pytest.raises(PassError):
        net.backward(np.ones(y.shape))


def test_a_capture_that_fails_is_ended(stub: CudaDevice) -> None:
    """No stream captures any more then, launches are counted once, and the next call makes the graph."""
    values = stub.zeros((1, 1), np.float64)
    bound = stub.bind(KERNELS["relu_fill"], stub.zeros((1, 1), np.float64), values, 1, 1)
    full = False

    def fails_if_full() -> None:
        captured.append(Stream.current[-1])
        if full:
            raise CUDARuntimeError("cudaErrorMemoryAllocation: out of memory")

    captured: list[Stream] = []
    sequence = stub.sequence([bound, bound, fails_if_full])
    sequence()
    full = True
    with pytest.raises(DeviceError, match=NAMED):
        sequence()
    assert stub.launched["relu_fill"] == 2 and captured[-1].capture is None
    full = False
    sequence()
    assert stub.launched["relu_fill"] == 4
