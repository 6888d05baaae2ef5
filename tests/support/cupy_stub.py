"""A stand-in for CuPy where there is no GPU: arrays are NumPy's in host memory, kernels run on the emulator.

It is as strict as CuPy where a mistake would be silent on the host: host arrays do not mix with device
arrays, kernel arguments are packed byte by byte as they are given, a capture runs nothing, and what a stream
does asynchronously (copies to pinned memory, messages) is done late: when an event behind it is asked about.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from cupy_stub_arrays import Copy, PinnedMemory, made_by, ndarray, on_device
from cupy_stub_memory import (
    OF_BLAS,
    OF_CODE,
    CUBLASError,
    CUDADriverError,
    CUDARuntimeError,
    Memory,
    MemoryPool,
    OutOfMemoryError,
    using_allocator,
)
from cupy_stub_streams import Event, ExternalStream, Stream, StreamOf14
from emulator.build import compile_text
from emulator.library import Library
from launch_refusals import BLOCK, GRID, REGISTERS, SHARED_BYTES, THREADS, WARP

from bppsa_cupy.devices import cuda
from bppsa_cupy.devices.cuda import NON_PORTABLE_CLUSTERS, PORTABLE_CLUSTER
from bppsa_cupy.raw_kernels.architectures import ARCHITECTURES, Architecture
from bppsa_cupy.raw_kernels.kernel import LaunchShape, read_parameters

open_real_library = cuda.open_library


def open_library(cupy: Any) -> Any:
    """The stand-in's cuBLAS for the stand-in, the real one for the real CuPy."""
    return cupy.cuda.cublas.library if isinstance(cupy.cuda, SimpleNamespace) else open_real_library(cupy)


cuda.open_library = open_library


def memcpy_async(target: int, source: int, size: int, kind: int, stream: int) -> None:
    """Copy, to pinned memory (kind 2) late; in a capture as a node."""

    def memory(address: int) -> np.ndarray:
        return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))

    def begin() -> None:
        if kind != 2:
            memory(target)[...] = memory(source)
            return
        memory(target)[...] = 0xAB
        Stream.current[-1].work.append(Copy(np.array(memory(source)), memory(target)))

    current = Stream.current[-1]
    current.add(begin) if current.capture is not None else begin()


class Function:
    """A kernel of a RawModule, whose code is loaded where it is first asked for, as CuPy loads it. A launch
    gets 48 KiB of shared memory and clusters of 8 blocks until attributes say more."""

    by_address: dict[int, Function] = {}  # noqa: RUF012
    #: Whether the driver refuses every launch of clusters.
    refuses_clusters = False

    def __init__(self, name: str, code: str, cooperative: bool) -> None:
        self.name, self._code, self.largest_cluster = name, code, PORTABLE_CLUSTER
        self._cooperative = cooperative

    @cached_property
    def kernel(self) -> Library:
        Memory.allocate(OF_CODE)
        text = compile_text(self._code, self.name, read_parameters(self.name, self._code))
        library = Library(self.name, text, Gpu.architecture)
        library.ptr = id(self)
        self.by_address[library.ptr] = self
        return library

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        return self.kernel.opted_in - self.kernel.static_shared_bytes

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, taken: int) -> None:
        if taken + self.kernel.static_shared_bytes > Gpu.architecture.shared_bytes:
            raise CUDARuntimeError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        self.kernel.opted_in = taken + self.kernel.static_shared_bytes

    def __call__(self, grid: tuple, block: tuple, arguments: tuple, *, shared_mem: int = 0) -> None:
        assert len(grid) == len(block) == 3 and 0 not in grid
        packed = []
        for value in arguments:
            if isinstance(value, ndarray):
                packed.append(ctypes.c_void_p(value.ctypes.data))
            else:
                assert isinstance(value, np.generic), f"{self.name}: {value!r} is packed as CuPy guesses"
                packed.append(ctypes.create_string_buffer(value.tobytes(), value.nbytes))
        shape = LaunchShape(tuple(map(int, grid)), tuple(map(int, block)), shared_mem)
        if self.kernel.cooperative and not self._cooperative:
            raise CUDADriverError("blocks wait for one another in a launch that is not cooperative")
        if self.kernel.cluster > (1 if self.refuses_clusters else self.largest_cluster):
            raise CUDADriverError("CUDA_ERROR_INVALID_CLUSTER_SIZE: invalid cluster size")
        stream, library = Stream.current[-1], self.kernel
        if stream.capture is not None:
            stream.add(lambda: library.run_grid(packed, shape))
        else:
            library.run_grid(packed, shape)


def func_set_attribute(function: int, attribute: int, value: int) -> None:
    """The driver's attribute of a function that lets it have clusters of more than 8 blocks."""
    assert (attribute, value) == (NON_PORTABLE_CLUSTERS, 1)
    Function.by_address[function].largest_cluster = Gpu.architecture.cluster_blocks


class Gpu:
    """A GPU by its number, the current one without; all are of one architecture."""

    current = 0
    architecture = ARCHITECTURES["sm_90"]

    def __init__(self, number: int | None = None) -> None:
        self._number = Gpu.current if number is None else number
        self.attributes = attributes_of(self.architecture)
        self.compute_capability = self.architecture.name.removeprefix("sm_")
        self.pci_bus_id = f"0000:0{self._number + 1}:00.0"

    @property
    def id(self) -> int:
        return self._number

    def use(self) -> None:
        Gpu.current = self._number

    def __enter__(self) -> Gpu:
        self._before, Gpu.current = Gpu.current, self._number
        return self

    def __exit__(self, *error: object) -> None:
        Gpu.current = self._before


def attributes_of(architecture: Architecture) -> dict[str, int]:
    """What CuPy's Device says of a GPU of this architecture, under the runtime's names."""
    attributes = {
        "MultiProcessorCount": 132,
        "CooperativeLaunch": 1,
        "L2CacheSize": 50 << 20,
        "MaxSharedMemoryPerBlock": SHARED_BYTES,
        "MaxSharedMemoryPerBlockOptin": architecture.shared_bytes,
        "MaxSharedMemoryPerMultiprocessor": architecture.multiprocessor_bytes,
        "MaxThreadsPerBlock": THREADS,
        "MaxThreadsPerMultiProcessor": architecture.multiprocessor_threads,
        "MaxRegistersPerBlock": REGISTERS,
        "MaxRegistersPerMultiprocessor": REGISTERS,
        "WarpSize": WARP,
    }
    for name, extents in (("MaxGridDim", GRID), ("MaxBlockDim", BLOCK)):
        attributes |= {name + axis: extent for axis, extent in zip("XYZ", extents, strict=True)}
    return attributes


class CompileException(Exception):
    """CuPy's error of NVRTC."""


class Nvrtc:
    """CuPy's way to NVRTC: the text itself, under a header, stands for the machine code."""

    HEADER = b"\x7fELF of the stand-in\n"

    #: What was compiled in this session: text and options.
    compiled: list[tuple[str, tuple[str, ...]]] = []  # noqa: RUF012

    @staticmethod
    def compile_using_nvrtc(
        source: str, options: tuple[str, ...] = (), *, cache_in_memory: bool = False
    ) -> tuple[bytes, None]:
        assert cache_in_memory, "CuPy writes the text to a file in the locale's encoding"
        Nvrtc.compiled.append((source, options))
        if "#error" in source:
            raise CompileException("kernel.cu(1): error: #error directive")
        return Nvrtc.HEADER + source.encode(), None


class RawModule:
    """A file of machine code. Text is refused here: CuPy would compile it with options of its own."""

    def __init__(self, *, path: str, enable_cooperative_groups: bool) -> None:
        code = Path(path).read_bytes()
        if not code.startswith(Nvrtc.HEADER):
            raise CUDARuntimeError("CUDA_ERROR_INVALID_IMAGE: device kernel image is invalid")
        self._text = code.removeprefix(Nvrtc.HEADER).decode()
        self._cooperative = enable_cooperative_groups

    def get_function(self, name: str) -> Function:
        return Function(name, self._text, self._cooperative)


def make_cupy(
    *,
    devices: int = 1,
    free: int = 1 << 40,
    driver: int = 12090,
    version: str = "99.0",
    architecture: str = "sm_90",
) -> ModuleType:
    """A module to stand for `cupy`: a machine of `devices` GPUs of an architecture with `free` bytes, and of
    a driver of CUDA's version `driver`. No real machine code is named by CuPy's `version`. There is one
    machine at a time: all GPUs are of the architecture of the module that was made last."""
    cupy = ModuleType("cupy")
    Gpu.architecture = ARCHITECTURES[architecture]
    cupy.__version__ = version

    def count() -> int:
        if devices < 0:
            raise CUDARuntimeError("cudaErrorInsufficientDriver")
        return devices

    def empty(shape: Any, dtype: Any = float) -> ndarray:
        needed = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if needed > free:
            raise OutOfMemoryError(needed)
        Memory.allocate(needed)
        return Memory.keep(np.empty(shape, dtype).view(ndarray))

    def asarray(value: Any, dtype: Any = None) -> ndarray:
        if isinstance(value, ndarray):
            return value.astype(dtype, copy=False) if dtype is not None else value
        Stream.current[-1].refuse_in_capture("a copy from pageable memory")
        made = np.array(value, dtype=dtype).view(ndarray)
        Memory.allocate(made.nbytes)
        return made

    def ascontiguousarray(value: ndarray) -> ndarray:
        return made_by(lambda: np.ascontiguousarray(value), (value,))

    def fallback(name: str) -> Any:
        function = getattr(np, name)
        if isinstance(function, type) or not callable(function):
            return function

        def call(*arguments: Any, **options: Any) -> Any:
            if any(type(value) is np.ndarray for value in arguments):
                raise TypeError(f"{name} got a host array")
            if name == "matmul" or not (isinstance(function, np.ufunc) or name == "may_share_memory"):
                Memory.allocate(OF_BLAS)
            if isinstance(function, np.ufunc):
                return on_device(function(*arguments, **options))
            return made_by(lambda: function(*arguments, **options), arguments)

        return call

    def norm(value: ndarray) -> ndarray:
        if type(value) is np.ndarray:
            raise TypeError("norm got a host array")
        Memory.allocate(value.itemsize)
        return made_by(lambda: np.linalg.norm(value.view(np.ndarray)), (value,))

    def deprecated(ptr: int) -> Stream:
        warnings.warn("ExternalStream is deprecated. Use Stream.from_external()", DeprecationWarning, 2)
        return ExternalStream(ptr)

    def gemm(dtype: str) -> Callable[..., int]:
        def call(
            handle: None, left_turned: int, right_turned: int, rows: int, columns: int, inner: int,
            factor: int, left: int, left_apart: int, right: int, right_apart: int, before: int, out: int,
            apart: int,
        ) -> int:  # fmt: skip
            def matrix(address: int, shape: tuple[int, int], turned: int, distance: int) -> np.ndarray:
                down, across = shape[::-1] if turned else shape
                assert distance >= max(1, down), "cuBLAS refuses columns that overlap"
                size = (across - 1) * distance + down
                flat = np.ctypeslib.as_array((ctypes.c_char * (size * item)).from_address(address)).view(
                    dtype
                )
                by_column = np.lib.stride_tricks.as_strided(flat, (down, across), (item, distance * item))
                return by_column.T if turned else by_column

            item = np.dtype(dtype).itemsize
            alpha, beta = (np.ctypeslib.as_array((ctypes.c_char * item).from_address(a)).view(dtype)[0].copy()
                          for a in (factor, before))  # fmt: skip
            Memory.allocate(OF_BLAS)

            def work() -> None:
                result = matrix(out, (rows, columns), 0, apart)
                product = matrix(left, (rows, inner), left_turned, left_apart) @ matrix(
                    right, (inner, columns), right_turned, right_apart
                )
                result[...] = alpha * product + (beta * result if beta else 0)

            stream = Stream.current[-1]
            stream.add(work) if stream.capture is not None else work()
            return 0

        return call

    def gemm_ex(*arguments: int) -> int:
        """cublasGemmEx of float32 matrices by TF32."""
        types, (compute, algorithm) = [arguments[k] for k in (8, 11, 15)], arguments[17:]
        assert types == [0, 0, 0] and (compute, algorithm) == (77, -1)
        Memory.tf32_products += 1
        return gemm("float32")(*(a for k, a in enumerate(arguments[:17]) if k not in (8, 11, 15)))

    cupy.linalg = SimpleNamespace(norm=norm)
    cupy.ndarray, cupy.empty, cupy.asarray, cupy.array = ndarray, empty, asarray, asarray
    cupy.ascontiguousarray = ascontiguousarray
    cupy.asnumpy = lambda value: value.get()
    cupy.from_dlpack = lambda value: np.from_dlpack(value).view(ndarray)
    cupy.RawModule = RawModule
    pool = SimpleNamespace(free_bytes=lambda: 5, free_all_blocks=lambda: None)
    cupy.get_default_memory_pool = lambda: pool
    cupy.cuda = SimpleNamespace(
        runtime=SimpleNamespace(
            getDeviceCount=count,
            getDevice=lambda: Gpu.current,
            getDeviceProperties=lambda number: {"name": b"a stand-in"},
            runtimeGetVersion=lambda: 12090,
            driverGetVersion=lambda: driver,
            CUDARuntimeError=CUDARuntimeError,
            memcpyAsync=memcpy_async,
            memGetInfo=lambda: (free, 2 * free),
        ),
        memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        driver=SimpleNamespace(CUDADriverError=CUDADriverError, funcSetAttribute=func_set_attribute),
        alloc_pinned_memory=PinnedMemory,
        MemoryPool=MemoryPool,
        cublas=SimpleNamespace(
            CUBLASError=CUBLASError,
            library=SimpleNamespace(
                cublasSetStream_v2=lambda handle, stream: 0,
                cublasSetWorkspace_v2=lambda handle, memory, size: 0,
                cublasSgemm_v2=gemm("float32"),
                cublasDgemm_v2=gemm("float64"),
                cublasGemmEx=gemm_ex,
            ),
        ),
        get_cublas_handle=lambda: None,
        alloc=lambda size: (Memory.allocate(size), SimpleNamespace(ptr=8))[1],
        using_allocator=using_allocator,
        get_current_stream=lambda: Stream.current[-1],
        get_elapsed_time=lambda start, end: float(end.time - start.time),
        Device=Gpu,
        nvrtc=SimpleNamespace(getVersion=lambda: (0, 0)),
        compiler=SimpleNamespace(
            compile_using_nvrtc=Nvrtc.compile_using_nvrtc, CompileException=CompileException
        ),
        Stream=Stream if version < "14" else StreamOf14,
        ExternalStream=ExternalStream if version < "14" else deprecated,
        Event=Event,
    )
    cupy.__getattr__ = fallback
    return cupy


Stream.current.append(Stream())
Stream.current[0].ptr = 0  # as the default stream's is
