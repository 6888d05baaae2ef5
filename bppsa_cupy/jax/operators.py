"""Passes as primitives of JAX, for any batch, and as JAX differentiates them: in reverse mode, once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jax.experimental.buffer_callback import buffer_callback
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from bppsa_cupy.errors import PassError
from bppsa_cupy.jax.passes import (
    Back,
    Inputs,
    Wanted,
    backward_shapes,
    batch_axes,
    forward_shapes,
    go_back,
    go_forward,
    named,
)
from bppsa_cupy.layers import MatrixRecurrent


class Operator:
    """A function of a layer's and a tree of arrays, as a primitive.

    Parameters
    ----------
    shapes : callable
        Shapes of its results: a function of the layer, the arrays and what is wanted.
    callback : callable
        Fills buffers of those shapes.
    derivative : callable
        JAX's rule of its JVP.
    """

    def __init__(
        self,
        name: str,
        shapes: Callable[..., Any],
        callback: Callable[..., None],
        derivative: Callable[..., Any],
    ) -> None:
        self.shapes, self.callback = shapes, callback
        self.primitive = Primitive(name)
        self.primitive.multiple_results = True
        self.primitive.def_impl(jax.jit(self._compute, static_argnames=("layer", "tree", "wanted")))
        self.primitive.def_abstract_eval(self._abstract)
        mlir.register_lowering(self.primitive, mlir.lower_fun(self._compute, multiple_results=True))
        batching.primitive_batchers[self.primitive] = self._batched
        ad.primitive_jvps[self.primitive] = derivative

    def __call__(self, layer: MatrixRecurrent, parts: Any, wanted: Wanted) -> Any:
        leaves, tree = jax.tree.flatten(parts)
        results = self.primitive.bind(*leaves, layer=layer, tree=tree, wanted=wanted)
        return jax.tree.unflatten(jax.tree.structure(self.shapes(layer, parts, wanted)), results)

    def _compute(self, *leaves: Any, layer: MatrixRecurrent, tree: Any, wanted: Wanted) -> list[Any]:
        parts = jax.tree.unflatten(tree, leaves)
        callback = partial(self.callback, layer, wanted)
        return jax.tree.leaves(buffer_callback(callback, self.shapes(layer, parts, wanted))(parts))

    def _abstract(self, *leaves: Any, layer: MatrixRecurrent, tree: Any, wanted: Wanted) -> list[Any]:
        shapes = self.shapes(layer, jax.tree.unflatten(tree, leaves), wanted)
        return [jax.core.ShapedArray(struct.shape, struct.dtype) for struct in jax.tree.leaves(shapes)]

    def _batched(
        self, values: Sequence[Any], dims: Sequence[Any], *, layer: MatrixRecurrent, tree: Any, wanted: Wanted
    ) -> tuple[list[Any], list[int | None]]:
        """The rule for vmap: all samples in one call; one call after another where parameters, or the
        gradients with respect to them, are others for each, or where there is none."""
        bind = partial(self.primitive.bind, layer=layer, tree=tree, wanted=wanted)
        axes = batch_axes(layer, jax.tree.unflatten(tree, values))
        size = next(v.shape[dim] for v, dim in zip(values, dims, strict=True) if dim is not None)
        has_others = any(axis is None and dim is not None for axis, dim in zip(axes, dims, strict=True))
        if not size or wanted.parameters or has_others:
            return _one_by_one(bind, values, dims)
        merged = [
            value if axis is None else _merge(value, dim, axis, size)
            for value, dim, axis in zip(values, dims, axes, strict=True)
        ]
        results = self.shapes(layer, jax.tree.unflatten(tree, merged), wanted)
        moved: list[Any] = []
        of_results = batch_axes(layer, results)
        for value, axis in zip(bind(*merged), of_results, strict=True):
            assert axis is not None
            batch = value.shape[axis] // size
            moved.append(value.reshape(*value.shape[:axis], size, batch, *value.shape[axis + 1 :]))
        return moved, of_results


def _merge(value: Any, dim: int | None, axis: int, size: int) -> Any:
    """A value's samples, `size` batches of them, as one batch along `axis`."""
    if dim is None:
        shape = (*value.shape[:axis], size, *value.shape[axis:])
        value = jnp.broadcast_to(jnp.expand_dims(value, axis), shape)
    else:
        value = jnp.moveaxis(value, dim, axis)
    batch = size * value.shape[axis + 1]
    return value.reshape(*value.shape[:axis], batch, *value.shape[axis + 2 :])


def _one_by_one(
    bind: Callable[..., list[Any]], values: Sequence[Any], dims: Sequence[int | None]
) -> tuple[list[Any], list[int | None]]:
    mapped = [None if dim is None else jnp.moveaxis(v, dim, 0) for v, dim in zip(values, dims, strict=True)]

    def bind_sample(sample: list[Any]) -> list[Any]:
        return bind(*(v if o is None else o for v, o in zip(values, sample, strict=True)))

    results = jax.lax.map(bind_sample, mapped)
    first: list[int | None] = [0] * len(results)
    return results, first


# ---- derivatives ----


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def go(layer: MatrixRecurrent, inputs: Inputs) -> tuple[Any, tuple[Any, ...]]:
    """Output, and states after the last step."""
    y, states, _ = forward(layer, inputs, Wanted())
    return y, states


def _forward(layer: MatrixRecurrent, marked: Inputs) -> Any:
    """What `go` gives, and what the way back needs; each leaf of `marked` says whether its gradient is
    wanted."""

    def is_marked(leaf: Any) -> bool:
        return hasattr(leaf, "perturbed")

    def is_wanted(tree: Any) -> bool:
        return any(leaf.perturbed for leaf in jax.tree.leaves(tree, is_leaf=is_marked))

    inputs = jax.tree.map(lambda leaf: leaf.value, marked, is_leaf=is_marked)
    wanted = Wanted(parameters=is_wanted(marked.parameters), x=is_wanted(marked.x))
    y, states, saved = forward(layer, inputs, Wanted(saved=True))
    return (y, states), (inputs, saved, wanted)


def _backward(layer: MatrixRecurrent, residuals: Any, gradients: Any) -> tuple[Inputs]:
    inputs, saved, wanted = residuals
    by_output, by_states = gradients

    def is_zero(gradient: Any) -> bool:
        return isinstance(gradient, SymbolicZero)

    def as_array(gradient: Any) -> Any:
        return jnp.zeros(gradient.shape, gradient.dtype) if is_zero(gradient) else gradient

    by_states = () if all(map(is_zero, by_states)) else by_states
    by_output, by_states = jax.tree.map(as_array, (by_output, by_states), is_leaf=is_zero)
    derivatives = backward(layer, Back(inputs, saved, by_output, by_states), wanted)
    return (Inputs(derivatives.x, None, derivatives.states, derivatives.parameters),)


go.defvjp(_forward, _backward, symbolic_zeros=True)


def _derivative(
    primals: Sequence[Any], tangents: Sequence[Any], *, layer: MatrixRecurrent, tree: Any, wanted: Wanted
) -> tuple[list[Any], list[Any]]:
    """`go` in place of the primitive, whose rule for vmap comes first so: what `jax.vmap` inside of
    `jax.grad` makes one batch goes back as one, which the rule of `go` itself would go through sample by
    sample."""
    if wanted.saved:
        _refuse(primals, tangents, layer=layer)
    varies = [type(tangent) is not ad.Zero for tangent in tangents]

    def of_those(*values: Any) -> list[Any]:
        remaining = iter(values)
        leaves = [next(remaining) if v else primal for v, primal in zip(varies, primals, strict=True)]
        return jax.tree.leaves(go(layer, jax.tree.unflatten(tree, leaves)))

    points, ways = (
        [value for v, value in zip(varies, values, strict=True) if v] for values in (primals, tangents)
    )
    return jax.jvp(of_those, points, ways)


def _refuse(primals: Any, tangents: Any, *, layer: MatrixRecurrent, **_: Any) -> Any:
    """The rule of what is itself part of a derivative."""
    raise PassError(
        f"{named(layer)} has no second derivatives in bppsa_cupy.jax: if you need them, write the cell with "
        "jax.lax.scan"
    )


#: Of `Inputs` to `Results`.
forward = Operator("bppsa_cupy_forward", forward_shapes, go_forward, _derivative)
#: Of `Back` to `Derivatives`.
backward = Operator("bppsa_cupy_backward", backward_shapes, go_back, _refuse)
