"""What a layer is: geometry and mathematics, no arrays of its own."""

from __future__ import annotations

import abc
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device, Launch
from bppsa_cupy.devices.base import Graphs
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.jacobians.base import TransposedJacobian
from bppsa_cupy.timescan.lengths import Resets

Shape = tuple[int, ...]


class StepJacobians(NamedTuple):
    """Transposed Jacobians of all steps of one inner layer and direction.

    Attributes
    ----------
    name, direction : str
        "RNN l0", and "forward" or "backward".
    pattern : Pattern
        The pattern of each Jacobian.
    values : array, (T, nnz, B)
        Entries by time.
    """

    name: str
    direction: str
    pattern: Pattern
    values: Array


@dataclass
class Context:
    """The arrays and settings of one layer in one forward pass. Layer methods receive it as `ctx`.

    Attributes
    ----------
    device, dtype : Device, numpy.dtype
        The device and the dtype of the network.
    parameters : dict of str to array
        The layer's parameters, shared with the network. A pruned weight has shape (n,) if the network stores
        only its n remaining values.
    gradients : dict of str to array
        The arrays that `parameter_gradients` writes.
    input_shape : tuple of int
        Shape of one sample, without the batch.
    training : bool
        Whether the network was in training mode.
    keeps : bool
        Whether the pass stores what a backward pass needs.
    module_buffers : dict of str to array
        The layer's buffers ("running_mean"), shared with the network.
    lengths : array of int64, (B,), or None
        Number of valid steps per sample. None if no sequence is padded.
    resets : Resets or None
        The time steps before which the states of recurrent layers are set to 0.
    method : str
        The `method` argument of net.backward.
    draw : tuple of int
        Seed of random numbers: the network's key, the layer's index and the index of the training pass.
    first_sample : int
        Position in the batch of the first sample of this pass.
    saved : dict
        The arrays that `forward` stores for the backward pass, always including "output".
    placed : dict of str to array
        Arrays of the caller by buffer name. `buffer` returns them instead of new memory.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> net = bp.Sequential([bp.Linear(4, 3)], input_shape=(4,), device="host")
    >>> y = net.forward(np.ones((2, 4), np.float32))
    >>> isinstance(net.last_pass.layers[0], bp.Context)
    True
    """

    device: Device
    dtype: np.dtype
    parameters: dict[str, Array]
    gradients: dict[str, Array]
    input_shape: Shape
    training: bool = True
    keeps: bool = True
    lengths: Array | None = None
    resets: Resets | None = None
    method: str = "auto"
    draw: tuple[int, int, int] = (0, 0, 0)
    first_sample: int = 0
    module_buffers: dict[str, Array] = field(default_factory=dict)
    saved: dict[str, Any] = field(default_factory=dict)
    placed: dict[str, Array] = field(default_factory=dict, repr=False)
    _buffers: dict[str, Array] = field(default_factory=dict, repr=False)
    _scratch: dict[str, Array] | None = field(default=None, repr=False)
    _graphs: Graphs = field(default_factory=dict, repr=False)

    def repeat(self, name: str, arrays: tuple[Array, ...], launch: Launch) -> None:
        """Call `launch`, or replay a CUDA graph of it.

        Parameters
        ----------
        name : str
            Name of the launch. On CUDA, later calls with the same name and arrays may replay a graph.
        arrays : tuple of array
            The arrays that `launch` reads and writes.
        launch : callable
            A function without arguments that launches kernels.
        """
        if self._scratch is None:
            self.device.repeat(self._graphs, name, arrays, launch)
        else:
            launch()  # other passes may take these buffers, and larger ones for them

    def buffer(self, name: str, shape: Shape, dtype: Any = None) -> Array:
        """Return an uninitialized array that the context stores under `name`.

        Parameters
        ----------
        name : str
            Name of the buffer.
        shape : tuple of int
            Shape of the array.
        dtype : dtype, optional
            Dtype of the array. Default: the dtype of the network.

        Returns
        -------
        array

        Notes
        -----
        A later call with the same name and dtype reuses the memory if it is large enough.
        """
        if name in self.placed:
            return self.placed[name]
        wanted = np.dtype(dtype or self.dtype)
        size = math.prod(shape)
        buffers = self._buffers
        if self._scratch is not None and name not in buffers:
            buffers = self._scratch
        flat = buffers.get(name)
        if flat is None or flat.size < size or flat.dtype != wanted:
            flat = buffers[name] = self.device.empty(size, wanted)
            self._graphs.clear()
        return flat[:size].reshape(shape)

    def lend(self, scratch: dict[str, Array] | None) -> None:
        """Make `buffer` store new arrays in `scratch`, a dict that several passes share.

        With None, the context stores new arrays itself again.
        """
        self._scratch = scratch

    def let_go(self) -> None:
        """Clear `placed` and `saved`, so that the context no longer refers to these arrays."""
        self.placed.clear()
        self.saved.clear()

    def every(self) -> Iterator[Context]:
        """Return an iterator over this context and, for a residual block, the contexts of its layers."""
        yield self

    def stored_arrays(self) -> Iterator[Array]:
        """Return an iterator over the arrays that `buffer` has allocated in this context."""
        yield from self._buffers.values()


class Layer(abc.ABC):
    """Base class of layers. A layer has arguments and computes shapes, but contains no parameter values.

    The network stores the parameters and passes. Input and output shapes are those of one sample.

    Attributes
    ----------
    arguments : tuple of str
        Names of the constructor's arguments. Each argument is also an attribute. Names and defaults
        follow PyTorch.
    beside_geometry : tuple of str
        Names of arguments that do not change results. Plans and checkpoints ignore these arguments.
    context : type of Context
        The class of `ctx`.
    backward_reads : tuple of str
        Which arrays of the forward pass the backward pass reads: "input", "output", "states".

    Notes
    -----
    A new layer defines `output_shape`, `jacobian`, `forward` and `vjp`. If it has parameters, it also defines
    `parameter_shapes`, `initialize` and `parameter_gradients`.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> layer = bp.Linear(4, 3)
    >>> isinstance(layer, bp.Layer), layer.config()
    (True, {'in_features': 4, 'out_features': 3, 'bias': True})
    >>> layer.jacobian((4,)).pattern.shape
    (4, 3)
    """

    arguments: ClassVar[tuple[str, ...]] = ()
    beside_geometry: ClassVar[tuple[str, ...]] = ()
    context: ClassVar[type[Context]] = Context
    backward_reads: ClassVar[tuple[str, ...]] = ()

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments, except masks, as a JSON-serialisable dict."""
        config = {name: getattr(self, name) for name in self.arguments}
        for name, value in config.items():
            if isinstance(value, tuple) and len(value) == 2:
                config[name] = value[0] if value[0] == value[1] else list(value)
        return config

    @abc.abstractmethod
    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the shape of the output for one sample.

        Parameters
        ----------
        input_shape : tuple of int
            Shape of one sample, without the batch.

        Returns
        -------
        tuple of int

        Raises
        ------
        ShapeError
            If the layer does not accept the input.
        """

    def parameter_shapes(self) -> dict[str, Shape]:
        """Return a dict from parameter names to shapes, in PyTorch's order.

        A layer without parameters returns {}.
        """
        return {}

    def initialize(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Return new random parameters as a dict from names to float64 arrays, distributed as in PyTorch.

        `generator` draws the values. Masked weights are 0. A layer without parameters returns {}.
        """
        return {}

    def initial_buffers(self) -> dict[str, np.ndarray]:
        """Return the initial buffers as a dict from names to float64 or int64 arrays, in PyTorch's order.

        A layer without buffers returns {}.
        """
        return {}

    def is_barrier(self, training: bool) -> bool:
        """Return whether the scan over layers stops at this layer, called a barrier. The default is False.

        `training` is True in training mode. At a barrier, the scan computes a VJP and uses no Jacobian.
        Recurrent layers, residual blocks and layers that couple the samples of a batch are barriers.
        """
        return False

    def describe(self, input_shape: Shape) -> dict[str, Any]:
        """Return the layer's type, arguments, input shape and mask digest as a JSON-serialisable dict.

        Arguments that do not change results are left out.
        """
        config = self.config().items()
        return {
            "type": type(self).__name__,
            "input_shape": list(input_shape),
            **{name: value for name, value in config if name not in self.beside_geometry},
        }

    @abc.abstractmethod
    def jacobian(self, input_shape: Shape) -> TransposedJacobian | None:
        """Return the `TransposedJacobian` for an input shape; None for Flatten, Recurrent and Residual."""

    def vjp_multiply_adds(self, input_shape: Shape) -> int | None:
        """Return the number of multiply-adds of `vjp` per sample for an input shape.

        None means that the number equals the number of stored entries of the Jacobian.
        """
        return None

    @abc.abstractmethod
    def forward(self, ctx: Any, x: Array) -> Array:
        """Return the output for a batch, and store the arrays for the backward pass in `ctx.saved`.

        Parameters
        ----------
        ctx : Context
            The arrays and settings of the layer in this pass.
        x : array, (B, *input_shape)
            The input.

        Returns
        -------
        array, (B, *output_shape)
        """

    @abc.abstractmethod
    def vjp(self, ctx: Any, gradient: Array) -> Array:
        """Return the gradient with respect to the input.

        Parameters
        ----------
        ctx : Context
            The arrays and settings of the layer in this pass.
        gradient : array, (B, *output_shape)
            The gradient with respect to the output.

        Returns
        -------
        array, (B, *input_shape)
        """

    def parameter_gradients(self, ctx: Any, gradient: Array) -> None:
        """Write the gradients with respect to all parameters into `ctx.gradients`.

        Parameters
        ----------
        ctx : Context
            The arrays and settings of the layer in this pass.
        gradient : array, (B, *output_shape)
            The gradient with respect to the output.

        Notes
        -----
        This is equation 2 of Wang et al. 2020. Gradients are overwritten. Gradients of masked weights are 0
        or not stored.
        """

    def backward(self, ctx: Any, gradient: Array, want_input: bool) -> Array | None:
        """Call `parameter_gradients`, and `vjp` if `want_input` is True. Return the result of `vjp` or None.

        `ctx` and `gradient` are passed to both methods. The network calls `backward` in a backward pass with
        method "bp". In a scan over layers it calls only `parameter_gradients`.
        """
        self.parameter_gradients(ctx, gradient)
        return self.vjp(ctx, gradient) if want_input else None

    def step_jacobians(self, ctx: Any) -> Iterable[StepJacobians]:
        """Yield transposed step Jacobians, (T, nnz, B), per inner layer and direction of a recurrent layer.

        Parameters
        ----------
        ctx : Context
            The arrays and settings of the layer in this pass.
        """
        return ()

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.config().items())
        return f"{type(self).__name__}({arguments})"


def uniform_fan_in(generator: np.random.Generator, shape: Shape, fan_in: int) -> np.ndarray:
    """Uniform values in ±1/sqrt(fan_in), PyTorch's default; zeros if fan_in is 0."""
    bound = 1.0 / math.sqrt(fan_in) if fan_in else 0.0
    return generator.uniform(-bound, bound, shape)


def check_images(layer: str, input_shape: tuple[int, ...], channels: int | None = None) -> None:
    """Raise ShapeError unless `input_shape` is (channels, height, width) of sizes at least 1."""
    if len(input_shape) != 3:
        raise ShapeError(f"{layer} got input {input_shape}: pass images (channels, height, width)")
    if channels is not None and input_shape[0] != channels:
        raise ShapeError(
            f"{layer} got input {input_shape} with {input_shape[0]} channels: pass {channels} channels, or "
            "change the layer"
        )
    if min(input_shape) < 1:
        raise ShapeError(f"{layer} got input {input_shape}: pass sizes of at least 1")
