"""The networks that command lines ask for."""

from __future__ import annotations

import argparse
import inspect
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.data import Dataset
from bppsa_cupy.distributed.network import STEPS
from bppsa_cupy.errors import BppsaError, CheckpointError, ShapeError, reason_of
from bppsa_cupy.models import build_model, find_factory
from bppsa_cupy.network.prune import prune
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.pipeline import balanced_ppv
from bppsa_cupy.tools import cli
from bppsa_cupy.training.checkpoint import Checkpoint, load_checkpoint


def make_network(arguments: argparse.Namespace, dataset: Dataset | None = None) -> Sequential:
    """The network of `cli.add_model`'s arguments; sizes that they leave open are those that `dataset` needs.

    It has the parameters and masks of the checkpoint that --from names, and is pruned as --prune says.
    """
    gradually = getattr(arguments, "prune_to", None) is not None
    if arguments.prune is None and arguments.prune_scope is not None and not gradually:
        raise BppsaError("--prune-scope requires --prune")
    wanted, classes = arguments.input_shape, arguments.classes
    if dataset is not None:
        wanted, classes = wanted or dataset.input_shape, classes or dataset.classes
    network = build_model(
        arguments.model,
        input_shape=wanted,
        classes=classes,
        **cli.taken(arguments, "seed", "dtype", "device"),
        **_recurrent_options(arguments, dataset),
    )
    if arguments.start is not None and _is_of_torch(arguments.start):
        load_torch(network, arguments.start)
    elif arguments.start is not None:
        checkpoint = load_checkpoint(arguments.start)
        set_masks(network, checkpoint)
        network.load_state_dict(checkpoint.parameters)
    if getattr(arguments, "evaluation", False):
        network.eval()
    if arguments.prune is not None:
        prune(network, arguments.prune, arguments.prune_scope or "layer")
    return network


def _recurrent_options(arguments: argparse.Namespace, dataset: Dataset | None) -> dict[str, Any]:
    """The options of recurrent models that were given. A data set with a label at every step asks for outputs
    at every step. Raises BppsaError where the model has no parameter of the name."""
    options = cli.specified(arguments, *cli.RECURRENT_OPTIONS)
    known = inspect.signature(find_factory(arguments.model)).parameters
    for name in options:
        if name not in known:
            raise BppsaError(
                f"--{name.replace('_', '-')} is an option of recurrent models, and {arguments.model!r} does "
                "not accept it: leave it out"
            )
    if dataset is not None and dataset.per_step and "outputs" in known:
        options.setdefault("outputs", "all")
    return options


def _is_of_torch(path: Path) -> bool:
    """Whether torch.save wrote a file: a zip archive, or a pickle of older versions."""
    try:
        with open(path, "rb") as file:
            return file.read(4).startswith((b"PK\x03\x04", b"\x80"))
    except OSError:  # load_checkpoint names the cause
        return False


def load_torch(network: Sequential, path: Path) -> None:
    """Load a state dict that torch.save wrote, or the only one in a dict of several things.

    Layers are paired by name, else by their order. Masks of torch.nn.utils.prune are set.
    Raises CheckpointError.
    """
    try:
        import torch
    except ImportError as cause:
        raise CheckpointError(f"{path} was written by PyTorch: install torch to read it") from cause
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as cause:
        raise CheckpointError(
            f"{path} cannot be read by torch.load ({reason_of(cause)}): save the model's state_dict()"
        ) from cause

    def is_state(value: Any) -> bool:
        return isinstance(value, dict) and bool(value) and all(map(torch.is_tensor, value.values()))

    states = [content] if is_state(content) else []
    if not states and isinstance(content, dict):
        states = [value for value in content.values() if is_state(value)]
    if len(states) != 1:
        raise CheckpointError(
            f"{path} holds {len(states)} state dicts: save one, for example model.state_dict()"
        )
    try:
        network.load_state_dict(states[0])
    except (CheckpointError, ShapeError):
        network.load_state_dict(states[0], by_order=True)


def set_masks(network: Sequential, checkpoint: Checkpoint) -> None:
    """Give the network the checkpoint's masks. Raises CheckpointError for one of another network or dtype."""
    with suppress(ShapeError):  # told below, with all that differs
        network.set_masks(checkpoint.masks)
    checkpoint.check(network.describe(), network.dtype.name)


def placed(network: Sequential, placement: tuple[int, ...] | int) -> tuple[int, ...]:
    """The placement that --ppv means for a network. Raises BppsaError."""
    return balanced_ppv(network, placement) if isinstance(placement, int) else placement


def layer_seconds(network: Sequential, batch: int, repeats: int = 5) -> np.ndarray:
    """(layers,) seconds of a training step on this process, measured: the median of some repeats per layer.
    A forward pass counts as long as the VJP."""
    shape = (batch, *(STEPS if size is None else size for size in network.input_shape))
    y = network.forward(network.device.zeros(shape, network.dtype))
    network.backward(network.device.xp.ones_like(y), "bp")
    current, seconds = network.last_pass, np.zeros(len(network))
    assert current is not None
    for index, (layer, ctx) in enumerate(zip(network.layers, current.layers, strict=True)):
        gradient = current.output_gradients[index]
        works = [partial(layer.vjp, ctx, gradient)] * 2
        if layer.parameter_shapes():
            works.append(partial(layer.parameter_gradients, ctx, gradient))
        for work in works:
            times = []
            for _ in range(repeats):
                network.device.synchronize()
                start = time.perf_counter()
                work()
                network.device.synchronize()
                times.append(time.perf_counter() - start)
            seconds[index] += np.median(times)
    return seconds
