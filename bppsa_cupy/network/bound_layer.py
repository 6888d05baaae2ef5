"""One layer of a network, called on its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import Context, Layer, Recurrent
from bppsa_cupy.layers.recurrent_context import RecurrentContext
from bppsa_cupy.network.sequences import take_lengths


class BoundLayer:
    """`net[index]`: a layer with the network's present parameters, as a PyTorch module is called.

    layer        the Layer itself
    new_context  makes a context on the parameters, of no pass of the network
    """

    def __init__(self, layer: Layer, new_context: Callable[[], Context]) -> None:
        self.layer, self._new_context = layer, new_context

    def __call__(self, x: Any, state: Any = None, lengths: Any = None) -> Any:
        """The layer's output for a batch x; of a recurrent layer the pair of output and final state.

        x        (B, ...), of any shape the layer takes; (T, B, F) for a recurrent layer that is not
                 batch_first, whose output of every step then is (T, B, D H)
        state    of a recurrent layer before the first step, (num_layers D, B, H), for an LSTM the pair of
                 h and c; zeros without it
        lengths  of a recurrent layer: see Sequential.forward

        The network's passes are left alone. Raises ShapeError naming what differs.
        """
        layer, ctx = self.layer, self._new_context()
        given = ctx.device.asarray(x)
        if given.dtype != ctx.dtype:
            raise ShapeError(f"{layer!r} is {ctx.dtype} here and got input of {given.dtype}: convert it")
        if isinstance(layer, Recurrent):
            assert isinstance(ctx, RecurrentContext)
            return self._over_time(layer, ctx, given, state, lengths)
        if state is not None or lengths is not None:
            raise ShapeError(f"{layer!r} got a state or lengths: recurrent layers alone take them")
        self._check(given)
        return layer.forward(ctx, given)

    def _over_time(
        self, layer: Recurrent, ctx: RecurrentContext, given: Array, state: Any, lengths: Any
    ) -> tuple[Array, Any]:
        """Output and final state of a recurrent layer."""
        device = ctx.device
        if not layer.batch_first and given.ndim == 3:
            given = device.xp.ascontiguousarray(given.swapaxes(0, 1))
        if given.ndim == 2 and given.shape[0]:
            raise ShapeError(
                f"{layer!r} got input of shape {tuple(given.shape)}, which lacks the batch: it takes "
                f"(B, T, {layer.input_size}); x[None] is a batch of one"
            )
        self._check(given)
        batch, steps = given.shape[:2]
        if state is not None:
            ctx.initial = layer.check_states(state, batch, ctx.dtype, device, "the state")
        if lengths is not None:
            ctx.lengths = take_lengths(device, lengths, batch, steps)
        y = layer.forward(ctx, given)
        if not layer.batch_first and layer.outputs == "all":
            y = device.xp.ascontiguousarray(y.swapaxes(0, 1))
        return y, layer.final_states(ctx)

    def _check(self, x: Array) -> None:
        if x.ndim == 0 or not x.shape[0]:
            raise ShapeError(f"{self.layer!r} got input of shape {tuple(x.shape)}: B must be at least 1")
        self.layer.output_shape(tuple(x.shape[1:]))

    def __repr__(self) -> str:
        return repr(self.layer)
