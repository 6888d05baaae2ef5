"""One forward pass of a network: what its backward pass needs."""

from __future__ import annotations

from dataclasses import dataclass, field

from bppsa_cupy.devices import Array
from bppsa_cupy.layers import LayerPass
from bppsa_cupy.parameters import ParameterSet


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

    layers: list[LayerPass]
    parameters: ParameterSet
    input: Array = None
    output: Array = None
    version: int = -1
    output_gradients: dict[int, Array] = field(default_factory=dict)

    @property
    def batch(self) -> int:
        return int(self.input.shape[0])
