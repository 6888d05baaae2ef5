"""The state of training: taken for a checkpoint, and set from one."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bppsa_cupy.arguments import as_integer
from bppsa_cupy.data import Dataset, number_of_batches
from bppsa_cupy.errors import BppsaError, CheckpointError
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.training.checkpoint import Checkpoint, load_checkpoint
from bppsa_cupy.training.optimizer import Optimizer
from bppsa_cupy.training.settings import Settings


def snapshot(
    network: Sequential,
    optimizer: Optimizer,
    settings: Settings,
    dataset: Dataset,
    step: int,
    per_epoch: int,
) -> Checkpoint:
    """The state of training after `step` steps."""
    return Checkpoint(
        network=network.describe(),
        dtype=network.dtype.name,
        parameters=network.state_dict(),
        masks=network.masks,
        optimizer=optimizer.state_dict(),
        random_state={**_order(settings), "network": dict(network.random_state)},
        recipe=settings.recipe(per_epoch),
        data={"name": dataset.name, "digest": dataset.digest, "source": dataset.source},
        options=settings.options(),
        choices=dict(network.device.choices.used),
        epoch=step // per_epoch,
        step=step,
    )


def restore_from(
    network: Sequential, optimizer: Optimizer, path: Path, settings: Settings, dataset: Dataset
) -> int:
    """`restore` from the checkpoint at `path`, which an error names."""
    checkpoint = load_checkpoint(path)
    try:
        return restore(network, optimizer, checkpoint, settings, dataset)
    except BppsaError as error:
        raise CheckpointError(f"{path}: {error}") from error


def restore(
    network: Sequential, optimizer: Optimizer, checkpoint: Checkpoint, settings: Settings, dataset: Dataset
) -> int:
    """Set network and optimizer from `checkpoint` and return its step.

    Raises CheckpointError, naming what differs, unless network, optimizer with its hyper-parameters, data,
    seed, batch size and recipe are those it was trained with, and DeviceError where the device has too little
    memory; sets nothing then.
    """
    if settings.sparsity is None:
        geometry = network.describe()
    else:  # whose masks are those of the step that it goes on from
        geometry = network.described_with_masks(checkpoint.masks)
    checkpoint.check(geometry, network.dtype.name)
    digest = checkpoint.data.get("digest")
    if digest is not None and digest != dataset.digest:  # files of older versions have none
        raise CheckpointError(
            f"the checkpoint was trained with data {checkpoint.data.get('name')} (SHA-256 "
            f"{str(digest)[:12]}…) and {dataset.name} ({dataset.digest[:12]}…) is asked for: give the same "
            "samples and labels"
        )
    for name, wanted in _order(settings).items():
        theirs = checkpoint.random_state.get(name)
        if theirs != wanted:
            raise CheckpointError(
                f"the checkpoint was trained with {name} {theirs} and {wanted} is asked for: the order of "
                "the samples would differ; "
                + (f"give {name} {theirs}" if theirs is not None else "it is no checkpoint of training")
            )
    ours = settings.recipe(number_of_batches(dataset.train, settings.batch_size))
    for name in {**checkpoint.recipe, **ours}:
        if checkpoint.recipe.get(name) != ours.get(name):
            raise CheckpointError(
                f"the checkpoint was trained with {name} {checkpoint.recipe.get(name)} and {ours.get(name)} "
                "is asked for: resuming goes on with the checkpoint's; give the same, or train anew"
            )
    optimizer.check_state_dict(checkpoint.optimizer)
    differing = optimizer.differing_hyperparameters(checkpoint.optimizer)
    if differing:
        raise CheckpointError(
            f"the checkpoint was trained with {_named(differing, 0)} and {_named(differing, 1)} is asked "
            "for: resuming goes on with the checkpoint's; give the same, or train anew"
        )
    for name, array in checkpoint.parameters.items():
        if not np.isfinite(array).all():
            raise CheckpointError(
                f"the checkpoint's {name} holds NaN or infinity: resume from an earlier one"
            )
    numbers = checkpoint.random_state.get("network", {})
    if not isinstance(numbers, dict) or not numbers.keys() <= network.random_state.keys():
        raise CheckpointError(
            f"the checkpoint's random numbers follow from {numbers!r}, the network's from its "
            f"{' and '.join(network.random_state)}: it is no checkpoint of training"
        )
    for name, value in numbers.items():
        as_integer("the checkpoint", name, value, 0, error=CheckpointError)
    if settings.sparsity is not None:
        network.set_masks(checkpoint.masks)
    set_optimizer = optimizer.prepared_state(checkpoint.optimizer)
    network.load_state_dict(checkpoint.parameters)
    network.random_state.update(numbers)
    set_optimizer()
    network.device.choices.adopt(checkpoint.choices)
    return checkpoint.step


def _order(settings: Settings) -> dict[str, int]:
    """What the order of the samples follows from."""
    return {"seed": settings.seed, "batch_size": settings.batch_size}


def _named(differing: dict[str, tuple[object, object]], side: int) -> str:
    return ", ".join(f"{name} {values[side]}" for name, values in differing.items())
