"""A device that is full at any allocation of a training step: a named error, nothing half done, and the same
call succeeds once there is memory; through CudaDevice on the stand-in for CuPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pytest
from cupy_fixtures import no_device_is_kept, stub  # noqa: F401  fixtures
from cupy_stub_memory import CUDARuntimeError, Memory
from cupy_stub_streams import Stream

import bppsa_cupy as bp
from bppsa_cupy.data.dataset import Dataset, Split
from bppsa_cupy.devices import cuda
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.errors import DeviceError, PassError
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.timescan import serial
from bppsa_cupy.training.loop import train as train_network
from bppsa_cupy.training.settings import Settings
from bppsa_cupy.training.state import restore, snapshot

pytestmark = pytest.mark.long

NAMED = r"^cuda: (an array of \d+ bytes|memory) was asked for.*, \d+ are free: use a smaller batch"

#: Calls of a training step.
CALLS = 6


@dataclass(frozen=True)
class Case:
    """A network that is trained by `method`, and its optimizer.

    batches  of the steps: the first takes buffers, the second captures graphs, a larger one takes larger
             buffers
    cold     whether no kernel's code is on the GPU yet
    """

    layers: Callable[[], list[bp.Layer]]
    input_shape: tuple[int, ...]
    method: str
    optimizer: Callable[[Any], bp.Optimizer]
    batches: tuple[int, ...] = (2, 2)
    cold: bool = False

    def make(self, device: CudaDevice) -> tuple[bp.Sequential, bp.Optimizer]:
        if self.cold:
            cuda._function.cache_clear()
        net = bp.Sequential(self.layers(), self.input_shape, seed=0, dtype="float64", device=device)
        if net.needs_plan:
            net.use(net.plan(batch_size=max(self.batches), schedules=["blelloch"]))
        return net, self.optimizer(net.parameters)

    def calls(self, net: bp.Sequential, optimizer: bp.Optimizer) -> Iterator[Callable[[], Any]]:
        """What training steps call, one after another."""
        rng, found = np.random.default_rng(0), {}
        for step, batch in enumerate(self.batches):
            x = rng.standard_normal((batch, *self.input_shape))
            labels, targets = rng.integers(0, 3, batch), np.zeros((batch, 3))
            optimizer.lr = 0.1 / (step + 1)
            yield lambda x=x: found.update(y=net.forward(x, into=net.last_pass))
            loss = partial(bp.cross_entropy, labels=labels, device=net.device)
            yield lambda loss=loss: found.update(g=loss(found["y"])[1])
            yield lambda targets=targets: bp.mse_loss(found["y"], targets, device=net.device)
            yield lambda: net.backward(found["g"], self.method, input_gradient=True)
            yield lambda: bp.clip_grad_norm(net.gradients, 0.1)
            yield lambda: optimizer.step(net.gradients)


def state_of(net: bp.Sequential, optimizer: bp.Optimizer) -> dict[str, Any]:
    """Bits of all that training changes."""
    state = optimizer.state_dict()
    arrays = {**net.parameters.to_host(), **net.buffers.to_host(), **state["arrays"]}
    return {
        "steps": state["steps"],
        "random": dict(net.random_state),
        "version": net.parameters.version,
        **{name: (array.shape, array.tobytes()) for name, array in arrays.items()},
    }


def images() -> list[bp.Layer]:
    return [
        bp.Conv2d(1, 2, 3), bp.BatchNorm2d(2), bp.Dropout(0.2), bp.MaxPool2d(2), bp.Sigmoid(), bp.Flatten(),
        bp.Linear(8, 3), bp.Tanh(),
    ]  # fmt: skip


def recurrent(cell: type[bp.Recurrent], **options: Any) -> list[bp.Layer]:
    return [cell(2, 3, outputs="last", **options), bp.Linear(3, 3)]


CASES = {
    "images, bp": Case(images, (1, 6, 6), "bp", lambda p: bp.SGD(p, momentum=0.9), (2, 3)),
    "images, blelloch": Case(images, (1, 6, 6), "blelloch", bp.AdamW),
    "RNN, serial": Case(lambda: recurrent(bp.RNN), (6, 2), "bp", bp.SGD, (2, 2, 3)),
    "RNN, cold": Case(lambda: recurrent(bp.RNN), (3, 2), "bp", bp.Adam, (2,), cold=True),
    "RNN, a launch a step": Case(lambda: recurrent(bp.RNN), (4, 2), "bp", bp.SGD),
    "GRU, by chunks": Case(lambda: recurrent(bp.GRU), (6, 2), "blelloch", bp.Adam),
    "RNN, Newton": Case(lambda: recurrent(bp.RNN, forward_method="newton"), (6, 2), "bp", bp.SGD),
}


@pytest.mark.parametrize("name", CASES)
def test_a_call_that_runs_out_is_as_if_it_had_not_been_made(
    name: str,
    stub: CudaDevice,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At every allocation in turn; made again, the call and the step behind it give what they would have."""
    case = CASES[name]
    if "a launch a step" in name:
        monkeypatch.setattr(serial, "serial_way", lambda *_: "steps")
    for _ in range(2):  # the first time loads the kernels
        net, optimizer = case.make(stub)
        states = [state_of(net, optimizer)]
        with Memory.ending_after(None):
            for call in case.calls(net, optimizer):
                call()
                states.append(state_of(net, optimizer))
            count = Memory.taken
    failed = set()
    for most in range(count):
        net, optimizer = case.make(stub)
        calls, done = case.calls(net, optimizer), 0
        with Memory.ending_after(most), pytest.raises(DeviceError, match=NAMED):
            for call in calls:
                call()
                done += 1
        assert state_of(net, optimizer) == states[done], f"{most}: call {done}"
        failed.add(done % CALLS)
        call()
        behind = [one() for one in islice(calls, CALLS)]
        assert state_of(net, optimizer) == states[done + 1 + len(behind)], most
    assert failed == set(range(CALLS)), "every call takes memory at some time"


def drawn_dataset() -> Dataset:
    shape, rng = CASES["images, bp"].input_shape, np.random.default_rng(0)
    inputs = rng.standard_normal((4, *shape)).astype(np.float32)
    return Dataset("drawn", shape, 3, Split(inputs, np.array([0, 1, 2, 0]), None), None, None)


def test_a_checkpoint_is_restored_whole_or_not_at_all(stub: CudaDevice) -> None:
    case, dataset = CASES["images, bp"], drawn_dataset()
    net, optimizer = case.make(stub)
    settings = Settings(method="bp", batch_size=2, iterations=1)
    train_network(net, dataset, optimizer, settings)
    checkpoint, after = snapshot(net, optimizer, settings, dataset, 1, 2), state_of(net, optimizer)
    with Memory.ending_after(None):
        restore(*case.make(stub), checkpoint, settings, dataset)
        net, optimizer = case.make(stub)
        Memory.taken = 0
        restore(net, optimizer, checkpoint, settings, dataset)
        count = Memory.taken
    assert count
    for most in range(count):
        net, optimizer = case.make(stub)
        before = state_of(net, optimizer)
        with Memory.ending_after(most), pytest.raises(DeviceError, match=NAMED):
            restore(net, optimizer, checkpoint, settings, dataset)
        assert state_of(net, optimizer) == before, most
        restore(net, optimizer, checkpoint, settings, dataset)
        assert {**state_of(net, optimizer), "version": 0} == {**after, "version": 0}, most


def test_training_ends_behind_a_whole_step(stub: CudaDevice) -> None:
    """Wherever memory runs out; training that has made none goes on as if nothing had been. Where it runs out
    in a capture, steps go on launch by launch, with a warning, which is an error here."""
    case, dataset = CASES["images, bp"], drawn_dataset()

    def values_of(net: bp.Sequential, optimizer: bp.Optimizer) -> dict[str, Any]:
        return {**state_of(net, optimizer), "version": 0}  # a failed capture may have counted a change

    def train(net: bp.Sequential, optimizer: bp.Optimizer, iterations: int) -> dict[str, Any]:
        settings = Settings(method="bp", batch_size=2, clip=0.1, iterations=iterations)
        train_network(net, dataset, optimizer, settings)
        return values_of(net, optimizer)

    train(*case.make(stub), 2)
    with Memory.ending_after(None):
        states = [values_of(*case.make(stub)), *(train(*case.make(stub), steps) for steps in (1, 2))]
        again = case.make(stub)
        Memory.taken = 0
        train(*again, 2)
        count = Memory.taken
    ended = set()
    for most in range(count):
        net, optimizer = case.make(stub)
        with (
            Memory.ending_after(most),
            pytest.raises((DeviceError, RuntimeWarning), match=f"{NAMED}|launch by launch"),
        ):
            train(net, optimizer, 2)
        ended.add(states.index(values_of(net, optimizer)))
        if states[0] == values_of(net, optimizer):
            assert train(net, optimizer, 2) == states[2], most
    assert {0, 1} <= ended


def test_a_pass_that_was_begun_anew_and_failed_is_refused(stub: CudaDevice) -> None:
    net, _ = CASES["images, bp"].make(stub)
    y = net.forward(np.ones((2, 1, 6, 6)))
    with Memory.ending_after(3), pytest.raises(DeviceError, match=NAMED):
        net.forward(np.ones((3, 1, 6, 6)), into=net.last_pass)
    with pytest.raises(
        PassError, match=r"did not come to its end: run net\.forward\(x\) again before backward"
    ):
        net.backward(np.ones(y.shape))


def test_a_layer_on_its_own_keeps_its_buffers(stub: CudaDevice, rng: np.random.Generator) -> None:
    layer, x = bp.BatchNorm1d(2), stub.asarray(rng.standard_normal((3, 2)))
    given = {"weight": stub.asarray(np.ones(2)), "bias": stub.asarray(np.zeros(2))}
    found = []
    for most in range(100):
        buffers = {name: stub.asarray(value) for name, value in layer.initial_buffers().items()}
        before = {name: stub.to_host(value).tobytes() for name, value in buffers.items()}
        with Memory.ending_after(most):
            try:
                bp.functional.forward(layer, given, x, buffers=buffers, device=stub)
                break
            except DeviceError as error:
                found.append(str(error))
        assert before == {name: stub.to_host(value).tobytes() for name, value in buffers.items()}, most
    assert len(found) > 3 and before["running_mean"] != stub.to_host(buffers["running_mean"]).tobytes()


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
    run = stub.sequence([bound, bound, fails_if_full])
    run()
    full = True
    with pytest.raises(DeviceError, match=NAMED):
        run()
    assert stub.launched["relu_fill"] == 2 and captured[-1].capture is None
    full = False
    run()
    assert stub.launched["relu_fill"] == 4
