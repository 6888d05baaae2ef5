"""Layers without weights: activations and dropout, which apply one function to every element, and Flatten."""

from __future__ import annotations

import math
from typing import ClassVar

from bppsa_cupy.arguments import as_choice, as_finite, as_integer, as_probability
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ArgumentError, ShapeError
from bppsa_cupy.jacobians.diagonal import ActivationJacobian, DiagonalJacobian, DropoutJacobian, ReLUJacobian
from bppsa_cupy.layers.base import Context, Layer, Shape
from bppsa_cupy.raw_kernels.elementwise import (
    dropout_forward,
    elu_forward,
    gelu_forward,
    leaky_relu_forward,
    relu_forward,
    relu_vjp,
    sigmoid_forward,
    silu_forward,
    softplus_forward,
    tanh_forward,
)
from bppsa_cupy.raw_kernels.kernel import Kernel


class Elementwise(Layer):
    """Base class of elementwise layers, y = f(x), for any shape."""

    diagonal: ClassVar[type[DiagonalJacobian]]

    def output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def jacobian(self, input_shape: Shape) -> DiagonalJacobian:
        return self.diagonal(math.prod(input_shape))


class Activation(Elementwise):
    """Base class of activations whose forward pass stores f'(x)."""

    diagonal = ActivationJacobian
    kernel: ClassVar[Kernel]

    def scalars(self) -> tuple[float, ...]:
        """Arguments of the kernel after (input, output, slope, size); by default all of the layer's."""
        return tuple(self.config().values())

    def forward(self, ctx: Context, x: Array) -> Array:
        y, slope = ctx.buffer("output", x.shape), ctx.buffer("slope", x.shape)
        ctx.device.launch(self.kernel, x, y, slope, y.size, *self.scalars())
        ctx.saved.update(output=y, slope=slope)
        return y

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        result = ctx.buffer("input_gradient", gradient.shape)
        return ctx.device.xp.multiply(gradient, ctx.saved["slope"], out=result)


class ReLU(Elementwise):
    """Rectified linear unit, y = max(x, 0), for any shape.

    Notes
    -----
    The derivative at 0 is 0, as in PyTorch.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.Sequential([bp.ReLU()], (3,), device="host").forward([[-1, 0, 2]]).tolist()
    [[0.0, 0.0, 2.0]]
    """

    diagonal = ReLUJacobian
    backward_reads = ("output",)

    def forward(self, ctx: Context, x: Array) -> Array:
        y = ctx.buffer("output", x.shape)
        ctx.device.launch(relu_forward, x, y, y.size)
        ctx.saved["output"] = y
        return y

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        result = ctx.buffer("input_gradient", gradient.shape)
        ctx.device.launch(relu_vjp, ctx.saved["output"], gradient, result, result.size)
        return result


class LeakyReLU(Activation):
    """Leaky ReLU (Maas et al. 2013): y = x for x > 0, else y = negative_slope x, for any shape.

    Parameters
    ----------
    negative_slope : float, default: 0.01
        Slope below 0.

    Raises
    ------
    ArgumentError
        If the slope is not a finite number.

    Notes
    -----
    The derivative at 0 is negative_slope, as in PyTorch.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.Sequential([bp.LeakyReLU(0.5)], (3,), device="host").forward([[-1, 0, 2]]).tolist()
    [[-0.5, 0.0, 2.0]]
    """

    arguments = ("negative_slope",)
    kernel = leaky_relu_forward

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = as_finite("LeakyReLU", "negative_slope", negative_slope)


class ELU(Activation):
    """Exponential linear unit (Clevert et al. 2016): y = x for x > 0, else y = alpha (e^x - 1).

    Parameters
    ----------
    alpha : float, default: 1.0
        Factor below 0.

    Raises
    ------
    ArgumentError
        If alpha is not a finite number.

    Notes
    -----
    The derivative at 0 is alpha, as in PyTorch.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> net = bp.Sequential([bp.ELU()], (3,), dtype="float64", device="host")
    >>> net.forward([[-1, 0, 2]]).round(4).tolist()
    [[-0.6321, 0.0, 2.0]]
    """

    arguments = ("alpha",)
    kernel = elu_forward

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = as_finite("ELU", "alpha", alpha)


class SiLU(Activation):
    """Sigmoid linear unit, or swish (Elfwing et al. 2018): y = x / (1 + e^-x), for any shape.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> net = bp.Sequential([bp.SiLU()], (3,), dtype="float64", device="host")
    >>> net.forward([[-1, 0, 2]]).round(4).tolist()
    [[-0.2689, 0.0, 1.7616]]
    """

    kernel = silu_forward


#: PyTorch's names: the normal distribution itself, and by tanh.
FORMS = ("none", "tanh")


class GELU(Activation):
    """Gaussian error linear unit (Hendrycks and Gimpel 2016): y = x Φ(x), for any shape.

    Parameters
    ----------
    approximate : {"none", "tanh"}, default: "none"
        "none" uses the exact Φ, the standard normal distribution function. "tanh" approximates Φ by
        (1 + tanh(sqrt(2 / π) (x + 0.044715 x³))) / 2.

    Raises
    ------
    ArgumentError
        If `approximate` is neither "none" nor "tanh".

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> net = bp.Sequential([bp.GELU()], (3,), dtype="float64", device="host")
    >>> net.forward([[-1, 0, 2]]).round(4).tolist()
    [[-0.1587, 0.0, 1.9545]]
    """

    arguments = ("approximate",)
    kernel = gelu_forward

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = as_choice("GELU", "approximate", approximate, FORMS)

    def scalars(self) -> tuple[float, ...]:
        return (FORMS.index(self.approximate),)


class Sigmoid(Activation):
    """Logistic sigmoid, y = 1 / (1 + e^-x), for any shape.

    Notes
    -----
    For large negative x, the relative error is as small as for large positive x.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> net = bp.Sequential([bp.Sigmoid()], (3,), dtype="float64", device="host")
    >>> net.forward([[-1, 0, 2]]).round(4).tolist()
    [[0.2689, 0.5, 0.8808]]
    """

    kernel = sigmoid_forward


class Softplus(Activation):
    """Softplus, y = log(1 + e^(beta x)) / beta, for any shape.

    Parameters
    ----------
    beta : float, default: 1.0
        Factor of x. It must not be 0.
    threshold : float, default: 20.0
        If beta x is above this value, y = x.

    Raises
    ------
    ArgumentError
        If beta is 0, or an argument is not a finite number.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> net = bp.Sequential([bp.Softplus()], (3,), dtype="float64", device="host")
    >>> net.forward([[-1, 0, 2]]).round(4).tolist()
    [[0.3133, 0.6931, 2.1269]]
    """

    arguments = ("beta", "threshold")
    kernel = softplus_forward

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self.beta = as_finite("Softplus", "beta", beta)
        self.threshold = as_finite("Softplus", "threshold", threshold)
        if self.beta == 0:
            raise ArgumentError("Softplus got beta=0: pass another number")


class Tanh(Activation):
    """Hyperbolic tangent, y = tanh(x), for any shape.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> net = bp.Sequential([bp.Tanh()], (3,), dtype="float64", device="host")
    >>> net.forward([[-1, 0, 2]]).round(4).tolist()
    [[-0.7616, 0.0, 0.964]]
    """

    kernel = tanh_forward


class Dropout(Elementwise):
    """In training mode, set elements to 0 with probability p and divide the others by 1 - p.

    Parameters
    ----------
    p : float, default: 0.5
        Probability that an element is set to 0, from 0 to 1.

    Raises
    ------
    ArgumentError
        If p is out of range.

    Notes
    -----
    In evaluation mode the output is the input. The dropped elements depend only on the network's seed, the
    layer's index, the index of the training pass and the sample's position in the batch. They do not
    depend on the device or the dtype.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> net = bp.Sequential([bp.Dropout(0.5)], (8,), device="host")
    >>> sorted(set(net.forward([[1] * 8]).ravel().tolist()))
    [0.0, 2.0]
    >>> net.eval().forward([[1] * 8]).tolist() == [[1.0] * 8]
    True
    """

    arguments = ("p",)
    diagonal = DropoutJacobian

    def __init__(self, p: float = 0.5) -> None:
        self.p = as_probability("Dropout", "p", p)

    def forward(self, ctx: Context, x: Array) -> Array:
        if not ctx.training:
            ctx.saved.update(output=x, kept=None, scale=1.0)
            return x
        y, mask = ctx.buffer("output", x.shape), ctx.buffer("kept", x.shape, "uint8")
        scale = 1 / (1 - self.p) if self.p < 1 else 0.0
        key, layer, passes = ctx.draw
        if not isinstance(passes, ctx.device.xp.ndarray):
            passes = ctx.buffer("passes", (1,), "int64")
            passes[...] = ctx.draw[2]
        first = ctx.first_sample * (y.size // max(len(y), 1))
        ctx.device.launch(
            dropout_forward, x, y, mask, passes, y.size, first, key, layer, round(self.p * 2**32),
            scale,
        )  # fmt: skip
        ctx.saved.update(output=y, kept=mask, scale=scale)
        return y

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        if ctx.saved["kept"] is None:
            return gradient
        result = ctx.buffer("input_gradient", gradient.shape)
        ctx.device.xp.multiply(gradient, ctx.saved["kept"], out=result)
        result *= ctx.saved["scale"]
        return result


class Flatten(Layer):
    """Flatten the axes from `start_dim` to `end_dim` (axis 0 is the batch) into one axis.

    Parameters
    ----------
    start_dim : int, default: 1
        The first axis to flatten. Negative numbers count from the last axis.
    end_dim : int, default: -1
        The last axis to flatten. Negative numbers count from the last axis.

    Raises
    ------
    ShapeError
        If an axis is not an integer, or does not exist in the input.
    ArgumentError
        If `start_dim` or `end_dim` is 0, the batch.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.Flatten().output_shape((3, 4, 4))
    (48,)
    """

    arguments = ("start_dim", "end_dim")

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim = as_integer("Flatten", "start_dim", start_dim)
        self.end_dim = as_integer("Flatten", "end_dim", end_dim)
        if self.start_dim == 0 or self.end_dim == 0:
            raise ArgumentError(f"{self!r} would flatten axis 0, the batch: pass a start_dim of at least 1")

    def output_shape(self, input_shape: Shape) -> Shape:
        axes = len(input_shape) + 1
        start, end = (axis + axes if axis < 0 else axis for axis in (self.start_dim, self.end_dim))
        if not 1 <= start <= end < axes:
            raise ShapeError(
                f"{self!r} got input {input_shape}, which has axes 0 (the batch) to {axes - 1}: pass "
                f"start_dim and end_dim with 1 <= start_dim <= end_dim <= {axes - 1}"
            )
        return (*input_shape[: start - 1], math.prod(input_shape[start - 1 : end]), *input_shape[end:])

    def jacobian(self, input_shape: Shape) -> None:
        return None

    def forward(self, ctx: Context, x: Array) -> Array:
        y = x.reshape(x.shape[0], *self.output_shape(x.shape[1:]))
        ctx.saved.update(output=y, input_shape=x.shape)
        return y

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        return gradient.reshape(ctx.saved["input_shape"])
