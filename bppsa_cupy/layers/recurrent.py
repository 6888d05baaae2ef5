"""What all recurrent layers share: arguments, checks of states, and a pass."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_flag, as_integer, as_number, is_one_of
from bppsa_cupy.conversion import of_dtype
from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import DeviceError, ShapeError
from bppsa_cupy.layers.base import Context, Layer, Shape, uniform_fan_in


@dataclass
class RecurrentContext(Context):
    """A recurrent layer's part of a pass.

    initial         the state before the first step, in PyTorch's shape: (h,) or (h, c), or None
    final_gradient  the gradient by the final state, likewise
    want_states     whether the way back gives the gradients by the initial state
    went_back       whether it went back since its forward pass
    """

    initial: tuple[Array, ...] | None = None
    final_gradient: tuple[Array, ...] | None = None
    want_states: bool = True
    went_back: bool = False

    @property
    def forward_ways(self) -> tuple[str, ...]:
        """How the pass went over time, and why: a line an inner layer and direction."""
        return ()

    @property
    def backward_ways(self) -> tuple[str, ...]:
        """How it went back, likewise; empty before it did."""
        return ()

    def let_go(self) -> None:
        super().let_go()
        self.initial = self.final_gradient = self.lengths = None

    def rebind(self, parameters: dict[str, Array]) -> None:
        """Take other parameters, on the same buffers."""
        self.parameters = parameters

    def missing_bytes(self, shapes: Mapping[str, Shape]) -> int:
        """Bytes that a `reserve` of these would take from the device."""
        return self.dtype.itemsize * sum(
            math.prod(shape)
            for name, shape in shapes.items()
            if name not in self._buffers or self._buffers[name].size < math.prod(shape)
        )

    def reserve(self, shapes: Mapping[str, Shape]) -> dict[str, Array]:
        """A `buffer` for each name and shape.

        Raises DeviceError with the bytes needed and free, before anything is allocated.
        """
        needed = self.missing_bytes(shapes)
        if needed and needed > (free := self.device.free_memory()):
            raise DeviceError(
                f"{self.device.name}: a pass takes {needed} more bytes, {free} are free: use a smaller "
                "batch, or shorter sequences"
            )
        return {name: self.buffer(name, shape) for name, shape in shapes.items()}


#: What a recurrent layer puts out.
OUTPUTS = ("all", "last")


class Recurrent(Layer):
    """A recurrent layer over sequences (B, T, F), with PyTorch's arguments.

    input_size, hidden_size  F and H, at least 1
    num_layers     inner layers, each on the outputs of the one before
    bias           whether there are biases
    batch_first    the layout of `bp.functional.forward`; `net.forward` takes and gives (B, T, F) always.
                   PyTorch's default is False, ours True
    dropout        0.0 alone is taken
    bidirectional  a second direction from the last step to the first; D = 2, else 1
    outputs        "all": every step's output of the last inner layer, (B, T, D H); "last": each
                   direction's last one, (B, D H)
    forward_method  how the pass goes over time, one of the layer's `forward_methods`; "auto" follows a fixed
                   rule on the host and takes what is measured to be quicker on a GPU

    A sample may end early (`lengths` of net.forward): later steps leave its state as it is, put out 0
    and have no gradient. NaN in the input goes through to the output, as in PyTorch. The layer is a
    barrier to the scan over layers, and is crossed by a scan over time.
    """

    arguments = (
        "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional",
        "outputs", "forward_method",
    )  # fmt: skip
    context = RecurrentContext
    beside_geometry = ("forward_method",)
    forward_methods: tuple[str, ...]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        outputs: str = "all",
        forward_method: str = "auto",
    ) -> None:
        name = type(self).__name__
        self.input_size = as_integer(name, "input_size", input_size, 1)
        self.hidden_size = as_integer(name, "hidden_size", hidden_size, 1)
        self.num_layers = as_integer(name, "num_layers", num_layers, 1)
        self.bias = as_flag(name, "bias", bias)
        self.batch_first = as_flag(name, "batch_first", batch_first)
        self.bidirectional = as_flag(name, "bidirectional", bidirectional)
        self.dropout = as_number(name, "dropout", dropout, lambda p: p == 0, "0.0 alone")
        if not is_one_of(outputs, OUTPUTS):
            raise ShapeError(f"{name} got outputs={outputs!r}: it takes {' or '.join(map(repr, OUTPUTS))}")
        if not is_one_of(forward_method, self.forward_methods):
            takes = ", ".join(map(repr, self.forward_methods))
            raise ShapeError(f"{name} got forward_method={forward_method!r}: it takes {takes}")
        self.outputs, self.forward_method = outputs, forward_method

    @property
    @abc.abstractmethod
    def state_count(self) -> int:
        """How many arrays (num_layers D, B, H) a state is: of an LSTM h and c."""

    @property
    @abc.abstractmethod
    def step_pattern(self) -> Pattern:
        """The pattern of a step's transposed Jacobian, of the state by the one before."""

    @property
    def output_size(self) -> int:
        """Features that a direction puts out at a step."""
        return self.hidden_size

    def state_dtype(self, dtype: np.dtype) -> np.dtype:
        """The dtype of a state, where input and parameters are of this one."""
        return dtype

    @property
    def directions(self) -> int:
        """D: 2 where bidirectional, else 1."""
        return 2 if self.bidirectional else 1

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) != 2 or input_shape[1] != self.input_size:
            raise ShapeError(
                f"{type(self).__name__}({self.input_size}, {self.hidden_size}) got input {input_shape}: it "
                f"takes sequences (T, {self.input_size})"
            )
        if input_shape[0] == 0:
            raise ShapeError(f"{type(self).__name__} got input {input_shape}: T must be at least 1")
        features = self.directions * self.output_size
        return (features,) if self.outputs == "last" else (input_shape[0], features)

    def initialize(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """PyTorch's way: uniform in ±1/sqrt(H)."""
        return {
            name: uniform_fan_in(generator, shape, self.fan_in(name))
            for name, shape in self.parameter_shapes().items()
        }

    def fan_in(self, name: str) -> int:
        """What a parameter's initial distribution, uniform in ±1/sqrt(fan_in), follows from."""
        return self.hidden_size

    def is_barrier(self, training: bool) -> bool:
        return True

    def jacobian(self, input_shape: Shape) -> None:
        return None

    def is_recurrent(self) -> bool:
        return True

    def check_states(
        self, given: Any, batch: int, dtype: np.dtype, convert: Callable[[Any], Any], what: str
    ) -> tuple[Array, ...]:
        """States in PyTorch's shape, (num_layers D, B, H), each as `convert` (a device's `asarray`) makes it
        an array: h, or h and c for an LSTM; of another dtype where that one loses nothing.

        Raises ShapeError naming both shapes or dtypes.
        """
        name, count, dtype = type(self).__name__, self.state_count, self.state_dtype(dtype)
        components = tuple(given) if isinstance(given, (tuple, list)) else (given,)
        if len(components) != count:
            takes = "one array" if count == 1 else "a pair of arrays (h, c)"
            raise ShapeError(f"{name} got {len(components)} arrays as {what}: it takes {takes}")
        arrays = tuple(map(convert, components))
        shape = (self.num_layers * self.directions, batch, self.hidden_size)
        for array in arrays:
            if tuple(array.shape) != shape:
                raise ShapeError(
                    f"{name} got {what} of {array.dtype} and shape {tuple(array.shape)}: it takes {dtype} of "
                    f"shape {shape}, (num_layers * directions, B, hidden_size)"
                )
        cure = f"convert it, as h.astype({dtype.name!r})"
        return tuple(of_dtype(name, what, array, dtype, cure) for array in arrays)
