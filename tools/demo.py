"""The main job on real data: plan, train by scan, check the gradients, look at the Jacobians."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import bppsa_cupy as bp
from bppsa_cupy.data import batches, load
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.models import lenet5
from bppsa_cupy.tools import cli, jacobians, plan, train
from bppsa_cupy.training.checkpoint import load_checkpoint

BATCH = 16
#: Samples whose Jacobians are written.
DUMPED = 8
#: What a run must reach; one that was stopped early is not held to the accuracy.
EPOCHS, LEAST_ACCURACY, LARGEST_DIFFERENCE = 14, 0.95, 1e-12


def network(**options: Any) -> bp.Sequential:
    """LeNet-5 for the digits; `options` are Sequential's."""
    return lenet5(**{"input_shape": (1, 32, 32), **options})


#: The same network, as the command lines take it.
MODEL = "bppsa_cupy.tools.demo:network"


def parser() -> cli.Parser:
    """The command line."""
    result = cli.Parser(prog="tools/demo.py", description=__doc__, example="python tools/demo.py")
    result.add_argument("--output", type=Path, default=Path("out/demo"), help="Write to this folder.")
    result.add_argument(
        "--iterations", type=cli.positive, help=f"Stop after this number of steps. Default: {EPOCHS} epochs."
    )
    cli.add_device(result)
    return result


def main(argv: list[str] | None = None) -> int:
    """Entry point of the demo; returns the exit code."""
    return cli.run_command(run_demo, parser().parse_args(argv))


def run_demo(arguments: argparse.Namespace) -> None:
    """All five steps, and the table."""
    started = time.perf_counter()
    folder = arguments.output
    folder.mkdir(parents=True, exist_ok=True)
    device = ("--device", arguments.device)
    short = () if arguments.iterations is None else ("--iterations", arguments.iterations)

    print(
        "Plans, trains and looks into a LeNet-5 on handwritten digits: about a minute on two idle cores, and "
        "less than a minute more where kernels have to be compiled"
    )
    heading("1  The network and its data: scikit-learn's handwritten digits, enlarged to 32 × 32")
    dataset = load("digits")
    assert dataset.test is not None
    print(network(device=arguments.device))
    print(f"{len(dataset.train)} training images, {len(dataset.test)} test images, 10 classes")

    heading("2  The plan: every product of the scan, worked out from the layers' geometry")
    tool(plan.main, "build", MODEL, "--batch-size", BATCH, *device, "-o", folder / "plan.h5")
    tool(plan.main, "draw", folder / "plan.h5", "--schedule", "blelloch", "-o", folder / "schedule.png")

    heading("3  Training; every gradient comes from the parallel scan of the paper's algorithm 1")
    training_started = time.perf_counter()
    tool(
        train.main,
        *(MODEL, "--data", "digits", "--plan", folder / "plan.h5", "--method", "blelloch", *device),
        *("--epochs", EPOCHS, *short, "--batch-size", BATCH, "--optimizer", "adam", "--lr", 0.0005),
        *("--checkpoint", folder / "lenet5.h5", "--log", folder / "log.jsonl", "--plot", folder / "loss.png"),
    )
    training_seconds = time.perf_counter() - training_started
    last = json.loads((folder / "log.jsonl").read_text(encoding="utf-8").splitlines()[-1])

    heading("4  The gradients against ordinary back-propagation, in float64, on the trained network")
    difference = compare_gradients(folder, dataset, arguments.device)

    heading("5  The Jacobians: written, loaded again, multiplied with SciPy, drawn")
    tool(
        jacobians.main,
        *("dump", MODEL, "--data", "digits", "--from", folder / "lenet5.h5", *device),
        *("--batch-size", DUMPED, "-o", folder / "jacobians.h5"),
    )
    tool(jacobians.main, "show", folder / "jacobians.h5")
    chain_difference = multiply_loaded(folder, dataset, arguments.device)
    tool(jacobians.main, "plot", folder / "jacobians.h5", "-o", folder / "jacobians.png")

    heading("Summary")
    rows = [
        ("test accuracy", f"{last['test_accuracy']:.1%}", f"of {len(dataset.test)} images not trained on"),
        ("test loss", f"{last['test_loss']:.3f}", "cross entropy"),
        ("gradients", f"{difference:.0e}", "largest relative difference, scan and back-propagation"),
        (
            "input gradient",
            f"{chain_difference:.0e}",
            "relative difference, SciPy's product of the file, float32",
        ),
        ("training", f"{training_seconds:.1f} s", f"{last['step']} steps of {BATCH} images"),
        ("in all", f"{time.perf_counter() - started:.1f} s", "Numba's compilation at the first run included"),
    ]
    for name, value, remark in rows:
        print(f"  {name:<15} {value:>8}   {remark}")
    print(f"  {'files':<15} {'':>8}   {folder}: {', '.join(sorted(p.name for p in folder.iterdir()))}")
    check(None if short else last["test_accuracy"], difference)


def heading(text: str) -> None:
    """A line between the steps."""
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


def tool(main: Callable[[list[str] | None], int], *arguments: object) -> None:
    """Run one of the command lines, and show how to run it by hand. Raises BppsaError where it fails."""
    words = [str(argument) for argument in arguments]
    name = main.__module__.rpartition(".")[2]
    print(f"$ bppsa-{name} {shlex.join(words)}", flush=True)
    if main(words) != 0:
        raise BppsaError(f"bppsa-{name} failed: see the line above")


def trained(folder: Path, **options: Any) -> bp.Sequential:
    """The network with the parameters of the checkpoint."""
    net = network(**options)
    net.load_state_dict(load_checkpoint(folder / "lenet5.h5").parameters)
    return net


def compare_gradients(folder: Path, dataset: Any, device: str) -> float:
    """The largest relative difference, over parameters and schedules, between scan and back-propagation."""
    net = trained(folder, dtype="float64", device=device)
    net.use(bp.Plan.load(folder / "plan.h5"))
    inputs, labels, _ = next(batches(dataset.train, BATCH, dtype=net.dtype))
    _, gradient = bp.cross_entropy(net.forward(inputs), labels)
    net.backward(gradient, method="bp")
    expected = net.gradients.to_host()
    print(f"{'schedule':<12}" + "".join(f"{name:>12}" for name in expected if name.endswith("weight")))
    largest = 0.0
    for method in ("linear", "blelloch"):
        net.backward(gradient, method=method)
        gradients = net.gradients.to_host()
        each = {name: relative_difference(gradients[name], expected[name]) for name in expected}
        largest = max(largest, *each.values())
        print(f"{method:<12}" + "".join(f"{v:>12.1e}" for n, v in each.items() if n.endswith("weight")))
    return largest


def multiply_loaded(folder: Path, dataset: Any, device: str) -> float:
    """The gradient with respect to one image, as SciPy's product of the loaded matrices, against the
    network's own."""
    net = trained(folder, device=device)
    inputs, labels, _ = next(batches(dataset.train, DUMPED, dtype=net.dtype))
    _, gradient = bp.cross_entropy(net.forward(inputs), labels)
    expected = net.device.to_host(net.backward(gradient, method="bp", input_gradient=True))[0]
    product = net.device.to_host(gradient)[0]
    for record in reversed(bp.load_jacobians(folder / "jacobians.h5")):
        product = record.to_scipy(0) @ product
    difference = relative_difference(product, expected.reshape(-1))
    print(
        f"product of the loaded matrices and the gradient of image 0: {difference:.1e} from the network's own"
    )
    return difference


def relative_difference(actual: np.ndarray, expected: np.ndarray) -> float:
    """‖found - expected‖ / ‖expected‖."""
    return float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))


def check(accuracy: float | None, difference: float) -> None:
    """Raise BppsaError where the run missed what it must reach."""
    if difference > LARGEST_DIFFERENCE:
        raise BppsaError(
            f"gradients differ by {difference:.1e}, but at most {LARGEST_DIFFERENCE:.0e} is allowed"
        )
    if accuracy is not None and accuracy < LEAST_ACCURACY:
        raise BppsaError(f"test accuracy is {accuracy:.1%}, but at least {LEAST_ACCURACY:.0%} is expected")


if __name__ == "__main__":
    sys.exit(main())
