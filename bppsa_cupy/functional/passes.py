"""`forward` and `vjp` of one layer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

from bppsa_cupy.arguments import as_flag, as_instance, is_one_of
from bppsa_cupy.devices import Array, Device, device_of, get_device
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.functional.checks import checked_arrays, checked_out, place_states
from bppsa_cupy.functional.layout import for_engine, go_forward, may_be_placed, taken_shape, turned
from bppsa_cupy.functional.pool import Key, Pool, Slot, pool_of
from bppsa_cupy.layers import Context, Layer, Recurrent, Shape
from bppsa_cupy.layers.recurrent_context import RecurrentContext
from bppsa_cupy.timescan.chunked import WAYS


class Gradients(NamedTuple):
    """What `vjp` gives, or where it writes.

    parameters  by name; empty where they are not asked for
    input       of the input's shape; None where it is not asked for
    states      by the states before the first step, (num_layers D, B, H), of an LSTM (h, c); None for a layer
                that is not recurrent
    """

    parameters: Mapping[str, Array]
    input: Array | None = None
    states: Any = None


class Saved:
    """What a forward pass keeps for its way back.

    layer   the layer
    states  a recurrent layer's states after the last step, (num_layers D, B, H), of an LSTM (h, c), which are
            the caller's; else None

    It refers to the parameters, which must keep their values until the way back; of a layer that is not
    recurrent so must input and output. Its memory serves later passes once nothing refers to it.
    """

    def __init__(
        self, layer: Layer, pool: Pool, slot: Slot, batch: int, input_shape: Shape, output_shape: Shape
    ) -> None:
        self.layer, self.pool, self.slot, self.batch = layer, pool, slot, batch
        self.input_shape, self.output_shape = tuple(input_shape), tuple(output_shape)
        self.states: Any = None

    @property
    def context(self) -> Context:
        """The layer's part of the pass."""
        return self.slot.ctx

    @property
    def forward_ways(self) -> tuple[str, ...]:
        """How a recurrent layer went over time, and why: a line an inner layer and direction."""
        ctx = self.context
        return ctx.forward_ways if isinstance(ctx, RecurrentContext) else ()

    @property
    def backward_ways(self) -> tuple[str, ...]:
        """How it last went back, likewise; empty before `vjp`."""
        ctx = self.context
        return ctx.backward_ways if isinstance(ctx, RecurrentContext) else ()

    def __del__(self) -> None:
        self.slot.ctx.let_go()
        self.pool.give(self.slot)


def forward(
    layer: Layer,
    parameters: Mapping[str, Any],
    x: Any,
    *,
    lengths: Any = None,
    states: Any = None,
    training: bool = True,
    buffers: Mapping[str, Any] | None = None,
    draw: tuple[int, int, int] = (0, 0, 0),
    out: Array | None = None,
    device: str | Device | None = None,
) -> tuple[Array, Saved]:
    """The layer's output for x, and what its way back needs.

    layer       any layer; a recurrent one of either `batch_first`
    parameters  all of the layer's, by its own names ("weight_ih_l0"), of x's dtype; used where they lie;
                where a weight has a mask, it is 0 outside of it
    x           (B, ...), of any shape the layer takes, float32 or float64; sequences (B, T, F), or (T, B, F)
                where the layer is not batch_first
    lengths     of sequences, (B,) integers from 1 to T: where each sample ends; recurrent layers alone
    states      before the first step, (num_layers D, B, H), of an LSTM (h, c); zeros without them; likewise
    training    the mode, for layers that differ in it
    buffers     the layer's buffers by name (BatchNorm's running statistics), written in training; without
                them those of a new layer
    draw        three integers that a layer's random numbers follow from
    out         where the output is written, C-contiguous; a new array without it
    device      "cuda" or "host"; by default where x is

    Any number of passes may be alive, of equal or other shapes. Raises ShapeError naming what differs,
    DeviceError where a pass does not fit the memory.
    """
    as_instance("forward", "layer", layer, Layer, "a layer, as bp.GRU(3, 20)")  # type: ignore[type-abstract]
    where = get_device(device) if device is not None else device_of(x)
    given = where.asarray(x)
    own, own_buffers = checked_arrays(layer, where, given.dtype, parameters, buffers)
    addresses = tuple(map(where.address, (*own.values(), *own_buffers.values())))
    return over(
        layer, where, given, addresses, lambda: (own, own_buffers),
        lengths=lengths, states=states, training=training, draw=draw, out=out,
    )  # fmt: skip


def over(
    layer: Layer,
    device: Device,
    x: Array,
    addresses: Hashable,
    arrays: Callable[[], tuple[dict[str, Array], dict[str, Array]]],
    *,
    lengths: Any = None,
    states: Any = None,
    training: bool = True,
    draw: tuple[int, int, int] = (0, 0, 0),
    out: Array | None = None,
) -> tuple[Array, Saved]:
    """`forward` for who knows where parameters and buffers lie before they are arrays.

    addresses  equal ones mean the same arrays
    arrays     gives parameters and buffers, checked; called where no context is bound to them
    """
    saved = begin(layer, device, x, addresses, arrays, lengths, states)
    saved.context.training, saved.context.draw = training, draw
    return run(saved, x, lengths, states, out), saved


def begin(
    layer: Layer,
    device: Device,
    x: Array,
    addresses: Hashable,
    arrays: Callable[[], tuple[dict[str, Array], dict[str, Array]]],
    lengths: Any,
    states: Any,
) -> Saved:
    """A pass yet to `run`, on a context of the layer's pool; arguments are those of `over`."""
    dtype = x.dtype
    device.check_process()
    batch, *sizes = taken_shape(layer, x.shape, lengths, states)
    shape = (batch, *layer.output_shape(tuple(sizes)))
    if len(shape) == 3 and isinstance(layer, Recurrent) and not layer.batch_first:
        shape = shape[1], shape[0], shape[2]
    key, pool = Key((device.queue, dtype.char), x.shape, addresses), pool_of(layer)

    def make() -> Context:
        own, own_buffers = arrays()
        masks = {name: device.asarray(mask, dtype=dtype) for name, mask in layer.masks().items()}
        if key.place not in pool.gradients:
            pool.gradients[key.place] = {name: device.empty(a.shape, dtype) for name, a in own.items()}
        of_pool = pool.gradients[key.place]
        return layer.context(device, dtype, own, of_pool, masks, (), module_buffers=own_buffers)

    return Saved(layer, pool, pool.take(key, lambda: arrays()[0], make), batch, x.shape, shape)


def run(
    saved: Saved, x: Array, lengths: Any, states: Any, out: Array | None, states_out: Any = None
) -> Array:
    """The output of a pass that was begun with these; it and the states after the last step are written where
    `out` and `states_out` lie, of a recurrent layer, or into new arrays."""
    layer, ctx, device = saved.layer, saved.context, saved.context.device
    output = checked_out(device, ctx.dtype, "the output", saved.output_shape, out)
    if isinstance(ctx, RecurrentContext):
        ctx.backward_ways = ()
    ctx.lengths = lengths
    by_samples = turned(layer, output)
    if may_be_placed(ctx, by_samples):
        ctx.place("output", by_samples)
    if isinstance(layer, Recurrent):
        saved.states = place_states(layer, ctx, "states", saved.batch, states_out)
    result = go_forward(layer, ctx, x, lengths, states)
    if not device.xp.may_share_memory(result, output):
        output[...] = result
    saved.pool.measure(saved.slot)
    return output


def vjp(
    saved: Saved,
    gradient: Any,
    *,
    state_gradients: Any = None,
    parameter_gradients: bool = True,
    input_gradient: bool = True,
    method: str = "auto",
    out: Gradients | None = None,
) -> Gradients:
    """The gradients of a pass by parameters, input and first states, from the one by the output.

    saved            of `forward`; it may go back any number of times
    gradient         of the output's shape and dtype
    state_gradients  by the states after the last step, of their shape, an LSTM's (h, c); zeros without them
    parameter_gradients, input_gradient  what is asked for; the gradients by the states always are
    method           how a recurrent layer goes over time, as net.backward takes it
    out              arrays to write into, C-contiguous; what is empty or None there is written into new ones

    Raises ShapeError naming both shapes or dtypes.
    """
    as_instance("vjp", "saved", saved, Saved, "what functional.forward gave with the output")
    if not is_one_of(method, WAYS):
        raise ShapeError(f"vjp got method={method!r}: it takes {', '.join(map(repr, WAYS))}")
    layer, ctx = saved.layer, saved.context
    device, dtype = ctx.device, ctx.dtype
    given = device.asarray(gradient)
    if given.shape != saved.output_shape or given.dtype != dtype:
        raise ShapeError(
            f"vjp got a gradient of {given.dtype} and shape {tuple(given.shape)}: the output is {dtype} of "
            f"shape {saved.output_shape}"
        )
    parameter_gradients = as_flag("vjp", "parameter_gradients", parameter_gradients)
    input_gradient = as_flag("vjp", "input_gradient", input_gradient)
    wanted = (
        Gradients({}) if out is None else as_instance("vjp", "out", out, Gradients, "bp.functional.Gradients")
    )
    by_input: Array | None = None
    if input_gradient:
        by_input = checked_out(device, dtype, "the input's gradient", saved.input_shape, wanted.input)
    by_states, by_parameters = None, {}
    with saved.pool.lock:
        ctx.method = method
        if isinstance(ctx, RecurrentContext) and isinstance(layer, Recurrent):
            ctx.final_gradient = None
            if state_gradients is not None:
                what = "the gradient by the final state"
                ctx.final_gradient = layer.check_states(
                    state_gradients, saved.batch, dtype, device.asarray, what
                )
            by_states = place_states(layer, ctx, "state_gradients", saved.batch, wanted.states)
        elif state_gradients is not None:
            raise ShapeError(f"{layer!r} got gradients by states: recurrent layers alone have some")
        by_samples = None if by_input is None else turned(layer, by_input)
        if by_samples is not None and may_be_placed(ctx, by_samples):
            ctx.place("input_gradient", by_samples)
        given = for_engine(ctx, turned(layer, given))
        if parameter_gradients:
            result = layer.backward(ctx, given, input_gradient)
        else:
            result = layer.vjp(ctx, given)
        if by_input is not None:
            result = turned(layer, result)
            if not device.xp.may_share_memory(result, by_input):
                by_input[...] = result
        for name, array in (ctx.gradients if parameter_gradients else {}).items():
            target = checked_out(device, dtype, name, array.shape, wanted.parameters.get(name))
            target[...] = array
            by_parameters[name] = target
    return Gradients(by_parameters, by_input, by_states)
