"""One forward pass of a network: what its backward pass needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bppsa_cupy.devices import Array
from bppsa_cupy.errors import PassError
from bppsa_cupy.layers import Context
from bppsa_cupy.network.parameters import ParameterSet


@dataclass
class Pass:
    """Activations and masks of one forward pass; several of one network may be alive at once.

    layers            each layer's own part
    parameters        those of the network that the pass belongs to
    input, output     (B, ...)
    version           of the parameters the pass used
    output_gradients  by layer index, the gradient by that layer's output in the last backward pass;
                      views of buffers, forgotten when the network goes back through another pass
    """

    layers: list[Context]
    parameters: ParameterSet
    input: Array = None
    output: Array = None
    version: int = -1
    output_gradients: dict[int, Array] = field(default_factory=dict)

    @property
    def batch(self) -> int:
        return int(self.input.shape[0])

    @property
    def states(self) -> dict[int, Any]:
        """Each recurrent layer's state after the last step, by the layer's index: (num_layers D, B, H), for
        an LSTM the pair of h and c. Buffers that the pass's next forward writes over."""
        return self._by_layer("states")

    @property
    def state_gradients(self) -> dict[int, Any]:
        """The gradients by the states before the first step, likewise; empty before a backward pass."""
        return self._by_layer("state_gradients")

    def _by_layer(self, name: str) -> dict[int, Any]:
        pairs = ((index, layer.saved.get(name)) for index, layer in enumerate(self.layers))
        return {index: value for index, value in pairs if value is not None}


def own_pass(given: Pass, parameters: ParameterSet) -> Pass:
    """`given`, which must be a pass of the network of these parameters. Raises PassError."""
    if given.parameters is not parameters:
        raise PassError("the pass belongs to another network: give one of this network's own")
    return given


def current_pass(given: Pass | None, parameters: ParameterSet, caller: str) -> Pass:
    """`given`, which must be a pass of these parameters at their present version. Raises PassError."""
    if given is None:
        raise PassError(f"{caller} was called before forward: run net.forward(x) first")
    own_pass(given, parameters)
    if given.version != parameters.version:
        raise PassError(
            f"the pass used version {given.version} of the parameters, they are at version "
            f"{parameters.version}: run net.forward(x) again before {caller}"
        )
    return given
