"""What blocks take of dynamic shared memory: the bytes of the variant's reals, within what the device has."""

from __future__ import annotations

import numpy as np
import pytest
from cupy_fixtures import no_device_is_kept, stub  # noqa: F401  fixtures
from executors import make_device
from tolerances import assert_close

from bppsa_cupy.devices import get_device
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.raw_kernels import KERNELS


@pytest.mark.long
@pytest.mark.parametrize("name, hidden", [("lstm_backward", 878), ("gru_backward", 1229)])
def test_widths_whose_float64_passes_48_kib_go_back(name: str, hidden: int, stub: CudaDevice) -> None:
    """One step: in float32 they take half of it, in float64 the function opts in; compared with the host."""
    kernel, generator, scalars = KERNELS[name], np.random.default_rng(0), [1, hidden, 1, 1, 1, 1, 0, 0, 0]
    sizes = dict.fromkeys(("steps", "batch", "sets", "walks", "chunk"), 1)
    sizes |= {"hidden": hidden, "per_step": 0, "guarded": 0}
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
