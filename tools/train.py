"""Train a model on a data set by back-propagation or by scan."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

from bppsa_cupy.data import Dataset, load
from bppsa_cupy.data.augment import AUGMENTATIONS
from bppsa_cupy.errors import BppsaError, CheckpointError, PlanError
from bppsa_cupy.network.backward import METHODS
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.plan import Plan
from bppsa_cupy.system.units import in_bytes
from bppsa_cupy.tools import cli, pipelines, ranks, resuming
from bppsa_cupy.tools.pictures.history import plot_history
from bppsa_cupy.tools.pictures.picture_file import check_picture
from bppsa_cupy.training.checkpoint import Checkpoint, load_checkpoint
from bppsa_cupy.training.loop import check_dataset, train
from bppsa_cupy.training.optimizer import Optimizer
from bppsa_cupy.training.optimizers import SGD, Adam, AdamW
from bppsa_cupy.training.rebuild import network_of
from bppsa_cupy.training.settings import Settings
from bppsa_cupy.training.sparsity import GradualPruning, RigL, Sparsity, sparsity_of
from bppsa_cupy.training.steps import History

OPTIMIZERS: dict[str, type[Optimizer]] = {"sgd": SGD, "adam": Adam, "adamw": AdamW}
#: Hyper-parameters by optimizer, where neither the arguments nor a checkpoint give them.
DEFAULTS = {
    "sgd": {"lr": 0.01, "momentum": 0.9, "nesterov": False, "weight_decay": 0.0},
    "adam": {"lr": 0.01, "weight_decay": 0.0},
    "adamw": {"lr": 0.01, "weight_decay": 0.01},
}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = cli.command("bppsa-train", __doc__)
    cli.add_model(result, required=False)
    result.set_defaults(seed=None, dtype=None)
    result.add_argument(
        "--data",
        help="'digits', or a path: CIFAR-10's binary layout, IDX, .npz, or sequences of bppsa-data",
    )
    result.add_argument("--plan", type=Path, help="a plan file of bppsa-plan; scans over layers need one")
    result.add_argument("--method", choices=METHODS, help="of the backward pass (default auto)")
    result.add_argument(
        "--epochs", type=cli.positive, help="in all (default 1, or as many as --iterations takes)"
    )
    result.add_argument("--iterations", type=cli.positive, help="stop after so many steps in all")
    result.add_argument("--batch-size", type=cli.positive, help="default 64")
    update = result.add_argument_group("optimizer")
    update.add_argument("--optimizer", choices=tuple(OPTIMIZERS), help="default sgd")
    update.add_argument("--lr", type=float, help="learning rate (default 0.01)")
    update.add_argument("--momentum", type=float, help="of sgd (default 0.9)")
    update.add_argument("--nesterov", action="store_true", default=None, help="Nesterov momentum for sgd")
    update.add_argument("--weight-decay", type=float, help="default 0, of adamw 0.01")
    update.add_argument(
        "--layer-lr", type=layer_rate, action="append", metavar="LAYERS:RATE",
        help="a rate for layers or parameters, as 0,3.bias:0.001; again for others",
    )  # fmt: skip
    result.add_argument(
        "--lr-schedule", metavar="SCHEDULE",
        help="step:EPOCHS:GAMMA, half:EPOCHS, inv:GAMMA:POWER, cosine[:STEPS], warmup:STEPS, or several with "
        "commas",
    )  # fmt: skip
    result.add_argument(
        "--augment", choices=AUGMENTATIONS, help="change training images at random: padded crops and flips"
    )
    result.add_argument("--label-smoothing", type=float, metavar="E", help="of the training loss (default 0)")
    changes = result.add_argument_group(
        "masks that change", "in training by bp, of one network without a plan"
    )
    changes.add_argument(
        "--prune-to", type=cli.fraction, metavar="F",
        help="prune gradually to this part of the weights, from that of --prune or none, along a cubic (Zhu "
        "and Gupta 2017)",
    )  # fmt: skip
    changes.add_argument("--prune-from-step", type=cli.not_negative, metavar="S", help="default 0")
    changes.add_argument("--prune-until-step", type=cli.positive, metavar="S", help="when F is reached")
    changes.add_argument("--prune-every", type=cli.positive, metavar="N", help="steps (default 100)")
    changes.add_argument(
        "--rigl-until-step", type=cli.positive, metavar="S",
        help="move what masks keep until this step: drop by magnitude, grow by gradient (RigL, Evci et al. "
        "2020)",
    )  # fmt: skip
    changes.add_argument("--rigl-every", type=cli.positive, metavar="N", help="steps (default 100)")
    changes.add_argument(
        "--rigl-fraction", type=cli.fraction, metavar="F", help="dropped at first (default 0.3)"
    )
    result.add_argument("--clip", type=float, metavar="NORM", help="scale gradients to this norm at most")
    result.add_argument("--checkpoint", type=Path, help="file written at every epoch's end")
    result.add_argument(
        "--resume", type=Path, metavar="CHECKPOINT",
        help="go on from it, and write it unless --checkpoint names another file; model, data and options "
        "that are left out are those it was trained with",
    )  # fmt: skip
    result.add_argument("--log", type=Path, help="one JSON object an iteration")
    result.add_argument("--plot", type=Path, help="PNG of the loss")
    ranks.add_ranks(result)
    pipelines.add_pipeline(result)
    return result


def layer_rate(text: str) -> dict[str, Any]:
    """The argument type of a group of parameters with a learning rate: "0,3.bias:0.001"."""
    places, _, rate = text.rpartition(":")
    try:
        return {"params": [place.strip() for place in places.split(",")], "lr": float(rate)}
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no LAYERS:RATE: give it as 0,3.bias:0.001") from None


def main(argv: list[str] | None = None) -> int:
    """Entry point of bppsa-train; returns the exit code."""
    with ranks.together():
        command = parser()
        arguments = command.parse_args(argv)
        if arguments.resume is None and None in (arguments.model, arguments.data):
            command.error("the following arguments are required: MODEL and --data, or --resume CHECKPOINT")
        return ranks.run(run, arguments)


def run(arguments: argparse.Namespace) -> None:
    """Train as the arguments say, and print what came out."""
    checkpoint = None if arguments.resume is None else load_checkpoint(arguments.resume)
    resuming.complete(arguments, checkpoint)
    settings = Settings(
        epochs=arguments.epochs or arguments.iterations or 1,
        progress=True,
        command=resuming.kept(arguments),
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
    pipeline = pipelines.make_pipeline(arguments, network, group)
    if pipeline is not None:
        network = pipeline.network
    elif group is not None or arguments.micro_batch is not None:
        partition, over = arguments.partition, arguments.ranks or ""
        if partition is None and plan is not None and "layers" in over:
            partition = plan.partition
            if partition is not None and group is not None and over == "layers":
                _check_ranks(arguments.plan, partition.ranks, group.size)
        if group is None or over.startswith("batch"):
            network = ranks.in_micro_batches(network, group, partition, arguments)
        else:
            network = ranks.over_ranks(network, group, partition, over)
    if plan is not None:
        network.use(plan)
        check_plan(plan, arguments.method, min(arguments.batch_size, len(dataset.train)))
    elif arguments.method not in ("auto", "bp") and network.needs_plan:
        raise BppsaError(
            f"--method {arguments.method} scans by a plan: make one with bppsa-plan build and give it "
            "with --plan"
        )
    optimizer = _optimizer(network, arguments, checkpoint)
    check_dataset(network, dataset)
    if network.writes:
        print(f"device {network.device.name}, {network.dtype}, method {arguments.method}", flush=True)
        if arguments.shard_optimizer:
            held = sum(array.nbytes for array in optimizer.arrays.values())
            print(f"{in_bytes(held)} of the optimizer's state on this rank", flush=True)
        if checkpoint is not None:
            print(f"from step {checkpoint.step} of {arguments.resume}", flush=True)
    started = time.perf_counter()
    history = train(pipeline or network, dataset, optimizer, settings, resume=arguments.resume)
    if pipeline is not None and arguments.trace is not None:
        pipelines.save_trace(pipeline, arguments.trace)
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
            f"batches of {batch_size} samples were asked for, the plan holds {plan.batch_size}: give "
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
                    f"{option} shapes a MODEL, and the network is that of {arguments.resume}: give the MODEL "
                    "with it, or leave it out"
                )
        return network_of(checkpoint, arguments.device)
    network = cli.make_network(arguments, dataset)
    if checkpoint is not None and arguments.prune is None and arguments.start is None:
        cli.take_masks(network, checkpoint)
    return network


def _recipe(arguments: argparse.Namespace, checkpoint: Checkpoint | None) -> dict[str, Any]:
    """The settings of `Settings.recipe`; what the arguments leave open is the checkpoint's to resume from."""
    names = "lr_schedule", "augment", "label_smoothing", "clip"
    stored = {} if checkpoint is None else checkpoint.recipe
    return {**{name: stored[name] for name in names if name in stored}, **cli.given(arguments, *names)}


def _sparsity(arguments: argparse.Namespace, checkpoint: Checkpoint | None) -> Sparsity | None:
    """How masks change: as the arguments say, or as in the checkpoint to resume from."""
    found = []
    for kind, prefix, needed in (
        (GradualPruning, "prune", ("to", "until_step")),
        (RigL, "rigl", ("until_step",)),
    ):
        names = [field.name for field in fields(kind) if hasattr(arguments, f"{prefix}_{field.name}")]
        given = cli.given(arguments, *(f"{prefix}_{name}" for name in names))
        own = {name.removeprefix(f"{prefix}_"): value for name, value in given.items()}
        own.pop("scope", None)
        if not own:
            continue
        lacking = [f"--{prefix}-{name.replace('_', '-')}" for name in needed if name not in own]
        if lacking:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in given if name != "prune_scope")
            raise BppsaError(f"{options} lacks {' and '.join(lacking)}: give it with them")
        if kind is GradualPruning:
            own |= {"start": arguments.prune or 0.0, "scope": arguments.prune_scope or "layer"}
        found.append(kind(**own))
    if len(found) > 1:
        raise BppsaError("--prune-to and --rigl-until-step both change masks: give one of them")
    if found:
        return found[0]
    return None if checkpoint is None else sparsity_of(checkpoint.recipe)


def _check_ranks(plan: Path, planned: int, ranks: int) -> None:
    """Raise PlanError where a plan is for another number of ranks."""
    if planned != ranks:
        raise PlanError(
            f"{plan} is a plan for {planned} ranks, there are {ranks}: start {planned}, or build it by "
            f"bppsa-plan build with --ranks {ranks}"
        )


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
        options["groups"] = stored.get("groups", [])
    if arguments.layer_lr is not None:
        options["groups"] = arguments.layer_lr
    given = cli.given(arguments, *DEFAULTS["sgd"])
    for name in given:
        if name not in options:
            raise BppsaError(f"--{name} is of sgd: leave it out with --optimizer {kind}")
    return OPTIMIZERS[kind](network.parameters, **{**options, **given})


def _print_summary(history: History, seconds: float) -> None:
    ran = history.ran
    if not history.rows:
        print("nothing to do: training had ended at the checkpoint's step (--epochs, --iterations: in all)")
        return
    rows = history.rows
    print(
        f"steps {rows[0]['step']} to {rows[-1]['step']}: loss {rows[0]['loss']:.4f} to {rows[-1]['loss']:.4f}"
    )
    for line in ran["forward_ways"]:
        print(f"forward over time: {line}")
    schedules = "; ".join(ran["schedules"])
    print(f"backward: {ran['method']} ({ran['reason']}){', ' + schedules if schedules else ''}")
    for line in ran["backward_ways"]:
        print(f"backward over time: {line}")
    if ran["by_kept_weights"]:
        print(f"by the list of kept weights: layers {', '.join(ran['by_kept_weights'])}")
    print(f"time {seconds:.1f} s, {len(rows) / seconds:.1f} steps/s")


if __name__ == "__main__":
    sys.exit(main())
