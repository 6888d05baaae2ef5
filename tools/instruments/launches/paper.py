"""A GPU on paper: CudaDevice's own code on arrays without values, and a log of all that it would launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from bppsa_cupy.devices.base import Device, Launch
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.processors.models import H200
from bppsa_cupy.raw_kernels.kernel import Kernel, LaunchShape, Variant
from bppsa_cupy.tools.instruments.launches.capture import Capture, Capturing, Mark

#: Bytes of an H200, and of its L2.
MEMORY, CACHE = 141 * 10**9, 50 << 20


@dataclass(frozen=True)
class Operation:
    """Work of a GPU: its name, and the bytes of the arrays that it reads and writes, each once; of a graph's
    replay the graph."""

    name: str
    read: int
    written: int
    graph: Capture | None = None


@dataclass
class Log:
    """What was launched, the streams that were entered, and how often the host waited."""

    operations: list[Operation] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    waits: int = 0

    def add(self, operation: Operation) -> None:
        """Launch on the current stream."""
        stream = self.streams[-1]
        if stream.capture is None:
            self.operations.append(operation)
        else:
            stream.add(operation)

    def wait(self) -> None:
        """Let the host wait for the current stream, which CUDA refuses while that is captured."""
        assert self.streams[-1].capture is None, "the host waits for a stream in a capture"
        self.waits += 1

    def taken(self) -> list[Operation]:
        """The operations since the last call."""
        found, self.operations = self.operations, []
        return found


class Stream(Capturing):
    """A stream of the log's."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log, self.ptr = log, id(self)

    def __enter__(self) -> Stream:
        self._log.streams.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        self._log.streams.pop()

    def wait_event(self, event: Event) -> None:
        event.mark.wait(self)

    def end_capture(self) -> SimpleNamespace:
        graph = self.ended()
        read, written = (sum(getattr(node, way) for node in graph.nodes) for way in ("read", "written"))
        replay = Operation("graph", read, written, graph)
        return SimpleNamespace(launch=lambda stream: self._log.add(replay))

    def synchronize(self) -> None:
        """All is done, since nothing is."""
        self._log.wait()


class Event:
    """An event on the log's current stream."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def record(self) -> None:
        self.mark = Mark(self._log.streams[-1])

    def synchronize(self) -> None:
        """All is done, since nothing is."""
        self._log.wait()


class PaperArray(np.ndarray):
    """An array of a GPU on paper. What would compute goes into the log, and values are of no meaning; memory
    that nobody touches is not taken."""

    log: Log

    def __array_finalize__(self, source: Any) -> None:
        self.log = getattr(source, "log", None)  # type: ignore[assignment]

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        assert method in ("__call__", "reduce"), f"{ufunc.__name__}.{method} is not counted"
        arrays = [one for one in inputs if isinstance(one, np.ndarray)]
        log = next(one.log for one in arrays if isinstance(one, PaperArray))
        out = options.get("out", (None,))[0]
        if out is None:
            out = empty(log, *(_reduced if method == "reduce" else _result)(ufunc, inputs, options))
        name = f"{ufunc.__name__} {method}" if method != "__call__" else ufunc.__name__
        log.add(Operation(f"cupy {name}", sum(one.nbytes for one in arrays), out.nbytes))
        return out

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, np.ndarray):  # places, which have no values here
            written = key.size * self.itemsize
        else:
            written = self.nbytes if key is ... else self[key].nbytes
        read = value.nbytes if isinstance(value, np.ndarray) and value.ndim else 0
        self.log.add(Operation("cupy copy" if read else "cupy fill", read, written))

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, np.ndarray):
            return super().__getitem__(key)
        made = empty(self.log, (*key.shape, *self.shape[1:]), self.dtype)
        self.log.add(Operation("cupy gather", made.nbytes + key.nbytes, made.nbytes))
        return made

    def reshape(self, *shape: Any, **options: Any) -> PaperArray:
        made = super().reshape(*shape, **options)
        if made.size and not np.may_share_memory(made, self):
            self.log.add(Operation("cupy copy", self.nbytes, made.nbytes))
        return made

    def copy(self, order: Any = "C") -> PaperArray:
        made = empty(self.log, self.shape, self.dtype)
        made[...] = self
        return made

    def get(self, out: np.ndarray | None = None, blocking: bool = True) -> np.ndarray:
        self.log.add(Operation("copy to the host", self.nbytes, self.nbytes))
        if blocking:
            self.log.wait()
        return np.zeros(self.shape, self.dtype) if out is None else out

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)


def empty(log: Log, shape: Any, dtype: Any) -> PaperArray:
    """An array whose memory is not touched."""
    made = np.empty(shape, dtype).view(PaperArray)
    made.log = log
    return made


def _result(ufunc: np.ufunc, inputs: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, Any]:
    """Shape and dtype of an elementwise function's result."""
    assert ufunc.signature is None, f"{ufunc.__name__} is counted with `out` alone"
    kinds = [one.dtype if isinstance(one, np.ndarray | np.generic) else type(one) for one in inputs]
    shape = np.broadcast_shapes(*(np.shape(one) for one in inputs))
    return shape, ufunc.resolve_dtypes((*kinds, None))[-1]


def _reduced(ufunc: np.ufunc, inputs: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, Any]:
    """Shape and dtype of a reduction over all axes."""
    assert options.get("axis") is None, f"{ufunc.__name__} along an axis is counted with `out` alone"
    return (), options.get("dtype") or inputs[0].dtype


class PaperCuPy:
    """CuPy as far as passes through layers use it. Another function is refused: none goes uncounted."""

    ndarray = PaperArray

    def __init__(self, log: Log) -> None:
        self._log = log
        self.cuda = SimpleNamespace(
            Stream=lambda non_blocking: Stream(log),
            Event=lambda disable_timing: Event(log),
            get_current_stream=lambda: log.streams[-1],
            alloc_pinned_memory=bytearray,
            MemoryPool=lambda: SimpleNamespace(malloc=None),
            using_allocator=nullcontext,
            Device=lambda: SimpleNamespace(id=0),
        )

    def empty(self, shape: Any, dtype: Any) -> PaperArray:
        return empty(self._log, shape, dtype)

    def asarray(self, array: Any, dtype: Any = None) -> PaperArray:
        """The array itself, one of another dtype, or one of the host's that is copied to the GPU."""
        if isinstance(array, PaperArray) and array.dtype == (dtype or array.dtype):
            return array
        made = self.empty(np.shape(array), dtype or array.dtype)
        if isinstance(array, PaperArray):
            made[...] = array
        else:
            self._log.add(Operation("copy from the host", made.nbytes, made.nbytes))
        return made

    def zeros(self, shape: Any, dtype: Any) -> PaperArray:
        made = self.empty(shape, dtype)
        made[...] = 0
        return made

    def arange(self, count: int, dtype: Any = np.int64) -> PaperArray:
        return self.zeros(count, dtype)

    def clip(self, array: PaperArray, least: Any, most: Any) -> PaperArray:
        return np.minimum(np.maximum(array, least), most)

    def stack(self, arrays: Sequence[PaperArray]) -> PaperArray:
        made = self.empty((len(arrays), *arrays[0].shape), arrays[0].dtype)
        for number, array in enumerate(arrays):
            made[number : number + 1] = array
        return made

    def ascontiguousarray(self, array: PaperArray) -> PaperArray:
        return array if array.flags.c_contiguous else array.copy()

    def asnumpy(self, array: PaperArray) -> np.ndarray:
        return array.get()

    def __getattr__(self, name: str) -> Any:
        made: Callable[..., Any] = getattr(np, name)
        if not isinstance(made, np.ufunc) and name not in ("sum", "max", "may_share_memory"):
            raise NotImplementedError(f"what xp.{name} launches is not counted")
        return made


class PaperGpu(CudaDevice):
    """An H200 on paper, by the name of "cuda".

    log  what was launched
    """

    def __init__(self) -> None:
        Device.__init__(self)
        self.log = Log()
        self.log.streams.append(Stream(self.log))
        self.xp = PaperCuPy(self.log)

    def free_memory(self) -> int:
        return MEMORY

    @property
    def shared_bytes(self) -> int:
        return H200.shared_bytes

    @property
    def cache_bytes(self) -> int:
        return CACHE

    @property
    def workers(self) -> int:
        return H200.workers

    @property
    def cluster_blocks(self) -> int:
        return H200.cluster_blocks

    def resident_clusters(self, kernel: Kernel, variant: Variant, shape: LaunchShape) -> int:
        return H200.resident_clusters(variant.layout)

    def _prepare(self, kernel: Kernel, variant: Variant, shape: LaunchShape, arguments: list[Any]) -> Launch:
        arrays = [(p.role, v) for p, v in zip(kernel.parameters, arguments, strict=True) if p.is_array]
        read = sum(array.nbytes for role, array in arrays if role != "out")
        written = sum(array.nbytes for role, array in arrays if role != "in")
        operation = Operation(kernel.name, read, written)
        return lambda: self.log.add(operation)
