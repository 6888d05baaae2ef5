"""Passes of the engine on memory that JAX hands over: pytrees of inputs and results, the callbacks, and the
primitives around them with derivatives in reverse mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.experimental.buffer_callback import buffer_callback
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from bppsa_cupy.devices import Array, Device, get_device
from bppsa_cupy.errors import PassError
from bppsa_cupy.functional import Gradients, Saved
from bppsa_cupy.functional.passes import begin, keep, resume, run_forward, shapes_of
from bppsa_cupy.functional.passes import go_back as back_through
from bppsa_cupy.layers import MatrixRecurrent, Recurrent
from bppsa_cupy.timescan.lengths import check_lengths

#: DLPack's number of the host's memory.
HOST = 1
#: In place of the addresses of parameters: those of a context's own arrays.
OWN = "own"


class Inputs(NamedTuple):
    """The inputs of a forward pass.

    Attributes
    ----------
    x : object
        (B, T, F), or (T, B, F) where the layer is not batch_first.
    bounds : object
        Lengths (B,), or bools (B, T) that mark resets, or None.
    states : tuple of object
        States before the first step, (num_layers D, B, H) each; () for zeros.
    parameters : dict of str to object
        Parameters by name.
    """

    x: Any
    bounds: Any
    states: tuple[Any, ...]
    parameters: dict[str, Any]


class Results(NamedTuple):
    """The results by name: the output, the states after the last step, and the arrays kept, if any."""

    y: Any
    states: tuple[Any, ...]
    saved: dict[str, Any] | None


class Back(NamedTuple):
    """Inputs of a backward pass: those of the forward pass, the arrays that it kept, and the gradients with
    respect to its output and its last states, () for zeros."""

    inputs: Inputs
    saved: dict[str, Any]
    by_output: Any
    by_states: tuple[Any, ...]


class Derivatives(NamedTuple):
    """The gradients with respect to x, first states (() where they are zeros) and parameters; None where not
    wanted."""

    x: Any
    states: tuple[Any, ...]
    parameters: dict[str, Any] | None


@jax.tree_util.register_static
@dataclass(frozen=True)
class Wanted:
    """Results that a pass computes on request.

    They are arrays to keep, or gradients with respect to parameters and x.
    """

    saved: bool = False
    parameters: bool = False
    x: bool = False


def forward_shapes(layer: MatrixRecurrent, inputs: Inputs, wanted: Wanted) -> Results:
    """Shapes and dtypes of `Results`."""
    shapes, dtype = shapes_of(layer, inputs.x.shape), inputs.x.dtype
    saved = None
    if wanted.saved:
        steps = inputs.x.shape[1 - sequence_axis(layer)]
        has_resets = inputs.bounds is not None and inputs.bounds.dtype == bool
        kept = layer.kept_shapes(shapes.batch, steps, has_resets).items()
        saved = {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape in kept}
    states = tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes.states)
    return Results(jax.ShapeDtypeStruct(shapes.output, dtype), states, saved)


def backward_shapes(layer: MatrixRecurrent, back: Back, wanted: Wanted) -> Derivatives:
    """Shapes and dtypes of `Derivatives`."""

    def like(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)

    inputs = back.inputs
    return Derivatives(
        x=like(inputs.x) if wanted.x else None,
        states=like(inputs.states),
        parameters=like(inputs.parameters) if wanted.parameters else None,
    )


def sequence_axis(layer: Recurrent) -> int:
    """Which axis of sequences is the batch."""
    return 0 if layer.batch_first else 1


def batch_axes(layer: MatrixRecurrent, parts: Any) -> list[int | None]:
    """Which axis of each leaf is the batch; None for parameters and the gradients with respect to them."""
    by_step = sequence_axis(layer)
    output = by_step if layer.outputs == "all" else 0
    axis_of = {
        "x": by_step, "bounds": 0, "states": 1, "parameters": None,
        "y": output, "saved": 2, "by_output": output, "by_states": 1,
    }  # fmt: skip
    axes: list[int | None] = []
    for name, part in zip(parts._fields, parts, strict=True):
        if isinstance(part, Inputs):
            axes += batch_axes(layer, part)
        else:
            axes += [axis_of[name]] * len(jax.tree.leaves(part))
    return axes


def as_lengths(lengths: Any, batch: int, steps: int) -> jax.Array:
    """`lengths` (B,) as a JAX array, checked. Of a traced array, only shape and dtype are checked."""
    if isinstance(lengths, jax.core.Tracer):
        check_lengths(np.ones(lengths.shape, lengths.dtype), batch, max(steps, 1))
    else:
        lengths = np.asarray(lengths)
        check_lengths(lengths, batch, steps)
    return jnp.asarray(lengths)


# ---- callbacks ----


def go_forward(layer: MatrixRecurrent, wanted: Wanted, execution: Any, out: Results, inputs: Inputs) -> None:
    """Fill `out`. Arguments after `wanted` are the callback's: trees of `Buffer`s."""
    device, on_stream = where(execution, inputs.x)
    with on_stream:
        arrays: Inputs = as_arrays(device, inputs)
        results: Results = as_arrays(device, out)
        saved = begun(layer, device, arrays, wanted.saved)
        run_forward(saved, arrays.x, arrays.bounds, arrays.states or None, results.y, results.states)
        if results.saved is not None:
            keep(saved, results.saved)


def go_back(layer: MatrixRecurrent, wanted: Wanted, execution: Any, out: Derivatives, back: Back) -> None:
    """Likewise."""
    device, on_stream = where(execution, back.by_output)
    with on_stream:
        arrays: Back = as_arrays(device, back)
        gradients: Derivatives = as_arrays(device, out)
        inputs = arrays.inputs
        saved = begun(layer, device, inputs, True)
        resume(saved, inputs.x, inputs.bounds, inputs.states or None, arrays.saved)
        into = Gradients(gradients.parameters or {}, gradients.x, gradients.states or None)
        back_through(
            saved, arrays.by_output, arrays.by_states or None, wanted.parameters, wanted.x, True, out=into
        )


def begun(layer: MatrixRecurrent, device: Device, inputs: Inputs, keep: bool) -> Saved:
    """A pass of the layer on copies of the parameters: its launches are bound to arrays, and those of JAX's
    are others in every pass.

    Parameters
    ----------
    keep : bool
        Whether a way back may follow.
    """
    dtype = inputs.x.dtype

    def arrays() -> tuple[dict[str, Array], dict[str, Array]]:
        return {name: device.empty(a.shape, dtype) for name, a in inputs.parameters.items()}, {}

    saved = begin(layer, device, inputs.x, OWN, arrays, inputs.bounds, inputs.states or None, keep)
    for name, array in saved.context.parameters.items():
        array[...] = inputs.parameters[name]
    return saved


def where(execution: Any, buffer: Any) -> tuple[Device, AbstractContextManager[Any]]:
    """The engine's device of a buffer, and the stream that JAX works on there."""
    kind, number = buffer.__dlpack_device__()
    device = get_device("host" if kind == HOST else "cuda")
    return device, device.on_stream(number, 0 if kind == HOST else execution.stream)


def as_arrays(device: Device, buffers: Any) -> Any:
    """A tree of buffers as arrays on their memory."""
    convert: Callable[[Any], Array] = np.asarray if device.xp is np else device.asarray
    return jax.tree.map(convert, buffers)


# ---- passes as primitives, for any batch ----


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
            mapped = [
                None if dim is None else jnp.moveaxis(v, dim, 0) for v, dim in zip(values, dims, strict=True)
            ]

            def bind_sample(sample: list[Any]) -> list[Any]:
                return bind(*(v if o is None else o for v, o in zip(values, sample, strict=True)))

            results = jax.lax.map(bind_sample, mapped)
            return results, [0] * len(results)
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

    points = [primal for v, primal in zip(varies, primals, strict=True) if v]
    ways = [tangent for v, tangent in zip(varies, tangents, strict=True) if v]
    return jax.jvp(of_those, points, ways)


def _refuse(primals: Any, tangents: Any, *, layer: MatrixRecurrent, **_: Any) -> Any:
    """The rule of what is itself part of a derivative."""
    raise PassError(
        f"{layer!r} has no second derivatives in bppsa_cupy.jax: if you need them, write the cell with "
        "jax.lax.scan"
    )


#: Of `Inputs` to `Results`.
forward = Operator("bppsa_cupy_forward", forward_shapes, go_forward, _derivative)
#: Of `Back` to `Derivatives`.
backward = Operator("bppsa_cupy_backward", backward_shapes, go_back, _refuse)
