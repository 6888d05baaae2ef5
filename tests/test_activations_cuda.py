"""tanh and the logistic function of the CUDA texts: within 4 ulp, whatever the GPU's approximations do within
their bounds."""

from __future__ import annotations

import numpy as np
import pytest
from emulator.text_kernel import array_in, array_out, text_kernel

from bppsa_cupy.devices import Device
from bppsa_cupy.raw_kernels.kernel import read_source

BODY = "const int i = blockIdx.x * blockDim.x + threadIdx.x; out[i] = {function}_of(values[i]);"
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42, -1e-42, 1e-30, -104.0, 104.0, -87.5, 88.5, 9.1, -9.1)
ORACLES = {"tanh": np.tanh, "sigmoid": lambda x: 1 / (1 + np.exp(-x))}
#: How far the reciprocal and 2^x lie from the rounded values, in ulp: PTX gives 1 and 2.
DEVIATIONS = ((0, 0), (1, 2), (1, -2), (-1, 2), (-1, -2))


def deviating(reciprocal: int, exp2: int) -> str:
    """The text of the activations, with a reciprocal and a 2^x that deviate by so many ulp where they are
    neither 0 nor infinite."""
    text = read_source("activations.cuh")
    for exact, ulp in (("1.0f / x", reciprocal), ("exp2f(x)", exp2)):
        moved = f"__int_as_float(__float_as_int({exact}) + ({ulp}))"
        given = f"isinf({exact}) || {exact} == 0 ? {exact} : {moved}"
        assert text.count(f"{{ return {exact}; }}") == 1
        text = text.replace(f"{{ return {exact}; }}", f"{{ return {given}; }}")
    return text


@pytest.mark.parametrize("reciprocal, exp2", DEVIATIONS)
@pytest.mark.parametrize("function", ORACLES)
def test_within_4_ulp(function: str, reciprocal: int, exp2: int, emulated: Device) -> None:
    count = 1 << 15
    dense = np.linspace(-12, 12, count - len(SPECIAL), dtype=np.float32)
    x = np.concatenate([np.asarray(SPECIAL, np.float32), dense])
    text = (
        '#include "prelude.cuh"\n' + deviating(reciprocal, exp2) + 'extern "C" __global__ void probe('
        "const real* __restrict__ values, real* __restrict__ out)\n{\n"
        + BODY.format(function=function)
        + "\n}\n"
    )
    kernel = text_kernel(
        text, array_in("values", "real", str(count)), array_out("out", "real", str(count)),
        grid=count // 256, block=256,
    )  # fmt: skip
    y = np.empty_like(x)
    emulated.launch(kernel, x, y)
    with np.errstate(over="ignore"):
        expected = ORACLES[function](x.astype(np.longdouble))
    known = np.isfinite(expected)
    ulp = np.spacing(np.abs(expected[known]).astype(np.float32)).astype(np.longdouble)
    assert np.max(np.abs(y[known] - expected[known]) / ulp) <= 4
    np.testing.assert_array_equal(np.isnan(y), np.isnan(x))
