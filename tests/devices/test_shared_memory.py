"""What blocks take of dynamic shared memory: the bytes of the variant's reals, within what the device has."""

from __future__ import annotations

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
from bppsa_cupy.timescan import WalkSize
from bppsa_cupy.timescan.serial import check_shared

SHARED_BYTES = ARCHITECTURES[LEAST].shared_bytes

#: Reals of shared memory a hidden unit takes where weights are read from memory, by kernel: terms, sums, and
#: other states or gradients carried.
REALS = {
    "rnn_tanh_forward": 2, "rnn_tanh_backward": 3, "gru_forward": 4, "gru_backward": 5, "lstm_forward": 6,
    "lstm_backward": 7,
}  # fmt: skip


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


def test_a_network_that_does_not_fit_launches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward alone would take 2400 bytes."""
    device = make_device("emulated")
    monkeypatch.setattr(EmulatedDevice, "shared_bytes", 2600)
    net = bp.Sequential([bp.LSTM(2, 100)], (3, 2), device=device)
    before = device.launched.copy()
    with pytest.raises(DeviceError, match=r"a block of lstm_backward takes 3200 bytes .* 2600 are there"):
        net.forward(np.zeros((1, 3, 2), "float32"))
    assert device.launched == before
