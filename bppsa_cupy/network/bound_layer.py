"""One layer of a network, called on its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bppsa_cupy.errors import ShapeError
from bppsa_cupy.functional.layout import go_forward, taken_shape
from bppsa_cupy.layers import Context, Layer, Recurrent
from bppsa_cupy.network.forward import take_input


class BoundLayer:
    """`net[index]`: a layer with the network's present parameters, as a PyTorch module is called.

    layer        the Layer itself
    new_context  makes a context on the parameters, of no pass of the network
    """

    def __init__(self, layer: Layer, new_context: Callable[[], Context]) -> None:
        self.layer, self._new_context = layer, new_context
        self._stepping: Context | None = None

    def __call__(self, x: Any, state: Any = None, lengths: Any = None) -> Any:
        """The layer's output for a batch x; of a recurrent layer the pair of output and final state.

        x        (B, ...), of any shape the layer takes; (T, B, F) for a recurrent layer that is not
                 batch_first, whose output of every step then is (T, B, D H); of lists and other dtypes see
                 Sequential.forward
        state    of a recurrent layer before the first step, (num_layers D, B, H), for an LSTM the pair of
                 h and c; zeros without it
        lengths  of a recurrent layer: see Sequential.forward

        The network's passes are left alone. Raises ShapeError naming what differs.
        """
        layer, ctx = self.layer, self._new_context()
        given = take_input(
            repr(layer), ctx.device, ctx.dtype, x, lambda shape: taken_shape(layer, shape, lengths, state),
            layer.takes_indices,
        )  # fmt: skip
        with ctx.device.naming_memory:
            y = ctx.device.xp.ascontiguousarray(go_forward(layer, ctx, given, lengths, state))
        return (y, ctx.saved["states"]) if isinstance(layer, Recurrent) else y

    def step(self, x: Any, state: Any = None) -> tuple[Any, Any]:
        """A recurrent layer's output and state after one step, as generation takes them:

            y, state = layer.step(x, state)

        x      (B, F), the input of the step
        state  what the step before gave, or zeros without it: (num_layers D, B, H), of an LSTM (h, c)

        The output is (B, O). On the host steps one after the other leave the bits of a serial pass over all
        of them. Raises ShapeError for what is not recurrent, and where the state is not all that a step
        needs: with two directions, or a QRNN of window 2.
        """
        layer = self.layer
        if not isinstance(layer, Recurrent) or not layer.steps_alone:
            raise ShapeError(
                f"{layer!r} has no step: a recurrent layer of one direction has, whose gates see no former "
                "input"
            )
        if self._stepping is None:
            self._stepping = self._new_context()
        ctx, xp = self._stepping, self._stepping.device.xp

        def one_step(shape: tuple[int, ...]) -> tuple[int, ...]:
            if len(shape) != 2:
                raise ShapeError(f"{layer!r} got a step of shape {shape}: it takes (B, {layer.input_size})")
            taken_shape(layer, (shape[0], 1, shape[1]) if layer.batch_first else (1, *shape), None, state)
            return shape

        given = take_input(repr(layer), ctx.device, ctx.dtype, x, one_step)
        with ctx.device.naming_memory:
            y = go_forward(layer, ctx, given[:, None] if layer.batch_first else given[None], None, state)
            y = xp.array(y.reshape(len(given), -1))
            after = ctx.saved["states"]
        return y, tuple(map(xp.array, after)) if isinstance(after, tuple) else xp.array(after)

    def __repr__(self) -> str:
        return repr(self.layer)
