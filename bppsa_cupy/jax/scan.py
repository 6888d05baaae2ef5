"""`linear_scan` of JAX's arrays: two primitives, each the other's transpose."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.buffer_callback import buffer_callback
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from bppsa_cupy.errors import ShapeError
from bppsa_cupy.jax.passes import as_arrays, as_lengths, where
from bppsa_cupy.timescan.linear_scan import REAL_OF, fill_states


def linear_scan(
    a: Any, b: Any, h0: Any = None, reverse: bool = False, lengths: Any = None, resets: Any = None
) -> jax.Array:
    """Compute the states h_t = a_t h_{t-1} + b_t of all steps, elementwise.

    Parameters
    ----------
    a : array
        (B, T, H), or a shape that broadcasts to it: B or T may be 1, and (T, H) or (H,) is allowed.
    b : array, (B, T, H)
        float32, float64, complex64 or complex128.
    h0 : array, (B, H), optional
        The state before the first step or, with `reverse`, after the last valid step. Zeros by default.
    reverse : bool, default: False
        Whether to scan from the last step.
    lengths : int array, (B,), optional
        The number of valid steps per sample. Under jit it is checked when the scan runs.
    resets : bool array, (T,) or (B, T), optional
        True marks steps that start from 0. `bp.linear_scan` explains it.

    Returns
    -------
    jax.Array, (B, T, H)
        The states. jit, vmap, grad and jvp are supported to any order.

    Raises
    ------
    ShapeError
        If an array has the wrong shape or dtype.

    Examples
    --------
    >>> import jax.numpy as jnp, bppsa_cupy.jax as bj
    >>> bj.linear_scan(jnp.full(1, 0.5), jnp.ones((1, 3, 1))).ravel().tolist()
    [1.0, 1.5, 1.75]
    """
    a, b = jnp.asarray(a), jnp.asarray(b)
    if b.ndim != 3 or np.dtype(b.dtype) not in REAL_OF:
        raise ShapeError(
            f"linear_scan got b of {b.dtype} and shape {b.shape}: pass float32, float64, complex64 or "
            "complex128 of shape (B, T, H)"
        )
    batch, steps, hidden = b.shape
    a = a.reshape((1,) * (3 - a.ndim) + a.shape)
    h0 = jnp.zeros((batch, hidden), b.dtype) if h0 is None else jnp.asarray(h0)
    fits = a.ndim == 3 and a.shape[0] in (1, batch) and a.shape[1] in (1, steps) and a.shape[2] == hidden
    if not fits or h0.shape != (batch, hidden) or not a.dtype == b.dtype == h0.dtype:
        raise ShapeError(
            f"linear_scan got `a` of {a.dtype} and shape {a.shape}, `b` of {b.dtype} and shape {b.shape}, "
            f"`h0` of {h0.dtype} and shape {h0.shape}: pass all in {b.dtype}, with the shape ({batch} or 1, "
            f"{steps} or 1, {hidden}) for `a` and {(batch, hidden)} for `h0`"
        )
    lengths = jnp.full((batch,), steps, jnp.int32) if lengths is None else as_lengths(lengths, batch, steps)
    marks = jnp.zeros((1, steps), bool) if resets is None else jnp.atleast_2d(resets)
    if marks.dtype != bool or marks.shape not in ((1, steps), (batch, steps)):
        raise ShapeError(
            f"linear_scan got resets of {marks.dtype} and shape {jnp.shape(resets)}: pass bools of shape "
            f"({steps},) or ({batch}, {steps})"
        )
    return _scan.bind(a, b, h0, lengths, marks, reverse=bool(reverse))


def _fill(reverse: bool, transposed: bool, execution: Any, out: Any, operands: Any) -> None:
    """The callback: states, or those of the transpose, in memory of JAX's."""
    device, on_stream = where(execution, out)
    with on_stream:
        a, b, *h0, lengths, resets = as_arrays(device, operands)
        fill_states(
            device, as_arrays(device, out), a, b, h0[0] if h0 else None, lengths, resets, reverse, transposed
        )


def _computed(*operands: Any, reverse: bool, transposed: bool) -> Any:
    struct = jax.ShapeDtypeStruct(operands[1].shape, operands[1].dtype)
    return buffer_callback(partial(_fill, reverse, transposed), struct)(operands)


def _primitive(name: str, transposed: bool) -> Primitive:
    """A scan's primitive: of (a, b, h0, lengths, resets), of a transpose without h0."""
    primitive = Primitive(name)
    compute = partial(_computed, transposed=transposed)
    primitive.def_impl(jax.jit(compute, static_argnames=("reverse",)))
    primitive.def_abstract_eval(lambda a, b, *_, **__: jax.core.ShapedArray(b.shape, b.dtype))
    mlir.register_lowering(primitive, mlir.lower_fun(compute, multiple_results=False))
    batching.primitive_batchers[primitive] = partial(_batched, primitive)
    return primitive


def _batched(primitive: Primitive, values: Any, dims: Any, *, reverse: bool) -> tuple[Any, int]:
    """The rule for vmap: all samples are one batch."""
    size = next(v.shape[d] for v, d in zip(values, dims, strict=True) if d is not None)
    batch = values[1].shape[0 if dims[1] is None or dims[1] > 0 else 1]

    def merged(value: Any, dim: int | None, shared: bool) -> Any:
        if dim is None and shared and value.shape[0] == 1:
            return value
        value = jnp.broadcast_to(value, (size, *value.shape)) if dim is None else jnp.moveaxis(value, dim, 0)
        value = jnp.broadcast_to(value, (size, batch, *value.shape[2:]))
        return value.reshape(size * batch, *value.shape[2:])

    last = len(values) - 1
    taken = [
        merged(v, d, number in (0, last)) for number, (v, d) in enumerate(zip(values, dims, strict=True))
    ]
    h = primitive.bind(*taken, reverse=reverse)
    return h.reshape(size, batch, *h.shape[1:]), 0


_scan, _transpose = (
    _primitive("bppsa_cupy_linear_scan", False),
    _primitive("bppsa_cupy_linear_scan_back", True),
)


def _at_first(h: Any, lengths: Any, reverse: bool) -> Any:
    """Whether a step is a sample's first one, (B, T, 1)."""
    first = lengths[:, None, None] - 1 if reverse else 0
    return jnp.broadcast_to(jnp.arange(h.shape[1])[None, :, None] == first, (*h.shape[:2], 1))


def _moved(h: Any, reverse: bool) -> Any:
    """Of each step what the step before it has, in the scan's direction; zeros before the first."""
    zeros = jnp.zeros_like(h[:, :1])
    return jnp.concatenate([h[:, 1:], zeros] if reverse else [zeros, h[:, :-1]], 1)


def _product(factors: Any, states: Any, lengths: Any, resets: Any) -> Any:
    """factors * states, with zeros at resets and after each sample's end: neither operand enters there, nor
    does its derivative, whether or not they are finite."""
    cut = resets[..., None] | (jnp.arange(states.shape[1])[:, None] >= lengths[:, None, None])
    return jnp.where(cut, 0, jnp.where(cut, 0, factors) * jnp.where(cut, 0, states))


def _scan_jvp(primals: Any, tangents: Any, *, reverse: bool) -> Any:
    a, _, h0, lengths, resets = primals
    h = _scan.bind(*primals, reverse=reverse)
    term = ad.instantiate_zeros(tangents[1])
    if type(tangents[0]) is not ad.Zero:
        former = jnp.where(_at_first(h, lengths, reverse), h0[:, None], _moved(h, reverse))
        term = term + _product(tangents[0], former, lengths, resets)
    return h, _scan.bind(a, term, ad.instantiate_zeros(tangents[2]), lengths, resets, reverse=reverse)


def _scan_transpose(
    cotangent: Any, a: Any, b: Any, h0: Any, lengths: Any, resets: Any, *, reverse: bool
) -> Any:
    if type(cotangent) is ad.Zero:
        return None, None, None, None, None
    by_b = _transpose.bind(a, cotangent, lengths, resets, reverse=reverse)
    by_h0 = None
    if ad.is_undefined_primal(h0):
        carried = _product(a, by_b, lengths, resets)
        by_h0 = jnp.where(_at_first(by_b, lengths, reverse), carried, 0).sum(1)
    return None, by_b if ad.is_undefined_primal(b) else None, by_h0, None, None


def _transpose_jvp(primals: Any, tangents: Any, *, reverse: bool) -> Any:
    a, _, lengths, resets = primals
    g = _transpose.bind(*primals, reverse=reverse)
    term = ad.instantiate_zeros(tangents[1])
    if type(tangents[0]) is not ad.Zero:
        term = term + _moved(_product(tangents[0], g, lengths, resets), not reverse)
    return g, _transpose.bind(a, term, lengths, resets, reverse=reverse)


def _transpose_transpose(cotangent: Any, a: Any, b: Any, lengths: Any, resets: Any, *, reverse: bool) -> Any:
    if type(cotangent) is ad.Zero:
        return None, None, None, None
    h0 = jnp.zeros((cotangent.shape[0], cotangent.shape[2]), cotangent.dtype)
    return None, _scan.bind(a, cotangent, h0, lengths, resets, reverse=reverse), None, None


ad.primitive_jvps[_scan], ad.primitive_jvps[_transpose] = _scan_jvp, _transpose_jvp
ad.primitive_transposes[_scan] = _scan_transpose
ad.primitive_transposes[_transpose] = _transpose_transpose
