"""Every layer in the settings that matter, beside the PyTorch module it must agree with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

import bppsa_cupy as bp
from bppsa_cupy.devices import Device
from bppsa_cupy.layers import Context, Layer, Shape
from bppsa_cupy.network.parameters import BufferSet
from bppsa_cupy.tools.torch_modules import PadShortcut as Padded
from bppsa_cupy.tools.torch_modules import Residual as Block


@dataclass(frozen=True)
class LayerCase:
    """One layer: how to make it and PyTorch's, the input's shape without the batch, and the most terms of
    one sum in it (times the batch and the output positions in parameter gradients)."""

    name: str
    make: Callable[[], Layer]
    reference: Callable[[], nn.Module]
    input_shape: Shape
    length: int = 1


def same(name: str, ours: type[Layer], shape: Shape, length: int, *args: Any, **kwargs: Any) -> LayerCase:
    """A case whose arguments are the same for both sides."""
    theirs = getattr(nn, ours.__name__)
    return LayerCase(
        name, lambda: ours(*args, **kwargs), lambda: theirs(*args, **kwargs), tuple(shape), length
    )


def recurrent(ours: type[Layer], shape: Shape, length: int, *args: Any, **kwargs: Any) -> LayerCase:
    """A case of a recurrent layer; PyTorch's module gives its output alone."""
    theirs = getattr(nn, ours.__name__)

    class Output(theirs):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x)[0]

    return LayerCase(
        ours.__name__, lambda: ours(*args, **kwargs), lambda: Output(*args, batch_first=True, **kwargs),
        shape, length,
    )  # fmt: skip


def checkered(shape: tuple[int, ...]) -> np.ndarray:
    """A mask that keeps two weights of five, and none of the last output."""
    mask = np.arange(int(np.prod(shape))).reshape(shape) % 5 < 2
    mask[-1] = False
    return mask


def masked(ours: type[Layer], shape: Shape, length: int, *args: Any, **kwargs: Any) -> LayerCase:
    """A case with a mask; PyTorch's weight is multiplied by it through a parametrization."""

    def reference() -> nn.Module:
        module = getattr(nn, ours.__name__)(*args, **kwargs)
        module.register_buffer("mask", torch.from_numpy(checkered(tuple(module.weight.shape))))
        return module

    def make() -> Layer:
        weight = ours(*args, **kwargs).parameter_shapes()["weight"]
        return ours(*args, **kwargs, mask=checkered(weight))

    return LayerCase(f"{ours.__name__} masked", make, reference, shape, length)


CASES: tuple[LayerCase, ...] = (
    same("Conv2d 3x3", bp.Conv2d, (3, 8, 9), 27, 3, 5, 3, padding=1),
    same("Conv2d 5x5", bp.Conv2d, (3, 12, 12), 75, 3, 6, 5),
    same("Conv2d long planes", bp.Conv2d, (4, 7, 9), 50, 4, 6, 5, padding=(3, 1), groups=2),
    same("Conv2d padded past the kernel", bp.Conv2d, (2, 5, 11), 12, 2, 3, (2, 3), 1, (3, 4), (1, 2)),
    same("Conv2d 1x1 kernel", bp.Conv2d, (5, 9, 8), 5, 5, 7, 1, padding=1),
    same("Conv2d 1x1 input", bp.Conv2d, (2, 1, 1), 18, 2, 9, 1),
    same("Conv2d strided", bp.Conv2d, (2, 9, 8), 12, 2, 3, (3, 2), (2, 3), (2, 1)),
    same("Conv2d dilated", bp.Conv2d, (2, 9, 8), 12, 2, 3, (2, 3), 1, (0, 2), (3, 2)),
    same("Conv2d groups", bp.Conv2d, (4, 6, 5), 18, 4, 6, 3, padding=1, groups=2, bias=False),
    same("Conv2d depthwise", bp.Conv2d, (3, 6, 7), 9, 3, 6, 3, 2, 1, groups=3),
    same("Conv2d same", bp.Conv2d, (2, 5, 6), 12, 2, 3, (2, 3), padding="same", dilation=(2, 1)),
    same("Conv2d valid", bp.Conv2d, (2, 5, 6), 8, 2, 3, 2, padding="valid"),
    same("Conv2d wide channels", bp.Conv2d, (17, 4, 4), 153, 17, 19, 3, padding=1),
    masked(bp.Conv2d, (4, 6, 5), 18, 4, 6, 3, padding=1, groups=2),
    same("Linear", bp.Linear, (7,), 7, 7, 5),
    same("Linear without bias", bp.Linear, (1,), 1, 1, 4, bias=False),
    same("Linear over positions", bp.Linear, (3, 2, 7), 7, 7, 5),
    masked(bp.Linear, (10,), 10, 10, 6),
    same("MaxPool2d", bp.MaxPool2d, (3, 8, 6), 1, 2),
    same("MaxPool2d overlapping", bp.MaxPool2d, (3, 8, 9), 4, 3, 2, 1),
    same("MaxPool2d ceil", bp.MaxPool2d, (2, 8, 9), 2, (3, 2), (2, 5), (1, 1), ceil_mode=True),
    same("AvgPool2d", bp.AvgPool2d, (3, 8, 6), 4, 2),
    same("AvgPool2d overlapping", bp.AvgPool2d, (3, 8, 9), 9, 3, 2, 1),
    same("AvgPool2d ceil", bp.AvgPool2d, (2, 8, 9), 6, (3, 2), (2, 5), 1, True),
    same("AvgPool2d in the input", bp.AvgPool2d, (2, 8, 9), 9, 3, 2, 1, True, count_include_pad=False),
    same("BatchNorm2d", bp.BatchNorm2d, (3, 5, 7), 35, 3),
    same("BatchNorm2d plain", bp.BatchNorm2d, (2, 17, 4), 68, 2, 1e-3, None, False),
    same("BatchNorm1d over positions", bp.BatchNorm1d, (3, 19), 19, 3),
    *(
        LayerCase(f"Pad2d {mode}", partial(bp.Pad2d, sides, mode), partial(kind, sides), (2, 4, 3), 9)
        for mode, sides, kind in (
            ("zeros", 2, nn.ZeroPad2d),
            ("circular", (3, 0, 1, 4), nn.CircularPad2d),
            ("reflect", (2, 1, 3, 0), nn.ReflectionPad2d),
        )
    ),
    LayerCase("PadShortcut", lambda: bp.PadShortcut(7, 2), lambda: Padded(7, 2), (4, 5, 6)),
    LayerCase("PadShortcut of stride 3", lambda: bp.PadShortcut(2, 3), lambda: Padded(2, 3), (2, 7, 3)),
    LayerCase(
        "Residual",
        lambda: bp.Residual([bp.Conv2d(3, 3, 3, padding=1), bp.Tanh()], [bp.Conv2d(3, 3, 1)]),
        lambda: Block([nn.Conv2d(3, 3, 3, padding=1), nn.Tanh()], [nn.Conv2d(3, 3, 1)]),
        (3, 4, 5),
        81,
    ),
    same("ReLU", bp.ReLU, (3, 5, 7), 1),
    same("Tanh", bp.Tanh, (37,), 1),
    same("Sigmoid", bp.Sigmoid, (4, 9), 1),
    same("LeakyReLU", bp.LeakyReLU, (3, 5, 7), 1),
    same("LeakyReLU falling", bp.LeakyReLU, (37,), 1, -0.3),
    same("ELU", bp.ELU, (3, 5, 7), 1, 1.7),
    same("SiLU", bp.SiLU, (4, 9), 1),
    same("Softplus", bp.Softplus, (4, 9), 1, 2.5, 1.5),
    same("GELU", bp.GELU, (3, 5, 7), 1),
    same("GELU by tanh", bp.GELU, (37,), 1, "tanh"),
    recurrent(bp.RNN, (6, 3), 30, 3, 4),
    recurrent(bp.GRU, (6, 3), 90, 3, 4, num_layers=2),
    recurrent(bp.LSTM, (6, 3), 90, 3, 4, bidirectional=True),
    same("Dropout of nothing", bp.Dropout, (4, 9), 1, 0.0),
    same("Flatten", bp.Flatten, (3, 4, 5), 1),
    same("Flatten middle", bp.Flatten, (3, 4, 5), 1, 2, 3),
)

#: The same by name, for tests that want one of them.
CASE: dict[str, LayerCase] = {case.name: case for case in CASES}

#: The cases whose layer is an element of the scan.
ELEMENTS: tuple[LayerCase, ...] = tuple(
    c for c in CASES if not c.make().is_barrier(False) and c.make().jacobian(c.input_shape) is not None
)


def mask_of(layer: Layer, name: str) -> Any:
    """The mask of a parameter of a layer, or True."""
    mask = getattr(layer, "mask", None)
    return True if mask is None or name != "weight" else mask


def make_context(
    layer: Layer, device: Device, dtype: Any, input_shape: Shape, seed: int = 0, training: bool = True
) -> Context:
    """A context of one layer with random parameters and buffers; gradients hold NaN."""
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(seed)
    initial = layer.initialize(rng)
    for name, array in initial.items():
        if array.size and (array == array.flat[0]).all():  # a constant hides a parameter that is not read
            array += rng.standard_normal(array.shape) * mask_of(layer, name)
    parameters = {name: device.asarray(array.astype(dtype)) for name, array in initial.items()}
    gradients = {name: device.asarray(np.full_like(array, np.nan, dtype)) for name, array in initial.items()}
    buffers = BufferSet(device, dtype, layer.initial_buffers())
    for array in buffers.values():
        array[...] += device.asarray(rng.integers(0, 9, array.shape), array.dtype)
    return layer.context(
        device, dtype, parameters, gradients, input_shape, training, module_buffers=dict(buffers)
    )


def reference_module(case: LayerCase, ctx: Context) -> nn.Module:
    """PyTorch's module in float64 with the pass's parameters, buffers and mode."""
    module = case.reference().double().train(ctx.training)
    state = module.state_dict(keep_vars=True)
    with torch.no_grad():
        for name, array in (ctx.parameters | ctx.module_buffers).items():
            value = np.array(ctx.device.to_host(array), dtype=np.float64)
            state[name].copy_(torch.from_numpy(value))
    return module


def reference_gradient(module: nn.Module, name: str) -> np.ndarray:
    """The gradient PyTorch left for a parameter, where its mask keeps it."""
    gradient = module.get_parameter(name).grad
    if name == "weight" and hasattr(module, "mask"):
        gradient = gradient * module.mask
    return gradient.numpy()
