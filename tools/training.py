"""Training by bppsa-train: the network, the recipe and the ranks that the arguments ask for; resuming."""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

from bppsa_cupy.data import Dataset, load
from bppsa_cupy.distributed import Group
from bppsa_cupy.errors import BppsaError, CheckpointError, PlanError, PruneError
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.pipeline import Pipeline
from bppsa_cupy.plan import Partition, Plan
from bppsa_cupy.tools import cli, ranks
from bppsa_cupy.tools.models import make_network, placed, set_masks
from bppsa_cupy.tools.pictures.picture_file import check_picture, picture
from bppsa_cupy.training.checkpoint import Checkpoint, load_checkpoint, network_of
from bppsa_cupy.training.loop import History, check_dataset, train
from bppsa_cupy.training.optimizers import SGD, Adam, AdamW, Optimizer
from bppsa_cupy.training.settings import KINDS, GradualPruning, RigL, Settings, Sparsity

OPTIMIZERS: dict[str, type[Optimizer]] = {"sgd": SGD, "adam": Adam, "adamw": AdamW}
#: Hyper-parameters by optimizer, where neither the arguments nor a checkpoint give them.
DEFAULTS = {
    "sgd": {"lr": 0.01, "momentum": 0.9, "nesterov": False, "weight_decay": 0.0},
    "adam": {"lr": 0.01, "weight_decay": 0.0},
    "adamw": {"lr": 0.01, "weight_decay": 0.01},
}
#: Options of a pipeline, which --ppv makes.
PIPELINE = ("pipeline", "micro_batches", "non_pipelined_after")
#: Options that belong together: they are the checkpoint's where none of them, or the first, is another.
MODEL = ("model", "input_shape", "classes", *cli.RECURRENT_OPTIONS)
STORED_PIPELINE = ("ppv", *PIPELINE)
END = ("epochs", "iterations")
FILES = ("plan", "log")
USUAL = {"dtype": "float32", "seed": 0, "batch_size": 64, "method": "auto"}


def train_model(arguments: argparse.Namespace) -> None:
    """Train as the arguments say, and print what came out."""
    checkpoint = None if arguments.resume is None else load_checkpoint(arguments.resume)
    complete(arguments, checkpoint)
    settings = Settings(
        epochs=arguments.epochs or arguments.iterations or 1,
        progress=True,
        command=stored_options(arguments),
        **cli.taken(arguments, "method", "iterations", "batch_size", "seed", "checkpoint", "log"),
        **_recipe(arguments, checkpoint),
        sparsity=_sparsity(arguments, checkpoint),
    )
    if arguments.plot is not None:
        check_picture(arguments.plot)
    dataset = load(arguments.data)
    group = ranks.make_group(arguments, lambda: {"data": dataset.digest})
    network = _network(arguments, dataset, checkpoint)
    plan = None if arguments.plan is None else Plan.load(arguments.plan)
    pipeline = make_pipeline(arguments, network, group)
    if pipeline is not None:
        network = pipeline.network
    elif group is not None or arguments.micro_batch is not None:
        over = arguments.ranks or ""
        partition = None if arguments.partition is None else Partition(arguments.partition)
        if partition is None and plan is not None and over == "layers":
            partition = plan.partition
        if group is None or over == "batch":
            network = ranks.in_micro_batches(network, group, arguments)
        else:
            network = ranks.over_ranks(network, group, partition, over)
    if plan is not None:
        network.use(plan)
        check_plan(plan, arguments.method, min(arguments.batch_size, len(dataset.train)))
    elif arguments.method not in ("auto", "bp") and network.architecture.needs_plan:
        raise BppsaError(
            f"--method {arguments.method} scans by a plan: make one with bppsa-plan build and give it "
            "with --plan"
        )
    optimizer = _optimizer(network, arguments, checkpoint)
    check_dataset(network, dataset)
    if network.writes:
        print(f"device {network.device.name}, {network.dtype}, method {arguments.method}", flush=True)
        if checkpoint is not None:
            print(f"from step {checkpoint.step} of {arguments.resume}", flush=True)
    started = time.perf_counter()
    history = train(pipeline or network, dataset, optimizer, settings, resume=arguments.resume)
    if not network.writes:
        return
    _print_summary(history, time.perf_counter() - started)
    if arguments.plot is not None:
        plot_history(
            history, arguments.plot, title=f"{arguments.model or arguments.resume} on {dataset.name}"
        )


def check_plan(plan: Plan, method: str, batch_size: int) -> None:
    """Raise PlanError where `plan` lacks the method's schedule, or holds fewer samples than a batch has;
    "auto" goes on by bp then, with a warning."""
    if method == "bp" or (method == "auto" and not plan.schedules):
        return
    if method == "auto":
        if batch_size > plan.batch_size:
            cli.warn(
                f"the plan holds batches up to {plan.batch_size}, and those of {batch_size} samples run bp: "
                f"give --batch-size {plan.batch_size}, or build the plan with --batch-size {batch_size}"
            )
        return
    for index in range(len(plan.chains)):
        plan.schedule(index, method)
    if batch_size > plan.batch_size:
        raise PlanError(
            f"batches of {batch_size} samples were requested, but the plan holds {plan.batch_size}: give "
            f"--batch-size {plan.batch_size}, or build the plan with --batch-size {batch_size}"
        )


def _network(arguments: argparse.Namespace, dataset: Dataset, checkpoint: Checkpoint | None) -> Sequential:
    """The network to train: of MODEL, or without it the checkpoint's. Raises BppsaError for an option that
    shapes a MODEL where there is none."""
    if arguments.model is None:
        assert checkpoint is not None
        for name in ("input_shape", "classes", "prune", "start", *cli.RECURRENT_OPTIONS):
            if getattr(arguments, name) is not None:
                option = "--from" if name == "start" else f"--{name.replace('_', '-')}"
                raise BppsaError(
                    f"{option} applies to a MODEL, but the network comes from {arguments.resume}: also give "
                    f"the MODEL, or omit {option}"
                )
        return network_of(checkpoint, arguments.device)
    network = make_network(arguments, dataset)
    if checkpoint is not None and arguments.prune is None and arguments.start is None:
        set_masks(network, checkpoint)
    return network


def _recipe(arguments: argparse.Namespace, checkpoint: Checkpoint | None) -> dict[str, Any]:
    """The settings of `Settings.recipe`; what the arguments leave open is the checkpoint's to resume from."""
    names = "lr_schedule", "augment", "label_smoothing", "clip"
    stored = {} if checkpoint is None else checkpoint.recipe
    return {**{name: stored[name] for name in names if name in stored}, **cli.specified(arguments, *names)}


def _sparsity(arguments: argparse.Namespace, checkpoint: Checkpoint | None) -> Sparsity | None:
    """How masks change: as the arguments say, or as in the checkpoint to resume from."""
    changes = []
    for kind, prefix, needed in (
        (GradualPruning, "prune", ("to", "until_step")),
        (RigL, "rigl", ("until_step",)),
    ):
        names = [field.name for field in fields(kind) if hasattr(arguments, f"{prefix}_{field.name}")]
        specified = cli.specified(arguments, *(f"{prefix}_{name}" for name in names))
        settings = {name.removeprefix(f"{prefix}_"): value for name, value in specified.items()}
        settings.pop("scope", None)
        if not settings:
            continue
        lacking = [f"--{prefix}-{name.replace('_', '-')}" for name in needed if name not in settings]
        if lacking:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in specified if name != "prune_scope")
            raise BppsaError(f"{options}: also give {' and '.join(lacking)}")
        if kind is GradualPruning:
            settings |= {"start": arguments.prune or 0.0, "scope": arguments.prune_scope or "layer"}
        changes.append(kind(**settings))
    if len(changes) > 1:
        raise BppsaError("--prune-to cannot be combined with --rigl-until-step")
    if changes:
        return changes[0]
    recipe = {} if checkpoint is None else checkpoint.recipe
    for name, kind in KINDS.items():
        if name in recipe:
            try:
                return kind(**recipe[name])
            except TypeError as cause:
                raise PruneError(f"{name} is {recipe[name]!r}: {cause}") from cause
    return None


def _optimizer(
    network: Sequential, arguments: argparse.Namespace, checkpoint: Checkpoint | None
) -> Optimizer:
    """The optimizer of the arguments; what they leave open is the checkpoint's to resume from."""
    stored: dict[str, Any] = {} if checkpoint is None else checkpoint.optimizer
    kind = arguments.optimizer or str(stored.get("name", "sgd")).lower()
    if kind not in OPTIMIZERS:
        raise CheckpointError(
            f"{arguments.resume} holds the optimizer {stored['name']}: resume it by "
            "bppsa_cupy.training.loop.train"
        )
    options = dict(DEFAULTS[kind])
    if str(stored.get("name", "")).lower() == kind:
        known, values = OPTIMIZERS[kind].hyperparameters, stored.get("hyperparameters", {})
        options.update((name, value) for name, value in values.items() if name in known)
    specified = cli.specified(arguments, *DEFAULTS["sgd"])
    for name in specified:
        if name not in options:
            raise BppsaError(f"--{name} requires --optimizer sgd, and the optimizer is {kind}")
    return OPTIMIZERS[kind](network.parameters, **{**options, **specified})


def _print_summary(history: History, seconds: float) -> None:
    if not history.rows:
        print("nothing to do: training had ended at the checkpoint's step (--epochs, --iterations: in all)")
        return
    rows = history.rows
    print(
        f"steps {rows[0]['step']} to {rows[-1]['step']}: loss {rows[0]['loss']:.4f} to {rows[-1]['loss']:.4f}"
    )
    print(*history.ran, sep="\n")
    print(f"time {seconds:.1f} s, {len(rows) / seconds:.1f} steps/s")


def plot_history(history: History, path: Path, title: str) -> None:
    """Training loss by step and test loss by epoch, as a picture."""
    with picture(path, save={"dpi": 150}, figsize=(7, 4), layout="constrained") as (_, axes):
        steps = [row["step"] for row in history.rows]
        axes.plot(steps, history.losses, linewidth=0.8, label="training loss, a batch")
        evaluations = history.evaluations()
        if evaluations:
            tested = ([row[name] for row in evaluations] for name in ("step", "test_loss"))
            axes.plot(*tested, "o-", label="test loss")
        axes.set(xlabel="step", ylabel="cross entropy", title=title)
        axes.legend()


# ---- pipelines ----


def make_pipeline(arguments: argparse.Namespace, network: Sequential, group: Group | None) -> Pipeline | None:
    """The pipeline that the arguments ask for; None without --ppv. Says how it runs.

    Raises BppsaError where an option is given that is of pipelines alone, or does not go with them.
    """
    options = cli.specified(arguments, *PIPELINE)
    if arguments.ppv is None:
        if options:
            name = "--" + next(iter(options)).replace("_", "-")
            raise BppsaError(f"{name} requires --ppv")
        return None
    for name in ("ranks", "plan", "clip"):
        if getattr(arguments, name) is not None:
            raise BppsaError(f"--{name} cannot be combined with --ppv")
    result = Pipeline(
        network, placed(network, arguments.ppv), options.pop("pipeline", "stale"), group, **options
    )
    if result.network.writes:
        how = "simulated by one process" if group is None else f"on {group.size} ranks"
        stages = "; ".join(result.placement.describe(stage) for stage in range(result.stages))
        print(f"pipeline {result.schedule} {how}: stages with layers {stages}", flush=True)
    return result


# ---- resuming ----


def stored_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """What a checkpoint is to keep beside what training knows, as JSON holds it: paths are absolute."""
    options = cli.specified(arguments, *MODEL, *STORED_PIPELINE)
    if "model" in options:
        options["model"] = _absolute(options["model"])
    return options | {name: os.path.abspath(path) for name, path in cli.specified(arguments, *FILES).items()}


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
    if not cli.specified(arguments, *END):
        taken.update(END)
    if arguments.ppv is None:
        taken.update(STORED_PIPELINE)
    options = {name: stored[name] for name in taken if stored.get(name) is not None}
    options |= {name: Path(str(options[name])) for name in FILES if name in options}
    if isinstance(options.get("ppv"), list):
        options["ppv"] = tuple(options["ppv"])
    if arguments.data is None:
        options["data"] = _source(arguments.resume, checkpoint.data)
    return options


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
