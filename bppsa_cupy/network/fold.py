"""Batch normalisation folded into the layers before it, for evaluation."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import numpy as np

from bppsa_cupy.arguments import as_instance
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import Conv2d, Layer, Linear, Residual
from bppsa_cupy.layers.norms import BatchNorm
from bppsa_cupy.layers.stack import LayerStack
from bppsa_cupy.network.sequential import Sequential

Arrays = Mapping[str, np.ndarray]


def fold_batch_norm(network: Sequential) -> Sequential:
    """A network in evaluation mode that computes what `network` computes there, without the batch
    normalisation that stands directly after a Conv2d, or a Linear of one axis: W' = γ/σ·W and
    b' = γ/σ·(b - μ) + β, by the running statistics. Also inside of residual blocks.

    The layers' masks stay; other batch normalisation stays as it is. Layers that go make the numbers in names
    smaller. `network` is left alone. Raises ShapeError, naming the place, for one without running statistics,
    which normalises by each batch's own in evaluation too.
    """
    as_instance("fold_batch_norm", "a network", network, Sequential, "a Sequential")
    layers, state = _folded(network.architecture, network.state_dict(), "")
    device, dtype = network.device, network.dtype.name
    result = Sequential(layers, network.input_shape, dtype=dtype, device=device)
    result.load_state_dict(state)
    return result.eval()


def _folded(stack: LayerStack, state: Arrays, prefix: str) -> tuple[list[Layer], dict[str, np.ndarray]]:
    """The layers that stay, and their arrays by their new names; `prefix` is where the stack is."""
    kept: list[Layer] = []
    arrays: dict[str, np.ndarray] = {}
    for index, layer in enumerate(stack.layers):
        place = f"{prefix}{index}"
        own = {name: state[f"{place}.{name}"] for name in layer.state_names()}
        before = kept[-1] if kept else None
        follows = isinstance(before, Conv2d) or (isinstance(before, Linear) and len(stack.shapes[index]) == 1)
        if isinstance(layer, BatchNorm) and follows:
            assert isinstance(before, Conv2d | Linear)
            if not layer.track_running_stats:
                raise ShapeError(f"{layer!r} has no running statistics: it cannot be folded", place)
            kept[-1] = _with_bias(before)
            start = f"{len(kept) - 1}."
            arrays.update({start + k: v for k, v in _scaled(arrays, start, layer, own).items()})
            continue
        if isinstance(layer, Residual):
            branches = {}
            own = {}
            for branch, inner in layer.stacks(stack.shapes[index]).items():
                branches[branch], inside = _folded(inner, state, f"{place}.{branch}.")
                own.update({f"{branch}.{name}": array for name, array in inside.items()})
            layer = Residual(**branches)
        kept.append(layer)
        arrays.update({f"{len(kept) - 1}.{name}": array for name, array in own.items()})
    return kept, arrays


def _with_bias(layer: Conv2d | Linear) -> Layer:
    """A copy of the layer that has a bias."""
    result = copy.copy(layer)
    result.bias = True
    return result


def _scaled(arrays: Arrays, start: str, layer: BatchNorm, own: Arrays) -> dict[str, np.ndarray]:
    """Weight and bias of the layer before, times γ/σ and shifted."""
    scale = own.get("weight", 1.0) / np.sqrt(own["running_var"] + layer.eps)
    weight, bias = arrays[f"{start}weight"], arrays.get(f"{start}bias", 0.0)
    return {
        "weight": weight * scale.reshape(-1, *[1] * (weight.ndim - 1)),
        "bias": (bias - own["running_mean"]) * scale + own.get("bias", 0.0),
    }
