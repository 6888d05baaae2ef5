"""`bp.linear_scan`: the recurrence h_t = a_t h_{t-1} + b_t of arrays, and its gradients."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from bppsa_cupy.arguments import as_flag, as_integer, as_output, as_plain_array, is_one_of
from bppsa_cupy.devices import Array, Device, device_of, get_device
from bppsa_cupy.errors import ArgumentError, ShapeError
from bppsa_cupy.timescan.lengths import take_lengths
from bppsa_cupy.timescan.linear import LinearScan, no_state, nothing

#: What numbers may be, by the reals that they are made of.
REAL_OF = {
    np.dtype(np.float32): np.dtype(np.float32),
    np.dtype(np.float64): np.dtype(np.float64),
    np.dtype(np.complex64): np.dtype(np.float32),
    np.dtype(np.complex128): np.dtype(np.float64),
}
METHODS = ("auto", "serial", "chunked")


class ScanGradients(NamedTuple):
    """The gradients of a linear scan, as `bp.linear_scan_backward` returns them.

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
        float32, float64, complex64 or complex128. a and h0 must have the same dtype. If b is complex, they
        may be real with the same precision.
    h0 : array, (B, H), optional
        The state before the first step. Zeros by default.
    reverse : bool, default: False
        Whether to compute h_t = a_t h_{t+1} + b_t, starting from the last step.
    lengths : int array, (B,), optional
        The number of valid steps of each sample, from 1 to T. Later states are 0. With `reverse`, a sample
        starts from its last valid step.
    resets : bool array, (T,) or (B, T), optional
        True marks steps that start from 0: h_t = b_t, even if a_t or the previous state is inf or NaN. No
        gradient passes through them. Mark the first step of each document in a packed sequence (with
        `reverse`, the last step).
    method : {"auto", "serial", "chunked"}, default: "auto"
        "chunked" computes chunks of steps in parallel. "auto" follows a fixed rule on the host, and selects
        the method by a measurement on a GPU.
    chunk : int, optional
        The number of steps per chunk.
    out : array, optional
        The array to write the states to. The array must be C-contiguous and must not overlap any other array.
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
    All methods agree up to rounding (Blelloch 1990, section 1.4.1). If the product of the factors of a chunk
    overflows, the scan is repeated serially. On the host, subnormal numbers are treated as 0.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> bp.linear_scan(np.full(1, 0.5), np.ones((1, 3, 1))).ravel()
    array([1.  , 1.5 , 1.75])
    """
    where, scan, given, dtype = _scan_of(
        "linear_scan", "b", a, b, reverse, lengths, resets, method, chunk, device
    )
    initial = _initial(where, h0, given, dtype)
    h = _out(where, "linear_scan", out, given.shape, dtype, [given, initial, *scan.read])
    scan.forward(_reals(given), _reals(initial), _reals(h))
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
    """Compute the gradients of a linear scan with respect to a, b and h0.

    Parameters
    ----------
    a, h0, reverse, lengths, resets, method, chunk, device
        See `linear_scan`.
    h, gradient : array, (B, T, H)
        The states, and the gradient with respect to the states, in the same dtype.
    out : ScanGradients, optional
        The arrays to write to. The arrays must be C-contiguous and must not overlap any other array.

    Returns
    -------
    ScanGradients

    Raises
    ------
    ShapeError, ArgumentError, DeviceError
        See `linear_scan`.

    Notes
    -----
    g_t = gradient_t + conj(a_{t+1}) g_{t+1} is the gradient with respect to b_t. The gradients are
    g_t conj(h_{t-1}) for a_t, summed where a is shared, and conj(a_1) g_1 for h0. Complex gradients follow
    PyTorch: twice the derivative with respect to the conjugate.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> a, h = np.full(1, 0.5), np.array([[[1.0], [1.5]]])
    >>> gradients = bp.linear_scan_backward(a, h, np.ones((1, 2, 1)))
    >>> gradients.a.tolist(), gradients.h0.tolist()
    ([1.0], [[0.75]])
    """
    where, scan, given, dtype = _scan_of(
        "linear_scan_backward", "h", a, h, reverse, lengths, resets, method, chunk, device
    )
    by_h = where.asarray(gradient)
    if tuple(by_h.shape) != tuple(given.shape) or by_h.dtype != dtype:
        raise ShapeError(
            f"linear_scan_backward got a gradient of {by_h.dtype} and shape {tuple(by_h.shape)}, and h of "
            f"{dtype} and shape {tuple(given.shape)}: pass both with the same dtype and shape"
        )
    initial = _initial(where, h0, given, dtype)
    owner = "linear_scan_backward"
    outs = (None, None, None) if out is None else out
    if not isinstance(outs, (tuple, list)) or len(outs) != 3:
        raise ArgumentError(
            f"{owner} got out={out!r}: pass three arrays for the gradients with respect to a, b and h0"
        )
    by_a_out, by_b_out, by_h0_out = outs
    read = [given, initial, by_h, *scan.read]
    shapes = np.shape(a), given.shape, initial.shape
    made: list[Array] = []
    for array, shape in zip((by_a_out, by_b_out, by_h0_out), shapes, strict=True):
        made.append(_out(where, owner, array, shape, dtype, [*read, *made]))
    found = ScanGradients(*made)
    by_a = _reals(_with_steps(found.a))
    scan.backward(_reals(given), _reals(initial), _reals(by_h), by_a, _reals(found.b), _reals(found.h0))
    return found


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
    _, scan, given, dtype = _scan_of("linear_scan", "b", a, b, reverse, lengths, resets, "auto", None, device)
    scan.forward(
        _reals(given), _reals(_initial(device, h0, given, dtype)), _reals(out), transposed=transposed
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
    given = where.asarray(b)
    if given.ndim != 3 or given.dtype not in REAL_OF:
        raise ShapeError(
            f"{owner} got {name} of {given.dtype} and shape {tuple(given.shape)}: pass float32, float64, "
            "complex64 or complex128 of shape (B, T, H)"
        )
    (batch, steps, hidden), dtype = given.shape, given.dtype
    factors = _as(owner, "a", where, a, dtype)
    rows = _with_steps(factors)
    shape = rows.shape
    if len(shape) != 3 or shape[0] not in (1, batch) or shape[1] not in (1, steps) or shape[2] != hidden:
        raise ShapeError(
            f"{owner} got a of shape {tuple(factors.shape)} and {name} of shape {tuple(given.shape)}: "
            f"pass a of shape ({batch} or 1, {steps} or 1, {hidden})"
        )
    if not is_one_of(method, METHODS):
        raise ArgumentError(f"{owner} got method={method!r}: pass {', '.join(map(repr, METHODS))}")
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
        given,
        dtype,
    )  # fmt: skip


def _as(owner: str, name: str, device: Device, array: Any, dtype: np.dtype) -> Array:
    """Return `array` on the device in this dtype. A complex dtype also accepts its real dtype.

    Raises ShapeError for any other dtype."""
    given = device.asarray(array)
    if given.dtype != dtype:
        if given.dtype != REAL_OF[dtype]:
            raise ShapeError(
                f"{owner} got {name} of {given.dtype}, but computes in {dtype}: pass {name} of {dtype}"
            )
        given = device.xp.ascontiguousarray(given.astype(dtype))
    return given


@lru_cache(maxsize=256)
def _whole(device: Device, batch: int, steps: int) -> Array:
    """The lengths of samples of which all steps are there."""
    return device.asarray(np.full(batch, steps, np.int64))


def _initial(device: Device, h0: Any, b: Array, dtype: np.dtype) -> Array:
    shape = b.shape[0], b.shape[2]
    if h0 is None:
        return no_state(device, shape, dtype)
    given = _as("linear_scan", "h0", device, h0, dtype)
    if tuple(given.shape) != shape:
        raise ShapeError(
            f"linear_scan got h0 of shape {tuple(given.shape)} and b of shape {tuple(b.shape)}: pass h0 of "
            f"shape {shape}"
        )
    return given


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
