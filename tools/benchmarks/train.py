"""A training step of a model against PyTorch's."""

from __future__ import annotations

import argparse
import math
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bppsa_cupy.data import batches, load
from bppsa_cupy.devices import rules
from bppsa_cupy.layers.weighted import Weighted
from bppsa_cupy.models import build_model
from bppsa_cupy.network.prune import prune
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.plan import SCHEDULES, Plan
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.benchmarks.harness import (
    BenchmarkError,
    Measurement,
    Rival,
    Row,
    Side,
    compared_row,
    measure,
    memory_row,
    require_equal,
)
from bppsa_cupy.tools.benchmarks.rivals import (
    TorchWorkload,
    thread_count,
    to_numpy,
    torch_network,
    torch_side,
)
from bppsa_cupy.tools.benchmarks.workload import OVERALL, Lap, Workload
from bppsa_cupy.tools.machine import torch_device
from bppsa_cupy.tools.pictures.picture_file import check_picture, picture
from bppsa_cupy.tools.plan import level_count
from bppsa_cupy.training.loop import check_dataset
from bppsa_cupy.training.losses import cross_entropy
from bppsa_cupy.training.optimizers import SGD

AGAINST = ("torch", "sparseprop", "none")
METHODS = ("bp", *SCHEDULES, "auto")

#: Our own way by all weights, whose masked ones are 0, beside the methods of a pruned network.
ALL_WEIGHTS = "bp by all weights"

RIVAL_NAMES = {"torch": "PyTorch", "sparseprop": "SparseProp"}
RATE, RATE_UNIT = "multiply-adds", "10⁹/s"

#: The paper's optimizer (section 3.5).
LEARNING_RATE, MOMENTUM = 1e-3, 0.9

#: How close loss, gradients, new parameters and buffers must be to the rival's, relative to their norm, and
#: the least norm counted, as a part of that of all gradients: a bias before batch normalisation has none.
TOLERANCE = {"float32": 1e-4, "float64": 1e-10}
LEAST_GRADIENT = 1e-2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--model, --prune, --plot, --data, --batch-size, --methods, --levels, --memory-limit, --dtype."""
    parser.add_argument("--model", default="lenet5", help="as bppsa-train takes it (default lenet5)")
    parser.add_argument(
        "--prune", type=cli.fraction, nargs="+", metavar="F", default=[None],
        help="prune this part of every layer; one run for each",
    )  # fmt: skip
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw a step's ratio to the rival by F")
    parser.add_argument("--data", metavar="PATH", help="images, as bppsa-train takes them (default random)")
    parser.add_argument("--batch-size", type=cli.positive, default=64, metavar="B", help="default 64")
    parser.add_argument("--dtype", choices=tuple(TOLERANCE), default="float32")
    parser.add_argument(
        "--tolerance",
        type=cli.fraction,
        metavar="X",
        help="relative difference to the rival's results allowed (default 1e-4, or 1e-10 in float64); many "
        "layers in float32 need more, where rounding turns an activation on or off",
    )
    parser.add_argument(
        "--methods",
        nargs="+",
        choices=METHODS,
        default=list(METHODS),
        help="of the backward pass; of one that passes the memory limit its bytes are told (default all)",
    )
    parser.add_argument(
        "--levels", type=level_count, default="auto", metavar="auto|N", help="of hybrid (default auto)"
    )
    parser.add_argument(
        "--memory-limit",
        type=cli.byte_size,
        metavar="BYTES",
        help="of a schedule (default: half of the free)",
    )


def run(arguments: argparse.Namespace) -> list[Row]:
    """Forward with loss, backward, optimizer, and the whole step, by every method; on one thread too."""
    if arguments.plot is not None:
        check_picture(arguments.plot)
    rows, shares = [], arguments.prune
    for share in shares:
        arguments.prune = share
        rows += _of_share(arguments)
    arguments.prune = shares
    if arguments.plot is not None:
        _plot(arguments.plot, rows)
    return rows


def _of_share(arguments: argparse.Namespace) -> list[Row]:
    """The rows of one share of pruned weights."""
    methods = [m for m in arguments.methods if not arguments.quick or m in ("bp", "hybrid", "auto")]
    if arguments.quick:
        arguments.batch_size = min(arguments.batch_size, 2)
    options, network = _options(arguments)
    rows = []
    with TemporaryDirectory() as folder:
        plans, refused = _plans(arguments, network, methods, Path(folder))
        for method, row in refused.items():
            print(f"left out: {method}: {row.note}", file=sys.stderr)
        ready = [method for method in methods if method not in refused]
        work = multiply_adds(network)
        for threads in sorted({1, arguments.threads}) if network.device.name == "host" else (0,):
            rows += _rows(arguments, options, {m: plans.get(m) for m in ready}, threads, work)
    return rows + list(refused.values())


def _options(arguments: argparse.Namespace) -> tuple[dict[str, Any], Sequential]:
    """What every side is built with, and the network."""
    dataset = None if arguments.data is None else load(arguments.data)
    options: dict[str, Any] = {
        "model": arguments.model,
        "prune_fraction": arguments.prune,
        "network_options": {"device": arguments.device, "dtype": arguments.dtype},
    }
    if dataset is not None:
        options["network_options"].update(input_shape=dataset.input_shape, classes=dataset.classes)
    network = make_network(arguments.model, arguments.prune, options["network_options"])
    if dataset is not None:
        check_dataset(network, dataset)
        batch = next(batches(dataset.train, arguments.batch_size, seed=0, dtype=network.dtype))
        return {**options, "inputs": batch.inputs, "labels": batch.labels}, network
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((arguments.batch_size, *network.input_shape)).astype(network.dtype)
    labels = generator.integers(0, network.output_shape[-1], arguments.batch_size)
    return {**options, "inputs": inputs, "labels": labels}, network


def _plans(
    arguments: argparse.Namespace, network: Sequential, methods: list[str], folder: Path
) -> tuple[dict[str, Path], dict[str, Row]]:
    """A plan file for each method, with its schedule alone (`auto` has all), and rows of those refused.

    Plans are made here, so that no side's memory counts their making.
    """
    scans = [method for method in methods if method != "bp"]
    if not scans:
        return {}, {}
    limit = arguments.memory_limit or network.device.free_memory() // 2  # the other sides take some too
    sizes = {"levels": arguments.levels, "batch_size": arguments.batch_size, "memory_limit": limit}
    whole = network.plan(**sizes)
    files, refused = {}, {}
    for method in scans:
        if method in whole.left_out:
            refused[method] = _refused(f"{_name(arguments)}, {method}", whole.left_out[method], limit)
            continue
        files[method] = folder / f"{method}.h5"
        (whole if method == "auto" else network.plan(**sizes, schedules=[method])).save(files[method])
    return files, refused


def _refused(case: str, needed: int, limit: int) -> Row:
    note = f"not run: it needs {needed} bytes and the limit is {limit}"
    mine, theirs = needed / 2**20, limit / 2**20
    return Row(case, "memory needed", mine, theirs, "the limit", "MiB", ratio=theirs / mine, note=note)


def _name(arguments: argparse.Namespace) -> str:
    pruned = "" if arguments.prune is None else f" pruned by {100 * arguments.prune:g} %"
    double = "" if arguments.dtype == "float32" else f", {arguments.dtype}"
    return f"{arguments.model}{pruned} B={arguments.batch_size}{double}"


def _rows(
    arguments: argparse.Namespace,
    options: dict[str, Any],
    plans: dict[str, Path | None],
    threads: int,
    work: tuple[int, int],
) -> list[Row]:
    """The rows of every method that has a plan or needs none, on so many threads (0 on a GPU)."""
    sides = {
        method: Side(Step, {**options, "method": method, "plan": plan}, max(threads, 1))
        for method, plan in plans.items()
    }
    if arguments.prune and "bp" in plans:
        own = {**options, "method": "bp", "plan": None, "by_all_weights": True}
        sides[ALL_WEIGHTS] = Side(Step, own, max(threads, 1))
    if arguments.against == "torch":
        sides["PyTorch"] = torch_side(TorchStep, options, max(threads, 1))
    elif arguments.against == "sparseprop":
        sides["SparseProp"] = torch_side(SparsePropStep, options, max(threads, 1))
    measured = measure(sides, arguments.repeats, 0.0 if arguments.quick else 0.05)
    name = RIVAL_NAMES.get(arguments.against, "")
    rival = (name, measured.pop(name)) if name in measured else None
    where = thread_count(threads) if threads else "GPU"
    rows = []
    for method, ours in measured.items():
        case = f"{_name(arguments)}, {where}, {method}"
        ran = ours.result.pop("ran")
        if rival is not None:
            theirs = rival[1].result
            mine = {key: array for key, array in ours.result.items() if len(theirs) > 1 or key in theirs}
            least = LEAST_GRADIENT * np.sqrt(
                sum(np.vdot(g, g) for n, g in ours.result.items() if n.startswith("gradient "))
            )
            tolerance = arguments.tolerance or TOLERANCE[arguments.dtype]
            require_equal(case, mine, theirs, tolerance, least)
        for quantity in ("forward", "backward", "optimizer", OVERALL):
            note = ran if quantity == "backward" else None
            rows.append(compared_row(case, quantity, ours, rival, note=note))
        rows.append(memory_row(case, arguments.device, ours, rival))
        if arguments.prune is not None:
            rows.append(_rate_row(case, ours, rival, arguments, work, by_all=method == ALL_WEIGHTS))
    if ALL_WEIGHTS in measured:
        dense, case = (ALL_WEIGHTS, measured[ALL_WEIGHTS]), f"{_name(arguments)}, {where}, bp"
        rows.append(compared_row(case, OVERALL, measured["bp"], dense))
    fixed = {method: one for method, one in measured.items() if method not in ("auto", ALL_WEIGHTS)}
    if "auto" in measured and fixed:
        best = min(fixed, key=lambda method: np.median(fixed[method].seconds["backward"]))
        case, quickest = f"{_name(arguments)}, {where}, auto", (f"{best}, the best", fixed[best])
        rows.append(compared_row(case, "backward", measured["auto"], quickest))
    return rows


def _rate_row(
    case: str,
    ours: Measurement,
    rival: Rival,
    arguments: argparse.Namespace,
    work: tuple[int, int],
    by_all: bool,
) -> Row:
    """Multiply-adds a second of either side over the whole step: what it does, of kept weights or of all."""
    kept, whole = (count * arguments.batch_size / 1e9 for count in work)
    mine = (whole if by_all else kept) / np.median(ours.seconds[OVERALL])
    if rival is None:
        return Row(case, RATE, mine, unit=RATE_UNIT)
    theirs = (whole if arguments.against == "torch" else kept) / np.median(rival[1].seconds[OVERALL])
    return Row(case, RATE, mine, theirs, rival[0], RATE_UNIT, note="of kept weights, or of all where dense")


def multiply_adds(network: Sequential) -> tuple[int, int]:
    """Multiply-adds of a sample's step, by kept weights and by all: forward, back to the input but in the
    first layer with weights, and for the weights' gradients, of layers that take masks."""
    kept = whole = 0
    first = True
    for section in network.architecture.section.walk():
        for layer, shape in zip(section.stack.layers, section.stack.shapes, strict=False):
            if isinstance(layer, Weighted):
                geometry, weights = layer.convolution(shape), math.prod(layer.weight_shape)
                samples = math.prod(shape) // (geometry.in_channels * math.prod(geometry.in_size))
                positions = (2 if first else 3) * samples * math.prod(geometry.out_size)
                whole += positions * weights
                kept += positions * (weights if layer.mask is None else int(layer.mask.sum()))
                first = False
    return kept, whole


def _plot(path: Path, rows: list[Row]) -> None:
    """A step's ratio to the rival by the share that is pruned, a line a case otherwise equal."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        found = re.search(r" pruned by ([\d.e-]+) %", row.case)
        if row.quantity == OVERALL and row.against in RIVAL_NAMES.values() and row.ratio is not None:
            share = float(found[1]) if found else 0.0
            label = row.case.replace(found[0], "") if found else row.case
            lines.setdefault(f"{label}, against {row.against}", []).append((share, row.ratio))
    with picture(path, save={"dpi": 110}, figsize=(8, 4.5), layout="constrained") as (_, axes):
        for label, points in lines.items():
            axes.plot(*zip(*sorted(points), strict=True), "o-", label=label)
        axes.axhline(1, color="gray", linewidth=0.8)
        axes.set(xlabel="weights pruned, %", ylabel="the rival's time / ours", yscale="log")
        axes.legend(fontsize=7)


def make_network(model: str, prune_fraction: float | None, network_options: dict[str, Any]) -> Sequential:
    """The network, the same in every process."""
    network = build_model(model, **network_options)
    if prune_fraction is not None:
        prune(network, prune_fraction)
    return network


class Step(Workload):
    """Our step: every run starts from the same parameters and no velocity."""

    stateful = True

    def __init__(
        self,
        method: str,
        plan: Path | None,
        inputs: Any,
        labels: Any,
        by_all_weights: bool = False,
        **making: Any,
    ) -> None:
        if by_all_weights:  # of this process, which works for nobody else
            rules.LISTED.update({name: (math.inf, math.inf) for name in rules.LISTED})
        self.network = make_network(**making)
        self.device, self.method = self.network.device, method
        if plan is not None:
            self.network.use(Plan.load(plan))
        self.inputs, self.labels = self.device.asarray(inputs), labels
        self.optimizer = SGD(self.network.parameters, lr=LEARNING_RATE, momentum=MOMENTUM)
        self.first_parameters = self.network.state_dict()
        self.first_state = self.optimizer.state_dict()
        self.first_random_state = dict(self.network.random_state)
        self.loss: Any = None

    def reset(self) -> None:
        self.network.load_state_dict(self.first_parameters)
        self.optimizer.load_state_dict(self.first_state)
        self.network.random_state.update(self.first_random_state)

    def run(self, lap: Lap) -> None:
        network = self.network
        self.loss, gradient = cross_entropy(
            network.forward(self.inputs, into=network.last_pass), self.labels, device=self.device
        )
        lap("forward")
        network.backward(gradient, method=self.method)
        lap("backward")
        self.optimizer.step(network.gradients)
        lap("optimizer")

    def result(self) -> dict[str, Any]:
        host, report = self.device.to_host, self.network.last_backward
        assert report is not None
        return {
            "ran": "; ".join([f"{report.method}, {report.reason}", *report.schedules]),
            "loss": np.asarray(host(self.loss)),
            **{f"gradient {name}": np.array(host(array)) for name, array in self.network.gradients.items()},
            **{f"new {name}": array for name, array in self.network.state_dict().items()},
        }


class TorchStep(TorchWorkload):
    """PyTorch's step from the same parameters, inputs and labels; gradients of pruned weights become 0, and
    Dropout drops what ours does."""

    stateful = True

    def __init__(self, inputs: Any, labels: Any, **making: Any) -> None:
        import torch

        from bppsa_cupy.tools.torch_modules import fix_dropout

        network = make_network(**making)
        self.device, where = network.device, torch_device(network.device)
        self.model = torch_network(network)
        fix_dropout(self.model, network, len(inputs))
        self.inputs = torch.tensor(inputs, device=where)
        self.labels = torch.tensor(labels, device=where)
        named = dict(self.model.named_parameters())
        self.masked = [
            (named[name], torch.tensor(mask, dtype=self.inputs.dtype, device=where))
            for name, mask in network.masks.items()
        ]
        self.first_parameters = {n: p.detach().clone() for n, p in self.model.state_dict().items()}
        self.loss: Any = None
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)

    def reset(self) -> None:
        self.model.load_state_dict(self.first_parameters)
        for state in self.optimizer.state.values():
            state["momentum_buffer"].zero_()

    def run(self, lap: Lap) -> None:
        import torch

        self.loss = torch.nn.functional.cross_entropy(self.model(self.inputs), self.labels)
        lap("forward")
        self.optimizer.zero_grad()
        self.loss.backward()
        for parameter, mask in self.masked:
            assert parameter.grad is not None
            parameter.grad *= mask
        lap("backward")
        self.optimizer.step()
        lap("optimizer")

    def result(self) -> dict[str, np.ndarray]:
        return {
            "loss": to_numpy(self.loss),
            **{f"gradient {n}": to_numpy(p.grad) for n, p in self.model.named_parameters()},
            **{f"new {n}": to_numpy(array) for n, array in self.model.state_dict().items()},
        }


class SparsePropStep(TorchStep):
    """PyTorch's step with the modules of SparseProp (`pip install sparseprop`, an optional peer) that it
    takes to be quicker than the dense ones. Weights are laid out otherwise: the loss alone is compared."""

    def __init__(self, inputs: Any, labels: Any, **making: Any) -> None:
        import torch

        try:
            from sparseprop.utils import swap_modules_with_sparse  # type: ignore[import-not-found]
        except ImportError as error:
            raise BenchmarkError(
                f"--against sparseprop takes the package sparseprop ({error}): "
                "pip install sparseprop==0.1.14, or take --against torch"
            ) from error
        super().__init__(inputs, labels, **making)
        with redirect_stdout(sys.stderr):
            swap_modules_with_sparse(self.model, tuple(self.inputs.shape), inplace=True)
        self.masked = []
        self.first_parameters = {n: p.detach().clone() for n, p in self.model.state_dict().items()}
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)

    def result(self) -> dict[str, np.ndarray]:
        return {"loss": to_numpy(self.loss)}
