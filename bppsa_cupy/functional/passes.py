"""`forward`, `vjp` and `jacobians` of one layer, on contexts that later passes use again."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bppsa_cupy.arguments import as_choice, as_flag, as_instance
from bppsa_cupy.devices import Array, Device, device_of, get_device
from bppsa_cupy.errors import ArgumentError, PassError, ShapeError
from bppsa_cupy.layers import Context, Layer, MatrixRecurrent, Recurrent, Shape
from bppsa_cupy.layers.matrix_recurrent import MatrixContext
from bppsa_cupy.layers.recurrent import RecurrentContext
from bppsa_cupy.layers.stack import layer_records
from bppsa_cupy.records.records import JacobianRecords
from bppsa_cupy.timescan.chunked import WAYS
from bppsa_cupy.timescan.lengths import Resets, take_lengths

#: A layer's pool holds at most this many times what its passes have taken at once.
SPARE = 2


#: What a context's launches are bound to: where it works, with which dtype, the shape of the input, the batch
#: included, where parameters and buffers lie, and whether a way back may follow.
Key = tuple[Hashable, str, Shape, Hashable, bool]


class Shapes(NamedTuple):
    """The shapes of the inputs and results of a pass of one layer.

    Attributes
    ----------
    batch : int
        Samples.
    output : Shape
        Shape of the output, in the caller's layout.
    states : tuple of Shape
        Shapes of the states, (num_layers D, B, H); empty for a layer that is not recurrent.
    by_time, output_by_time : bool
        Whether input and output are (T, B, columns).
    """

    batch: int
    output: Shape
    states: tuple[Shape, ...]
    by_time: bool
    output_by_time: bool


@dataclass(eq=False)
class Slot:
    """A context of one layer, with the shapes of its passes, and the bytes of its buffers as `Pool.measure`
    found them. `captured` says that a graph works on it, to which it belongs from then on."""

    ctx: Context
    key: Key
    shapes: Shapes
    nbytes: int = -1
    captured: bool = False


class Pool:
    """The contexts of one layer: those that passes use are counted, those that none uses are kept.

    A pass gets one of its own key. Where there is none it gets a new one, until all together hold SPARE times
    the most that was in use at once; from then on a recurrent one that has waited for longest, which binds
    its launches anew. What is beyond that limit is dropped.

    Attributes
    ----------
    lock
        Held while contexts move; a pass that is dropped gives its own back, which Python may do amid any
        statement of the same thread.
    gradients : dict of Hashable to dict of str to array
        Buffers by place and parameter name, which the backward passes use in turn.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.gradients: dict[Hashable, dict[str, Array]] = {}
        self._free: list[Slot] = []
        self._free_bytes = self._used_bytes = self._peak = 0

    def find(self, key: Key) -> Slot | None:
        """A free context of this key, which is in use then."""
        with self.lock:
            for number, slot in enumerate(self._free):
                if slot.key == key:
                    self._used_bytes += slot.nbytes
                    self._remove(number)
                    return slot
        return None

    def find_other(self, key: Key) -> RecurrentContext | None:
        """A free context of another key, to be bound anew, where a new one would exceed the limit."""
        with self.lock:
            if self._free_bytes + self._used_bytes >= SPARE * self._peak:
                for number, slot in enumerate(self._free):
                    if slot.key[:2] == key[:2] and isinstance(slot.ctx, RecurrentContext):
                        self._remove(number)
                        return slot.ctx
        return None

    def _remove(self, number: int) -> None:
        self._free_bytes -= self._free.pop(number).nbytes

    def measure(self, slot: Slot) -> None:
        """Count the buffers of a context in use, which it has by now."""
        if slot.nbytes < 0:
            with self.lock:
                arrays = (array for ctx in slot.ctx.every() for array in ctx.stored_arrays())
                slot.nbytes = sum(array.nbytes for array in arrays)
                self._used_bytes += slot.nbytes
                self._peak = max(self._peak, self._used_bytes)

    def give(self, slot: Slot) -> None:
        """Take a context back, which lets go of its pass; one that was not measured, as its pass failed, is
        dropped."""
        for ctx in slot.ctx.every():
            ctx.let_go()
        if slot.nbytes < 0:
            return
        with self.lock:
            self._used_bytes -= slot.nbytes
            if slot.captured:
                return
            self._free.append(slot)
            self._free_bytes += slot.nbytes
            while self._free_bytes + self._used_bytes > SPARE * self._peak:
                self._remove(0)

    def clear(self) -> None:
        """Drop what no pass uses."""
        with self.lock:
            self._free.clear()
            self.gradients.clear()
            self._free_bytes, self._peak = 0, self._used_bytes


_pools: weakref.WeakKeyDictionary[Layer, Pool] = weakref.WeakKeyDictionary()


def pool_of(layer: Layer) -> Pool:
    """The pool of a layer, which ends with it."""
    pool = _pools.get(layer)
    if pool is None:
        pool = _pools[layer] = Pool()
    return pool


def release_memory() -> None:
    """Free the memory that `forward` and `vjp` have cached, per layer, for later passes.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.functional.release_memory()
    """
    for pool in list(_pools.values()):
        pool.clear()


class Gradients(NamedTuple):
    """The gradients of a layer, as `vjp` returns them.

    Attributes
    ----------
    parameters : dict of str to array
        Gradients by parameter name. Empty if they were not requested.
    input : array or None
        Gradient with respect to the input, in its shape. None if it was not requested.
    states : array, tuple of arrays or None
        Gradients with respect to the states before the first step, (num_layers D, B, H), or a pair (h, c) for
        an LSTM. None for a layer that is not recurrent.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> y, saved = bp.functional.forward(bp.ReLU(), {}, np.array([[1.0, -1.0]]))
    >>> bp.functional.vjp(saved, np.ones_like(y)).input.tolist()
    [[1.0, 0.0]]
    """

    parameters: Mapping[str, Array]
    input: Array | None = None
    states: Any = None


#: In place of the caller's arrays: all are new.
NEW = Gradients({})


class Saved:
    """The part of a forward pass that the backward pass needs. Returned by `bp.functional.forward`.

    Do not change the parameters before the backward pass, because they are not copied. Input, output, states
    and lengths may be overwritten. When this object is deleted, later passes reuse its memory.

    Attributes
    ----------
    layer : Layer
        The layer.
    states : array, tuple of arrays or None
        The states of a recurrent layer after the last step, (num_layers D, B, H), or a pair (h, c) for an
        LSTM. None for other layers.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> y, saved = bp.functional.forward(bp.ReLU(), {}, np.array([[1.0, -1.0]]))
    >>> saved.layer, saved.states
    (ReLU(), None)
    """

    __slots__ = ("__weakref__", "layer", "pool", "slot", "states")

    def __init__(self, layer: Layer, pool: Pool, slot: Slot) -> None:
        self.layer, self.pool, self.slot = layer, pool, slot
        self.states: Any = None

    @property
    def context(self) -> Context:
        """The `bp.Context` of this pass, with its arrays and settings."""
        return self.slot.ctx

    def __del__(self) -> None:
        self.pool.give(self.slot)


def forward(
    layer: Layer,
    parameters: Mapping[str, Any],
    x: Any,
    *,
    lengths: Any = None,
    resets: Any = None,
    states: Any = None,
    training: bool = True,
    buffers: Mapping[str, Any] | None = None,
    draw: tuple[int, int, int] = (0, 0, 0),
    keep: bool = True,
    device: str | Device | None = None,
) -> tuple[Array, Saved]:
    """Compute the output of a layer outside of a network.

    Parameters
    ----------
    layer : Layer
        Any layer.
    parameters : dict of str to array
        The parameters by the names of the layer ("weight_ih_l0"), in the dtype of x. They are not copied.
        Masked weights must be 0.
    x : array, (B, ...)
        float32 or float64. Sequences are (B, T, F), or (T, B, F) with batch_first=False.
    lengths : int array, (B,), optional
        The length of each sequence, from 1 to T. Only for recurrent layers.
    resets : bool array, (B, T), optional
        True marks steps before which the state is set to 0. (T, B) with batch_first=False. Only for RNN, GRU,
        LSTM and CellLayer, and not together with lengths.
    states : array or tuple of arrays, optional
        The states before the first step, (num_layers D, B, H), or a pair (h, c) for an LSTM. Zeros by
        default.
    training : bool, default: True
        Whether the layer is in training mode. False means evaluation mode.
    buffers : dict of str to array, optional
        The buffers, such as "running_mean", which a pass in training mode updates. Default: initial values.
    draw : tuple of three int, default: (0, 0, 0)
        The seed of the random numbers of the layer: key, layer index and number of the pass.
    keep : bool, default: True
        Whether to store what `vjp` needs.
    device : "cuda" or "host", optional
        The device that computes. Default: the device of x.

    Returns
    -------
    y : array
        The output.
    saved : Saved
        The argument of `vjp`, which also contains the final states. Several passes may exist at a time.

    Raises
    ------
    ShapeError
        If an array has the wrong shape or dtype.
    ArgumentError
        If names differ from those of the layer, or the layer does not accept states, lengths or resets.
    DeviceError
        If there is too little memory.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> weight = np.array([[1.0, 2.0]])
    >>> y, saved = bp.functional.forward(bp.Linear(2, 1, bias=False), {"weight": weight}, np.ones((3, 2)))
    >>> y.tolist()
    [[3.0], [3.0], [3.0]]
    """
    as_instance("forward", "layer", layer, Layer, "a layer, for example bp.GRU(3, 20)")  # type: ignore[type-abstract]
    where = get_device(device) if device is not None else device_of(x)
    array = where.asarray(x)
    arrays, own_buffers = checked_arrays(layer, where, array.dtype, parameters, buffers)
    addresses = tuple(map(where.address, (*arrays.values(), *own_buffers.values())))
    bounds = lengths if resets is None else marks_of(layer, where.asarray, array.shape[:2], lengths, resets)
    saved = begin(layer, where, array, addresses, lambda: (arrays, own_buffers), bounds, states, keep)
    saved.context.training, saved.context.draw = as_flag("forward", "training", training), draw
    return run_forward(saved, array, bounds, states, copied=layer.backward_reads if keep else ()), saved


def begin(
    layer: Layer,
    device: Device,
    x: Array,
    addresses: Hashable,
    arrays: Callable[[], tuple[dict[str, Array], dict[str, Array]]],
    bounds: Any,
    states: Any,
    keep: bool,
    pool: Pool | None = None,
) -> Saved:
    """Return a prepared pass, still to `run`, on a context of the layer's pool.

    The arguments are checked unless a free context has the same key (address, shape and dtype of x, and
    `addresses`).

    Parameters
    ----------
    addresses : Hashable
        Addresses of parameters and buffers; equal addresses mean the same arrays.
    arrays : callable
        Returns checked parameters and buffers; called if no context is bound to them.
    bounds : object
        Lengths (B,), or bools (B, T) that mark resets, or None.
    keep : bool
        Whether a backward pass may follow.
    pool : Pool or None, default: None
        The pool of the layer, if the caller has it.
    """
    device.check_process()
    if bounds is not None or states is not None:
        check_beside(layer, bounds, states)
    if pool is None:
        pool = pool_of(layer)
    key = device.queue, x.dtype.char, x.shape, addresses, keep
    slot = None if device.capturing else pool.find(key)
    if slot is None:
        (parameters, of_layer), shapes = arrays(), shapes_of(layer, x.shape)
        ctx: Context | None = None if device.capturing else pool.find_other(key)
        if isinstance(ctx, RecurrentContext):
            ctx.rebind(parameters)
        else:
            gradients = pool.gradients.get(key[:2])
            if gradients is None:
                gradients = {name: device.empty(array.shape, x.dtype) for name, array in parameters.items()}
                pool.gradients[key[:2]] = gradients
            ctx = layer.context(device, x.dtype, parameters, gradients, (), module_buffers=of_layer)
        ctx.keeps = keep
        slot = Slot(ctx, key, shapes, captured=device.capturing)
    return Saved(layer, pool, slot)


def run_forward(
    saved: Saved,
    x: Array,
    bounds: Any,
    states: Any,
    out: Array | None = None,
    states_out: Any = None,
    copied: tuple[str, ...] = (),
) -> Array:
    """The output of a pass that was begun with these; it and a recurrent layer's states after the last step
    are written into `out` and `states_out`, or into new arrays.

    Parameters
    ----------
    copied : tuple of str, default: ()
        Arrays of the caller to copy, because they may change before the backward pass.
    """
    slot, layer = saved.slot, saved.layer
    ctx, shapes = slot.ctx, slot.shapes
    device = ctx.device
    with device.naming_memory:
        output = device.empty(shapes.output, ctx.dtype) if out is None else out
        by_samples = output.swapaxes(0, 1) if shapes.output_by_time else output
        if "output" not in copied and (bounds is None or by_samples.flags.c_contiguous):
            ctx.placed["output"] = by_samples
        if "input" in copied:
            copy = ctx.buffer("own_input", x.shape)
            copy[...] = x
            x = copy
        if shapes.states:
            saved.states = _place_states(ctx, "states", layer, shapes.states, states_out)
        entered = enter(layer, ctx, x, bounds, states, shapes.by_time)
        if "states" in copied:
            assert isinstance(ctx, RecurrentContext)
            ctx.initial = None if ctx.initial is None else tuple(state.copy() for state in ctx.initial)
        if copied and ctx.lengths is not None:
            ctx.lengths = ctx.lengths.copy()
        result = layer.forward(ctx, entered)
        if result is not by_samples:
            put(device, result, by_samples)
    if slot.nbytes < 0:
        saved.pool.measure(slot)
    return output


def vjp(
    saved: Saved,
    gradient: Any,
    *,
    state_gradients: Any = None,
    parameter_gradients: bool = True,
    input_gradient: bool = True,
    method: str = "auto",
) -> Gradients:
    """Compute the gradients of a layer with respect to parameters, input and initial states.

    Parameters
    ----------
    saved : Saved
        The object that `forward` returned. It may be passed to `vjp` any number of times.
    gradient : array
        The gradient with respect to the output, in its shape and dtype.
    state_gradients : array or tuple of arrays, optional
        The gradients with respect to the final states, in the form of `saved.states`. Zeros by default.
    parameter_gradients, input_gradient : bool, default: True
        Whether to compute the gradients with respect to the parameters, and to the input.
    method : {"auto", "bp", "linear", "blelloch", "hybrid"}, default: "auto"
        Over time, recurrent layers are serial with "bp" and "linear", chunked with "blelloch" and "hybrid".

    Returns
    -------
    Gradients

    Raises
    ------
    ShapeError
        If an array has the wrong shape or dtype.
    ArgumentError
        If `method` is unknown, or `state_gradients` is given for a layer that is not recurrent.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> weight = np.array([[1.0, 2.0]])
    >>> y, saved = bp.functional.forward(bp.Linear(2, 1, bias=False), {"weight": weight}, np.ones((3, 2)))
    >>> bp.functional.vjp(saved, np.ones((3, 1))).parameters["weight"].tolist()
    [[3.0, 3.0]]
    """
    as_instance("vjp", "saved", saved, Saved, "what functional.forward returned with the output")
    as_choice("vjp", "method", method, WAYS)
    ctx, shape = saved.context, saved.slot.shapes.output
    array = ctx.device.asarray(gradient)
    if array.shape != shape or array.dtype != ctx.dtype:
        raise ShapeError(
            f"vjp got a gradient of {array.dtype} and shape {tuple(array.shape)}: pass the dtype and shape "
            f"of the output, {ctx.dtype} and {shape}"
        )
    parameter_gradients = as_flag("vjp", "parameter_gradients", parameter_gradients)
    input_gradient = as_flag("vjp", "input_gradient", input_gradient)
    if state_gradients is not None and not isinstance(ctx, RecurrentContext):
        raise ArgumentError(
            f"{saved.layer!r} got gradients with respect to states, which only recurrent layers have: omit "
            "them"
        )
    return go_back(saved, array, state_gradients, parameter_gradients, input_gradient, True, method)


def go_back(
    saved: Saved,
    gradient: Array,
    state_gradients: Any,
    want_parameters: bool,
    want_input: bool,
    want_states: bool,
    method: str = "auto",
    out: Gradients = NEW,
) -> Gradients:
    """`vjp` from an array on the pass's device, C-contiguous, of the output's shape and dtype: of the
    gradients those that are wanted."""
    layer, slot = saved.layer, saved.slot
    ctx, shapes = slot.ctx, slot.shapes
    if not ctx.keeps:
        raise PassError("the forward pass used keep=False: run it with keep=True before vjp")
    device, dtype = ctx.device, ctx.dtype
    by_input, by_samples, by_states = None, None, None
    by_parameters: dict[str, Array] = {}
    with saved.pool.lock, device.naming_memory:
        ctx.method = method
        if isinstance(ctx, RecurrentContext):
            ctx.want_states, ctx.final_gradient = want_states, None
            if state_gradients is not None:
                assert isinstance(layer, Recurrent)
                argument = "the gradient with respect to the final state"
                ctx.final_gradient = layer.check_states(
                    state_gradients, shapes.batch, dtype, device.asarray, argument
                )
            if want_states:
                by_states = _place_states(ctx, "state_gradients", layer, shapes.states, out.states)
        if want_input:
            by_input = device.empty(slot.key[2], dtype) if out.input is None else out.input
            by_samples = by_input.swapaxes(0, 1) if shapes.by_time else by_input
            if ctx.lengths is None or by_samples.flags.c_contiguous:
                ctx.placed["input_gradient"] = by_samples
        by_output = gradient.swapaxes(0, 1) if shapes.output_by_time else gradient
        if ctx.lengths is not None:
            by_output = device.xp.ascontiguousarray(by_output)
        result = layer.backward(ctx, by_output, want_input) if want_parameters else layer.vjp(ctx, by_output)
        if result is not by_samples and want_input:
            put(device, result, by_samples)
        if want_parameters:
            into = out.parameters
            for name, array in ctx.gradients.items():
                target = into[name] if name in into else device.empty(array.shape, dtype)
                target[...] = array
                by_parameters[name] = target
    return Gradients(by_parameters, by_input, by_states)


def _place_states(ctx: Context, name: str, layer: Layer, shapes: tuple[Shape, ...], states: Any) -> Any:
    """Put arrays for states, or for gradients with respect to them, in their place: the caller's, or new ones
    of these shapes; returns one array, or a tuple."""
    parts = states if isinstance(states, (tuple, list)) else (states,) * len(shapes)
    assert isinstance(layer, Recurrent)
    arrays, dtype = [], layer.state_dtype(ctx.dtype)
    for number, (part, shape) in enumerate(zip(parts, shapes, strict=True)):
        array = ctx.device.empty(shape, dtype) if part is None else part
        ctx.placed[f"{name}_{number}"] = array
        arrays.append(array)
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def keep(saved: Saved, out: Mapping[str, Array]) -> None:
    """Copy what the pass keeps into arrays of the layer's `kept_shapes`."""
    ctx = saved.context
    assert isinstance(ctx, MatrixContext) and ctx.stack is not None
    for name, array in ctx.stack.saved_arrays().items():
        out[name][: len(array)] = array
        out[name][len(array) :] = 0


def resume(saved: Saved, x: Array, bounds: Any, states: Any, stored: Mapping[str, Array]) -> None:
    """Make a pass that was begun with these what it is after a forward pass that kept these arrays, which
    are copied."""
    layer, ctx = saved.layer, saved.context
    assert isinstance(layer, MatrixRecurrent) and isinstance(ctx, MatrixContext)
    layer.resume(ctx, enter(layer, ctx, x, bounds, states, is_by_time(layer)), stored)
    saved.pool.measure(saved.slot)


def jacobians(
    layer: Layer,
    parameters: Mapping[str, Any],
    x: Any,
    *,
    lengths: Any = None,
    resets: Any = None,
    states: Any = None,
    buffers: Mapping[str, Any] | None = None,
    device: str | Device | None = None,
) -> JacobianRecords:
    """Compute the transposed Jacobians of one layer in evaluation mode.

    Parameters
    ----------
    layer, parameters, x, lengths, resets, states, buffers, device
        The arguments of `bp.functional.forward`. The Jacobian of a step with a reset is 0.

    Returns
    -------
    JacobianRecords
        One record, or one per inner layer, direction and step of a recurrent layer. Empty for a layer that
        only reshapes.

    Raises
    ------
    ShapeError, ArgumentError, DeviceError
        If an array or name does not fit the layer, or there is too little memory.
    PassError
        If the layer couples the samples of a batch, or is a Residual block.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> records = bp.functional.jacobians(bp.ReLU(), {}, np.array([[1.0, -1.0]]))
    >>> records[0].to_scipy().toarray().tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    _, saved = forward(
        layer, parameters, x, lengths=lengths, resets=resets, states=states, training=False, buffers=buffers,
        device=device,
    )  # fmt: skip
    ctx, batch = saved.context, saved.slot.shapes.batch
    if layer.is_barrier(False) and not isinstance(layer, Recurrent):
        raise PassError(
            f"{layer!r} has no Jacobian per sample: use BatchNorm in evaluation mode, and pass the layers "
            "of a Residual block one by one"
        )
    shape = tuple(saved.slot.key[2])
    shape = (shape[0], shape[2]) if is_by_time(layer) else shape[1:]
    operator = None if isinstance(layer, Recurrent) else layer.jacobian(shape)
    with ctx.device.naming_memory:
        return JacobianRecords(layer_records(layer, ctx, shape, operator, batch))


# ---- the caller's layout: arguments are checked and turned into the engine's ----


def shapes_of(layer: Layer, shape: Shape) -> Shapes:
    """Return the shapes of a pass over input of this shape. Raises ShapeError if the layer rejects it."""
    batch, *sizes = taken_shape(layer, shape)
    output = batch, *layer.output_shape(tuple(sizes))
    if not isinstance(layer, Recurrent):
        return Shapes(batch, output, (), False, False)
    state = layer.num_layers * layer.directions, batch, layer.hidden_size
    by_time = is_by_time(layer)
    output_by_time = by_time and len(output) == 3
    if output_by_time:
        output = output[1], output[0], output[2]
    return Shapes(batch, output, (state,) * layer.state_count, by_time, output_by_time)


def taken_shape(layer: Layer, shape: Shape) -> Shape:
    """The shape of an input in the engine's layout, (B, ...). Raises ShapeError if the layer rejects it."""
    if isinstance(layer, Recurrent):
        if len(shape) == 2 and shape[0]:
            axes, place = ("(B, T, ", "None") if layer.batch_first else ("(T, B, ", ":, None")
            raise ShapeError(
                f"{layer!r} got input of shape {tuple(shape)}, without a batch axis: pass {axes}"
                f"{layer.input_size}); x[{place}] is a batch of one sample"
            )
        if len(shape) == 3 and not layer.batch_first:
            shape = shape[1], shape[0], shape[2]
    if not shape or not shape[0]:
        raise ShapeError(f"{layer!r} got input of shape {tuple(shape)}: pass at least one sample")
    layer.output_shape(tuple(shape[1:]))
    return shape


def check_beside(layer: Layer, lengths: Any, states: Any) -> None:
    """Raise ArgumentError if lengths, resets or states are passed to a layer that accepts none."""
    if (states is not None or lengths is not None) and not isinstance(layer, Recurrent):
        raise ArgumentError(f"{layer!r} got a state, lengths or resets, but is not recurrent: omit them")


def is_by_time(layer: Layer) -> bool:
    """Whether the layer's sequences are (T, B, columns)."""
    return isinstance(layer, Recurrent) and not layer.batch_first


def marks_of(layer: Layer, convert: Callable[[Any], Any], shape: Shape, lengths: Any, resets: Any) -> Array:
    """Resets of the caller's layout, `shape`, as bools (B, T). Raises where they come with lengths."""
    check_beside(layer, None, resets)
    assert isinstance(layer, Recurrent)
    layer.check_resets()
    if lengths is not None:
        raise ArgumentError(f"{layer!r} got lengths and resets: pass only one of them")
    marks = convert(resets)
    if marks.dtype != np.bool_ or tuple(marks.shape) != tuple(shape):
        raise ShapeError(
            f"{layer!r} got resets of {marks.dtype} and shape {tuple(marks.shape)}: pass bools of shape "
            f"{tuple(shape)}"
        )
    return marks.T if is_by_time(layer) else marks


def enter(layer: Layer, ctx: Context, x: Array, bounds: Any, states: Any, by_time: bool) -> Array:
    """An input of the layer's layout, which may be `by_time`, as its `forward` takes it, with what comes
    beside it in the context."""
    if by_time:
        x = x.swapaxes(0, 1)
    ctx.input_shape, ctx.lengths, ctx.resets = x.shape[1:], None, None
    if isinstance(ctx, RecurrentContext):
        ctx.initial = ctx.final_gradient = None
        if states is not None:
            assert isinstance(layer, Recurrent)
            ctx.initial = layer.check_states(states, len(x), ctx.dtype, ctx.device.asarray, "the state")
        if getattr(bounds, "dtype", None) == np.bool_:
            ctx.resets = Resets(ctx.device, bounds, *x.shape[:2])
        elif bounds is not None:
            ctx.lengths = take_lengths(ctx.device, bounds, *x.shape[:2])
            x = ctx.device.xp.ascontiguousarray(x)  # as the engine takes samples that end early
    return x


def put(device: Device, result: Array, wanted: Array) -> None:
    """Copy the result of a layer to its target, unless it was written there."""
    if result is not wanted and not device.xp.may_share_memory(result, wanted):
        wanted[...] = result


def checked_parameters(
    layer: Layer, dtype: Any, parameters: Mapping[str, Any], convert: Callable[[Any], Any]
) -> dict[str, Any]:
    """Convert the parameters of a layer by `convert`. Raises ArgumentError for other names than those of the
    layer, and ShapeError for other shapes or another dtype than the input."""
    if dtype not in (np.float32, np.float64):
        raise ShapeError(f"{layer!r} got input of {dtype}: pass float32 or float64")
    shapes = layer.parameter_shapes()
    as_instance("forward", "parameters", parameters, Mapping, "a dict of arrays by name")  # type: ignore[type-abstract]
    if parameters.keys() != shapes.keys():
        raise ArgumentError(f"{layer!r} got parameters named {list(parameters)}: pass {list(shapes)}")
    arrays = {name: convert(parameters[name]) for name in shapes}
    for name, array in arrays.items():
        if tuple(array.shape) != shapes[name] or array.dtype != dtype:
            raise ShapeError(
                f"{layer!r} got {name} of {array.dtype} and shape {tuple(array.shape)}: for input of "
                f"{dtype}, pass {dtype} of shape {shapes[name]}"
            )
    return arrays


def checked_arrays(
    layer: Layer,
    device: Device,
    dtype: np.dtype,
    parameters: Mapping[str, Any],
    buffers: Mapping[str, Any] | None,
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Parameters and buffers on the device. Raises ShapeError and ArgumentError."""
    arrays = checked_parameters(layer, dtype, parameters, device.asarray)
    initial = layer.initial_buffers()
    values = initial if buffers is None else buffers
    as_instance("forward", "buffers", values, Mapping, "a dict of arrays by name")  # type: ignore[type-abstract]
    if values.keys() != initial.keys():
        raise ArgumentError(f"{layer!r} got buffers with the names {list(values)}: pass {list(initial)}")
    return arrays, {
        name: device.asarray(values[name], dtype=np.int64 if value.dtype.kind == "i" else dtype)
        for name, value in initial.items()
    }
