"""One layer of a network, called on its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import Layer, Recurrent, RecurrentContext
from bppsa_cupy.network.sequences import take_lengths

if TYPE_CHECKING:
    from bppsa_cupy.network.sequential import Sequential


class BoundLayer:
    """`net[index]`: a layer with the network's present parameters, as a PyTorch module is called.

    layer  the Layer itself
    """

    def __init__(self, network: Sequential, index: int) -> None:
        self._network, self._index = network, index
        self.layer: Layer = network.layers[index]

    def __call__(self, x: Any, state: Any = None, lengths: Any = None) -> Any:
        """The layer's output for a batch x; of a recurrent layer the pair of output and final state.

        x        (B, ...), of any shape the layer takes; (T, B, F) for a recurrent layer that is not
                 batch_first, whose output of every step then is (T, B, D H)
        state    of a recurrent layer before the first step, (num_layers D, B, H), for an LSTM the pair of
                 h and c; zeros without it
        lengths  of a recurrent layer: see Sequential.forward

        The network's passes are left alone. Raises ShapeError naming what differs.
        """
        network, layer = self._network, self.layer
        given = network.device.asarray(x)
        if given.dtype != network.dtype:
            raise ShapeError(f"{layer!r} is {network.dtype} here and got input of {given.dtype}: convert it")
        if not isinstance(layer, Recurrent):
            if state is not None or lengths is not None:
                raise ShapeError(f"{layer!r} got a state or lengths: recurrent layers alone take them")
            self._check(given)
            return layer.forward(network.layer_pass(self._index), given)
        if not layer.batch_first and given.ndim == 3:
            given = network.device.xp.ascontiguousarray(given.swapaxes(0, 1))
        self._check(given)
        current = network.layer_pass(self._index)
        assert isinstance(current, RecurrentContext)
        batch, steps = given.shape[:2]
        if state is not None:
            current.initial = layer.check_states(state, batch, network.dtype, network.device, "the state")
        if lengths is not None:
            current.lengths = take_lengths(network.device, lengths, batch, steps)
        y = layer.forward(current, given)
        if not layer.batch_first and layer.outputs == "all":
            y = network.device.xp.ascontiguousarray(y.swapaxes(0, 1))
        return y, layer.final_states(current)

    def _check(self, x: Array) -> None:
        if x.ndim == 0 or not x.shape[0]:
            raise ShapeError(f"{self.layer!r} got input of shape {tuple(x.shape)}: B must be at least 1")
        if isinstance(self.layer, Recurrent) and x.ndim == 2:
            raise ShapeError(
                f"{self.layer!r} got input of shape {tuple(x.shape)}, which lacks the batch: it takes "
                f"(B, T, {self.layer.input_size}); x[None] is a batch of one"
            )
        self.layer.output_shape(tuple(x.shape[1:]))

    def __repr__(self) -> str:
        return repr(self.layer)
