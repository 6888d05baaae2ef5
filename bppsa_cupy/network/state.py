"""A network's state dict: its parameters and buffers by name, in PyTorch's order."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import numpy as np

from bppsa_cupy.errors import CheckpointError
from bppsa_cupy.network.architecture import Architecture
from bppsa_cupy.network.parameters import BufferSet, ParameterSet, check_mapping


def state_of(
    architecture: Architecture, parameters: ParameterSet, buffers: BufferSet
) -> dict[str, np.ndarray]:
    """Copies on the host; masked weights are 0."""
    parameters.apply_masks()
    arrays = {**parameters.to_host(), **buffers.to_host()}
    return {name: arrays[name] for name in architecture.state_names}


def load_state(
    architecture: Architecture, parameters: ParameterSet, buffers: BufferSet, arrays: Mapping[str, Any]
) -> None:
    """Set all from arrays of the same names and shapes. Masked weights are set to 0. Raises CheckpointError
    naming the names that are missing or unknown, ShapeError naming both shapes; nothing is set then."""
    check_mapping(arrays)
    names = architecture.state_names
    missing = [name for name in names if name not in arrays]
    unknown = [name for name in arrays if name not in names]
    if missing or unknown:
        raise CheckpointError(
            f"the parameters and buffers do not fit: missing {missing or 'none'}, unknown "
            f"{unknown or 'none'}; the network has {list(names)}, and takes them by their order too "
            "(by_order=True)"
        )
    running = buffers.converted({name: arrays[name] for name in buffers})
    parameters.assign({name: arrays[name] for name in parameters})
    buffers.assign(running)


def without_masks(arrays: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """A state dict and its masks by the weights' names, of one that torch.nn.utils.prune has left, whose
    "weight_orig" and "weight_mask" stand for a weight; others as they are, without masks. Raises
    CheckpointError
    for parametrizations, which are anything."""
    check_mapping(arrays)
    names = [name for name in arrays if isinstance(name, str)]
    for name in names:
        if ".parametrizations." in f".{name}":
            raise CheckpointError(
                f"the state dict holds {name!r}, which is not the weight but what it is computed from: call "
                "torch.nn.utils.parametrize.remove_parametrizations on the module first; masks of "
                "torch.nn.utils.prune are taken as they are"
            )
    pruned = [name.removesuffix("_orig") for name in names if name.endswith("_orig")]
    masks = {name: arrays[f"{name}_mask"] for name in pruned if f"{name}_mask" in arrays}
    left_out = {f"{name}_mask" for name in masks}
    return {
        name.removesuffix("_orig") if str(name).removesuffix("_orig") in masks else name: array
        for name, array in arrays.items()
        if name not in left_out
    }, masks


def matched(architecture: Architecture, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    """Arrays by the network's names: those of a module alone get its number where a single layer has arrays;
    others are returned as they are."""
    check_mapping(arrays)
    own = {name.partition(".")[2]: name for name in architecture.state_names}
    layers = {name.partition(".")[0] for name in architecture.state_names}
    if len(layers) != 1 or set(arrays) != set(own):
        return arrays
    return {own[name]: array for name, array in arrays.items()}


def in_order(architecture: Architecture, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays of any names by the network's, layer after layer; see `_within_layers` for the order in a layer.
    Raises CheckpointError, naming both sides, where their number or a shape differs."""
    check_mapping(arrays)
    shapes = {
        **architecture.parameter_shapes(),
        **{name: value.shape for name, value in architecture.initial_buffers().items()},
    }
    names = architecture.state_names
    theirs = _within_layers(arrays, {name: shapes[name] for name in names})
    for their, ours in zip(theirs, names, strict=False):
        shape = _shape(arrays[their])
        if shape != shapes[ours]:
            raise CheckpointError(
                f"{their!r} has shape {shape}, and {ours!r}, which stands in its place, {shapes[ours]}: by "
                "order, every shape must be equal"
            )
    if len(theirs) != len(names):
        more = theirs[len(names) :] or list(names[len(theirs) :])
        side = "state dict" if len(theirs) > len(names) else "network"
        raise CheckpointError(
            f"the state dict holds {len(theirs)} arrays and the network {len(names)}: {more[0]!r}, first of "
            f"the rest, is in the {side} alone"
        )
    return {ours: arrays[their] for ours, their in zip(names, theirs, strict=True)}


def _within_layers(arrays: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """The names of a state dict, those of each layer in the order of the network's names.

    torch.nn.utils.prune moves a weight behind the bias of its layer. Arrays of one layer are paired by their
    last names if these are equal, else by shape. A layer that does not fit keeps its order.
    """
    theirs, begin = list(arrays), 0
    for _, layer in groupby(shapes, _layer_of):
        ours = list(layer)
        end = begin + len(ours)
        waiting = theirs[begin:end]
        by_name = {_last_name(name): name for name in waiting}
        paired: list[str] = []
        if len(set(map(_layer_of, waiting))) == 1:
            if by_name.keys() == set(map(_last_name, ours)):
                paired = [by_name[_last_name(name)] for name in ours]
            else:
                for name in ours:
                    fitting = [their for their in waiting if _shape(arrays[their]) == shapes[name]]
                    paired += fitting[:1]
                    waiting = [their for their in waiting if their not in fitting[:1]]
        if len(paired) == len(ours):
            theirs[begin:end] = paired
        begin = end
    return theirs


def _layer_of(name: Any) -> str:
    return str(name).rpartition(".")[0]


def _last_name(name: Any) -> str:
    return str(name).rpartition(".")[2]


def _shape(array: Any) -> tuple[int, ...]:
    return tuple(getattr(array, "shape", np.shape(array)))
