"""What a layer is: geometry and mathematics, no arrays of its own."""

from __future__ import annotations

import abc
import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device, Launch
from bppsa_cupy.devices.base import Graphs
from bppsa_cupy.jacobians.base import TransposedJacobian

Shape = tuple[int, ...]


@dataclass
class Scratch:
    """Buffers that the backward passes of one layer take in turn, where several of its passes are alive.

    arrays  by name, as `Context.buffer` takes them
    """

    arrays: dict[str, Array] = field(default_factory=dict)
    _inside: dict[str, Scratch] = field(default_factory=dict)

    def inside(self, place: str) -> Scratch:
        """Those of the layer at `place` inside of this one."""
        return self._inside.setdefault(place, Scratch())


class StepJacobians(NamedTuple):
    """The transposed Jacobians of every step of one inner layer and direction of a recurrent layer.

    name, direction  "RNN l0", and "forward" or "backward"
    values           (T, nnz, B), of `pattern`, by time
    gradient_norms   (T,) on the host, of the loss's gradient by the state after each step; None where there
                     was no way back, or its steps are not all here
    """

    name: str
    direction: str
    pattern: Pattern
    values: Array
    gradient_norms: np.ndarray | None


class OverTime(Protocol):
    """Where a rank's steps lie."""

    @property
    def ranges(self) -> int:
        """Ranks that hold steps, in order; this one's `place` is among them."""

    @property
    def place(self) -> int: ...

    def gather(self, own: Array, every: Array) -> None:
        """Fill (ranges, ...) with (1, ...) of every rank; collective."""

    def sum(self, own: Array) -> Array:
        """Replace an array by its sum over the ranks, and return it; collective."""


@dataclass
class Context:
    """One layer's part of a forward pass, and the arrays it works on; `ctx` in a layer's methods.

    parameters  the layer's parameters by its own names ("weight"), shared with the network; where a network
                holds a weight's kept values alone, since its layer goes by their list, these, (kept,)
    gradients   where `parameter_gradients` writes, same names and shapes
    masks       the layer's fixed weight masks by parameter name, as `layers.arguments.as_bits` makes them
    input_shape without the batch
    training    whether the network was in training mode
    keeps       whether a way back may follow, for which the pass keeps what it needs
    module_buffers  the layer's buffers in PyTorch's sense by its own names ("running_mean"), shared with the
                network
    lengths     of sequences: (B,) int64, where each sample ends; None where all are whole
    method      of net.backward that is asked for, "auto" included, which recurrent layers choose by
    draw        what random numbers follow from: the network's key, the layer's index and the number of the
                training pass
    first_sample  the number of the pass's first sample in its batch, of which the pass may be a part
    over_time   where the steps of this pass lie among those of all ranks; None where all are here
    saved       what forward keeps for the backward pass; `output` is always there
    placed      arrays of the caller's, which `buffer` gives by these names, of the shape asked for, until
                `let_go`
    """

    device: Device
    dtype: np.dtype
    parameters: dict[str, Array]
    gradients: dict[str, Array]
    masks: dict[str, Array]
    input_shape: Shape
    training: bool = True
    keeps: bool = True
    lengths: Array | None = None
    method: str = "auto"
    draw: tuple[int, int, int] = (0, 0, 0)
    first_sample: int = 0
    over_time: OverTime | None = None
    module_buffers: dict[str, Array] = field(default_factory=dict)
    saved: dict[str, Any] = field(default_factory=dict)
    placed: dict[str, Array] = field(default_factory=dict, repr=False)
    _buffers: dict[str, Array] = field(default_factory=dict, repr=False)
    _scratch: Scratch | None = field(default=None, repr=False)
    _graphs: Graphs = field(default_factory=dict, repr=False)

    def repeat(self, name: str, arrays: tuple[Array, ...], run: Launch) -> None:
        """Make the work of `run` on these arrays and the context's buffers alone: see `Device.repeat`."""
        if self._scratch is None:
            self.device.repeat(self._graphs, name, arrays, run)
        else:
            run()  # other passes may take these buffers, and larger ones for them

    def buffer(self, name: str, shape: Shape, dtype: Any = None) -> Array:
        """An array of `shape` that this context keeps under `name`, or the scratch that is lent to it;
        uninitialised.

        Taken from the device once and used again while the shape stays the same, or shrinks.
        """
        if name in self.placed:
            return self.placed[name]
        wanted = np.dtype(dtype or self.dtype)
        size = math.prod(shape)
        buffers = self._buffers
        if self._scratch is not None and name not in buffers:
            buffers = self._scratch.arrays
        flat = buffers.get(name)
        if flat is None or flat.size < size or flat.dtype != wanted:
            flat = buffers[name] = self.device.empty(size, wanted)
            self._graphs.clear()
        return flat[:size].reshape(shape)

    def lend(self, scratch: Scratch | None) -> None:
        """Take buffers that the context does not have yet from `scratch`, until None is lent."""
        self._scratch = scratch

    def let_go(self) -> None:
        """Forget what is the caller's: placed arrays, and what the pass has saved."""
        self.placed.clear()
        self.saved.clear()

    def kept(self) -> Iterator[Array]:
        """The arrays that the context keeps, those inside among them."""
        yield from self._buffers.values()


class Layer(abc.ABC):
    """One operator of a network. It knows its geometry; the network owns parameters and passes.

    Argument names, defaults and meaning are PyTorch's. Shapes in this interface leave the batch out.

    arguments  the constructor's, which are attributes of the same names
    beside_geometry  arguments that choose how the layer is computed and not what: a network's description
             and fingerprint, by which plans and checkpoints are compared, leave them out
    context  the class of `ctx`, which the network makes for each pass; a layer that keeps more of a pass
             than others has a subclass of its own, and so `ctx` is typed where a layer defines its methods

    backward_reads  which of the caller's arrays the backward pass reads: "input", "output", "states"

    To add a layer: this class, its Jacobian in `jacobians/`, its kernels in `raw_kernels/`, a line in
    `layers/__init__.py` and a line in the tests' cases.
    """

    arguments: ClassVar[tuple[str, ...]] = ()
    beside_geometry: ClassVar[tuple[str, ...]] = ()
    context: ClassVar[type[Context]] = Context
    backward_reads: ClassVar[tuple[str, ...]] = ()

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, as JSON holds them (masks are left out)."""
        return {name: as_argument(getattr(self, name)) for name in self.arguments}

    @abc.abstractmethod
    def output_shape(self, input_shape: Shape) -> Shape:
        """The output's shape. Raises ShapeError naming the layer, the input and what it takes."""

    def parameter_shapes(self) -> dict[str, Shape]:
        """Parameters by name, in PyTorch's order; none by default."""
        return {}

    def initialize(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Fresh parameters from PyTorch's default distribution, float64, masks applied."""
        return {}

    def masks(self) -> dict[str, np.ndarray]:
        """Fixed masks by parameter name: arrays of 0 and 1 of the parameter's shape; none by default."""
        return {}

    def initial_buffers(self) -> dict[str, np.ndarray]:
        """Fresh buffers by name, in PyTorch's order, float64 or int64: what a layer holds beside parameters
        and a forward pass may change; none by default."""
        return {}

    def state_names(self) -> tuple[str, ...]:
        """The names of parameters and buffers, in the order of PyTorch's state dict."""
        return (*self.parameter_shapes(), *self.initial_buffers())

    def is_barrier(self, training: bool) -> bool:
        """Whether the scan stops at this layer in training or evaluation mode, since it couples the batch or
        has inner structure of its own: it is crossed by `backward` then. False by default."""
        return False

    def is_recurrent(self) -> bool:
        """Whether it is recurrent, or holds a layer that is: sequences may have lengths then. False by
        default."""
        return False

    def maskable(self) -> tuple[str, ...]:
        """The names of the weights that take a mask; none by default."""
        return ()

    def kept(self, input_shape: Shape, device: str) -> dict[str, np.ndarray]:
        """The weights that go by a list of what their masks keep, on the device of that name, with the kept
        positions in each, flattened, ascending; none by default."""
        return {}

    def with_masks(self, masks: Mapping[str, Any]) -> Layer:
        """A copy with these masks, by the weight's name, in place of all it has; the layer itself where it
        takes none. Raises ShapeError naming both shapes."""
        return self

    def describe(self, input_shape: Shape) -> dict[str, Any]:
        """The layer's geometry for this input shape, with its masks' digests, as JSON holds it."""
        config = self.config().items()
        return {
            "type": type(self).__name__,
            "input_shape": list(input_shape),
            **{name: value for name, value in config if name not in self.beside_geometry},
            **{
                f"{name}_mask": hashlib.sha256(np.packbits(mask).tobytes()).hexdigest()
                for name, mask in self.masks().items()
            },
        }

    @abc.abstractmethod
    def jacobian(self, input_shape: Shape) -> TransposedJacobian | None:
        """The transposed Jacobian for this input shape, where the layer is no barrier; None where it only
        reshapes."""

    def vjp_multiply_adds(self, input_shape: Shape) -> int | None:
        """Multiply-adds of `vjp` for one sample; None, as here, where they are the Jacobian's entries."""
        return None

    @abc.abstractmethod
    def forward(self, ctx: Any, x: Array) -> Array:
        """The output for `x` (B, *input_shape). Keeps in `ctx.saved` what the methods below need."""

    @abc.abstractmethod
    def vjp(self, ctx: Any, gradient: Array) -> Array:
        """The gradient by the input, (B, *input_shape), from the one by the output."""

    def parameter_gradients(self, ctx: Any, gradient: Array) -> None:
        """Write every parameter's gradient into `ctx.gradients` (equation 2); `gradient` is the one
        by the output, (B, *output_shape). Overwrites; masked weights get 0, or no place."""

    def backward(self, ctx: Any, gradient: Array, want_input: bool) -> Array | None:
        """The whole way back, as back-propagation takes it: `parameter_gradients`, and then `vjp` where the
        gradient by the input is wanted, else None. A scan over layers calls the former alone."""
        self.parameter_gradients(ctx, gradient)
        return self.vjp(ctx, gradient) if want_input else None

    def step_jacobians(self, ctx: Any, gradient: Array | None) -> Iterable[StepJacobians]:
        """The transposed Jacobians of a recurrent layer's state by the one before, of each inner layer and
        direction; none by default.

        gradient  by the layer's output, of the last way back; None before one
        """
        return ()

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.config().items())
        return f"{type(self).__name__}({arguments})"


def as_argument(value: Any) -> Any:
    """An argument as JSON holds it: a pair as one number where both sides agree, else as a list."""
    if isinstance(value, tuple) and len(value) == 2:
        return value[0] if value[0] == value[1] else list(value)
    return value


def uniform_fan_in(generator: np.random.Generator, shape: Shape, fan_in: int) -> np.ndarray:
    """PyTorch's default for weights and biases: uniform in ±1/sqrt(fan_in); zeros where fan_in is 0."""
    bound = 1.0 / math.sqrt(fan_in) if fan_in else 0.0
    return generator.uniform(-bound, bound, shape)
