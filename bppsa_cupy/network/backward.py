"""What a backward pass ran, and what it begins with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.network.passes import Pass
from bppsa_cupy.plan import SCHEDULES

METHODS = ("auto", "bp", *SCHEDULES)


@dataclass(frozen=True)
class BackwardReport:
    """What a backward pass ran.

    Attributes
    ----------
    method : str
        "bp", "linear", "blelloch" or "hybrid".
    requested : str
        The method that was asked for.
    reason : str
        Why this method ran.
    schedules : tuple of str
        One per run of layers, such as "hybrid of 2 levels: 7 mv and 3 mm in 6 levels"; empty for "bp".
    launches : dict of str to int
        Kernel launches by name.
    device : str
        Name of the device.
    backward_ways : tuple of str
        Method and reason per inner recurrent layer and direction, such as "0 RNN l0: chunked, 300 chunks of
        100 (measured on cuda)".
    """

    method: str
    requested: str
    reason: str
    schedules: tuple[str, ...]
    launches: dict[str, int]
    device: str
    backward_ways: tuple[str, ...] = ()

    @property
    def launched(self) -> int:
        """The number of kernel launches."""
        return sum(self.launches.values())


def by_vjp(current: Pass, gradient: Array, layers: range, input_gradient: bool) -> Array | None:
    """Equation 3, a layer at a time, over `layers`; the gradient by the first one's input."""
    by_outputs = current.output_gradients
    return current.architecture.backward(current.layers, gradient, input_gradient, by_outputs, layers)


def checked_gradient(current: Pass, given: Any) -> Array:
    """The gradient by the output, on the device. Raises ShapeError."""
    array, expected = current.parameters.device.asarray(given), current.output.shape
    if array.shape != expected or array.dtype != current.parameters.dtype:
        raise ShapeError(
            f"backward got a gradient of {array.dtype} and shape {tuple(array.shape)}: the output is "
            f"{current.dtype} of shape {tuple(expected)}"
        )
    return array
