"""CUDA by CuPy: the only place that imports it."""

from __future__ import annotations

import ctypes
import math
import sys
import threading
import warnings
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from bppsa_cupy.conversion import check_array, check_detached, from_dlpack, is_on_gpu
from bppsa_cupy.devices.base import KEPT, CaptureError, Device, Graphs, HostWaitError, Launch, RefusedError, T
from bppsa_cupy.devices.cubins import TooOldError, check_architecture, machine_code
from bppsa_cupy.devices.order import branches, predecessors
from bppsa_cupy.errors import DeviceError, reason_of
from bppsa_cupy.raw_kernels.kernel import Kernel, LaunchShape, Variant

#: Blocks of a thread-block cluster at most, of GPUs from a compute capability on, 10 times; and those that
#: need no permission, the driver's attribute of a function.
CLUSTER_BLOCKS, PORTABLE_CLUSTER, NON_PORTABLE_CLUSTERS = {120: 8, 90: 16}, 8, 14

#: The oldest major version of CuPy whose graphs and attributes are those that are used here.
LEAST_CUPY = 13


def import_cupy() -> ModuleType:
    """CuPy with a usable GPU. Raises DeviceError that says which of the two is missing, TooOldError where one
    is too old."""
    try:
        import cupy
    except ImportError as error:
        raise DeviceError(
            f"device 'cuda' cannot be used because CuPy cannot be imported ({error}): "
            "install the extra cuda12x or cuda13x, or use device='host'"
        ) from error
    if int(cupy.__version__.partition(".")[0]) < LEAST_CUPY:
        raise TooOldError(
            f"device 'cuda' cannot be used because CuPy is {cupy.__version__}: install CuPy {LEAST_CUPY} "
            "or newer (the extra cuda12x or cuda13x), or use device='host'"
        )
    try:
        cupy.cuda.runtime.getDeviceCount()  # an error where there is none
    except cupy.cuda.runtime.CUDARuntimeError as error:
        # Without a driver its version is 0, and the error the same.
        is_old = "InsufficientDriver" in str(error) and cupy.cuda.runtime.driverGetVersion() > 0
        raise (TooOldError if is_old else DeviceError)(
            f"device 'cuda' cannot be used because CuPy finds no GPU ({error}): "
            f"{'install a newer driver, or ' * is_old}use device='host'"
        ) from error
    check_architecture(cupy.cuda.Device().compute_capability)
    return cupy


class CudaDevice(Device):
    """The current GPU: CuPy arrays, kernels compiled from their CUDA C++ text at first use."""

    name = "cuda"
    units_innermost = True
    tunes = True
    #: How cuBLAS multiplies float32 matrices: see `set_precision`.
    precision = "float32"

    def __init__(self) -> None:
        super().__init__()
        self.xp = import_cupy()
        #: Pinned memory that copies may still write, each with the event after its copy.
        self._copies: deque[tuple[Any, np.ndarray]] = deque()
        self._capture = Capture()

    @property
    def capturing(self) -> bool:  # type: ignore[override]
        # The default stream cannot be captured. CUDA refuses the question while another stream is captured.
        stream = self.xp.cuda.get_current_stream()
        return stream.ptr != 0 and stream.is_capturing()

    @property
    def side(self) -> Any:
        return self._capture.side

    def follow(self, stream: Any) -> Any:
        current = self.xp.cuda.get_current_stream()
        if stream is None or stream.ptr == current.ptr:
            return current
        if self.capturing:  # a graph waits for no other work
            return stream
        current.wait_event(stream.record(self.xp.cuda.Event(disable_timing=True)))
        return current

    def multiply(self, left: Any, right: Any, out: Any, add: bool = False) -> None:
        """Multiply with cuBLAS: CuPy's matmul copies arrays that are not contiguous, and cannot add."""
        if left.ndim > 2:
            left, out = left.reshape(-1, left.shape[-1]), out.reshape(-1, out.shape[-1])
        inner, real = left.shape[1], out.dtype
        if not out.size or not inner:
            if not add:
                out[...] = 0
            return
        # cuBLAS counts by columns: a matrix by rows is its transpose to it, and so is the result.
        operands = [_as_columns(matrix) for matrix in (right, left)]
        (right_turned, right_apart), (left_turned, left_apart) = operands
        factor, sum_before = np.ones(1, real), np.full(1, add, real)
        arguments = (
            right_turned, left_turned, *out.shape[::-1], inner,
            factor.ctypes.data, right.data.ptr, right_apart, left.data.ptr, left_apart,
            sum_before.ctypes.data, out.data.ptr, _apart(out, 0),
        )  # fmt: skip
        workspace = 0
        if self._capture.held is not None:
            # A captured product has a workspace of its graph, so that graphs on two streams share none.
            if self._capture.workspace is None:
                self._capture.workspace = self.xp.cuda.alloc(WORKSPACE)
            workspace = self._capture.workspace.ptr
        handle = self.xp.cuda.get_cublas_handle()  # which loads the library
        library = open_library(self.xp)
        gemm = library.cublasSgemm_v2 if real == np.float32 else library.cublasDgemm_v2
        if real == np.float32 and self.precision == "tf32":
            *head, a, a_apart, b, b_apart, added, c, c_apart = arguments
            arguments = (
                *head, a, _FLOAT32, a_apart, b, _FLOAT32, b_apart, added, c, _FLOAT32, c_apart, _BY_TF32,
                _ANY_ALGORITHM,
            )  # fmt: skip
            gemm = library.cublasGemmEx
        # Setting the stream also resets the workspace.
        status = library.cublasSetStream_v2(handle, self.xp.cuda.get_current_stream().ptr)
        if not status and workspace:
            status = library.cublasSetWorkspace_v2(handle, workspace, WORKSPACE)
        status = status or gemm(handle, *arguments)
        if status:
            raise self.xp.cuda.cublas.CUBLASError(status)

    def asarray(self, array: Any, dtype: Any = None) -> Any:
        if not isinstance(array, self.xp.ndarray):
            check_detached(array)
            array = self.xp.from_dlpack(array) if is_on_gpu(array) else from_dlpack(array)
        if isinstance(array, self.xp.ndarray):
            current = self.xp.cuda.runtime.getDevice()
            if array.data.device_id != current:
                raise DeviceError(
                    f"an array is on GPU {array.data.device_id}, but GPU {current} is current: copy the "
                    f"array to GPU {current}, or put the call in a block `with "
                    f"cupy.cuda.Device({array.data.device_id}):`"
                )
            if array.dtype in KEPT and array.flags.c_contiguous and dtype in (None, array.dtype):
                return array
        elif self.capturing:
            raise CaptureError("a graph cannot read an array of the host: copy it to the GPU beforehand")
        check_array(array, dtype)
        with self.naming_memory:
            return self.xp.ascontiguousarray(self.xp.asarray(array, dtype=dtype)).reshape(array.shape)

    def to_host(self, array: Any) -> np.ndarray:
        if self.capturing:
            raise HostWaitError(
                "the host cannot wait for a result in a CUDA graph: read it after the graph has run"
            )
        with self.naming_memory:
            return self.xp.asnumpy(array)

    def fetch(self, array: Any) -> Callable[[], np.ndarray]:
        if self.capturing:
            raise CaptureError("a CUDA graph cannot copy an array to the host: call fetch after it has run")
        while self._copies and self._copies[0][0].done:
            self._copies.popleft()
        copy = self.pinned(array.shape, array.dtype)
        with self.naming_memory:
            array.get(out=copy, blocking=False)
            copied = self.mark()
        self._copies.append((copied, copy))  # the caller may drop it while the copy runs

        def wait() -> np.ndarray:
            copied.synchronize()
            return copy

        return wait

    def pinned(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An uninitialised array of the host that copies from and to the GPU need not wait for."""
        size = math.prod(shape)
        with self.naming_memory:
            memory = self.xp.cuda.alloc_pinned_memory(max(size * np.dtype(dtype).itemsize, 1))
        return np.frombuffer(memory, dtype, size).reshape(shape)

    def mark(self) -> Any:
        """An event after the current stream's work so far."""
        event = self.xp.cuda.Event(disable_timing=True)
        event.record()
        return event

    def remember(self, key: Hashable, make: Callable[[], T]) -> T:
        return super().remember((self.xp.cuda.runtime.getDevice(), key), make)

    def address(self, array: Any) -> int:
        return int(array.data.ptr)

    @property
    def queue(self) -> tuple[int, int]:
        return int(self.xp.cuda.Device().id), int(self.xp.cuda.get_current_stream().ptr)

    def free_memory(self) -> int:
        free, _ = self.xp.cuda.runtime.memGetInfo()
        return int(free) + int(self.xp.get_default_memory_pool().free_bytes())

    def _attribute(self, name: str) -> int:
        """Of the current GPU, whose attributes are asked for once: the driver takes long to tell all."""
        return int(self.remember("attributes", lambda: self.xp.cuda.Device().attributes)[name])

    @property
    def shared_bytes(self) -> int:  # type: ignore[override]  # of the current GPU
        return self._attribute("MaxSharedMemoryPerBlockOptin")

    @property
    def workers(self) -> int:
        return self._attribute("MultiProcessorCount")

    @property
    def cluster_blocks(self) -> int:  # type: ignore[override]
        capability = int(self.xp.cuda.Device().compute_capability)
        return next((blocks for least, blocks in CLUSTER_BLOCKS.items() if capability >= least), 1)

    @property
    def cooperative_blocks(self) -> int:  # type: ignore[override]
        return self.workers if self._attribute("CooperativeLaunch") else 0

    def synchronize(self) -> None:
        self.xp.cuda.get_current_stream().synchronize()

    @contextmanager
    def on_stream(self, number: int, stream: int) -> Iterator[None]:
        """Work on the GPU of this number, on a stream of another library's, by its address."""
        cuda = self.xp.cuda
        # CuPy 13 takes the address itself, which CuPy 14 deprecates.
        is_new = hasattr(cuda.Stream, "from_external")
        with (
            cuda.Device(number),
            cuda.Stream.from_external(_Foreign(stream)) if is_new else cuda.ExternalStream(stream),
        ):
            yield

    def use(self, number: int) -> None:
        """Make the GPU of this number the current one, counted round where there are fewer."""
        self.xp.cuda.Device(number % self.xp.cuda.runtime.getDeviceCount()).use()

    @property
    def gpu(self) -> str:
        """The current GPU's address on its machine's bus, which no other has."""
        return str(self.xp.cuda.Device().pci_bus_id)

    def nccl(self) -> ModuleType:
        """CuPy's binding of NCCL. Raises DeviceError that names the package where NCCL is missing."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a missing library, which is the DeviceError below
                nccl = import_module("cupy.cuda.nccl")  # which cupy itself does not load
            if not nccl.available:
                raise ImportError("cupy.cuda.nccl is not available")
        except ImportError as error:
            raise DeviceError(
                f"CuPy finds no NCCL ({error}): install nvidia-nccl-cu12 (nvidia-nccl-cu13 for cuda13x), or "
                "use transport='host'"
            ) from error
        return nccl

    def timestamp(self) -> Any:
        event = self.xp.cuda.Event()
        event.record()
        return event

    def seconds(self, start: Any, end: Any) -> float:
        end.synchronize()
        return float(self.xp.cuda.get_elapsed_time(start, end)) / 1000

    def sequence(self, launches: Sequence[Launch]) -> Launch:
        """Return one call that makes bound launches, from the second time on as a CUDA graph.

        The first time runs them one by one, which compiles and loads their kernels. In the graph a launch
        waits for those alone that the order of reads and writes asks for (`predecessors`), so that
        independent ones run side by side. Kernels and addresses are those of the bound launches, so a replay
        is one launch on the host. A single launch needs no graph.
        """
        one_by_one, branches = super().sequence(launches), Branches(self, launches)
        graphs: Graphs = {}

        def launch_all() -> None:
            (branches.launch if self.capturing and graphs else one_by_one)()

        def replay() -> None:
            if self.capturing:
                launch_all()
            else:
                self.replay(graphs, None, "a sequence of launches", launch_all)

        return replay if len(launches) > 1 else one_by_one

    def repeat(self, graphs: Graphs, name: Hashable, arrays: Sequence[Any], launch: Launch) -> None:
        """Call `launch`, from the second call on as one launch of a CUDA graph.

        A graph is used where the first call made few launches and the driver can capture them."""
        if self.capturing:
            launch()
        else:
            key = (name, *[(array.data.ptr, array.shape, array.strides) for array in arrays])
            self.replay(graphs, key, name, launch, MOST_LAUNCHES)

    def replay(
        self,
        graphs: Graphs,
        key: Hashable,
        name: Hashable,
        launch: Launch,
        most: float = math.inf,
        **options: Any,
    ) -> str:
        """Call `launch` the first time, and later launch a graph of it, which the second call captures.

        Returns "", or why no graph was launched.

        Parameters
        ----------
        graphs
            The graphs of earlier calls by `key`, or the reasons why there are none.
        most
            Launches that a graph may have.
        options
            Arguments of `capture`.
        """
        graph = graphs.get(key)
        if graph is None:
            before = self.launched.total()
            launch()
            if len(graphs) >= MOST_GRAPHS:
                del graphs[next(iter(graphs))]
            graphs[key] = FIRST if self.launched.total() - before <= most else "it makes many launches"
            return FIRST
        if graph == FIRST:
            try:
                with self.naming_memory:
                    graph = graphs[key] = self.capture(launch, **options)
            except Exception as error:
                if isinstance(error, DeviceError) and not isinstance(error, CaptureError):
                    raise
                graph = graphs[key] = f"the capture failed ({reason_of(error)})"
                if not isinstance(error, HostWaitError):
                    warnings.warn(f"{name} runs launch by launch: {graph}", RuntimeWarning, stacklevel=4)
        if isinstance(graph, str):
            launch()
            return graph
        graph(self)
        return ""

    def new_pool(self) -> Any:
        """A pool for the memory of arrays that captures make. Graphs that never run at once may share one."""
        return self.xp.cuda.MemoryPool()

    def capture(self, record: Callable[[], object], pool: Any = None, whole_step: bool = False) -> Replay:
        """The graph of what `record` launches on the current stream, and on streams that wait for it; none of
        it is made, or counted. If that fails, no stream is left in a capture.

        Parameters
        ----------
        pool : object, default: None
            Pool of the memory of arrays that `record` makes; by default one of the graph's own.
        whole_step : bool, default: False
            Whether `record` runs a forward pass and its backward pass, so that work of the latter may run
            beside the former on a second stream.
        """
        cuda, pool = self.xp.cuda, self.new_pool() if pool is None else pool
        stream, before, state = cuda.Stream(non_blocking=True), self.launched.copy(), self._capture
        state.held = held = [pool]
        state.side = side = SideStream(cuda, held) if whole_step else None
        with stream, cuda.using_allocator(pool.malloc):
            # "Relaxed", CuPy's default: the pool may call cudaMalloc, and so may other threads.
            stream.begin_capture()
            try:
                record()
                if side is not None:
                    side.join()
            except BaseException:
                with suppress(cuda.runtime.CUDARuntimeError):  # of the capture that has not come to its end
                    stream.end_capture()
                raise
            else:
                return Replay(stream.end_capture(), [*held, state.workspace], self.launched - before)
            finally:
                state.held = state.workspace = state.side = None
                self.launched.clear()
                self.launched.update(before)

    def _prepare(self, kernel: Kernel, variant: Variant, shape: LaunchShape) -> Callable[..., None]:
        if variant.layout.cluster == 1 and not kernel.cooperative:
            return self._load(kernel, variant, shape)
        with self._naming_refusal(kernel):
            launch = self._load(kernel, variant, shape)

        def launch_together(*arguments: Any) -> None:
            with self._naming_refusal(kernel):
                launch(*arguments)

        return launch_together

    @contextmanager
    def _naming_refusal(self, kernel: Kernel) -> Iterator[None]:
        """A block in which an error of the driver becomes RefusedError."""
        try:
            yield
        except self.xp.cuda.driver.CUDADriverError as error:
            raise RefusedError(f"{self.name}: {kernel.name}: {reason_of(error)}") from error

    def _load(self, kernel: Kernel, variant: Variant, shape: LaunchShape) -> Callable[..., None]:
        """A kernel's launch, whose code lies on this GPU from now on, and not from the first launch."""
        grid, block, shared_bytes = shape
        with self.naming_memory:
            function = _function(self.xp, kernel, variant, self.xp.cuda.Device().compute_capability)
            loaded = function.kernel
        # 48 KiB unless a kernel opts in to more
        if shared_bytes and shared_bytes > function.max_dynamic_shared_size_bytes:
            function.max_dynamic_shared_size_bytes = shared_bytes
        if variant.layout.cluster > PORTABLE_CLUSTER:
            self.xp.cuda.driver.funcSetAttribute(loaded.ptr, NON_PORTABLE_CLUSTERS, 1)

        def launch(*arguments: Any) -> None:
            function(grid, block, arguments, shared_mem=shared_bytes)
            if self._capture.held is not None:
                self._capture.held.append(arguments)

        return launch


# ---- cuBLAS, which CuPy refuses to call while a stream is captured ----

#: Bytes of workspace that cuBLAS takes on Hopper by default; smaller GPUs take less.
WORKSPACE = 32 << 20
_POINTER, _INT = ctypes.c_void_p, ctypes.c_int
_GEMM: tuple[Any, ...] = (_POINTER, *[_INT] * 5, *[_POINTER] * 2, _INT, _POINTER, _INT, *[_POINTER] * 2, _INT)
_GEMM_EX: tuple[Any, ...] = (
    _POINTER, *[_INT] * 5, *[_POINTER] * 2, *[_INT] * 2, _POINTER, *[_INT] * 2, *[_POINTER] * 2, *[_INT] * 4
)  # fmt: skip
#: CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32 and CUBLAS_GEMM_DEFAULT.
_FLOAT32, _BY_TF32, _ANY_ALGORITHM = 0, 77, -1


@cache
def open_library(cupy: Any) -> Any:
    """The cuBLAS that CuPy has loaded to make a handle."""
    version = cupy.cuda.runtime.runtimeGetVersion() // 1000
    name = f"cublas64_{version}.dll" if sys.platform == "win32" else f"libcublas.so.{version}"
    library = ctypes.CDLL(name)
    library.cublasSetStream_v2.argtypes = (_POINTER, _POINTER)
    library.cublasSetWorkspace_v2.argtypes = (_POINTER, _POINTER, ctypes.c_size_t)
    library.cublasSgemm_v2.argtypes = library.cublasDgemm_v2.argtypes = _GEMM
    library.cublasGemmEx.argtypes = _GEMM_EX
    return library


def _apart(matrix: Any, axis: int) -> int:
    """By how many elements neighbours along an axis are apart; one element has a whole row for itself."""
    if matrix.shape[axis] > 1:
        return int(matrix.strides[axis]) // matrix.itemsize
    return max(1, matrix.shape[1 - axis])


def _as_columns(matrix: Any) -> tuple[bool, int]:
    """Whether cuBLAS is to transpose a matrix, which to it is its transpose where rows are contiguous; and by
    how many elements rows, or else columns, are apart."""
    by_rows = matrix.shape[1] == 1 or matrix.strides[1] == matrix.itemsize
    return not by_rows, _apart(matrix, 0 if by_rows else 1)


class _Foreign:
    """A stream of another library's, as the protocol of CUDA streams tells its address."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._address


#: cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost and cudaMemcpyDeviceToDevice.
TO_GPU, TO_HOST, ON_GPU = 1, 2, 3
#: Branches of a graph: kernels that one GPU runs at once, at the most.
MOST_BRANCHES = 128
#: Of work that is repeated: launches that are worth a graph of their own, and graphs that are kept of it.
MOST_LAUNCHES, MOST_GRAPHS = 64, 16
#: Stands for the graph of work that was made once.
FIRST = "the first call, which loads kernels"


class Capture(threading.local):
    """The capture that the current thread makes.

    Attributes
    ----------
    held
        What lives as long as the graph, such as the arguments of its launches; None without a capture.
    workspace
        The memory of cuBLAS in the graph.
    side
        The second stream of a training step.
    """

    held: list[Any] | None = None
    workspace: Any = None
    side: SideStream | None = None


class Replay:
    """A captured graph: calling it launches the graph on the current stream.

    Parameters
    ----------
    held : object
        Objects that the graph uses and keeps alive.
    """

    def __init__(self, graph: Any, held: Any, launched: Counter[str]) -> None:
        self._graph, self._held, self._launched = graph, held, launched

    def __call__(self, device: CudaDevice) -> None:
        self._graph.launch(stream=device.xp.cuda.get_current_stream())
        for name, count in self._launched.items():  # Counter.update takes thrice as long
            device.launched[name] += count


class SideStream:
    """The second stream of a training step that is being captured.

    Parameters
    ----------
    held : list of object
        Objects that live as long as the graph.
    """

    def __init__(self, cuda: Any, held: list[Any]) -> None:
        self._cuda, self._held = cuda, held
        self._stream, self._forked = cuda.Stream(non_blocking=True), False
        held.append(self._stream)

    def fork(self, launch: Launch) -> None:
        """Launch on this stream, after the work of the current stream so far."""
        self._wait(self._stream, self._cuda.get_current_stream())
        self._forked = True
        with self._stream:
            launch()

    def join(self) -> None:
        """Let the current stream wait for the work of this one."""
        if self._forked:
            self._wait(self._cuda.get_current_stream(), self._stream)
            self._forked = False

    def _wait(self, later: Any, earlier: Any) -> None:
        event = self._cuda.Event(disable_timing=True)
        event.record(earlier)
        later.wait_event(event)
        self._held.append(event)


class Branches:
    """Bound launches for a capture, each on the stream of its branch: independent ones run side by side."""

    def __init__(self, device: CudaDevice, launches: Sequence[Launch]) -> None:
        self._device, self._launches = device, launches
        #: Streams and events of a capture, which has to end before they go.
        self._used: tuple[list[Any], list[Any]] = [], []

    def launch(self) -> None:
        """Launch all, with an event after each; the last event is that of the start."""
        cuda = self._device.xp.cuda
        waits = predecessors(self._launches, self._device.address)
        branch = branches(waits, MOST_BRANCHES)
        streams = [cuda.get_current_stream(), *(cuda.Stream(non_blocking=True) for _ in range(max(branch)))]
        events = [cuda.Event(disable_timing=True) for _ in range(len(branch) + 1)]
        self._used = streams, events
        events[-1].record()
        for stream in streams[1:]:
            stream.wait_event(events[-1])
        for number, (launch, number_of_branch) in enumerate(zip(self._launches, branch, strict=True)):
            for other in waits[number]:
                if branch[other] != number_of_branch:
                    streams[number_of_branch].wait_event(events[other])
            with streams[number_of_branch]:
                launch()
                events[number].record()
        last = {number_of_branch: events[number] for number, number_of_branch in enumerate(branch)}
        for number_of_branch in range(1, len(streams)):
            streams[0].wait_event(last[number_of_branch])


@cache
def _function(cupy: ModuleType, kernel: Kernel, variant: Variant, architecture: str) -> Any:
    """The kernel for GPUs of the current one's architecture."""
    path = str(machine_code(cupy, kernel, variant))
    module = cupy.RawModule(path=path, enable_cooperative_groups=kernel.cooperative)
    return module.get_function(kernel.name)
