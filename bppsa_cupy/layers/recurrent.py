"""What all recurrent layers share: arguments, checks of states, and a pass."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bppsa_cupy.arguments import as_choice, as_flag, as_integer
from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ArgumentError, ShapeError
from bppsa_cupy.layers.base import Context, Layer, Shape, uniform_fan_in


@dataclass
class RecurrentContext(Context):
    """A recurrent layer's part of a pass.

    Attributes
    ----------
    initial : tuple of array, or None
        Initial states in PyTorch's shape: (h,) or (h, c).
    final_gradient : tuple of array, or None
        Gradients with respect to the final states, in the same form.
    want_states : bool
        Whether the backward pass computes the gradients with respect to the initial states.
    went_back : bool
        Whether a backward pass followed the latest forward pass.
    """

    initial: tuple[Array, ...] | None = None
    final_gradient: tuple[Array, ...] | None = None
    want_states: bool = True
    went_back: bool = False

    @property
    def forward_ways(self) -> tuple[str, ...]:
        """Method and reason of the forward pass: one line per inner layer and direction."""
        return ()

    @property
    def backward_ways(self) -> tuple[str, ...]:
        """Method and reason of the backward pass, in the same form; empty before one."""
        return ()

    def let_go(self) -> None:
        super().let_go()
        self.initial = self.final_gradient = self.lengths = self.resets = None

    def rebind(self, parameters: dict[str, Array]) -> None:
        """Use other parameters, with the same buffers."""
        self.parameters = parameters


#: What a recurrent layer puts out.
OUTPUTS = ("all", "last")


class Recurrent(Layer):
    """Base class of recurrent layers over sequences (B, T, F).

    Parameters
    ----------
    input_size : int
        F, the number of input features.
    hidden_size : int
        H, the number of units.
    bias : bool, default: True
        Whether the layer has biases.
    batch_first : bool, default: True
        Whether the input of `bp.functional.forward` is (B, T, F) instead of (T, B, F). The input of a network
        is always (B, T, F).
    outputs : {"all", "last"}, default: "all"
        "all" returns the outputs of every step, (B, T, D H) for D directions. "last" returns the final output
        of each direction, (B, D H).
    forward_method : str, default: "auto"
        Method of the forward pass over time: an item of the class attribute `forward_methods`. "auto" follows
        a fixed rule on the host. On a GPU it selects the method that was faster in a measurement.

    Raises
    ------
    ShapeError
        If `input_size` or `hidden_size` is not a positive integer.
    ArgumentError
        If another argument is invalid.

    Notes
    -----
    Argument names are those of PyTorch. `net.forward` accepts the `lengths` of sequences. Steps after the end
    of a sequence leave the state unchanged. Their output is 0, and so is the gradient with respect to their
    input. NaN in the input propagates to the output.

    A scan over layers stops at a recurrent layer, because the layer has its own scan over time steps.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> issubclass(bp.GRU, bp.Recurrent)
    True
    >>> bp.GRU(3, 5, bidirectional=True).output_shape((7, 3))
    (7, 10)
    >>> bp.GRU(3, 5, outputs="last").output_shape((7, 3))
    (5,)
    """

    arguments: ClassVar[tuple[str, ...]] = (
        "input_size", "hidden_size", "bias", "batch_first", "outputs", "forward_method",
    )  # fmt: skip
    context = RecurrentContext
    beside_geometry = ("forward_method",)
    forward_methods: tuple[str, ...]
    num_layers = 1
    bidirectional = False

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        batch_first: bool = True,
        *,
        outputs: str = "all",
        forward_method: str = "auto",
    ) -> None:
        name = type(self).__name__
        self.input_size = as_integer(name, "input_size", input_size, 1)
        self.hidden_size = as_integer(name, "hidden_size", hidden_size, 1)
        self.bias = as_flag(name, "bias", bias)
        self.batch_first = as_flag(name, "batch_first", batch_first)
        self.outputs = as_choice(name, "outputs", outputs, OUTPUTS)
        self.forward_method = as_choice(name, "forward_method", forward_method, self.forward_methods)

    @property
    @abc.abstractmethod
    def state_count(self) -> int:
        """The number of state arrays (num_layers D, B, H): 2 for an LSTM (h and c), else 1."""

    @property
    @abc.abstractmethod
    def step_pattern(self) -> Pattern:
        """The pattern of a step's transposed Jacobian. Rows are the previous state, columns the new state."""

    @property
    def output_size(self) -> int:
        """The number of output features of one direction."""
        return self.hidden_size

    def state_dtype(self, dtype: np.dtype) -> np.dtype:
        """Return the dtype of states for inputs of dtype `dtype`: complex for layers with complex units."""
        return dtype

    @property
    def directions(self) -> int:
        """The number of directions D: 2 if `bidirectional`, else 1."""
        return 2 if self.bidirectional else 1

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) != 2 or input_shape[1] != self.input_size:
            raise ShapeError(
                f"{type(self).__name__}({self.input_size}, {self.hidden_size}) got input {input_shape}: pass "
                f"sequences (T, {self.input_size})"
            )
        if input_shape[0] == 0:
            raise ShapeError(f"{type(self).__name__} got input {input_shape}: pass at least one time step")
        features = self.directions * self.output_size
        return (features,) if self.outputs == "last" else (input_shape[0], features)

    def initialize(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Return a dict of new float64 parameters, drawn uniformly in ±1/sqrt(H) as in PyTorch."""
        return {
            name: uniform_fan_in(generator, shape, self.hidden_size)
            for name, shape in self.parameter_shapes().items()
        }

    def is_barrier(self, training: bool) -> bool:
        return True

    def jacobian(self, input_shape: Shape) -> None:
        return None

    def parameter_gradients(self, ctx: Any, gradient: Array) -> None:
        self.backward(ctx, gradient, False)

    def check_resets(self) -> None:
        """Raise ArgumentError unless the layer accepts resets."""
        raise ArgumentError(
            f"{type(self).__name__} does not support resets: use an RNN, GRU, LSTM or CellLayer, or run the "
            "parts of the sequences one after another"
        )

    def check_states(
        self, states: Any, batch: int, dtype: np.dtype, convert: Callable[[Any], Any], argument: str
    ) -> tuple[Array, ...]:
        """Check the states of the caller, and return them as arrays (num_layers D, B, H).

        Parameters
        ----------
        states : array or tuple of array
            The states that the caller passed: h, or the pair (h, c) for an LSTM.
        batch : int
            B.
        dtype : numpy.dtype
            Dtype of the network. States of another dtype are converted if no value changes.
        convert : callable
            Converts a state to an array, for example the `asarray` method of a device.
        argument : str
            Name of the states in error messages.

        Raises
        ------
        ShapeError
            If a shape or dtype does not fit.
        """
        name, count, dtype = type(self).__name__, self.state_count, self.state_dtype(dtype)
        components = tuple(states) if isinstance(states, (tuple, list)) else (states,)
        if len(components) != count:
            takes = "one array" if count == 1 else "a pair of arrays (h, c)"
            raise ShapeError(f"{name} got {len(components)} arrays as {argument}: pass {takes}")
        arrays = tuple(map(convert, components))
        shape = (self.num_layers * self.directions, batch, self.hidden_size)
        for array in arrays:
            if tuple(array.shape) != shape or array.dtype != dtype:
                raise ShapeError(
                    f"{name} got {argument} of {array.dtype} and shape {tuple(array.shape)}: pass {dtype} of "
                    f"shape {shape}, (num_layers * directions, B, hidden_size)"
                )
        return arrays
