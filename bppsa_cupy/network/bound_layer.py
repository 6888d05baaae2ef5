"""One layer of a network, called on its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
            repr(layer), ctx.device, ctx.dtype, x, lambda shape: taken_shape(layer, shape, lengths, state)
        )
        with ctx.device.naming_memory:
            y = ctx.device.xp.ascontiguousarray(go_forward(layer, ctx, given, lengths, state))
        return (y, ctx.saved["states"]) if isinstance(layer, Recurrent) else y

    def __repr__(self) -> str:
        return repr(self.layer)
