"""The recurrence h_t = a_t h_{t-1} + b_t: `bp.linear_scan`, its gradients, and the passes on a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from bppsa_cupy.arguments import as_choice, as_flag, as_integer, as_output, as_plain_array
from bppsa_cupy.devices import Array, Device, device_of, get_device, rules
from bppsa_cupy.devices.autotune import rounded
from bppsa_cupy.errors import ArgumentError, ShapeError
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.timescan.lengths import take_lengths
from bppsa_cupy.timescan.ways import Choice

#: Chunks of a scan that a caller asks for, and the fewest steps of a chunk.
MOST_CHUNKED = 16


@lru_cache(maxsize=16)
def nothing(device: Device, dtype: Any, steps: int | None = None) -> Array:
    """An array without elements, (0,) or (0, T)."""
    return device.empty(0 if steps is None else (0, steps), dtype)


@lru_cache(maxsize=16)
def no_state(device: Device, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Zeros, which nothing writes to."""
    return device.zeros(shape, dtype)


@dataclass(slots=True)
class LinearScan:
    """h_t = a_t h_{t-1} + b_t of arrays of real numbers, of which complex ones are pairs.

    Law: every method and chunk length gives the same values up to rounding. Where what comes to a chunk is
    not finite, as where a product left the range and the state might not have, the scan is run again
    serially; a flag on the device decides that, and the host waits for nothing.

    Attributes
    ----------
    a
        Factors, (B or 1, T or 1, W).
    batch, steps, width
        Sizes of b, with W real numbers per step.
    lengths
        (B,) int64, where each sample ends.
    resets
        (B or 1, T) uint8, where a is 0; (0, T) where it never is.
    paired
        Whether numbers are complex.
    reverse
        Whether the scan goes from the last step to the first.
    method, chunk
        "auto", "serial" or "chunked", and the steps of a chunk, by default that of the rules.
    known
        What the device stores for such scans: the `Choice` of "forward" and "backward", and the launches of
        walks, by name and scalars.
    """

    device: Device
    a: Array
    batch: int
    steps: int
    width: int
    lengths: Array
    resets: Array
    paired: bool
    reverse: bool
    method: str = "auto"
    chunk: int | None = None
    known: dict[Any, Any] = field(init=False)

    def __post_init__(self) -> None:
        device = self.device
        key = (
            LinearScan, self.a.dtype, self.a.shape, self.batch, self.steps, self.width, self.resets.shape[0],
            self.paired, self.reverse, self.method, self.chunk, device.workers,
            device.choices.version,
        )  # fmt: skip
        self.known = device.remember(key, dict)

    @property
    def read(self) -> tuple[Array, ...]:
        """The arrays that every pass reads."""
        return self.a, self.lengths, self.resets

    def forward(self, b: Array, initial: Array, h: Array, *, transposed: bool = False) -> None:
        """Fill h with the states (B, T, W) from `initial` (B, W) on; where `transposed`, with those of the
        transpose, which goes the other way: g_t = b_t + a_{t+1} g_{t+1}."""
        descending = self.reverse != transposed
        choice = self.choice("forward")

        def walk(start: Array, chunk: int, chunks: int, wanted: Array | None) -> Callable[[], None]:
            arrays = self.a, b, start, self.lengths, self.resets, self._or_none(wanted), h
            scalars = (
                *self._sizes(chunk, chunks), self.paired, False, descending, transposed, wanted is not None,
            )  # fmt: skip
            return self._bound("linear_scan_forward", arrays, scalars)

        self._run(choice, b, initial, transposed, False, walk)

    def backward(
        self, h: Array, initial: Array, gradient: Array, by_a_out: Array, by_b: Array, by_initial: Array
    ) -> None:
        """Fill the gradients with respect to a (of a's shape), b (B, T, W) and the first state (B, W), from
        that with respect to h."""
        device, each, descending = self.device, self.a.shape[1] == self.steps, not self.reverse
        is_complete = each and self.a.shape[0] == self.batch
        choice = self.choice("backward")
        by_a: list[Array] = []

        def walk(start: Array, chunk: int, chunks: int, wanted: Array | None) -> Callable[[], None]:
            if not by_a:
                rows = self.steps if each else chunks
                by_a.append(
                    by_a_out if is_complete else device.empty((self.batch, rows, self.width), h.dtype)
                )
            if wanted is not None and not each:
                # A walk of one chunk leaves the sums of all in its place.
                by_a.append(device.zeros((self.batch, 1, self.width), h.dtype))
            arrays = (
                self.a, h, initial, gradient, start, self.lengths, self.resets, self._or_none(wanted), by_b,
                by_a[-1], by_initial,
            )  # fmt: skip
            scalars = (
                *self._sizes(chunk, chunks), self.paired, True, descending, each, wanted is not None,
            )  # fmt: skip
            return self._bound("linear_scan_backward", arrays, scalars)

        last = no_state(device, initial.shape, h.dtype)
        flag = self._run(choice, gradient, last, True, True, walk)
        if is_complete:
            return
        total = by_a[0]
        if not each:
            total = total.sum(axis=1, keepdims=True)
            if len(by_a) > 1:
                assert flag is not None
                total = device.xp.where(flag != 0, by_a[1], total)
        by_a_out[...] = total.sum(axis=0, keepdims=True) if self.a.shape[0] != self.batch else total

    def choice(self, verb: str) -> Choice:
        """Return how `forward` or `backward` runs, and why."""
        if verb not in self.known:
            self.known[verb] = self._choose(verb)
        choice: Choice = self.known[verb]
        return choice

    def _choose(self, verb: str) -> Choice:
        """Serially or by chunks: as asked for, by the rules, or on a GPU as measured."""
        device, steps, itemsize = self.device, max(1, self.steps), self.a.dtype.itemsize
        on_host = device.shared_bytes is None
        rule = rules.scan_chunk(on_host, device.workers, self.batch, steps, self.width, itemsize)
        length = self.chunk or rule or max(MOST_CHUNKED, -(-steps // MOST_CHUNKED))
        if self.method == "serial":
            return Choice("serial", steps, 1, "as asked for")
        if length >= steps:
            return Choice("serial", steps, 1, "one chunk")
        if self.method == "chunked":
            return Choice("chunked", length, -(-steps // length), "as asked for")
        if self.chunk is not None:
            rule = self.chunk
        lengths = [each for each in (length // 4, length, 4 * length) if MOST_CHUNKED <= each <= steps // 2]
        tried = {"serial": 0, **{f"chunks of {each}": each for each in lengths}}
        ways = {name: partial(self._scratch, verb, each) for name, each in tried.items()}
        key = (
            f"linear scan {verb} B{rounded(self.batch)} T{rounded(steps)} W{self.width} "
            f"a{self.a.shape[1] > 1} f{8 * itemsize} pairs{self.paired} resets{self.resets.shape[0] > 0}"
        )
        way = device.choices.choose(key, ways, "serial" if rule is None else f"chunks of {rule}")
        why = f"measured on {device.name}" if device.tunes else f"the rule for {device.name}"
        chunk = tried.get(way, rule) or steps
        return Choice("chunked" if chunk < steps else "serial", chunk, -(-steps // chunk), why)

    def _scratch(self, verb: str, chunk: int) -> Callable[[], None]:
        """A scan of these sizes over arrays of its own."""
        device, dtype, shape = self.device, self.a.dtype, (self.batch, self.steps, self.width)
        a, x, y = device.zeros(self.a.shape, dtype), device.zeros(shape, dtype), device.empty(shape, dtype)
        first, last = (device.zeros((self.batch, self.width), dtype) for _ in range(2))
        lengths = device.asarray(np.full(self.batch, self.steps, np.int64))
        resets = device.zeros(self.resets.shape, np.uint8)
        scan = LinearScan(
            device, a, self.batch, self.steps, self.width, lengths, resets, self.paired, self.reverse,
            "chunked" if chunk else "serial", chunk or None,
        )  # fmt: skip
        if verb == "forward":
            return lambda: scan.forward(x, first, y)
        by_a = device.empty(self.a.shape, dtype)
        return lambda: scan.backward(x, first, x, by_a, y, last)

    def _bound(self, name: str, arrays: tuple[Array, ...], scalars: tuple[int, ...]) -> Callable[[], None]:
        """The launch of a kernel on arrays, checked where one of such scalars and numbers has not been."""
        launch = self.known.get((name, scalars))
        if launch is None:
            kernel = KERNELS[name]
            names = [parameter.name for parameter in kernel.parameters if parameter.is_array]
            launch = self.device.bind_open(kernel, names, *arrays, *scalars)
            self.known[name, scalars] = launch
        return partial(launch, *arrays)

    def _sizes(self, chunk: int, chunks: int) -> tuple[int, ...]:
        return (
            self.batch, self.steps, self.width, *self.a.shape[:2], self.resets.shape[0], chunk, chunks,
        )  # fmt: skip

    def _or_none(self, wanted: Array | None) -> Array:
        return nothing(self.device, np.int32) if wanted is None else wanted

    def _run(
        self,
        choice: Choice,
        b: Array,
        initial: Array,
        transposed: bool,
        conjugate: bool,
        walk: Callable[[Array, int, int, Array | None], Callable[[], None]],
    ) -> Array | None:
        """Walk as was chosen; gives the flag that tells whether it was done again serially, if any."""
        device, chunk, chunks = self.device, choice.chunk, choice.chunks
        if choice.method == "serial":
            walk(initial, chunk, 1, None)()
            return None
        shape = chunks, *initial.shape
        product, end, start = (device.empty(shape, b.dtype) for _ in range(3))
        flag, descending = device.zeros(1, np.int32), self.reverse != transposed
        # The products of the factors of each chunk and its ends from a state of 0; what comes to each chunk.
        device.launch(
            KERNELS["linear_scan_reduce"], self.a, b, self.lengths, self.resets, product, end,
            *self._sizes(chunk, chunks), self.paired, conjugate, descending, transposed,
        )  # fmt: skip
        device.launch(
            KERNELS["linear_scan_carry"], product, end, initial, start, chunks, initial.size, self.paired,
            descending,
        )  # fmt: skip
        device.launch(KERNELS["finite_check"], start, flag, start.size)
        walk(start, chunk, chunks, None)()
        walk(initial, max(1, self.steps), 1, flag)()
        return flag


#: What numbers may be, by the reals that they are made of.
REAL_OF = {
    np.dtype(np.float32): np.dtype(np.float32),
    np.dtype(np.float64): np.dtype(np.float64),
    np.dtype(np.complex64): np.dtype(np.float32),
    np.dtype(np.complex128): np.dtype(np.float64),
}
METHODS = ("auto", "serial", "chunked")


class ScanGradients(NamedTuple):
    """The gradients of the linear scan h_t = a_t h_{t-1} + b_t. Returned by `bp.linear_scan_backward`.

    Attributes
    ----------
    a : array
        The gradient with respect to a, in the shape of a.
    b : array, (B, T, H)
        The gradient with respect to b.
    h0 : array, (B, H)
        The gradient with respect to h0.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> a, h = np.full(1, 0.5), np.array([[[1.0], [1.5]]])
    >>> bp.linear_scan_backward(a, h, np.ones((1, 2, 1))).b.ravel().tolist()
    [1.5, 1.0]
    """

    a: Array
    b: Array
    h0: Array


def linear_scan(
    a: Any,
    b: Any,
    h0: Any = None,
    reverse: bool = False,
    lengths: Any = None,
    resets: Any = None,
    *,
    method: str = "auto",
    chunk: int | None = None,
    out: Array | None = None,
    device: str | Device | None = None,
) -> Array:
    """Compute the states h_t = a_t h_{t-1} + b_t of all steps, elementwise.

    Parameters
    ----------
    a : array
        (B, T, H), or a shape that broadcasts to it: B or T may be 1, and (T, H) or (H,) is allowed.
    b : array, (B, T, H)
        float32, float64, complex64 or complex128. a and h0 must have the dtype of b. If b is complex, they
        may also be real with the same precision.
    h0 : array, (B, H), optional
        The state before the first step or, with `reverse`, after the last valid step. Zeros by default.
    reverse : bool, default: False
        Whether to compute h_t = a_t h_{t+1} + b_t, starting from the last step.
    lengths : int array, (B,), optional
        The number of valid steps of each sample, from 1 to T. Later states are 0. With `reverse`, a sample
        starts from its last valid step.
    resets : bool array, (T,) or (B, T), optional
        True marks steps that start from 0: h_t = b_t, even if a_t or the previous state is inf or NaN. No
        gradient passes from them to the previous state. If a sequence contains several documents, mark the
        first step of each document (with `reverse`, the last step).
    method : {"auto", "serial", "chunked"}, default: "auto"
        "chunked" computes chunks of steps in parallel. "auto" follows a fixed rule on the host, and selects
        the method by a measurement on a GPU.
    chunk : int, optional
        The number of steps per chunk. By default it is chosen automatically.
    out : array, (B, T, H), optional
        The array to write the states to. It must be C-contiguous and must not overlap any other argument.
    device : "cuda" or "host", optional
        The device that computes. Default: the device of b.

    Returns
    -------
    array, (B, T, H)
        The states, on the device.

    Raises
    ------
    ShapeError
        If an array has the wrong shape or dtype.
    ArgumentError
        If `method` is unknown.
    DeviceError
        If there is too little memory.

    Notes
    -----
    All methods agree up to rounding (Blelloch 1990, section 1.4.1). If the product of the factors a_t of a
    chunk overflows, the scan is repeated serially. On the host, subnormal numbers are treated as 0.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> bp.linear_scan(np.full(1, 0.5), np.ones((1, 3, 1))).ravel()
    array([1.  , 1.5 , 1.75])
    """
    where, scan, values, dtype = _scan_of(
        "linear_scan", "b", a, b, reverse, lengths, resets, method, chunk, device
    )
    initial = _initial(where, h0, values, dtype)
    h = _out(where, "linear_scan", out, values.shape, dtype, [values, initial, *scan.read])
    scan.forward(_reals(values), _reals(initial), _reals(h))
    return h


def linear_scan_backward(
    a: Any,
    h: Any,
    gradient: Any,
    h0: Any = None,
    reverse: bool = False,
    lengths: Any = None,
    resets: Any = None,
    *,
    method: str = "auto",
    chunk: int | None = None,
    out: ScanGradients | None = None,
    device: str | Device | None = None,
) -> ScanGradients:
    """Compute the gradients of `linear_scan` with respect to its arguments a, b and h0.

    Parameters
    ----------
    a, h0, reverse, lengths, resets, method, chunk, device
        The arguments of the `linear_scan` call. `method`, `chunk` and `device` may differ.
    h, gradient : array, (B, T, H)
        The states that `linear_scan` returned, and the gradient with respect to them, in the same dtype.
    out : ScanGradients or tuple of three arrays, optional
        The arrays to write to. They must be C-contiguous and must not overlap any other array.

    Returns
    -------
    ScanGradients
        The named tuple (a, b, h0) of gradients, in the shapes of a, (B, T, H) and (B, H).

    Raises
    ------
    ShapeError, ArgumentError, DeviceError
        If an array has the wrong shape or dtype, `method` is unknown, or there is too little memory.

    Notes
    -----
    The gradient with respect to b_t is g_t = gradient_t + conj(a_{t+1}) g_{t+1}. The gradient with respect to
    a_t is g_t conj(h_{t-1}), summed over axes that a broadcasts, and that of h0 is conj(a_1) g_1. Complex
    gradients follow PyTorch: twice the derivative with respect to the conjugate.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> a, h = np.full(1, 0.5), np.array([[[1.0], [1.5]]])
    >>> gradients = bp.linear_scan_backward(a, h, np.ones((1, 2, 1)))
    >>> gradients.a.tolist(), gradients.h0.tolist()
    ([1.0], [[0.75]])
    """
    where, scan, values, dtype = _scan_of(
        "linear_scan_backward", "h", a, h, reverse, lengths, resets, method, chunk, device
    )
    by_h = where.asarray(gradient)
    if tuple(by_h.shape) != tuple(values.shape) or by_h.dtype != dtype:
        raise ShapeError(
            f"linear_scan_backward got a gradient of {by_h.dtype} and shape {tuple(by_h.shape)}, and h of "
            f"{dtype} and shape {tuple(values.shape)}: pass both with the same dtype and shape"
        )
    initial = _initial(where, h0, values, dtype)
    owner = "linear_scan_backward"
    outs = (None, None, None) if out is None else out
    if not isinstance(outs, (tuple, list)) or len(outs) != 3:
        raise ArgumentError(
            f"{owner} got out={out!r}: pass three arrays for the gradients with respect to a, b and h0"
        )
    read = [values, initial, by_h, *scan.read]
    shapes = np.shape(a), values.shape, initial.shape
    made: list[Array] = []
    for array, shape in zip(outs, shapes, strict=True):
        made.append(_out(where, owner, array, shape, dtype, [*read, *made]))
    gradients = ScanGradients(*made)
    by_a = _reals(_with_steps(gradients.a))
    scan.backward(
        _reals(values), _reals(initial), _reals(by_h), by_a, _reals(gradients.b), _reals(gradients.h0)
    )
    return gradients


def fill_states(
    device: Device,
    out: Array,
    a: Array,
    b: Array,
    h0: Array | None,
    lengths: Array,
    resets: Array,
    reverse: bool,
    transposed: bool,
) -> None:
    """Fill `out` (B, T, H) with the states of a scan, or of its transpose, as `LinearScan.forward` has them;
    all are the device's arrays, resets (B or 1, T) of bools."""
    _, scan, values, dtype = _scan_of(
        "linear_scan", "b", a, b, reverse, lengths, resets, "auto", None, device
    )
    scan.forward(
        _reals(values), _reals(_initial(device, h0, values, dtype)), _reals(out), transposed=transposed
    )


def _scan_of(
    owner: str,
    name: str,
    a: Any,
    b: Any,
    reverse: Any,
    lengths: Any,
    resets: Any,
    method: str,
    chunk: int | None,
    device: str | Device | None,
) -> tuple[Device, LinearScan, Array, np.dtype]:
    """The device, the scan, and `b` there, called `name`, with its dtype. Raises ShapeError."""
    where = get_device(device) if device is not None else device_of(b)
    where.check_process()
    values = where.asarray(b)
    if values.ndim != 3 or values.dtype not in REAL_OF:
        raise ShapeError(
            f"{owner} got {name} of {values.dtype} and shape {tuple(values.shape)}: pass float32, float64, "
            "complex64 or complex128 of shape (B, T, H)"
        )
    (batch, steps, hidden), dtype = values.shape, values.dtype
    factors = _as(owner, "a", where, a, dtype)
    rows = _with_steps(factors)
    shape = rows.shape
    if len(shape) != 3 or shape[0] not in (1, batch) or shape[1] not in (1, steps) or shape[2] != hidden:
        raise ShapeError(
            f"{owner} got `a` of shape {tuple(factors.shape)} and {name} of shape {tuple(values.shape)}: "
            f"pass `a` of shape ({batch} or 1, {steps} or 1, {hidden})"
        )
    as_choice(owner, "method", method, METHODS)
    if chunk is not None:
        chunk = as_integer(owner, "chunk", chunk, 1)
    ends = _whole(where, batch, steps) if lengths is None else take_lengths(where, lengths, batch, steps)
    real = _reals(rows)
    return (
        where,
        LinearScan(
            where, real, batch, steps, real.shape[2], ends,
            _marks(owner, where, resets, batch, steps), dtype.kind == "c", as_flag(owner, "reverse", reverse),
            method, chunk,
        ),
        values,
        dtype,
    )  # fmt: skip


def _as(owner: str, name: str, device: Device, array: Any, dtype: np.dtype) -> Array:
    """Return `array` on the device in this dtype. A complex dtype also accepts its real dtype.

    Raises ShapeError for any other dtype."""
    values = device.asarray(array)
    if values.dtype != dtype:
        if values.dtype != REAL_OF[dtype]:
            raise ShapeError(
                f"{owner} got {name} of {values.dtype}, but computes in {dtype}: pass {name} of {dtype}"
            )
        values = device.xp.ascontiguousarray(values.astype(dtype))
    return values


@lru_cache(maxsize=256)
def _whole(device: Device, batch: int, steps: int) -> Array:
    """The lengths of samples of which all steps are there."""
    return device.asarray(np.full(batch, steps, np.int64))


def _initial(device: Device, h0: Any, b: Array, dtype: np.dtype) -> Array:
    shape = b.shape[0], b.shape[2]
    if h0 is None:
        return no_state(device, shape, dtype)
    state = _as("linear_scan", "h0", device, h0, dtype)
    if tuple(state.shape) != shape:
        raise ShapeError(
            f"linear_scan got h0 of shape {tuple(state.shape)} and b of shape {tuple(b.shape)}: pass h0 of "
            f"shape {shape}"
        )
    return state


def _out(
    device: Device, owner: str, out: Array | None, shape: tuple[int, ...], dtype: np.dtype, read: list[Array]
) -> Array:
    """The caller's array of this shape, apart from those that are read, or a new one. Raises ShapeError."""
    if out is None:
        return device.empty(shape, dtype)
    return as_output(owner, "out", out, device.xp, shape, dtype, read)


def _marks(owner: str, device: Device, resets: Any, batch: int, steps: int) -> Array:
    """`resets` as (B or 1, T) uint8; (0, T) without."""
    if resets is None:
        return nothing(device, np.uint8, steps)
    if not isinstance(resets, device.xp.ndarray):
        resets = as_plain_array(owner, "resets", resets)
    if resets.dtype != np.bool_ or tuple(resets.shape) not in ((steps,), (1, steps), (batch, steps)):
        raise ShapeError(
            f"{owner} got resets of {resets.dtype} and shape {tuple(resets.shape)}: pass bools of shape "
            f"({steps},) or ({batch}, {steps})"
        )
    return device.asarray(resets.reshape(-1, steps) if steps else resets.reshape(1, 0)).view(np.uint8)


def _with_steps(factors: Array) -> Array:
    """Factors (H,) or (T, H) as (1, 1 or T, H); others as they are."""
    return factors if factors.ndim >= 3 else factors.reshape((1,) * (3 - factors.ndim) + factors.shape)


def _reals(array: Array) -> Array:
    """An array's memory as that of real numbers, two for a complex one."""
    return array if array.dtype.kind == "f" else array.view(REAL_OF[array.dtype])
