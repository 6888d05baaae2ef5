"""Train a model on a data set by back-propagation or by scan."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from bppsa_cupy.data import load
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.network import Sequential
from bppsa_cupy.optimizers import SGD, Adam, Optimizer
from bppsa_cupy.plan import Plan
from bppsa_cupy.tools import cli
from bppsa_cupy.training import History, Settings, train


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(prog="bppsa-train", description=__doc__)
    cli.add_model(result)
    result.add_argument(
        "--data",
        required=True,
        help="'digits', or a path: CIFAR-10's binary layout, IDX, .npz, or sequences of bppsa-data",
    )
    result.add_argument("--plan", type=Path, help="a plan file of bppsa-plan; scans need one")
    result.add_argument(
        "--method",
        choices=("auto", "bp", "linear", "blelloch", "hybrid"),
        default="auto",
        help="of the backward pass (default auto)",
    )
    result.add_argument("--epochs", type=cli.positive, default=1)
    result.add_argument("--iterations", type=cli.positive, help="stop after so many steps in all")
    result.add_argument("--batch-size", type=cli.positive, default=64)
    result.add_argument("--optimizer", choices=("sgd", "adam"), default="sgd")
    result.add_argument("--lr", type=float, default=0.01, help="learning rate (default 0.01)")
    result.add_argument("--momentum", type=float, default=0.9, help="of sgd (default 0.9)")
    result.add_argument("--nesterov", action="store_true", help="Nesterov momentum for sgd")
    result.add_argument("--weight-decay", type=float, default=0.0)
    result.add_argument("--clip", type=float, metavar="NORM", help="scale gradients to this norm at most")
    result.add_argument("--checkpoint", type=Path, help="file written at every epoch's end")
    result.add_argument("--resume", type=Path, help="checkpoint to go on from")
    result.add_argument("--log", type=Path, help="one JSON object an iteration")
    result.add_argument("--plot", type=Path, help="PNG of the loss")
    return result


def main(argv: list[str] | None = None) -> int:
    """Entry point of bppsa-train; returns the exit code."""
    return cli.run(run, parser().parse_args(argv))


def run(arguments: argparse.Namespace) -> None:
    """Train as the arguments say, and print what came out."""
    if arguments.plan is None and arguments.method not in ("auto", "bp"):
        raise BppsaError(
            f"--method {arguments.method} scans by a plan: make one with bppsa-plan build and give it "
            "with --plan"
        )
    dataset = load(arguments.data)
    network = cli.make_network(arguments, dataset.input_shape, dataset.classes)
    print(f"device {network.device.name}, {network.dtype}, method {arguments.method}", flush=True)
    if arguments.plan is not None:
        network.use(Plan.load(arguments.plan))
    settings = Settings(
        method=arguments.method,
        epochs=arguments.epochs,
        iterations=arguments.iterations,
        batch_size=arguments.batch_size,
        seed=arguments.seed,
        checkpoint=arguments.checkpoint,
        log=arguments.log,
        progress=sys.stderr.isatty(),
        clip=arguments.clip,
    )
    started = time.perf_counter()
    history = train(network, dataset, _optimizer(network, arguments), settings, resume=arguments.resume)
    _print_summary(network, history, time.perf_counter() - started)
    if arguments.plot is not None:
        from bppsa_cupy.tools.curves import plot_history

        plot_history(history, arguments.plot, title=f"{arguments.model} on {dataset.name}")


def _optimizer(network: Sequential, arguments: argparse.Namespace) -> Optimizer:
    if arguments.optimizer == "adam":
        return Adam(network.parameters, lr=arguments.lr, weight_decay=arguments.weight_decay)
    return SGD(
        network.parameters,
        lr=arguments.lr,
        momentum=arguments.momentum,
        nesterov=arguments.nesterov,
        weight_decay=arguments.weight_decay,
    )


def _print_summary(network: Sequential, history: History, seconds: float) -> None:
    report = network.last_backward
    if not history.rows or report is None:
        print("nothing to do: training had ended at the checkpoint's step")
        return
    rows = history.rows
    print(
        f"steps {rows[0]['step']} to {rows[-1]['step']}: loss {rows[0]['loss']:.4f} to {rows[-1]['loss']:.4f}"
    )
    for row in history.evaluations():
        loss, accuracy = row["test_loss"], row["test_accuracy"]
        print(f"epoch {row['epoch']}: test loss {loss:.4f}, test accuracy {accuracy:.2%}")
    schedules = "; ".join(report.schedules)
    print(f"backward: {report.method} ({report.reason}){', ' + schedules if schedules else ''}")
    print(f"time {seconds:.1f} s, {len(rows) / seconds:.1f} steps/s")


if __name__ == "__main__":
    sys.exit(main())
