"""Networks made of what a checkpoint says of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from bppsa_cupy.cells import Cell
from bppsa_cupy.devices import Device, get_device
from bppsa_cupy.errors import BppsaError, CheckpointError
from bppsa_cupy.layers import LAYERS, CellLayer, Layer, Residual
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.training.checkpoint import Checkpoint, load_checkpoint

#: What a layer's description holds beside the constructor's arguments.
BESIDE = ("type", "input_shape")


def load_network(path: str | os.PathLike[str], device: str | Device = "auto") -> Sequential:
    """Load the network of a checkpoint, with parameters, buffers and masks, in training mode.

    Parameters
    ----------
    path : str or PathLike
        A checkpoint of `bppsa-train`.
    device : str or Device, default: "auto"
        The device of the network.

    Returns
    -------
    Sequential
        The network. Recurrent layers have the default `forward_method`.

    Raises
    ------
    CheckpointError
        If the file is missing, damaged or not a checkpoint, or if the network has a cell or layer class that
        is not part of this package.

    Examples
    --------
    >>> import os, tempfile, bppsa_cupy as bp
    >>> from bppsa_cupy.training.checkpoint import Checkpoint, save_checkpoint
    >>> net = bp.Sequential([bp.Linear(4, 3)], input_shape=(4,), device="host")
    >>> path = os.path.join(tempfile.mkdtemp(), "net.h5")
    >>> save_checkpoint(path, Checkpoint(net.describe(), "float32", net.state_dict()))
    >>> bp.load_network(path, device="host").output_shape
    (3,)
    """
    return network_of(load_checkpoint(path), device)


def network_of(checkpoint: Checkpoint, device: str | Device = "auto") -> Sequential:
    """`load_network` of a checkpoint that is in memory."""
    description, where = checkpoint.network, get_device(device)
    try:
        layers = [_layer(layer) for layer in description["layers"]]
        network = Sequential(layers, description["input_shape"], dtype=checkpoint.dtype, device=where)
        network.set_masks(checkpoint.masks)
    except CheckpointError:
        raise
    except (BppsaError, KeyError, TypeError, AttributeError) as cause:
        raise CheckpointError(
            f"the network of the checkpoint cannot be rebuilt ({type(cause).__name__}: {cause}): name "
            "the MODEL in the bppsa-train command, or build the network in Python and call "
            "net.load_state_dict(load_checkpoint(path).parameters)"
        ) from cause
    checkpoint.check(network.describe(), network.dtype.name)
    network.load_state_dict(checkpoint.parameters)
    network.random_state.update(checkpoint.random_state.get("network", {}))
    return network


def _layer(description: Mapping[str, Any]) -> Layer:
    """A layer by its description, without masks."""
    kind = LAYERS.get(description["type"])
    if kind is None:
        raise CheckpointError(
            f"the checkpoint contains a layer of class {description['type']!r}, which is not part of this "
            "package: name the MODEL in the bppsa-train command, or build the network in Python and call "
            "net.load_state_dict(load_checkpoint(path).parameters)"
        )
    options = {
        name: value
        for name, value in description.items()
        if name not in BESIDE and not name.endswith("_mask")
    }
    if kind is Residual:
        return Residual(**{branch: [_layer(inner) for inner in layers] for branch, layers in options.items()})
    if not issubclass(kind, CellLayer):
        return kind(**options)
    name, digest = options.pop("cell"), options.pop("digest")
    try:
        layer = kind(Cell.built_in(name), **options) if kind is CellLayer else kind(**options)
    except BppsaError:
        layer = None
    if layer is None or layer.definition.digest != digest:
        raise CheckpointError(
            f"the checkpoint contains a {description['type']} of the cell {name!r}, but not the definition "
            "of the cell: name the MODEL in the bppsa-train command, or build the network in Python and call "
            "net.load_state_dict(load_checkpoint(path).parameters)"
        )
    return layer
