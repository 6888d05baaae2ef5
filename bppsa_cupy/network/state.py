"""A network's state dict: its parameters and buffers by name, in PyTorch's order."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import numpy as np

from bppsa_cupy.errors import CheckpointError
from bppsa_cupy.network.architecture import Architecture
from bppsa_cupy.network.parameters import BufferSet, ParameterSet


def state_of(
    architecture: Architecture, parameters: ParameterSet, buffers: BufferSet
) -> dict[str, np.ndarray]:
    """Copies on the host; masked weights are 0."""
    parameters.apply_masks()
    arrays = {**parameters.to_host(), **buffers.to_host()}
    return {name: arrays[name] for name in architecture.state_names}


def check_names(architecture: Architecture, arrays: Mapping[str, Any]) -> None:
    """Raise CheckpointError where arrays have other names than a network's state dict."""
    names = architecture.state_names
    missing = [name for name in names if name not in arrays]
    unknown = [name for name in arrays if name not in names]
    if missing or unknown:
        raise CheckpointError(
            f"the names in the state dict do not match (missing: {missing or 'none'}; unknown: "
            f"{unknown or 'none'}): use the names {list(names)}, or pass by_order=True if only the names "
            "differ"
        )


def load_state(parameters: ParameterSet, buffers: BufferSet, arrays: Mapping[str, Any]) -> None:
    """Set all from arrays of the same names and shapes. Masked weights are set to 0. Raises ShapeError
    naming both shapes; nothing is set then."""
    running = buffers.converted({name: arrays[name] for name in buffers})
    parameters.assign({name: arrays[name] for name in parameters})
    buffers.assign(running)


def without_masks(arrays: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """A state dict and its masks by the weights' names, of one that torch.nn.utils.prune has left, whose
    "weight_orig" and "weight_mask" stand for a weight; others as they are, without masks. Raises
    CheckpointError
    for parametrizations, which are anything."""
    names = [name for name in arrays if isinstance(name, str)]
    for name in names:
        if ".parametrizations." in f".{name}":
            raise CheckpointError(
                f"the state dict contains {name!r} of a parametrization instead of the weight: call "
                "torch.nn.utils.parametrize.remove_parametrizations on the module first"
            )
    pruned = [name.removesuffix("_orig") for name in names if name.endswith("_orig")]
    masks = {name: arrays[f"{name}_mask"] for name in pruned if f"{name}_mask" in arrays}
    left_out = {f"{name}_mask" for name in masks}
    return {
        name.removesuffix("_orig") if str(name).removesuffix("_orig") in masks else name: array
        for name, array in arrays.items()
        if name not in left_out
    }, masks


def in_order(architecture: Architecture, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays of any names by the network's, layer after layer. Raises CheckpointError where their number
    differs.

    Inside a layer, arrays are paired by their last names if these are equal, else by order:
    torch.nn.utils.prune moves a weight behind its bias.
    """
    names, theirs = architecture.state_names, list(arrays)
    if len(theirs) != len(names):
        raise CheckpointError(
            f"the state dict has {len(theirs)} arrays, but the network has {len(names)}: with by_order, "
            "pass a state dict with as many arrays as the network"
        )
    result: dict[str, Any] = {}
    for _, layer in groupby(names, lambda name: name.rpartition(".")[0]):
        ours = {name.rpartition(".")[2]: name for name in layer}
        part = theirs[len(result) : len(result) + len(ours)]
        by_name = {str(name).rpartition(".")[2]: name for name in part}
        pairs = by_name if by_name.keys() == ours.keys() else dict(zip(ours, part, strict=True))
        result |= {name: arrays[pairs[last]] for last, name in ours.items()}
    return result
