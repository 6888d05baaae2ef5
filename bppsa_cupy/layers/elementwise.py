"""Layers without weights: activations and dropout, which apply one function to every element, and Flatten."""

from __future__ import annotations

import math
from typing import ClassVar

from bppsa_cupy.arguments import as_finite, as_integer, as_probability, is_one_of
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
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
    """y = f(x), element by element; any shape, and no arguments unless a subclass adds them.

    diagonal  the class of the transposed Jacobian, which is made of the number of elements
    """

    diagonal: ClassVar[type[DiagonalJacobian]]

    def output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def jacobian(self, input_shape: Shape) -> DiagonalJacobian:
        return self.diagonal(math.prod(input_shape))


class Activation(Elementwise):
    """y = f(x) where f and f' cost little more than f: the forward pass keeps f'(x), and the way back, by
    whatever method, only multiplies.

    kernel  takes (input, output, slope, size) and then `scalars()`
    """

    diagonal = ActivationJacobian
    kernel: ClassVar[Kernel]

    def scalars(self) -> tuple[float, ...]:
        """What the kernel takes of the layer's arguments; by default all of them."""
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
    """y = max(x, 0), elementwise; any shape. The derivative at 0 is 0, as PyTorch's."""

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
    """y = x above 0, else negative_slope x (Maas et al. 2013); any shape. The derivative at 0 is
    negative_slope, as PyTorch's. Raises ShapeError for a slope that is no finite number."""

    arguments = ("negative_slope",)
    kernel = leaky_relu_forward

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = as_finite("LeakyReLU", "negative_slope", negative_slope)


class ELU(Activation):
    """y = x above 0, else alpha (e^x - 1) (Clevert et al. 2016); any shape. The derivative at 0 is alpha,
    as PyTorch's. Raises ShapeError for an alpha that is no finite number."""

    arguments = ("alpha",)
    kernel = elu_forward

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = as_finite("ELU", "alpha", alpha)


class SiLU(Activation):
    """y = x / (1 + e^-x) (Elfwing et al. 2018), also called swish; any shape."""

    kernel = silu_forward


#: PyTorch's names: the normal distribution itself, and by tanh.
FORMS = ("none", "tanh")


class GELU(Activation):
    """y = x F(x), F being the normal distribution's function (Hendrycks and Gimpel 2016); any shape.

    approximate  "none", or "tanh": F(x) = (1 + tanh(sqrt(2 / π) (x + 0.044715 x³))) / 2
    Raises ShapeError for another word.
    """

    arguments = ("approximate",)
    kernel = gelu_forward

    def __init__(self, approximate: str = "none") -> None:
        if not is_one_of(approximate, FORMS):
            raise ShapeError(f"GELU got approximate={approximate!r}: it takes 'none' or 'tanh'")
        self.approximate = approximate

    def scalars(self) -> tuple[float, ...]:
        return (FORMS.index(self.approximate),)


class Sigmoid(Activation):
    """y = 1 / (1 + exp(-x)), elementwise; any shape. As exact for large -x as for large x."""

    kernel = sigmoid_forward


class Softplus(Activation):
    """y = log(1 + e^(beta x)) / beta, and x where beta x is above `threshold`; any shape.

    Raises ShapeError for a beta of 0, and arguments that are no finite numbers.
    """

    arguments = ("beta", "threshold")
    kernel = softplus_forward

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self.beta = as_finite("Softplus", "beta", beta)
        self.threshold = as_finite("Softplus", "threshold", threshold)
        if self.beta == 0:
            raise ShapeError("Softplus got beta=0: it is divided by, so it must not be 0")


class Tanh(Activation):
    """y = tanh(x), elementwise; any shape."""

    kernel = tanh_forward


class Dropout(Elementwise):
    """In training mode every element is 0 with probability p, and else divided by 1 - p; in evaluation mode
    the output is the input. Any shape.

    What is dropped follows from the network's seed, the layer's index and the number of the training pass
    (`Context.draw`), and from the number of the sample in its batch: the same on every device and for both
    dtypes. Raises ShapeError unless 0 <= p <= 1.
    """

    arguments = ("p",)
    diagonal = DropoutJacobian

    def __init__(self, p: float = 0.5) -> None:
        self.p = as_probability("Dropout", "p", p)

    def forward(self, ctx: Context, x: Array) -> Array:
        if not ctx.training:
            ctx.saved.update(output=x, kept=None, scale=1.0)
            return x
        y, kept = ctx.buffer("output", x.shape), ctx.buffer("kept", x.shape, "uint8")
        scale = 1 / (1 - self.p) if self.p < 1 else 0.0
        key, layer, passes = ctx.draw
        if not isinstance(passes, ctx.device.xp.ndarray):
            passes = ctx.buffer("passes", (1,), "int64")
            passes[...] = ctx.draw[2]
        first = ctx.first_sample * (y.size // max(len(y), 1))
        ctx.device.launch(
            dropout_forward, x, y, kept, passes, y.size, first, key, layer, round(self.p * 2**32),
            scale,
        )  # fmt: skip
        ctx.saved.update(output=y, kept=kept, scale=scale)
        return y

    def vjp(self, ctx: Context, gradient: Array) -> Array:
        if ctx.saved["kept"] is None:
            return gradient
        result = ctx.buffer("input_gradient", gradient.shape)
        ctx.device.xp.multiply(gradient, ctx.saved["kept"], out=result)
        result *= ctx.saved["scale"]
        return result


class Flatten(Layer):
    """Joins the axes from `start_dim` to `end_dim` into one, the batch counted as axis 0, as PyTorch's.

    It only reshapes, so it is no element of the scan. The batch stays an axis of its own: start_dim = 0
    raises ShapeError.
    """

    arguments = ("start_dim", "end_dim")

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim = as_integer("Flatten", "start_dim", start_dim)
        self.end_dim = as_integer("Flatten", "end_dim", end_dim)
        if self.start_dim == 0 or self.end_dim == 0:
            raise ShapeError(f"{self!r} would join the batch, axis 0: start at 1")

    def output_shape(self, input_shape: Shape) -> Shape:
        axes = len(input_shape) + 1
        start, end = (axis + axes if axis < 0 else axis for axis in (self.start_dim, self.end_dim))
        if not 1 <= start <= end < axes:
            raise ShapeError(
                f"{self!r} got input {input_shape}: with the batch it has axes 0 to {axes - 1}, and the axes "
                "joined must lie among 1 and up, in rising order"
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
