"""What the emulated device refuses: each rule is broken once, and the message names the place."""

from __future__ import annotations

import numpy as np
import pytest
from emulator.build import EmulationError
from emulator.device import EmulatedDevice
from emulator.text_kernel import array_in, array_inout, array_out, scalar, text_kernel

from bppsa_cupy.errors import DeviceError
from bppsa_cupy.raw_kernels.kernel import Parameter

OUT = array_out("out", "real", "32")


def launch(emulated: EmulatedDevice, body: str, *parameters: Parameter, **shape: object) -> np.ndarray:
    out = np.zeros(32, np.float32)
    emulated.launch(text_kernel(body, *(parameters or (OUT,)), **shape), out)
    return out


def test_an_unwritten_output(emulated: EmulatedDevice) -> None:
    with pytest.raises(EmulationError, match=r"probe: out\[30\] was not written, 2 of 32 elements"):
        launch(emulated, "if (threadIdx.x < 30) out[threadIdx.x] = 1;")


def test_a_written_nan_is_no_unwritten_output(emulated: EmulatedDevice) -> None:
    assert np.isnan(launch(emulated, "out[threadIdx.x] = real(0) / real(0 * threadIdx.x);")).all()


def test_integers_like_the_poison_are_no_unwritten_output(emulated: EmulatedDevice) -> None:
    for value in (0xA5, 0x5A):
        out = np.zeros(4, np.uint8)
        body = f"out[threadIdx.x] = {value};"
        emulated.launch(text_kernel(body, array_out("out", "uint8", "4"), block=4), out)
        assert out.tolist() == [value] * 4


def test_an_output_that_is_read(emulated: EmulatedDevice) -> None:
    out = np.zeros(32, np.int32)
    with pytest.raises(EmulationError, match="an output that is read"):
        emulated.launch(text_kernel("out[threadIdx.x] += 1;", array_out("out", "int32", "32")), out)


@pytest.mark.parametrize("element", [-1, 32])
def test_a_write_outside_an_array(emulated: EmulatedDevice, element: int) -> None:
    with pytest.raises(EmulationError, match="probe: out was written outside its 32 elements"):
        launch(emulated, f"out[threadIdx.x] = 1; out[{element}] = 1;")


def test_a_write_into_an_input(emulated: EmulatedDevice) -> None:
    with pytest.raises(EmulationError, match="probe: values is an input and was written"):
        launch(emulated, "((real*)values)[threadIdx.x] = 1;", array_in("values", "real", "32"))


def test_a_missing_barrier_shows_as_a_race(emulated: EmulatedDevice) -> None:
    body = """
    __shared__ real held[32];
    held[threadIdx.x] = threadIdx.x;
    BARRIER
    out[threadIdx.x] = held[(threadIdx.x + 1) % 32];
    """
    with pytest.raises(EmulationError, match=r"probe: out\[0\] is nan .* and 1.0 in descending .* a race"):
        launch(emulated, body.replace("BARRIER", ""))
    out = launch(emulated, body.replace("BARRIER", "__syncthreads();"))
    np.testing.assert_array_equal(out, (np.arange(32) + 1) % 32)


def test_blocks_that_race(emulated: EmulatedDevice) -> None:
    with pytest.raises(EmulationError, match=r"out\[0\] is 3.0 .* and 0.0 in descending"):
        launch(emulated, "out[threadIdx.x] = blockIdx.x;", grid=4)


def test_a_copy_that_is_not_waited_for(emulated: EmulatedDevice) -> None:
    """It is made at once in one order, and only where it is waited for in the other."""
    body = """
    __shared__ real held[32];
    const real given = threadIdx.x;
    cp_async(held + threadIdx.x, &given);
    cp_async_commit_group();
    WAIT
    out[threadIdx.x] = held[threadIdx.x];
    """
    with pytest.raises(EmulationError, match=r"probe: out\[0\] is 0.0 .* and nan in descending order"):
        launch(emulated, body.replace("WAIT", "cp_async_wait_group(1);"))
    out = launch(emulated, body.replace("WAIT", "cp_async_wait_group(0);"))
    np.testing.assert_array_equal(out, np.arange(32))


def test_a_copy_from_an_address_that_is_no_multiple_of_its_size(emulated: EmulatedDevice) -> None:
    body = """
    __shared__ float4 held;
    cp_async(&held, reinterpret_cast<const float4*>(values + 1));
    out[threadIdx.x] = 1;
    """
    kernel = text_kernel(body, array_in("values", "real", "8"), OUT, block=1)
    with pytest.raises(EmulationError, match=r"cp.async at line \d+: an address is no multiple of 16 bytes"):
        emulated.launch(kernel, np.zeros(8, np.float32), np.zeros(32, np.float32))


def test_a_barrier_in_a_branch(emulated: EmulatedDevice) -> None:
    body = """
    out[threadIdx.x] = 1;
    if (threadIdx.x < 8) __syncthreads();
    else __syncwarp(0xffffff00u);
    __syncthreads();
    """
    with pytest.raises(EmulationError) as error:
        launch(emulated, body)
    message = str(error.value)
    assert "probe: block (0, 0, 0): not all threads that must come to a barrier" in message
    assert "threads 0 to 7 wait at __syncthreads on line" in message
    assert "threads 8 to 31 wait at __syncthreads on line" in message
    assert "if (threadIdx.x < 8) __syncthreads();" in message, "the line itself is quoted"


def test_a_barrier_that_a_waiting_warp_never_reaches(emulated: EmulatedDevice) -> None:
    body = """
    if (threadIdx.x < 32) __syncthreads();
    else out[threadIdx.x - 32] = __shfl_sync(0xffffffffu, threadIdx.x, threadIdx.x == 33 ? 0 : 1);
    """
    launch(emulated, body, block=64)  # warp 1 ends, then the living threads are all at the barrier
    with pytest.raises(EmulationError, match=r"threads 0 to 31 wait at __syncthreads .*; thread"):
        launch(
            emulated, body.replace("else", "else if (threadIdx.x == 40) __syncthreads_or(1); else"), block=64
        )


def test_a_shuffle_whose_lanes_never_come(emulated: EmulatedDevice) -> None:
    body = """
    out[threadIdx.x] = 1;
    if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
    else __syncthreads();
    """
    with pytest.raises(
        EmulationError, match=r"0 to 15 wait at __shfl_xor_sync on line \d+ with mask 0xffffffff"
    ):
        launch(emulated, body)


def test_shuffles_of_different_masks(emulated: EmulatedDevice) -> None:
    body = """
    out[threadIdx.x] = __shfl_sync(threadIdx.x < 16 ? 0xffffffffu : 0xffff0000u, 1.0f, 16);
    __syncthreads();
    """
    with pytest.raises(EmulationError, match=r"0 to 15 wait at __shfl_sync"):
        launch(emulated, body)


def test_a_lane_outside_its_own_mask(emulated: EmulatedDevice) -> None:
    with pytest.raises(EmulationError, match=r"lane 16 is not in its own mask 0x0000ffff"):
        launch(emulated, "out[threadIdx.x] = __shfl_sync(0xffffu, 1.0f, 0);")


def test_the_value_of_a_lane_that_has_ended_is_nan(emulated: EmulatedDevice) -> None:
    body = """
    out[threadIdx.x] = 0;
    if (threadIdx.x >= 4) return;
    out[threadIdx.x] = __shfl_down_sync(0xffffffffu, 2.0f, 2);
    """
    out = launch(emulated, body)
    assert out[:2].tolist() == [2, 2] and np.isnan(out[2:4]).all()


def test_an_array_shorter_than_declared(emulated: EmulatedDevice) -> None:
    kernel = text_kernel("", array_in("values", "real", "rows * 2 + 1"), scalar("rows"))
    with pytest.raises(EmulationError, match=r"values has 10 elements, the kernel takes rows \* 2 \+ 1 = 11"):
        emulated.launch(kernel, np.zeros(10), 5)


@pytest.mark.parametrize("writer", [array_out, array_inout])
def test_overlapping_arrays(emulated: EmulatedDevice, writer) -> None:
    kernel = text_kernel("out[0] = 1;", array_in("values", "real", "4"), writer("out", "real", "4"), block=1)
    memory = np.zeros(7)
    with pytest.raises(EmulationError, match="values and out overlap, and one of them is written"):
        emulated.launch(kernel, memory[:4], memory[3:])


@pytest.mark.parametrize(
    "block, bound", [((1025, 1, 1), ""), ((1, 1, 65), ""), ((65, 1, 1), "__launch_bounds__(64)")]
)
def test_a_block_too_large(emulated: EmulatedDevice, block: tuple[int, int, int], bound: str) -> None:
    text = f'extern "C" __global__ void {bound} probe(float* __restrict__ out) {{}}'
    with pytest.raises(EmulationError, match=r"probe: a block of .* threads is launched"):
        launch(emulated, text.replace("float", "real"), block=block)


def test_too_much_shared_memory(emulated: EmulatedDevice) -> None:
    """With the dynamic part alone the device says so, with the static part what runs the launch."""
    with pytest.raises(DeviceError, match="a block of probe takes 65540 bytes of shared memory, 65536 are"):
        launch(emulated, "extern __shared__ char held[]; held[0] = 1;", shared_bytes=65540)
    text = """extern __shared__ char held[]; __shared__ char more[8];
    held[0] = more[threadIdx.x % 8] = 1; __syncthreads(); out[threadIdx.x] = more[threadIdx.x / 8];"""
    with pytest.raises(EmulationError, match="takes 65537 bytes of shared memory, it gets 65536"):
        launch(emulated, text, shared_bytes=65529)


def test_a_text_whose_parameters_differ(emulated: EmulatedDevice) -> None:
    for declared in ("double* __restrict__ out", "real* __restrict__ out, int extra", "const real* out"):
        text = f'extern "C" __global__ void probe({declared}) {{}}'
        with pytest.raises(EmulationError, match="probe does not compile with g\\+\\+"):
            launch(emulated, text)


def test_a_launch_after_one_that_failed(emulated: EmulatedDevice) -> None:
    """The fibers of a launch that was given up do not reach into the next one."""
    body = "if (FAILS && threadIdx.x) __syncthreads_or(1); else __syncthreads(); out[threadIdx.x] = 1;"
    for fails in (1, 0, 1, 0):
        text = body.replace("FAILS", str(fails))
        if fails:
            with pytest.raises(EmulationError, match="wait at __syncthreads_or"):
                launch(emulated, text)
        else:
            np.testing.assert_array_equal(launch(emulated, text), 1)
