"""The emulator gives CUDA's meaning to what kernels take from the language; oracles are NumPy's."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path

import numpy as np
import pytest
from emulator.build import compile_text
from emulator.device import LEAST, EmulatedDevice
from emulator.library import Library
from emulator.text_kernel import array_in, array_inout, array_out, scalar, text_kernel
from marks import some
from tolerances import assert_close

from bppsa_cupy.raw_kernels.architectures import ARCHITECTURES
from bppsa_cupy.raw_kernels.kernel import LaunchShape, Variant

LANES = np.arange(32)


def run(
    emulated: EmulatedDevice, body: str, count: int, dtype: str = "int32", **launch: object
) -> np.ndarray:
    """The `out` array, of `count` elements, that `body` leaves."""
    kind = {"int32": "int32", "int64": "int64", "float32": "real", "float64": "real"}[dtype]
    out = np.zeros(count, dtype)
    emulated.launch(text_kernel(body, array_out("out", kind, str(count)), **launch), out)
    return out


def test_positions_of_threads_and_blocks(emulated: EmulatedDevice) -> None:
    body = """
    unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] =
        threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z
        + 1000 * (blockIdx.x + 10 * blockIdx.y + 100 * blockIdx.z);
    """
    shape = LaunchShape((2, 3, 4), (5, 3, 2))
    z, y, x = np.indices((2, 3, 5)).reshape(3, -1)
    c, b, a = np.indices((4, 3, 2)).reshape(3, -1)
    expected = 1000 * (a + 10 * b + 100 * c)[:, None] + (x + 10 * y + 100 * z)
    np.testing.assert_array_equal(run(emulated, body, 720, launch=lambda s: shape), expected.ravel())


def test_dynamic_and_static_shared_memory(emulated: EmulatedDevice) -> None:
    body = """
    extern __shared__ __align__(16) long long reversed[];
    __shared__ int last;
    reversed[blockDim.x - 1 - threadIdx.x] = threadIdx.x;
    if (threadIdx.x == 7) last = 100 * blockIdx.x;
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = int(reversed[threadIdx.x]) + last;
    """
    out = run(emulated, body, 66, grid=2, block=33, shared_bytes=33 * 8)
    np.testing.assert_array_equal(out.reshape(2, 33), [32 - np.arange(33), 132 - np.arange(33)])


def test_shared_memory_is_nan_in_every_block(emulated: EmulatedDevice) -> None:
    """That of a function template too."""
    text = """
    #include "prelude.cuh"
    template <int N> __device__ __forceinline__ bool was_nan()
    {
        __shared__ real held[N];
        const bool found = held[1] != held[1];
        held[1] = real(1);
        return found;
    }
    extern "C" __global__ void probe(int* __restrict__ out, const real* __restrict__ unused)
    {
        extern __shared__ real dynamic[];
        __shared__ real fixed[4];
        out[blockIdx.x] = fixed[1] != fixed[1] && dynamic[1] != dynamic[1] && was_nan<2>() && was_nan<4>();
        __syncthreads();
        fixed[1] = dynamic[1] = real(1);
    }
    """.replace("\n    ", "\n")
    for real in ("float32", "float64"):
        reals = array_in("unused", "real", "0")
        kernel = text_kernel(text, array_out("out", "int32", "3"), reals, grid=3, block=1, shared_bytes=16)
        out = np.zeros(3, np.int32)
        emulated.launch(kernel, out, np.zeros(0, real))
        assert out.tolist() == [1, 1, 1]


def test_barriers_with_a_vote(emulated: EmulatedDevice) -> None:
    body = """
    int odd = __syncthreads_count(threadIdx.x & 1);
    int any = __syncthreads_or(threadIdx.x == 39), none = __syncthreads_or(0);
    int every = __syncthreads_and(threadIdx.x < 40), not_every = __syncthreads_and(threadIdx.x != 3);
    out[threadIdx.x] = odd + 1000 * (any + 10 * none + 100 * every + 1000 * not_every);
    """
    np.testing.assert_array_equal(run(emulated, body, 40, block=40), 20 + 1000 * 101)


def test_a_barrier_waits_for_living_threads_only(emulated: EmulatedDevice) -> None:
    body = """
    __shared__ int first;
    out[threadIdx.x] = -1;
    if (threadIdx.x >= 20) return;
    if (threadIdx.x == 0) first = 5;
    __syncthreads();
    out[threadIdx.x] = first;
    """
    np.testing.assert_array_equal(run(emulated, body, 50, block=50), [5] * 20 + [-1] * 30)


@pytest.mark.parametrize(
    "call, source",
    [
        ("__shfl_sync(0xffffffffu, value, 5)", np.full(32, 5)),
        ("__shfl_sync(0xffffffffu, value, threadIdx.x + 35)", (LANES + 3) % 32),
        ("__shfl_sync(0xffffffffu, value, 3, 8)", LANES // 8 * 8 + 3),
        ("__shfl_up_sync(0xffffffffu, value, 3)", np.where(LANES >= 3, LANES - 3, LANES)),
        ("__shfl_up_sync(0xffffffffu, value, 1, 4)", np.where(LANES % 4 >= 1, LANES - 1, LANES)),
        ("__shfl_down_sync(0xffffffffu, value, 30)", np.where(LANES < 2, LANES + 30, LANES)),
        ("__shfl_down_sync(0xffffffffu, value, 2, 16)", np.where(LANES % 16 < 14, LANES + 2, LANES)),
        ("__shfl_xor_sync(0xffffffffu, value, 31)", 31 - LANES),
        ("__shfl_xor_sync(0xffffffffu, value, 4, 4)", np.where(LANES & 4, LANES ^ 4, LANES)),
    ],
)
@pytest.mark.parametrize("dtype", some("int32", "float64", long=("int64", "float32")))
def test_shuffles(emulated: EmulatedDevice, call: str, source: np.ndarray, dtype: str) -> None:
    kind = "real" if dtype.startswith("float") else {"int32": "int", "int64": "long long"}[dtype]
    body = f"{kind} value = ({kind})threadIdx.x * 3; out[threadIdx.x] = {call};"
    np.testing.assert_array_equal(run(emulated, body, 32, dtype), 3 * source)


def test_votes_of_a_warp_with_a_tail(emulated: EmulatedDevice) -> None:
    body = """
    unsigned ballot = __ballot_sync(0xffffffffu, threadIdx.x % 3 == 0);
    int any = __any_sync(0xffffffffu, threadIdx.x == 33), every = __all_sync(0xffffffffu, threadIdx.x >= 32);
    __syncwarp();
    out[threadIdx.x] = __popc(ballot) + 100 * any + 1000 * every;
    """
    out = run(emulated, body, 37, block=37)
    np.testing.assert_array_equal(out, [11] * 32 + [2 + 1100] * 5)


def test_two_halves_of_a_warp_shuffle_apart(emulated: EmulatedDevice) -> None:
    body = """
    int value = threadIdx.x;
    if (threadIdx.x < 16)
        for (int bits = 8; bits; bits /= 2) value += __shfl_xor_sync(0x0000ffffu, value, bits);
    else
        for (int bits = 1; bits < 16; bits *= 2) value += __shfl_xor_sync(0xffff0000u, value, bits);
    out[threadIdx.x] = value;
    """
    np.testing.assert_array_equal(run(emulated, body, 32), [120] * 16 + [376] * 16)


def test_block_sum_by_shuffles_and_shared_memory(emulated: EmulatedDevice, rng: np.random.Generator) -> None:
    """A reduction as kernels write it, in a block of the largest size."""
    text = """
    #include "prelude.cuh"
    template <typename T> __device__ __forceinline__ T warp_sum(T value)
    {
    #pragma unroll
        for (int delta = 16; delta > 0; delta >>= 1) value += __shfl_down_sync(0xffffffffu, value, delta);
        return value;
    }
    extern "C" __global__ void __launch_bounds__(1024) probe(
        const real* __restrict__ values, real* __restrict__ out)
    {
        __shared__ real partial[32];
        real sum = warp_sum(__ldg(values + threadIdx.x));
        if (threadIdx.x % warpSize == 0) partial[threadIdx.x / warpSize] = sum;
        __syncthreads();
        if (threadIdx.x < 32) sum = warp_sum(partial[threadIdx.x]);
        if (threadIdx.x == 0) *out = sum;
    }
    """.replace("\n    ", "\n")
    kernel = text_kernel(text, array_in("values", "real", "1024"), array_out("out", "real", "1"), block=1024)
    for dtype in (np.float32, np.float64):
        values, out = rng.standard_normal(1024).astype(dtype), np.zeros(1, dtype)
        emulated.launch(kernel, values, out)
        assert_close(out, values.astype(np.float64).sum(keepdims=True), length=1024, scale=1.0)


def test_atomics(emulated: EmulatedDevice) -> None:
    body = """
    atomicAdd(out, 2); atomicSub(out + 1, 1); atomicMax(out + 2, threadIdx.x);
    atomicMin(out + 3, -int(threadIdx.x));
    atomicOr(out + 4, 1 << threadIdx.x % 8); atomicAnd(out + 5, ~(1 << threadIdx.x % 4));
    atomicXor(out + 6, 1);
    atomicExch(out + 7, 9); atomicCAS(out + 8, 0, 4); atomicAdd(reals, 0.5);
    """
    out = np.array([0, 0, 0, 0, 0, 15, 0, 0, 0], np.int32)
    reals = np.zeros(1)
    kernel = text_kernel(body, array_inout("out", "int32", "9"), array_inout("reals", "real", "1"), block=40)
    emulated.launch(kernel, out, reals)
    assert out.tolist() == [80, -40, 39, -39, 255, 0, 0, 9, 4]
    assert reals[0] == 20


def test_arithmetic(emulated: EmulatedDevice) -> None:
    body = """
    float4 four = make_float4(1.0f, 2.0f, 3.0f, 4.0f);
    out[0] = rsqrt(4.0) + rsqrtf(0.25f) + fma(2.0, 3.0, 1.0) + fmaf(1.0f, 2.0f, 3.0f);
    out[1] = tanhf(0.5f); out[2] = tanh(0.5); out[3] = expf(1.0f); out[4] = exp(1.0);
    out[5] = ldexp(0.75, -3);
    out[6] = min(3, 5) + max(3u, 5u) + min(7LL, 2LL) + max(1.5f, -2.0f) + min(0.25, 1.0);
    out[7] = __popc(255u) + 100 * __ffs(8) + 10000 * __clz(1) + 1e6 * __popcll(~0ull);
    out[8] = __float_as_int(1.0f) == 0x3f800000 && __int_as_float(0x40000000) == 2.0f;
    out[9] = isnan(__longlong_as_double(__double_as_longlong(NAN))) && isinf(INFINITY) && isfinite(1.0f);
    out[10] = four.x + 10 * four.y + 100 * four.z + 1000 * four.w; out[11] = __umulhi(1u << 31, 6u);
    """
    expected = [
        0.5 + 2 + 7 + 5, np.tanh(np.float32(0.5)), math.tanh(0.5), np.exp(np.float32(1)), math.e, 0.75 / 8,
        3 + 5 + 2 + 1.5 + 0.25, 8 + 400 + 310000 + 64e6, 1, 1, 4321, 3,
    ]  # fmt: skip
    assert_close(
        run(emulated, body, 12, "float64", block=1), np.array(expected, float).astype("f4"), length=10**8
    )


def test_constant_memory_and_device_functions(emulated: EmulatedDevice) -> None:
    text = """
__constant__ int offsets[3] = {5, 6, 7};
static __device__ __noinline__ int shifted(int value) { return value + offsets[value % 3]; }
extern "C" __global__ void probe(int* __restrict__ out) { out[threadIdx.x] = shifted(threadIdx.x); }
"""
    out = np.zeros(6, np.int32)
    emulated.launch(text_kernel(text, array_out("out", "int32", "6"), block=6), out)
    assert out.tolist() == [5, 7, 9, 8, 10, 12]


def test_scalars_arrive_by_type(emulated: EmulatedDevice) -> None:
    body = "out[0] = double(size); out[1] = flag; out[2] = fraction; out[3] = narrow == real(0.1);"
    kernel = text_kernel(
        body, array_out("out", "real", "4"), scalar("size"), scalar("flag", "flag"),
        scalar("fraction", "double"), scalar("narrow", "real_value"), block=1,
    )  # fmt: skip
    for dtype in (np.float32, np.float64):
        out = np.zeros(4, dtype)
        emulated.launch(kernel, out, 2**40, -3, 0.25, 0.1)
        assert out.tolist() == [2**40, -3, 0.25, 1]


def test_only_the_declared_size_of_an_array_is_reached(emulated: EmulatedDevice) -> None:
    """Buffers hold the capacity of a plan; a smaller batch leaves the rest as it was."""
    out = np.full(10, 3, np.int32)
    emulated.launch(text_kernel("out[threadIdx.x] = 1;", array_out("out", "int32", "4"), block=4), out)
    assert out.tolist() == [1] * 4 + [3] * 6


def test_ucontext_gives_the_same(
    emulated: EmulatedDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The portable switch of fibers, for machines without the assembly of the quick one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kernel = text_kernel(
        "int value = threadIdx.x; __syncthreads(); out[threadIdx.x] = __shfl_xor_sync(~0u, value, 1);",
        array_out("out", "int32", "64"), block=64,
    )  # fmt: skip
    path = compile_text(kernel.source(Variant()), "probe", kernel.parameters, ("EMULATOR_UCONTEXT",))
    out = np.zeros(64, np.int32)
    library = Library("probe", path, ARCHITECTURES[LEAST])
    library.run([ctypes.c_void_p(out.ctypes.data)], kernel.launch({}))
    np.testing.assert_array_equal(out, np.arange(64) ^ 1)
