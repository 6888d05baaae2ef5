"""A pass as JAX differentiates it: in reverse mode, once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from bppsa_cupy.errors import PassError
from bppsa_cupy.jax.operators import Operator
from bppsa_cupy.jax.parts import Back, Given, Wanted, backward_shapes, forward_shapes, named
from bppsa_cupy.jax.passes import go_back, go_forward
from bppsa_cupy.layers import MatrixRecurrent


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def go(layer: MatrixRecurrent, given: Given) -> tuple[Any, tuple[Any, ...]]:
    """Output, and states after the last step."""
    y, states, _ = forward(layer, given, Wanted())
    return y, states


def _forward(layer: MatrixRecurrent, marked: Given) -> Any:
    """What `go` gives, and what the way back needs; each leaf of `marked` says whether its gradient is
    wanted."""

    def is_wanted(tree: Any) -> bool:
        return any(leaf.perturbed for leaf in jax.tree.leaves(tree, is_leaf=_is_marked))

    given = jax.tree.map(lambda leaf: leaf.value, marked, is_leaf=_is_marked)
    wanted = Wanted(parameters=is_wanted(marked.parameters), x=is_wanted(marked.x))
    y, states, kept = forward(layer, given, Wanted(kept=True))
    return (y, states), (given, kept, wanted)


def _is_marked(leaf: Any) -> bool:
    return hasattr(leaf, "perturbed")


def _backward(layer: MatrixRecurrent, residuals: Any, gradients: Any) -> tuple[Given]:
    given, kept, wanted = residuals
    by_output, by_states = gradients
    if all(isinstance(gradient, SymbolicZero) for gradient in by_states):
        by_states = ()
    by_output, by_states = jax.tree.map(_as_array, (by_output, by_states), is_leaf=_is_zero)
    found = backward(layer, Back(given, kept, by_output, by_states), wanted)
    return (Given(found.x, None, found.states, found.parameters),)


def _is_zero(gradient: Any) -> bool:
    return isinstance(gradient, SymbolicZero)


def _as_array(gradient: Any) -> Any:
    return jnp.zeros(gradient.shape, gradient.dtype) if _is_zero(gradient) else gradient


go.defvjp(_forward, _backward, symbolic_zeros=True)


def _derivative(
    primals: Sequence[Any], tangents: Sequence[Any], *, layer: MatrixRecurrent, tree: Any, wanted: Wanted
) -> tuple[list[Any], list[Any]]:
    """`go` in place of the primitive, whose rule for vmap comes first so: what `jax.vmap` inside of
    `jax.grad` makes one batch goes back as one, which the rule of `go` itself would go through sample by
    sample."""
    if wanted.kept:
        _refuse(primals, tangents, layer=layer)
    varies = [type(tangent) is not ad.Zero for tangent in tangents]

    def of_those(*values: Any) -> list[Any]:
        own = iter(values)
        leaves = [next(own) if v else primal for v, primal in zip(varies, primals, strict=True)]
        return jax.tree.leaves(go(layer, jax.tree.unflatten(tree, leaves)))

    points, ways = (
        [value for v, value in zip(varies, values, strict=True) if v] for values in (primals, tangents)
    )
    return jax.jvp(of_those, points, [_reverse_only.bind(way, layer=layer) for way in ways])


def _refuse_forward(*_: Any, layer: MatrixRecurrent, **__: Any) -> Any:
    raise PassError(
        f"{named(layer)} has no forward-mode derivatives in bppsa_cupy.jax: take reverse mode (jax.grad, "
        "jax.vjp, jax.jacrev), or write the cell with jax.lax.scan"
    )


#: A tangent as it is, as far as JAX traces and transposes it; refused where it is to be computed, as jax.jvp
#: does at once and jax.linearize when its function is called.
_reverse_only = Primitive("bppsa_cupy_reverse_only")
_reverse_only.def_impl(_refuse_forward)
_reverse_only.def_abstract_eval(lambda tangent, **_: tangent)
ad.deflinear2(_reverse_only, lambda cotangent, *_, **__: (cotangent,))
batching.primitive_batchers[_reverse_only] = _refuse_forward
mlir.register_lowering(_reverse_only, _refuse_forward)


def _refuse(primals: Any, tangents: Any, *, layer: MatrixRecurrent, **_: Any) -> Any:
    """The rule of what is itself part of a derivative."""
    raise PassError(
        f"{named(layer)} has no second derivatives in bppsa_cupy.jax: write the cell with jax.lax.scan where "
        "they are needed"
    )


#: Of `Given` to `Results`.
forward = Operator("bppsa_cupy_forward", forward_shapes, go_forward, _derivative)
#: Of `Back` to `Found`.
backward = Operator("bppsa_cupy_backward", backward_shapes, go_back, _refuse)
