"""A device that is full at any allocation of a call that sets state, as masks, state dicts, a checkpoint: a
named error, and the state is as before; through CudaDevice on the stand-in for CuPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cupy_fixtures import no_device_is_kept, stub  # noqa: F401  fixtures
from cupy_stub_memory import Memory
from memory_cases import NAMED, state_of

import bppsa_cupy as bp
from bppsa_cupy.data.dataset import Dataset, Split
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.training.loop import evaluate
from bppsa_cupy.training.settings import Settings
from bppsa_cupy.training.state import restore, snapshot

pytestmark = pytest.mark.long

GROUPS = [{"params": ["2.weight"], "lr": 0.25}]
MASK = {"2.weight": np.array([[1, 0, 1, 1], [0, 1, 1, 0]])}


class Trained:
    """A network with running statistics, draws and a masked weight, and its optimizer, behind some steps."""

    def __init__(self, device: CudaDevice, seed: int, steps: int, groups: Any = ()) -> None:
        self.rng = np.random.default_rng(seed)
        layers = [bp.BatchNorm1d(4), bp.Dropout(0.5), bp.Linear(4, 2)]
        self.net = bp.Sequential(layers, (4,), seed=seed, dtype="float64", device=device)
        self.net.set_masks({"2.weight": np.array([[0, 1, 1, 1], [1, 1, 1, 1]])})
        self.optimizer = bp.Adam(self.net.parameters, lr=0.1 / (seed + 1), groups=groups)
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        y = self.net.forward(self.rng.standard_normal((3, 4)))
        self.net.backward(np.ones(y.shape), "bp")
        self.optimizer.step(self.net.gradients)

    def state(self) -> dict[str, Any]:
        """Bits of all that the calls may change."""
        net, settings = self.net, self.optimizer.state_dict()
        return {
            **state_of(net, self.optimizer),
            "settings": {name: value for name, value in settings.items() if name != "arrays"},
            "masks": {name: mask.tolist() for name, mask in net.masks.items()},
            "used masks": {name: mask.tolist() for name, mask in net.parameters.masks.items()},
            "training": net.training,
        }


def dataset() -> Dataset:
    rng = np.random.default_rng(5)
    split = Split(rng.standard_normal((5, 4)), rng.integers(0, 2, 5), None)
    return Dataset("drawn", (4,), 2, split, split, None)


def set_masks(device: CudaDevice) -> Callable[[Trained], Any]:
    return lambda own: own.net.set_masks(MASK)


def prune(device: CudaDevice) -> Callable[[Trained], Any]:
    return lambda own: bp.prune(own.net, 0.5)


def load_network(device: CudaDevice) -> Callable[[Trained], Any]:
    state = Trained(device, 1, 2).net.state_dict()
    return lambda own: own.net.load_state_dict(state)  # buffers too


def assign(device: CudaDevice) -> Callable[[Trained], Any]:
    state = Trained(device, 1, 2).net.parameters.to_host()
    return lambda own: own.net.parameters.assign(state)


def load_optimizer(device: CudaDevice) -> Callable[[Trained], Any]:
    """Of other settings, and with a group."""
    state = Trained(device, 1, 2, GROUPS).optimizer.state_dict()
    return lambda own: own.optimizer.load_state_dict(state)


def step_behind_masks(device: CudaDevice) -> Callable[[Trained], Any]:
    """The first one by newer masks and rates, which sets older momentum to 0."""
    return lambda own: own.optimizer.step(own.net.gradients)


def restore_checkpoint(device: CudaDevice) -> Callable[[Trained], Any]:
    other = Trained(device, 1, 2)
    checkpoint = snapshot(other.net, other.optimizer, Settings(), dataset(), 2, 1)
    return lambda own: restore(own.net, own.optimizer, checkpoint, Settings(), dataset())


def evaluation(device: CudaDevice) -> Callable[[Trained], Any]:
    return lambda own: evaluate(own.net, dataset().test, 2)


CALLS = [
    set_masks, prune, load_network, assign, load_optimizer, step_behind_masks, restore_checkpoint, evaluation,
]  # fmt: skip


@pytest.mark.parametrize("make", CALLS)
def test_state_is_set_whole_or_not_at_all(make: Callable, stub: CudaDevice) -> None:
    """Made again, the call gives what it would have, and so does the step behind it."""
    call = make(stub)

    def begun() -> Trained:
        own = Trained(stub, 0 if make is not restore_checkpoint else 1, 1)
        if make is step_behind_masks:
            own.net.set_masks(MASK)
            own.optimizer.lr = 0.125
        return own

    for _ in range(2):  # the first time loads the kernels
        own = begun()
        before = own.state()
        with Memory.ending_after(None):
            result = call(own)
            count = Memory.taken
        after = own.state()
        own.step()
        behind = own.state()
    assert count > 0
    for most in range(count):
        own = begun()
        with Memory.ending_after(most), pytest.raises(DeviceError, match=NAMED):
            call(own)
        assert own.state() == before, most
        assert repr(call(own)) == repr(result) and own.state() == after, most
        own.step()
        assert own.state() == behind, most


def test_records_of_jacobians_name_the_lack_of_memory(stub: CudaDevice) -> None:
    """Among what takes memory is the norm of a gradient."""
    own = Trained(stub, 0, 1)

    own.net.backward(np.ones(own.net.forward(np.ones((3, 4))).shape), "bp")

    def norms() -> list[float | None]:
        return [record.gradient_norm for record in own.net.transposed_jacobians()]

    expected = norms()
    assert any(expected)
    with Memory.ending_after(None):
        norms()
        count = Memory.taken
    for most in range(count):
        with Memory.ending_after(most), pytest.raises(DeviceError, match=NAMED):
            norms()
    assert norms() == expected
