"""What blocks take of dynamic shared memory: the bytes of the variant's reals, within what the device has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cupy_fixtures import no_device_is_kept, stub  # noqa: F401  fixtures
from emulator.device import LEAST, EmulatedDevice
from executors import make_device
from tolerances import assert_close

import bppsa_cupy as bp
from bppsa_cupy.devices import get_device
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.architectures import ARCHITECTURES
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.frames.steps import MOST_GATES
from bppsa_cupy.timescan import WalkSize
from bppsa_cupy.timescan.serial import check_shared

SHARED_BYTES = ARCHITECTURES[LEAST].shared_bytes

#: Reals of shared memory a hidden unit takes where weights are read from memory, by kernel: terms, sums, and
#: other states or gradients carried.
REALS = {
    "rnn_tanh_forward": 2, "rnn_tanh_backward": 3, "gru_forward": 4, "gru_backward": 5, "lstm_forward": 6,
    "lstm_backward": 7,
}  # fmt: skip


@pytest.mark.parametrize("itemsize", [4, 8])
@pytest.mark.parametrize("name", REALS)
def test_a_walk_counts_its_own_reals(name: str, itemsize: int) -> None:
    sizes = {"steps": 3, "batch": 2, "sets": 1, "chunk": 3, "hidden": 700}
    sizes |= {"itemsize": itemsize, "shared_bytes": SHARED_BYTES}
    assert KERNELS[name].launch(sizes).shared_bytes == REALS[name] * 700 * itemsize


@pytest.mark.parametrize("hidden", [20, 21, 64, 224])
@pytest.mark.parametrize("name", ["rnn_tanh_reduce", "gru_reduce", "lstm_reduce"])
def test_a_reduction_stays_within_48_kib_with_wider_slices_in_float32(name: str, hidden: int) -> None:
    sizes = {"steps": 9, "batch": 1, "sets": 1, "chunk": 3, "first": 1, "per_step": 1, "hidden": hidden}
    sizes["shared_bytes"] = SHARED_BYTES
    single, double = (KERNELS[name].launch({**sizes, "itemsize": itemsize}) for itemsize in (4, 8))
    assert max(single.shared_bytes, double.shared_bytes) <= 48 * 1024
    assert single.block[1] >= double.block[1] and single.grid[0] <= double.grid[0]
    if hidden <= 20:
        assert 2 * single.shared_bytes == double.shared_bytes


@pytest.mark.long
@pytest.mark.parametrize("name, hidden", [("lstm_backward", 878), ("gru_backward", 1229)])
def test_widths_whose_float64_passes_48_kib_go_back(name: str, hidden: int, stub: CudaDevice) -> None:
    """One step: in float32 they take half of it, in float64 the function opts in; compared with the host."""
    kernel, generator, scalars = KERNELS[name], np.random.default_rng(0), [1, hidden, 1, 1, 1, 1, 0, 0, 0]
    sizes = {
        "steps": 1,
        "hidden": hidden,
        "batch": 1,
        "sets": 1,
        "walks": 1,
        "chunk": 1,
        "per_step": 0,
        "guarded": 0,
    }
    sizes["guarded"] = 0
    for dtype, device in (("float32", make_device("emulated")), ("float64", stub)):
        values = [
            np.ones(1, np.int64) if p.name == "lengths" else np.empty(0, np.int32) if p.name == "wanted"
            else generator.uniform(0.1, 0.9, int(eval(p.size, {}, sizes))).astype(dtype)
            for p in kernel.parameters if p.is_array
        ]  # fmt: skip
        given = [device.asarray(value.copy()) for value in values]
        device.launch(kernel, *given, *scalars)
        get_device("host").launch(kernel, *values, *scalars)
        for parameter, actual, expected in zip(kernel.parameters, given, values, strict=False):
            assert_close(device.to_host(actual), expected, length=4 * hidden, what=parameter.name)


@pytest.mark.parametrize("cell", [FORMS[name] for name in ("rnn_tanh", "gru", "lstm")], ids=lambda c: c.name)
def test_what_does_not_fit_is_said_before_anything_is_launched(cell: CellForm, stub: CudaDevice) -> None:
    """At the widest state that fits, and just beyond; on a GPU, steps that are launches take less for any."""
    device = make_device("emulated")
    reals = max(REALS[f"{cell.name}_{way}"] for way in ("forward", "backward"))
    hidden = (SHARED_BYTES // 16 * 4 - 3) // reals  # terms come in packs of 16 bytes
    check_shared(device, WalkSize(cell, 5, 2, hidden, 4))
    with pytest.raises(
        DeviceError, match=rf"takes \d+ bytes of shared memory, {SHARED_BYTES} are there: take f"
    ):
        check_shared(device, WalkSize(cell, 5, 2, hidden + 2, 4))
    for other in (stub, get_device("host")):
        check_shared(other, WalkSize(cell, 5, 2, 10**5, 4))


def test_a_cell_of_many_gates_is_held_to_what_a_block_can_have(stub: CudaDevice) -> None:
    cell = replace(FORMS["lstm"], name="gated", gates=MOST_GATES + 1)
    check_shared(stub, WalkSize(cell, 5, 2, 200, 4))
    with pytest.raises(
        DeviceError, match=rf"gated_forward takes \d+ bytes of shared memory, {227 * 1024} are"
    ):
        check_shared(stub, WalkSize(cell, 5, 2, 10**4, 4))


def test_a_network_that_does_not_fit_launches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward alone would take 2400 bytes."""
    device = make_device("emulated")
    monkeypatch.setattr(EmulatedDevice, "shared_bytes", 2600)
    net = bp.Sequential([bp.LSTM(2, 100)], (3, 2), device=device)
    before = device.launched.copy()
    with pytest.raises(DeviceError, match=r"a block of lstm_backward takes 3200 bytes .* 2600 are there"):
        net.forward(np.zeros((1, 3, 2), "float32"))
    assert device.launched == before
