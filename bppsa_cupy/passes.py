"""One forward pass of a network: what its backward pass needs."""

from __future__ import annotations

from dataclasses import dataclass, field

from bppsa_cupy.devices import Array
from bppsa_cupy.layers import LayerPass


@dataclass
class Pass:
    """Activations and masks of one forward pass; several of one network may be alive at once.

    layers            each layer's own part
    input, output     (B, ...)
    version           of the parameters the pass used
    output_gradients  by layer index, the gradient by that layer's output in the last backward pass;
                      views of buffers that the next backward pass writes over
    """

    layers: list[LayerPass]
    input: Array = None
    output: Array = None
    version: int = -1
    output_gradients: dict[int, Array] = field(default_factory=dict)

    @property
    def batch(self) -> int:
        return int(self.input.shape[0])
