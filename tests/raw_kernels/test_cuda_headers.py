"""Functions of CUDA headers, called in the emulator for numbers at which no kernel's case comes."""

from __future__ import annotations

import numpy as np
import pytest
from emulator.text_kernel import array_in, array_out, text_kernel

from bppsa_cupy.devices import Device
from bppsa_cupy.raw_kernels import kernel

ORACLES = {"tanh": np.tanh, "sigmoid": lambda x: 1 / (1 + np.exp(-x))}
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42, -1e-42, 1e-30, -104.0, 104.0, -87.5, 88.5, 9.1, -9.1)
#: How far the reciprocal and 2^x lie from the rounded values, in ulp: PTX gives 1 and 2.
DEVIATIONS = ((0, 0), (1, 2), (1, -2), (-1, 2), (-1, -2))


def deviating(reciprocal: int, exp2: int) -> str:
    """The text of the activations, with a reciprocal and a 2^x that deviate by so many ulp where they are
    neither 0 nor infinite."""
    text = kernel.read_source("activations.cuh")
    for exact, ulp in (("1.0f / x", reciprocal), ("exp2f(x)", exp2)):
        moved = f"__int_as_float(__float_as_int({exact}) + ({ulp}))"
        result = f"isinf({exact}) || {exact} == 0 ? {exact} : {moved}"
        assert text.count(f"{{ return {exact}; }}") == 1
        text = text.replace(f"{{ return {exact}; }}", f"{{ return {result}; }}")
    return text


@pytest.mark.parametrize("reciprocal, exp2", DEVIATIONS)
@pytest.mark.parametrize("function", ORACLES)
def test_within_4_ulp(function: str, reciprocal: int, exp2: int, emulated: Device) -> None:
    """In float32, whatever the GPU's approximations do within their bounds."""
    count = 1 << 15
    dense = np.linspace(-12, 12, count - len(SPECIAL), dtype=np.float32)
    x = np.concatenate([np.asarray(SPECIAL, np.float32), dense])
    text = (
        '#include "prelude.cuh"\n' + deviating(reciprocal, exp2) + 'extern "C" __global__ void probe('
        "const real* __restrict__ values, real* __restrict__ out)\n{\n"
        f"const int i = blockIdx.x * blockDim.x + threadIdx.x; out[i] = {function}_of(values[i]);\n}}\n"
    )
    arrays = array_in("values", "real", str(count)), array_out("out", "real", str(count))
    y = np.empty_like(x)
    emulated.launch(text_kernel(text, *arrays, grid=count // 256, block=256), x, y)
    with np.errstate(over="ignore"):
        expected = ORACLES[function](x.astype(np.longdouble))
    known = np.isfinite(expected)
    ulp = np.spacing(np.abs(expected[known]).astype(np.float32)).astype(np.longdouble)
    assert np.max(np.abs(y[known] - expected[known]) / ulp) <= 4
    np.testing.assert_array_equal(np.isnan(y), np.isnan(x))


def test_entry_and_sample_of_any_item(emulated: Device) -> None:
    """Of items on both sides of 2³², of batches on both sides."""
    wide = [0, 1, 7, 2**31, 2**32 - 1, 2**32, 2**32 + 5, 3 * 2**33 + 1, 2**52 + 3]
    pairs = np.array([(item, batch) for item in wide for batch in wide[1:]], np.int64)
    text = (
        '#include "prelude.cuh"\n#include "batched.cuh"\nextern "C" __global__ void probe('
        "const long long* __restrict__ pairs, long long* __restrict__ out)\n{\n"
        f"if (threadIdx.x < {len(pairs)}) {{ size_type entry, sample; const int i = 2 * threadIdx.x;\n"
        "split(pairs[i], pairs[i + 1], &entry, &sample); out[i] = entry; out[i + 1] = sample; }\n}\n"
    )
    arrays = (make("values", "int64", str(pairs.size)) for make in (array_in, array_out))
    result = np.zeros_like(pairs.ravel())
    emulated.launch(text_kernel(kernel.inline_headers(text), *arrays, block=128), pairs.ravel(), result)
    np.testing.assert_array_equal(result.reshape(-1, 2), np.stack(np.divmod(*pairs.T), 1))
