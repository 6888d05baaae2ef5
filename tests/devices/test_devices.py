"""The contract of a device, on every device."""

from __future__ import annotations

import sys
import weakref

import cupy_stub
import numpy as np
import pytest
from executors import make_device

from bppsa_cupy.devices import Device, get_device
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.errors import DeviceError, ShapeError
from bppsa_cupy.raw_kernels import KERNELS

RELU, GATHER = KERNELS["relu_fill"], KERNELS["gather_fill"]


@pytest.fixture(params=["host", "emulated", "cuda-stub", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Device:
    """Every device, and the CUDA one on a stand-in for CuPy."""
    if request.param != "cuda-stub":
        return make_device(request.param)
    make_device("emulated")  # skips where there is no g++
    monkeypatch.setitem(sys.modules, "cupy", cupy_stub.make_cupy())
    return CudaDevice()


# ---- arrays ----


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3), (3, 5)])
def test_there_and_back(device: Device, dtype: np.dtype, rng: np.random.Generator, shape: tuple) -> None:
    values = np.asarray(rng.standard_normal(shape), dtype)
    there = device.asarray(values)
    assert there.shape == shape and there.dtype == dtype and there.flags.c_contiguous
    np.testing.assert_array_equal(device.to_host(there), values)
    np.testing.assert_array_equal(device.fetch(there)(), values)


def test_an_array_too_large_is_named(device: Device) -> None:
    with pytest.raises(DeviceError, match=r"an array needs 4611686018427387904 bytes, \d+ are free"):
        device.empty(2**59, np.float64)


@pytest.mark.parametrize("signed, unsigned", [(np.int32, np.uint32), (np.int64, np.uint64)])
def test_index_arrays_become_unsigned(device: Device, signed: type, unsigned: type) -> None:
    there = device.upload_index(np.arange(10, dtype=signed)[::2])
    assert there.dtype == unsigned and there.flags.c_contiguous
    np.testing.assert_array_equal(device.to_host(there), [0, 2, 4, 6, 8])


def test_a_fetched_copy_is_its_own(device: Device) -> None:
    array = device.asarray(np.arange(3.0))
    fetched = device.fetch(array)
    device.synchronize()
    array[...] = 0
    np.testing.assert_array_equal(fetched(), [0, 1, 2])


# ---- launches ----


def relu_arguments(device: Device, dtype: object = np.float32) -> list:
    output = device.asarray(np.array([[1, -1, 0], [0, 2, 3]], dtype))
    return [output, device.empty((3, 2), dtype), 3, 2]


def test_a_bound_launch_reads_its_arrays_each_time(device: Device, dtype: np.dtype) -> None:
    arguments = relu_arguments(device, dtype)
    before = device.launched["relu_fill"]
    call = device.bind(RELU, *arguments)
    assert device.launched["relu_fill"] == before, "binding launches nothing"
    for sign in (1, -1):
        arguments[0][...] = sign
        call()
        np.testing.assert_array_equal(device.to_host(arguments[1]), np.full((3, 2), sign > 0))
    assert device.launched["relu_fill"] == before + 2


def test_a_launch_of_no_work_is_not_made(device: Device) -> None:
    before = device.launched["relu_fill"]
    device.launch(RELU, device.empty((0, 3), np.float32), device.empty((3, 0), np.float32), 3, 0)
    assert device.launched["relu_fill"] == before


def test_a_sequence_keeps_its_order(device: Device) -> None:
    values = device.asarray(np.array([5.0, 6.0, 7.0]))
    rotation = device.upload_index(np.array([1, 2, 0]))
    middle, last = device.empty(3, np.float64), device.empty(3, np.float64)
    replay = device.sequence(
        [
            device.bind(GATHER, values, rotation, middle, 3, 3),
            device.bind(GATHER, middle, rotation, last, 3, 3),
        ]
    )
    for shift in range(3):
        replay()
        np.testing.assert_array_equal(device.to_host(last), np.array([7, 5, 6]) + shift)
        values += 1


# ---- arguments that do not fit ----


def with_other(device: Device, place: int, array: object) -> list:
    """The arguments of a launch of ReLU, with another array at `place`."""
    arguments = relu_arguments(device)
    arguments[place] = array
    return arguments


REFUSED = {
    "two real types": (RELU, lambda d: with_other(d, 1, d.empty((3, 2), np.float64)), "float64.*float32"),
    "an integer for a real": (RELU, lambda d: relu_arguments(d, "int32"), "output is int32"),
    "a half for a real": (RELU, lambda d: relu_arguments(d, "float16"), "output is float16"),
    "strides": (RELU, lambda d: with_other(d, 0, d.empty((3, 2), "f4").T), "output is not C-contiguous"),
    "a signed index": (
        GATHER, lambda d: [d.empty(3, "f4"), d.asarray(np.zeros(3, "i8")), d.empty(3, "f4"), 3, 3], "int64"
    ),
    "a narrow index": (
        GATHER, lambda d: [d.empty(3, "f4"), d.asarray(np.zeros(3, "u1")), d.empty(3, "f4"), 3, 3], "uint8"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_arguments_that_do_not_fit_are_refused(device: Device, name: str) -> None:
    kernel, arguments, message = REFUSED[name]
    with pytest.raises(ShapeError, match=message):
        device.bind(kernel, *arguments(device))


def test_a_launch_that_was_checked_is_checked_again_where_it_differs(device: Device) -> None:
    """In its scalars, their sign at 0, its dtypes, its strides, or a scalar that is an array."""
    first = relu_arguments(device)
    for _ in range(2):
        assert device.bind(RELU, *first).arguments[2:] == [3, 2]
    assert device.bind(RELU, *first[:2], 1, 2).arguments[2:] == [1, 2]
    for size in (1, 2):
        assert device.bind(RELU, *first[:2], np.array(size), 2).arguments[2] == size
    with pytest.raises(ShapeError, match="values is float64"):
        device.bind(RELU, first[0], device.empty((3, 2), np.float64), 3, 2)
    with pytest.raises(ShapeError, match="output is not C-contiguous"):
        device.bind(RELU, device.empty((3, 2), np.float32).T, *first[1:])


def test_an_open_launch_takes_its_arrays_at_each_call(device: Device, dtype: np.dtype) -> None:
    rotation = device.upload_index(np.array([2, 0, 1], np.int32))
    first = device.empty(3, dtype)
    launch = device.bind_open(GATHER, ("values", "source"), first, rotation, first, 3, 3)
    reference = weakref.ref(first)
    del first
    assert reference() is None
    before = device.launched["gather_fill"]
    for values in ([1, 2, 3], [4, 5, 6]):
        out = device.empty((1, 3), dtype)
        launch(out, device.asarray(np.array(values, dtype)))
        np.testing.assert_array_equal(device.to_host(out), [np.roll(values, 1)])
    assert device.launched["gather_fill"] == before + 2
    with pytest.raises(ShapeError, match="map is float"):
        device.bind_open(GATHER, ("values",), out, out, out, 3, 3)
    device.bind_open(GATHER, ("values",), out, rotation, out, 3, 0)(out)  # of no work: nothing is launched
    assert device.launched["gather_fill"] == before + 2


def test_a_read_only_array_is_taken_as_an_input() -> None:
    output, data = np.array([[0, 2.5]]), np.empty((2, 1))
    output.flags.writeable = False
    get_device("host").launch(RELU, output, data, 2, 1)
    assert data.tolist() == [[0], [1]]
