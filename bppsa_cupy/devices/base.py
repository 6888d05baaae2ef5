"""The contract of a device: it holds arrays and runs kernels."""

from __future__ import annotations

import abc
import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from operator import attrgetter
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from bppsa_cupy.devices.autotune import Choices
from bppsa_cupy.devices.order import Bound, Launch
from bppsa_cupy.errors import DeviceError, ShapeError, reason_of
from bppsa_cupy.raw_kernels.kernel import (
    ARRAY_TYPES,
    INDICES,
    LEAST_SHARED_BYTES,
    REALS,
    SCALAR_TYPES,
    VARIANTS,
    Kernel,
    LaunchShape,
    Parameter,
    Variant,
)

#: An array of a device: numpy.ndarray or cupy.ndarray.
Array = Any
#: What a device keeps of work that is made again and again (`Device.repeat`).
Graphs = dict[Hashable, Any]
T = TypeVar("T")

#: What a parameter's type admits before a launch's first array of that type has decided. As dtypes:
#: NumPy works out a dtype's name at every call, which costs more than a small launch.
DTYPES = {
    name: tuple(np.dtype(admitted) for admitted in {"real": REALS, "index": INDICES}.get(name, (dtype,)))
    for name, dtype in ARRAY_TYPES.items()
}
VARIANT_OF = {(np.dtype(v.real), np.dtype(v.index)): v for v in VARIANTS}

#: Dtypes of arrays that are handed on as they are, if of the order that a kernel takes.
KEPT = np.dtype(np.float32), np.dtype(np.float64)
#: Types of scalars whose value is all that a launch takes of them.
PLAIN = (int, float, bool)
#: Checked launches, and what else callers have it remember, that a device keeps: those of some networks.
FOUND = 4096

#: Bytes from which on free memory is asked about before an array is taken; the question costs some 20 µs.
LARGE = 1 << 26


#: What the RuntimeErrors of CuPy that are of memory say: of pinned memory, graphs, streams and events; of a
#: kernel's code; of cuBLAS's workspace.
OF_MEMORY = ("cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "CUBLAS_STATUS_ALLOC_FAILED")


class RefusedError(DeviceError):
    """A GPU refuses a launch of clusters."""


class CaptureError(DeviceError):
    """Work that a graph cannot hold."""


class HostWaitError(CaptureError):
    """Work that a graph cannot hold because the host waits for a result, as a Newton iteration does."""


class Device(abc.ABC):
    """Arrays and kernels of one processor.

    Attributes
    ----------
    name : str
        "host" or "cuda"; tests add others.
    xp : module
        The array module, with the interface of NumPy.
    launched : Counter
        Number of launches by kernel name.
    allocated : int
        Number of arrays that `empty` and `zeros` have created.
    units_innermost : bool
        Whether arrays over time are stored as (..., B, rows): see `arrange`.
    naming_memory : context manager
        A block in which a lack of memory raises DeviceError.
    choices : Choices
        Measured choices of kernels (`autotune`).
    """

    name: str
    xp: Any
    units_innermost = False
    #: Whether ways are measured at their first use.
    tunes = False
    #: Bytes of shared memory that a block can have at most; None where kernels take none.
    shared_bytes: int | None = None
    #: Most blocks of a thread-block cluster; 1 if the device has no clusters.
    cluster_blocks = 1
    #: Most blocks of a launch that wait for one another, one per multiprocessor; 0 if no blocks can wait.
    cooperative_blocks = 0
    #: Whether launches on the current stream are recorded into a graph instead of run.
    capturing = False
    #: The second stream of the training step that is being captured, or None.
    side: Any = None

    def __init__(self) -> None:
        self.launched: Counter[str] = Counter()
        self.allocated = 0
        self.naming_memory = NamingMemory(self)
        self.choices = Choices(self)
        self._found: dict[Hashable, tuple[Variant, LaunchShape, list[tuple[int, Any]]]] = {}
        self._remembered: dict[Hashable, Any] = {}

    def remember(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make` returned for an equal key, or call it.

        The result is dropped with the device, or when many others of its kind were stored.
        """
        value: T | None = self._remembered.get(key)
        if value is None:
            if len(self._remembered) >= FOUND:
                self._remembered.clear()
            value = self._remembered[key] = make()
        return value

    # ---- arrays ----

    def empty(self, shape: tuple[int, ...] | int, dtype: Any) -> Array:
        """An uninitialised C-contiguous array.

        Raises DeviceError with the bytes where too few are free: before a large array is taken, since
        a host may hand out memory it does not have.
        """
        self.allocated += 1
        needed = math.prod(shape if isinstance(shape, tuple) else (shape,)) * np.dtype(dtype).itemsize
        if needed >= LARGE and needed > self.free_memory():
            raise too_little(self, needed)
        try:
            return self._take(shape, dtype, needed)
        except MemoryError as error:
            raise too_little(self, needed) from error

    def _take(self, shape: tuple[int, ...] | int, dtype: Any, nbytes: int) -> Array:
        return self.xp.empty(shape, dtype)

    def zeros(self, shape: tuple[int, ...] | int, dtype: Any) -> Array:
        """An array of zeros."""
        array = self.empty(shape, dtype)
        array[...] = 0
        return array

    def arrange(self, array: Array) -> Array:
        """The memory of a C-contiguous array (..., rows, B) as an array of walks, of the same shape.

        On a GPU neighbouring units are neighbours in memory, on the host neighbouring samples.
        """
        if not self.units_innermost:
            return array
        *lead, rows, batch = array.shape
        return array.reshape(*lead, batch, rows).swapaxes(-1, -2)

    def empty_walk(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """An uninitialised array of walks, (..., rows, B)."""
        return self.arrange(self.empty(shape, dtype))

    def memory_of(self, array: Array) -> Array:
        """An array of walks, or some rows of one, in the order of its memory."""
        return array.swapaxes(-1, -2) if self.units_innermost and array.ndim > 1 else array

    def multiply(self, left: Array, right: Array, out: Array, add: bool = False) -> None:
        """Set `out` to left @ right, or add it: matrices of one dtype, each with an axis along which elements
        are neighbours in memory. Of `out` it is the last axis. C-contiguous `left` and `out` may have more
        axes than two."""
        if add:
            out += left @ right
        else:
            self.xp.matmul(left, right, out=out)

    @abc.abstractmethod
    def asarray(self, array: Any, dtype: Any = None) -> Array:
        """`array` on this device, C-contiguous; from NumPy, CuPy or anything with DLPack.

        Shares memory where it can. Raises ShapeError for a tensor that tracks gradients, for a masked array,
        whose mask would be lost, and for text, dates and objects, which a conversion might read as numbers.
        """

    @abc.abstractmethod
    def to_host(self, array: Array) -> np.ndarray:
        """A NumPy array of the same values; waits for the device."""

    @abc.abstractmethod
    def fetch(self, array: Array) -> Callable[[], np.ndarray]:
        """Start copying `array` to the host; the call that is returned waits for the copy and gives it.

        Later writes to `array` do not change what is given.
        """

    def upload_index(self, array: np.ndarray) -> Array:
        """A device copy of an integer array, viewed as the unsigned type kernels take as `index`."""
        signed = np.ascontiguousarray(array)
        return self.asarray(signed.view({4: np.uint32, 8: np.uint64}[signed.dtype.itemsize]))

    def address(self, array: Array) -> int:
        """The address at which an array's memory begins."""
        return int(array.__array_interface__["data"][0])

    def check_process(self) -> None:
        """Raise DeviceError where this process cannot run kernels."""

    def on_stream(self, number: int, stream: int) -> AbstractContextManager[Any]:
        """Work on the GPU of this number, on a stream of another library's, by its address; the host has
        neither."""
        return nullcontext()

    def follow(self, stream: Any) -> Any:
        """Let the current stream wait for the work on `stream`, where it is another one; the current stream.
        None stands for no stream."""
        return None

    @property
    def queue(self) -> Hashable:
        """The queue of the current launches: the number and the stream of a GPU."""
        return self.name

    @abc.abstractmethod
    def free_memory(self) -> int:
        """Bytes that can still be taken."""

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Wait until all launched work is done."""

    def timestamp(self) -> Any:
        """A mark after the work launched so far, for `seconds`; does not wait."""
        return time.perf_counter()

    def seconds(self, start: Any, end: Any) -> float:
        """Time between two marks of `timestamp`; waits for the later one."""
        return float(end - start)

    # ---- kernels ----

    def launch(self, kernel: Kernel, *arguments: Any) -> None:
        """Run `kernel` now. Raises ShapeError where an argument does not fit its parameter."""
        self.bind(kernel, *arguments)()

    def bind(self, kernel: Kernel, *arguments: Any) -> Launch:
        """Check `arguments` once and return a call without arguments that launches the kernel.

        The call reads and writes the very arrays that were given, each time it is called. A launch
        of no work is not made. Arrays of walks, of more than one axis, are those of `arrange`.
        Raises DeviceError where a block takes more shared memory than there is.
        """
        variant, shape, checked = self._check_launch(kernel, arguments)
        if 0 in shape.grid:
            return Bound(kernel, (), _nothing, Counter())
        launch, passed = self._prepare(kernel, variant, shape), self._as_passed(kernel.parameters, checked)
        return Bound(kernel, checked, partial(launch, *passed), self.launched)

    def bind_open(self, kernel: Kernel, names: Sequence[str], *arguments: Any) -> Callable[..., None]:
        """As `bind`, but the call takes the arrays of the parameters of these names, in that order, and
        those given here are not kept. Of a call's arrays nothing is checked: they must have the dtypes and
        shapes of those, and be C-contiguous."""
        variant, shape, checked = self._check_launch(kernel, arguments)
        if 0 in shape.grid:
            return _nothing
        places = list(map([*map(attrgetter("name"), kernel.parameters)].index, names))
        launch, passed = self._prepare(kernel, variant, shape), self._as_passed(kernel.parameters, checked)
        for place in places:
            passed[place] = None
        parameters = list(map(kernel.parameters.__getitem__, places))
        launched, name = self.launched, kernel.name

        def call(*arrays: Array) -> None:
            every = passed.copy()
            for place, array in zip(places, self._as_passed(parameters, arrays), strict=True):
                every[place] = array
            launched[name] += 1
            launch(*every)

        return call

    def _check_launch(
        self, kernel: Kernel, arguments: tuple[Any, ...]
    ) -> tuple[Variant, LaunchShape, list[Any]]:
        """The variant, the shape of the launch, and the arguments: arrays of walks in the order of their
        memory, scalars of their parameters' types. Launches with equal scalars and arrays of equal dtypes
        are checked once."""
        checked = list(arguments)
        if self.units_innermost:
            for place in kernel.places_of_walks:
                checked[place] = self.memory_of(checked[place])
        array_type: Any = self.xp.ndarray
        kind: list[Hashable] = [kernel, self.shared_bytes]
        for value in checked:
            if type(value) is array_type and value.flags.c_contiguous:
                kind.append(value.dtype)
            elif type(value) in PLAIN:
                kind.append(value or repr(value))  # -0.0 is equal to 0.0
            else:
                return self._check_anew(kernel, checked)
        key = tuple(kind)
        known = self._found.get(key)
        if known is None:
            variant, shape, checked = self._check_anew(kernel, checked)
            scalars = [(k, checked[k]) for k, p in enumerate(kernel.parameters) if p.role == "scalar"]
            if len(scalars) == sum(type(value) in PLAIN for value in arguments):
                if len(self._found) >= FOUND:
                    self._found.clear()
                self._found[key] = variant, shape, scalars
            return variant, shape, checked
        variant, shape, scalars = known
        for place, scalar in scalars:
            checked[place] = scalar
        return variant, shape, checked

    def _check_anew(self, kernel: Kernel, arguments: list[Any]) -> tuple[Variant, LaunchShape, list[Any]]:
        taken = dict(DTYPES)
        for parameter, value in zip(kernel.parameters, arguments, strict=True):
            if parameter.role == "scalar":
                continue
            if not value.flags.c_contiguous:
                raise ShapeError(f"{kernel.name}: {parameter.name} is not C-contiguous: copy it first")
            dtype, expected = value.dtype, taken[parameter.type]
            if dtype not in expected:
                raise ShapeError(
                    f"{kernel.name}: {parameter.name} is {dtype}: pass {' or '.join(map(str, expected))}"
                )
            taken[parameter.type] = (dtype,)
        types = VARIANT_OF[taken["real"][0], taken["index"][0]]
        checked, scalars = list(arguments), {}
        for place, parameter in enumerate(kernel.parameters):
            if parameter.role == "scalar":
                kind = SCALAR_TYPES[parameter.type] or taken["real"][0].type
                checked[place] = scalars[parameter.name] = kind(arguments[place])
        of_launch = self.facts_of_launch(scalars, types.itemsize)
        variant, shape = kernel.variant_for(types, of_launch), kernel.launch(of_launch)
        there = self.shared_bytes
        if 0 not in shape.grid and there is not None and shape.shared_bytes > there:
            raise DeviceError(
                f"{self.name}: a block of kernel {kernel.name} needs {shape.shared_bytes} bytes of shared "
                f"memory, but the GPU has only {there}: use fewer hidden units, float32 or device='host'"
            )
        return variant, shape, checked

    def facts_of_launch(self, scalars: Mapping[str, Any], itemsize: int) -> dict[str, Any]:
        """Return the arguments of a kernel's `launch`.

        They are its scalars by name, the bytes of a real, and the bytes of shared memory.
        """
        return {**scalars, "itemsize": itemsize, "shared_bytes": self.shared_bytes or LEAST_SHARED_BYTES}

    def sequence(self, launches: Sequence[Launch]) -> Launch:
        """Return one call that makes bound launches in their order."""

        def call() -> None:
            for launch in launches:
                launch()

        return call

    def repeat(self, graphs: Graphs, name: Hashable, arrays: Sequence[Array], launch: Launch) -> None:
        """Call `launch`, or replay what an earlier call with the same name and arrays recorded.

        Parameters
        ----------
        graphs
            Recordings of earlier calls, at first an empty dict. Other arrays and bound launches that `launch`
            uses must be the same in every call.
        name
            Identifies the work, apart from the arrays.
        arrays
            The arrays that may differ from call to call.
        launch
            A function that does not wait for the device, and reads no host values that change.
        """
        launch()

    @property
    @abc.abstractmethod
    def workers(self) -> int:
        """How many products can be worked on at once: threads of the host, multiprocessors of a GPU."""

    @abc.abstractmethod
    def _prepare(self, kernel: Kernel, variant: Variant, shape: LaunchShape) -> Callable[..., None]:
        """A kernel's launch, on arguments as `_as_passed` returns them."""

    def _as_passed(self, parameters: Sequence[Parameter], values: Sequence[Any]) -> list[Any]:
        """Checked arguments in the form in which a kernel takes them."""
        return list(values)

    def __repr__(self) -> str:
        return f"<device {self.name}>"


def _nothing(*arrays: Array) -> None:
    """The launch of no work."""


def too_little(device: Device, needed: int | None, error: BaseException | None = None) -> DeviceError:
    """The error that tells of `needed` bytes; where they are not known, what `error` says."""
    problem = f"an array needs {needed} bytes"
    if needed is None:
        assert error is not None
        problem = f"an allocation failed ({reason_of(error)})"
    return DeviceError(
        f"{device.name}: {problem}, {device.free_memory()} are free: "
        "use a smaller batch, or fewer levels of the scan"
    )


class NamingMemory:
    """A block in which an error of memory becomes DeviceError, with the bytes that are free and, where they
    are known, those asked for."""

    __slots__ = ("_device",)

    def __init__(self, device: Device) -> None:
        self._device = device

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            return
        of_cuda = isinstance(error, RuntimeError) and any(word in str(error) for word in OF_MEMORY)
        if of_cuda or isinstance(error, MemoryError):
            raise too_little(self._device, getattr(error, "_size", None), error) from error
