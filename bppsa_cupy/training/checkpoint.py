"""Checkpoints: the state of training in one sealed HDF5 file, and networks made from it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import h5py
import numpy as np

from bppsa_cupy.cells import Cell
from bppsa_cupy.data import Dataset, number_of_batches
from bppsa_cupy.devices import Device, get_device
from bppsa_cupy.errors import BppsaError, CheckpointError, reason_of
from bppsa_cupy.layers import LAYERS, CellLayer, Layer, Residual
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.plan import differences
from bppsa_cupy.system.hdf5 import attribute, check_format, create, open_file, read_array, write_array
from bppsa_cupy.training.optimizers import Optimizer
from bppsa_cupy.training.settings import Settings

FORMAT, VERSION = "bppsa-checkpoint", 1
#: The fields that a file holds as attributes of JSON.
VALUES = ("network", "optimizer", "random_state", "recipe", "data", "options", "choices")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state of training.

    Attributes
    ----------
    network : mapping
        `net.describe()`.
    dtype : str
        "float32" or "float64".
    parameters : mapping of str to array
        `net.state_dict()`.
    masks : mapping of str to array
        Masks by parameter name.
    optimizer : mapping
        The optimizer's `state_dict()`.
    random_state : mapping
        State of the random numbers, as JSON values.
    recipe : mapping
        Settings that the steps follow from (`Settings.recipe`), as JSON values.
    data : mapping
        Name, digest and source of the data set.
    options : mapping
        Settings that may change when training resumes (`Settings.options`), as JSON values.
    choices : mapping
        Measured choices of kernels that change bits (`devices.autotune`).
    epoch, step : int
        Number of finished epochs and steps.
    """

    network: dict[str, Any]
    dtype: str
    parameters: dict[str, np.ndarray]
    masks: dict[str, np.ndarray] = field(default_factory=dict)
    optimizer: dict[str, Any] = field(default_factory=dict)
    random_state: dict[str, Any] = field(default_factory=dict)
    recipe: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    choices: dict[str, Any] = field(default_factory=dict)
    epoch: int = 0
    step: int = 0

    def check(self, network: Mapping[str, Any], dtype: str) -> None:
        """Raise CheckpointError, naming every field that differs, unless network and dtype are the same."""
        different = differences(
            {"dtype": self.dtype, **self.network}, {"dtype": dtype, **network}, holder="checkpoint"
        )
        if different:
            raise CheckpointError(
                f"the checkpoint belongs to another network ({'; '.join(different)}): pass one of this "
                "network"
            )


def save_checkpoint(path: str | os.PathLike[str], checkpoint: Checkpoint) -> None:
    """Write `checkpoint` to a sealed HDF5 file, replacing `path` at the end.

    Raises CheckpointError if the file cannot be written, and TypeError or AttributeError if a value is not a
    JSON value.
    """
    optimizer = dict(checkpoint.optimizer)
    groups = {
        "parameters": checkpoint.parameters,
        "masks": checkpoint.masks,
        "optimizer": optimizer.pop("arrays", {}),
    }
    values = {name: getattr(checkpoint, name) for name in VALUES} | {"optimizer": optimizer}
    with create(path, error=CheckpointError) as file:
        file.attrs.update(format=FORMAT, format_version=VERSION, dtype=checkpoint.dtype)
        file.attrs.update(epoch=checkpoint.epoch, step=checkpoint.step)
        for name, value in values.items():
            file.attrs[name] = json.dumps(value, default=lambda number: number.item())  # of NumPy
        for name, arrays in groups.items():
            group = file.create_group(name, track_order=True)
            for key, array in arrays.items():
                write_array(group, key, np.atleast_1d(array))
                if not np.ndim(array):
                    group[key].attrs["scalar"] = 1


def load_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read what `save_checkpoint` wrote, with equal bits and order; tuples become lists.

    Raises CheckpointError if the file is missing, damaged, truncated or of another kind.
    """
    with open_file(path, error=CheckpointError) as file:
        check_format(file, FORMAT, VERSION, CheckpointError)
        values = {name: json.loads(attribute(file, name, str, CheckpointError)) for name in VALUES}
        arrays = {name: _arrays(file[name]) for name in ("parameters", "masks", "optimizer")}
        if values["optimizer"]:
            values["optimizer"]["arrays"] = arrays["optimizer"]
        return Checkpoint(
            dtype=attribute(file, "dtype", str, CheckpointError),
            epoch=attribute(file, "epoch", int, CheckpointError),
            step=attribute(file, "step", int, CheckpointError),
            parameters=arrays["parameters"],
            masks=arrays["masks"],
            **values,
        )


def _arrays(group: h5py.Group) -> dict[str, np.ndarray]:
    arrays = {key: read_array(group, key, kinds="biuf", error=CheckpointError) for key in group}
    return {
        key: array.reshape(()) if "scalar" in group[key].attrs else array for key, array in arrays.items()
    }


# ---- taken of a training, and set in one ----


def snapshot(
    network: Sequential, optimizer: Optimizer, settings: Settings, dataset: Dataset, step: int, per_epoch: int
) -> Checkpoint:
    """Return the state of training after `step` steps."""
    return Checkpoint(
        network=network.describe(),
        dtype=network.dtype.name,
        parameters=network.state_dict(),
        masks=network.masks,
        optimizer=optimizer.state_dict(),
        random_state={
            "seed": settings.seed, "batch_size": settings.batch_size, "network": dict(network.random_state)
        },
        recipe=settings.recipe(per_epoch),
        data={"name": dataset.name, "digest": dataset.digest, "source": dataset.source},
        options=settings.options(),
        choices=dict(network.device.choices.used),
        epoch=step // per_epoch,
        step=step,
    )  # fmt: skip


def restore(
    network: Sequential, optimizer: Optimizer, checkpoint: Checkpoint, settings: Settings, dataset: Dataset
) -> int:
    """Set network and optimizer from `checkpoint` and return its step.

    Raises CheckpointError, naming what differs, unless network, optimizer with its hyper-parameters, data,
    seed, batch size and recipe are those it was trained with; sets nothing then.
    """
    masks_move = settings.sparsity is not None  # those of the step that training goes on from
    architecture = network.architecture.with_masks(checkpoint.masks) if masks_move else network.architecture
    checkpoint.check(architecture.describe(), network.dtype.name)
    optimizer.check_state_dict(checkpoint.optimizer)
    recipe = settings.recipe(number_of_batches(dataset.train, settings.batch_size))
    data, order = checkpoint.data, checkpoint.random_state
    pairs = {
        "data": (_data(data.get("name"), data.get("digest")), _data(dataset.name, dataset.digest)),
        "seed": (order.get("seed"), settings.seed),
        "batch_size": (order.get("batch_size"), settings.batch_size),
        **{name: (checkpoint.recipe.get(name), recipe.get(name)) for name in {**checkpoint.recipe, **recipe}},
        **{
            name: (value, getattr(optimizer, name))
            for name, value in checkpoint.optimizer["hyperparameters"].items()
            if not np.array_equal(value, getattr(optimizer, name))
        },
    }
    if data.get("digest") == dataset.digest:  # whose name may be another
        del pairs["data"]
    for name, (theirs, ours) in pairs.items():
        if theirs != ours:
            raise CheckpointError(
                f"the checkpoint was trained with {name}={theirs}, but {name} is {ours} now: pass the same "
                "value, or train from the start"
            )
    if masks_move:
        network.set_masks(checkpoint.masks)
    network.load_state_dict(checkpoint.parameters)
    optimizer.load_state_dict(checkpoint.optimizer)
    network.random_state.update(order.get("network", {}))
    network.device.choices.adopt(checkpoint.choices)
    return checkpoint.step


def _data(name: Any, digest: Any) -> str:
    return f"{name} (SHA-256 {str(digest)[:12]}…)"


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
    except (BppsaError, LookupError, TypeError, AttributeError) as cause:
        raise CheckpointError(
            f"the network of the checkpoint cannot be rebuilt ({reason_of(cause)}): name the MODEL in the "
            "bppsa-train command, or build the network in Python and call "
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
        raise LookupError(f"layer class {description['type']!r} is not part of this package")
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
    layer = kind(Cell.built_in(name), **options) if kind is CellLayer else kind(**options)
    if layer.definition.digest != digest:
        raise LookupError(f"cell {name!r} has another definition than in the checkpoint")
    return layer
