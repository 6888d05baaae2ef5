"""What bppsa-train keeps of its options in a checkpoint, and takes from there."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from bppsa_cupy.errors import CheckpointError
from bppsa_cupy.tools import cli, pipelines
from bppsa_cupy.training.checkpoint import Checkpoint

#: Options that belong together: they are the checkpoint's where none of them, or the first, is another.
MODEL = ("model", "input_shape", "classes", *cli.RECURRENT_OPTIONS)
PIPELINE = ("ppv", *(name for name in pipelines.OPTIONS if name != "trace"))
END = ("epochs", "iterations")
FILES = ("plan", "log")
USUAL = {"dtype": "float32", "seed": 0, "batch_size": 64, "method": "auto"}


def kept(arguments: argparse.Namespace) -> dict[str, Any]:
    """What a checkpoint is to keep beside what training knows, as JSON holds it: paths are absolute."""
    found = cli.given(arguments, *MODEL, *PIPELINE)
    found |= {name: _absolute(found[name]) for name in ("model", "cell") if name in found}
    return found | {name: os.path.abspath(path) for name, path in cli.given(arguments, *FILES).items()}


def complete(arguments: argparse.Namespace, checkpoint: Checkpoint | None) -> None:
    """Set the options that were left out: to those of the checkpoint, or the usual ones.

    MODEL stays open where the checkpoint tells of none whose file is there: its network is made of what the
    checkpoint holds of it. Raises CheckpointError where the data is not there.
    """
    stored = {} if checkpoint is None else _stored(arguments, checkpoint)
    for name, value in {**USUAL, **stored}.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)


def _stored(arguments: argparse.Namespace, checkpoint: Checkpoint) -> dict[str, Any]:
    stored = {**checkpoint.options, **checkpoint.random_state, "dtype": checkpoint.dtype}
    taken = {"dtype", "seed", "batch_size", "method", *FILES}
    if _is_there(stored.get("model")) and _absolute(arguments.model) in (None, stored["model"]):
        taken.update(MODEL)
    if not cli.given(arguments, *END):
        taken.update(END)
    if arguments.ppv is None:
        taken.update(PIPELINE)
    found = {name: stored[name] for name in taken if stored.get(name) is not None}
    found |= {name: Path(str(found[name])) for name in FILES if name in found}
    if isinstance(found.get("ppv"), list):
        found["ppv"] = tuple(found["ppv"])
    if arguments.data is None:
        found["data"] = _source(arguments.resume, checkpoint.data)
    return found


def _source(path: Path, data: dict[str, Any]) -> str:
    """Where the data of training lies. Raises CheckpointError where it is not there."""
    source = data.get("source")
    if source == "digits" or (isinstance(source, str) and os.path.exists(source)):
        return source
    where = f"that was read from {source}" if source is not None else "of which it does not say where it lies"
    raise CheckpointError(f"{path} was trained with data {data.get('name')} {where}: give --data")


def _absolute(spec: str | None) -> str | None:
    """What names a factory, with an absolute path in place of another."""
    file, colon, name = (spec or "").rpartition(":")
    return f"{os.path.abspath(file)}:{name}" if colon and file.endswith(".py") else spec


def _is_there(spec: object) -> bool:
    """Whether a checkpoint names a model, whose file, if it has one, is there."""
    file = spec.rpartition(":")[0] if isinstance(spec, str) else ".py"
    return not file.endswith(".py") or os.path.exists(file)
