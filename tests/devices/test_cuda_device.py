"""CudaDevice's Python without a GPU: on a stand-in for CuPy whose kernels run on the emulator."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cupy_fixtures import install, no_device_is_kept, stub  # noqa: F401  fixtures
from cupy_stub_memory import Memory
from executors import make_device
from kernel_cases import CASES, arguments
from kernel_comparison import turned
from marks import some
from refusals import assert_refused
from tolerances import assert_close

import bppsa_cupy as bp
from bppsa_cupy import devices
from bppsa_cupy.devices import get_device
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.errors import DeviceError, ShapeError
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.kernel import Variant

RELU = KERNELS["relu_fill"]


# ---- finding a GPU ----

#: Machines on which CUDA cannot be used, and what the error names; None has no CuPy.
UNFIT = [
    (None, "CuPy", "cuda12x"),
    ({"devices": -1, "driver": 0}, "cudaErrorInsufficientDriver", "device='host'"),
    ({"devices": -1, "driver": 11080}, "InsufficientDriver", "newer driver"),
    ({"version": "12.3.0"}, "12.3.0", "13"),
    ({"architecture": "70"}, "7.0", "7.5"),
]


@pytest.mark.filterwarnings("ignore:device 'auto' uses the host")
@pytest.mark.parametrize("machine, value, fix", UNFIT)
def test_a_machine_without_a_fit_gpu(machine, value, fix, monkeypatch: pytest.MonkeyPatch) -> None:
    options = dict(machine or {})
    architecture = options.pop("architecture", None)
    cupy = install(monkeypatch, **options)
    if machine is None:
        monkeypatch.setitem(sys.modules, "cupy", None)
    if architecture:
        monkeypatch.setattr(cupy.cuda, "Device", lambda: SimpleNamespace(compute_capability=architecture))
    assert_refused(lambda: get_device("cuda"), DeviceError, value, fix)
    assert get_device("auto") is get_device("host")


def test_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, free=1000)
    device = CudaDevice()
    assert device.free_memory() == 1005  # the pool's own, too
    with pytest.raises(DeviceError, match=r"cuda: an array needs 1600 bytes, 1005 are free: use a"):
        device.empty((20, 10), np.float64)


def test_a_tensor_on_a_gpu_that_tracks_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's own code is asked for the interface, which raises while the tensor tracks gradients."""

    class OnGpu(torch.Tensor):
        is_cuda = True

    install(monkeypatch)
    tensor = torch.ones(3).as_subclass(OnGpu).requires_grad_()
    with pytest.raises(RuntimeError, match="requires grad"):
        hasattr(tensor, "__cuda_array_interface__")
    for convert in (devices.device_of, get_device("host").asarray):
        with pytest.raises(ShapeError, match="tracks gradients"):
            convert(tensor)


# ---- launches ----


def of_every_kind() -> list[str]:
    """Kernels that take, together, every kind of parameter in every role."""
    left = {(p.type, p.role) for kernel in KERNELS.values() for p in kernel.parameters}
    chosen = []
    while left:
        kinds = {name: {(p.type, p.role) for p in kernel.parameters} for name, kernel in KERNELS.items()}
        chosen.append(max(kinds, key=lambda name: len(kinds[name] & left)))
        left -= kinds[chosen[-1]]
    return chosen


QUICK = of_every_kind()


@pytest.mark.parametrize("name", some(*QUICK, long=[name for name in KERNELS if name not in QUICK]))
def test_arguments_reach_the_kernel(name: str, stub: CudaDevice, rng: np.random.Generator) -> None:
    """The CUDA launch and the emulated device's leave equal values; the latter's rules hold of it then."""
    kernel, emulated, variant = KERNELS[name], make_device("emulated"), Variant()
    for case in list(CASES[name](rng))[:4]:
        expected = turned(kernel, arguments(kernel, variant, case, rng))
        on_device = [stub.asarray(value) if isinstance(value, np.ndarray) else value for value in expected]
        stub.launch(kernel, *on_device)
        emulated.launch(kernel, *expected)
        for parameter, actual, wanted in zip(kernel.parameters, on_device, expected, strict=True):
            if parameter.is_array:
                assert_close(stub.to_host(actual), wanted, label=parameter.name)


def test_an_array_of_another_gpu_is_refused(stub: CudaDevice) -> None:
    array = stub.zeros(3, np.float64)
    array.gpu = 1
    with pytest.raises(DeviceError, match="GPU 1"):
        stub.asarray(array)


def test_a_sequence_is_captured_at_its_second_call(stub: CudaDevice) -> None:
    output, values = stub.asarray(np.array([[1.0, -1.0, 2.0]])), stub.empty((3, 1), np.float64)
    replay = stub.sequence([stub.bind(RELU, output, values, 3, 1), stub.bind(RELU, output, values, 3, 1)])
    for call in range(1, 4):
        output *= -1
        replay()
        np.testing.assert_array_equal(stub.to_host(values), stub.to_host(output).T > 0)
        assert stub.launched["relu_fill"] == 2 * call
    stub.sequence([])()


def test_products_by_tf32_are_asked_for(stub: CudaDevice, rng: np.random.Generator) -> None:
    before = Memory.tf32_products
    try:
        bp.set_precision("tf32")
        for dtype in (np.float32, np.float64):
            a, b = rng.standard_normal((3, 5)).astype(dtype), rng.standard_normal((5, 4)).astype(dtype)
            out = stub.zeros((3, 4), dtype)
            stub.multiply(stub.asarray(a), stub.asarray(b), out)
            np.testing.assert_allclose(stub.to_host(out), a @ b, rtol=2e-3, atol=2e-3)
    finally:
        bp.set_precision("float32")
    assert Memory.tf32_products == before + 1
    with pytest.raises(bp.ArgumentError, match="bfloat16"):
        bp.set_precision("bfloat16")
