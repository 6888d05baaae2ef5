"""What the benchmarks of recurrent networks share: cases, one pass forward and back on either side, rows."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from bppsa_cupy.data.bitstream import make_bitstreams
from bppsa_cupy.layers import GRU, LSTM, RNN, Linear
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.tools.benchmarks.harness import (
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
    best,
    to_numpy,
    torch_device,
    torch_recurrent,
    torch_side,
    torch_sides,
)
from bppsa_cupy.tools.benchmarks.workload import OVERALL, Lap, Workload
from bppsa_cupy.tools.reproduction.paper import Epoch
from bppsa_cupy.training.losses import cross_entropy

AGAINST = ("torch", "none")
HIDDEN, CLASSES = 20, 10
LAYERS = {"rnn": RNN, "gru": GRU, "lstm": LSTM}
T = TypeVar("T")

#: How close the loss and every gradient must be to the rival's, relative to the norm.
TOLERANCE = 1e-4
TF32 = "PyTorch with cuDNN, TF32"


@dataclass(frozen=True)
class Case:
    """Sizes of one line of the paper's tables 4 to 6.

    name    as --cases takes it
    paper   the paper's seconds of an epoch
    """

    name: str
    steps: int
    features: int
    batch: int
    paper: Epoch

    def paper_ratio(self, quantity: str) -> float | None:
        """Baseline / BPPSA, where the paper gives it."""
        if quantity == OVERALL:
            return self.paper.overall_ratio
        return self.paper.backward_ratio if quantity == "backward" else None


def add_cases(parser: argparse.ArgumentParser, cases: Sequence[Case]) -> None:
    """--cases."""
    names = {case.name: case for case in cases}
    parser.add_argument(
        "--cases",
        type=some_of(names),
        metavar="NAME,NAME",
        help=f"of {', '.join(names)} (default all; the first with --quick)",
    )
    parser.set_defaults(all_cases=list(cases))


def some_of(known: Mapping[str, T]) -> Callable[[str], list[T]]:
    """The argument type of some of what is known, by name: "rnn,lstm"."""

    def chosen(text: str) -> list[T]:
        unknown = [name for name in text.split(",") if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: there are {', '.join(known)}")
        return [known[name] for name in dict.fromkeys(text.split(","))]

    return chosen


def run_cases(arguments: argparse.Namespace, cell: str) -> list[Row]:
    """Forward, backward and overall of every case; with --quick of a few steps and samples."""
    cases = arguments.cases or (arguments.all_cases[:1] if arguments.quick else arguments.all_cases)
    if arguments.quick:
        cases = [
            dataclasses.replace(case, steps=min(case.steps, 12), batch=min(case.batch, 2)) for case in cases
        ]
    return [row for case in cases for row in _rows(arguments, cell, case)]


def _rows(arguments: argparse.Namespace, cell: str, case: Case) -> list[Row]:
    name, measured = measure_case(arguments, cell, case, {"ours": "auto"})
    ours, tf32 = measured.pop("ours"), measured.pop(TF32, None)
    found = best(measured)
    rows = _timed(name, case, ours, found)
    rows.append(memory_row(name, arguments.device, ours, found))
    if tf32 is not None:
        rows += _timed(name, case, ours, (TF32, tf32))
    return rows


def measure_case(
    arguments: argparse.Namespace, cell: str, case: Case, ours: Mapping[str, str]
) -> tuple[str, dict[str, Measurement]]:
    """What a case is called, and its sides, ours and the rivals, measured in turn.

    arguments  device, threads, against, repeats and quick, as bppsa-bench has them
    ours       methods of the backward pass, by what our sides are called
    Raises BenchmarkError where a rival's loss or gradients differ from those of one of our sides; the one
    with TF32 is not compared.
    """
    sizes = {"steps": case.steps, "features": case.features, "batch": case.batch}
    options = {"cell": cell, "device": arguments.device, **sizes}
    sides = {
        side: Side(Gradients, {**options, "method": method}, arguments.threads)
        for side, method in ours.items()
    }
    if arguments.against == "torch":
        sides |= rivals(arguments, options)
    measured = measure(sides, arguments.repeats, 0.0 if arguments.quick else 0.02)
    name = f"{case.name}: T={case.steps} B={case.batch} F={case.features}"
    for side in measured.keys() - ours.keys() - {TF32}:
        for own in ours:
            require_equal(f"{name}, {side}", measured[own].result, measured[side].result, TOLERANCE)
    return name, measured


def rivals(arguments: argparse.Namespace, options: dict[str, Any]) -> dict[str, Side]:
    """PyTorch on one thread and on all; on a GPU without and with TF32."""
    if arguments.device != "cuda":
        return torch_sides("PyTorch", TorchGradients, options, arguments.threads)
    return {
        "PyTorch with cuDNN": torch_side(TorchGradients, options, arguments.threads),
        TF32: torch_side(TorchGradients, {**options, "tf32": True}, arguments.threads),
    }


def _timed(name: str, case: Case, ours: Measurement, rival: Rival) -> list[Row]:
    quantities = ("forward", "backward", OVERALL)
    return [compared_row(name, q, ours, rival, paper=case.paper_ratio(q)) for q in quantities]


def make_network(
    cell: str, device: str, steps: int, features: int, hidden: int = HIDDEN, heads: int = 1
) -> Sequential:
    """The paper's model: one recurrent layer, its last state, a linear layer."""
    layers = [LAYERS[cell](features, hidden, outputs="last", heads=heads), Linear(hidden, CLASSES)]
    return Sequential(layers, input_shape=(steps, features), device=device)


def make_batch(steps: int, features: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (B, T, F) and labels, the same in every process: bitstreams of one feature (equation 8),
    normal values, as features that are normalised, of several."""
    if features == 1:
        bits = make_bitstreams(steps, batch)
        return bits.inputs.astype(np.float32), bits.labels
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((batch, steps, features), dtype=np.float32)
    return inputs, generator.integers(0, CLASSES, batch)


class Gradients(Workload):
    """Our pass: forward with the loss, and back to every parameter's gradient."""

    stateful = True

    def __init__(
        self, cell: str, device: str, steps: int, features: int, batch: int, hidden: int = HIDDEN,
        heads: int = 1, method: str = "auto",
    ) -> None:  # fmt: skip
        self.network, self.method = make_network(cell, device, steps, features, hidden, heads), method
        if method != "auto":
            self.network.use(self.network.plan(batch_size=batch))
        self.device = self.network.device
        inputs, self.labels = make_batch(steps, features, batch)
        self.inputs, self.loss = self.device.asarray(inputs), None

    def run(self, lap: Lap) -> None:
        network = self.network
        output = network.forward(self.inputs, into=network.last_pass)
        self.loss, gradient = cross_entropy(output, self.labels, device=self.device)
        lap("forward")
        network.backward(gradient, method=self.method)
        lap("backward")

    def result(self) -> dict[str, np.ndarray]:
        host = self.device.to_host
        gradients = {name: np.array(host(array)) for name, array in self.network.gradients.items()}
        return {"loss": np.asarray(host(self.loss)), **gradients}


class TorchGradients(TorchWorkload):
    """PyTorch's, from the same parameters, inputs and labels."""

    stateful = True

    def __init__(
        self, cell: str, device: str, steps: int, features: int, batch: int, hidden: int = HIDDEN,
        tf32: bool = False,
    ) -> None:  # fmt: skip
        import torch

        network = make_network(cell, device, steps, features, hidden)
        self.device, where = network.device, torch_device(network.device)
        torch.backends.cudnn.allow_tf32 = tf32
        self.model = torch_recurrent(network).to(where)
        inputs, labels = make_batch(steps, features, batch)
        self.inputs, self.labels = torch.tensor(inputs, device=where), torch.tensor(labels, device=where)
        self.loss: Any = None

    def reset(self) -> None:
        self.model.zero_grad()

    def run(self, lap: Lap) -> None:
        import torch

        recurrent, linear = self.model
        states = recurrent(self.inputs)[1]
        h = states[0] if isinstance(states, tuple) else states
        output = linear(h[-1])
        self.loss = torch.nn.functional.cross_entropy(output, self.labels)
        lap("forward")
        self.loss.backward()
        lap("backward")

    def result(self) -> dict[str, np.ndarray]:
        gradients = {name: to_numpy(p.grad) for name, p in self.model.named_parameters()}
        return {"loss": to_numpy(self.loss), **gradients}
