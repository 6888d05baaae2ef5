"""A device that is full at any allocation of pipelined training in one process: a named error, and a whole
number of steps, or a pipeline that says that it is broken; through CudaDevice on the stand-in for CuPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cupy_fixtures import no_device_is_kept, stub  # noqa: F401  fixtures
from cupy_stub_memory import Memory
from memory_cases import NAMED, state_of

import bppsa_cupy as bp
from bppsa_cupy.data import batches
from bppsa_cupy.data.dataset import Split
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.errors import BppsaError, DeviceError
from bppsa_cupy.pipeline import SCHEDULES
from bppsa_cupy.training.settings import Settings
from bppsa_cupy.training.steps import History, Work

pytestmark = pytest.mark.long

STEPS = 2
BROKEN = "^the pipeline was broken off between whole steps: load a checkpoint"
WAYS = [
    ("none", {}), ("gpipe", {"micro_batches": 2}), ("stale", {"predict": True}), ("pipedream", {}),
]  # fmt: skip


class Training:
    """A network in two stages, with running statistics, draws and a mask, and its optimizer."""

    def __init__(self, device: CudaDevice, schedule: str, **options: Any) -> None:
        layers = [
            bp.Linear(3, 3, mask=np.eye(3)), bp.BatchNorm1d(3), bp.Dropout(0.3), bp.Linear(3, 2),
        ]  # fmt: skip
        self.net = bp.Sequential(layers, (3,), seed=1, dtype="float64", device=device)
        self.optimizer = bp.SGD(self.net.parameters, lr=0.1, momentum=0.9)
        self.pipeline = bp.Pipeline(self.net, (1,), schedule, **options)

    def run(self, steps: int = STEPS) -> None:
        rng, size = np.random.default_rng(2), 4
        split = Split(rng.standard_normal((size * STEPS, 3)), rng.integers(0, 2, size * STEPS), None)
        settings = Settings(batch_size=size, lr_schedule="inv:0.1:1")
        made = batches(split, size, seed=0, epoch=0, dtype=self.net.dtype)
        work = Work(made, [size] * steps, 1, 0, STEPS, self.optimizer, settings, History())
        assert len(list(self.pipeline.steps(work))) == steps

    @property
    def state(self) -> dict[str, Any]:
        state = state_of(self.net, self.optimizer)
        del state["version"]  # rises with each stage's update
        return state


@pytest.mark.parametrize(("schedule", "options"), WAYS)
def test_a_run_that_is_out_of_memory(
    schedule: str,
    options: dict[str, Any],
    stub: CudaDevice,
) -> None:
    """Without stale weights it leaves a whole number of steps; with them either none or all, or the pipeline
    refuses to go on until a state is loaded. What goes on gives what it would have."""

    def made(*runs: int) -> Training:
        own = Training(stub, schedule, **options)
        for steps in runs:
            own.run(steps)
        return own

    made(STEPS)  # loads the kernels
    states = [made(*[steps] * (steps > 0)).state for steps in range(STEPS + 1)]
    again = [made(*[steps] * (steps > 0), STEPS).state for steps in range(STEPS + 1)]
    saved = made().net.state_dict(), made().optimizer.state_dict()
    own = made()
    with Memory.ending_after(None):
        own.run()
        count = Memory.taken
    whole, broken = set(), 0
    for most in range(count):
        own = made()
        with Memory.ending_after(most), pytest.raises(DeviceError, match=NAMED):
            own.run()
        assert own.net.random_state["passes"] == own.optimizer.steps
        if own.state in states and not own.optimizer.uneven:
            done = states.index(own.state)
            whole.add(done)
        else:
            broken, done = broken + 1, 0
            with pytest.raises(BppsaError, match=BROKEN):
                own.run()
            own.net.load_state_dict(saved[0])
            if own.optimizer.uneven:
                with pytest.raises(BppsaError, match=BROKEN):
                    own.run()
            own.optimizer.load_state_dict(saved[1])
            own.net.random_state["passes"] = 0
        if most % 4 == 0:
            own.run()
            assert own.state == again[done], most
    if SCHEDULES[schedule].overlaps:
        assert broken and whole == {0, STEPS}
    else:
        assert not broken and whole == set(range(STEPS + 1))
