"""A training step of a model against PyTorch's."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

from bppsa_cupy.losses import cross_entropy
from bppsa_cupy.models import build_model
from bppsa_cupy.network import Sequential
from bppsa_cupy.optimizers import SGD
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.benchmarks.harness import (
    Measurement,
    Row,
    Side,
    measure,
    memory_row,
    require_equal,
    timed_row,
)
from bppsa_cupy.tools.benchmarks.rivals import (
    to_numpy,
    torch_bytes,
    torch_network,
    torch_place,
    torch_side,
)
from bppsa_cupy.tools.benchmarks.workload import OVERALL, Lap, Workload

AGAINST = ("torch", "none")
METHODS = ("bp", "linear", "blelloch", "hybrid")

#: The paper's optimizer (section 3.5).
LEARNING_RATE, MOMENTUM = 1e-3, 0.9

#: How close loss, gradients and new parameters must be to the rival's, relative to the norm.
TOLERANCE = {"float32": 1e-4, "float64": 1e-10}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--model, --batch-size, --methods, --dtype."""
    parser.add_argument("--model", default="lenet5", help="as bppsa-train takes it (default lenet5)")
    parser.add_argument("--batch-size", type=cli.positive, default=64, metavar="B", help="default 64")
    parser.add_argument("--dtype", choices=tuple(TOLERANCE), default="float32")
    parser.add_argument(
        "--methods",
        nargs="+",
        choices=METHODS,
        default=list(METHODS),
        help="of the backward pass; one whose plan does not fit the memory is left out (default all)",
    )


def run(arguments: argparse.Namespace) -> list[Row]:
    """Forward with loss, backward, optimizer, and the whole step, by every method; on one thread too."""
    batch = min(arguments.batch_size, 2) if arguments.quick else arguments.batch_size
    methods = [m for m in arguments.methods if not arguments.quick or m in ("bp", "hybrid")]
    rows = []
    for threads in sorted({1, arguments.threads}) if arguments.device == "host" else (arguments.threads,):
        rows += _rows(arguments, batch, methods, threads)
    return rows


def _rows(arguments: argparse.Namespace, batch: int, methods: list[str], threads: int) -> list[Row]:
    options = {
        "model": arguments.model,
        "device": arguments.device,
        "dtype": arguments.dtype,
        "batch": batch,
    }
    sides = {m: Side(Step, {**options, "method": m}, threads, optional=m != "bp") for m in methods}
    if arguments.against == "torch":
        sides["PyTorch"] = torch_side(TorchStep, options, threads)
    measured = measure(sides, arguments.repeats, 0.0 if arguments.quick else 0.05)
    rival = measured.pop("PyTorch", None)
    where = f"{threads} thread{'s' if threads > 1 else ''}" if arguments.device == "host" else "GPU"
    rows = []
    for method, ours in measured.items():
        if ours.failure is not None:
            print(f"left out: {ours.failure}", file=sys.stderr)
            continue
        case = f"{arguments.model} B={batch}, {where}, {method}"
        if rival is not None:
            require_equal(case, ours.result, rival.result, TOLERANCE[arguments.dtype])
        for quantity in ("forward", "backward", "optimizer", OVERALL):
            rows.append(_row(case, quantity, ours, rival))
        named = None if rival is None else ("PyTorch", rival)
        rows.append(memory_row(case, arguments.device, ours, named))
    return rows


def _row(case: str, quantity: str, ours: Measurement, rival: Measurement | None) -> Row:
    if rival is None:
        return timed_row(case, quantity, ours.seconds[quantity])
    return timed_row(case, quantity, ours.seconds[quantity], rival.seconds[quantity], "PyTorch")


def make_batch(network: Sequential, batch: int) -> tuple[Any, np.ndarray]:
    """Inputs on the network's device and labels on the host, the same in every process."""
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((batch, *network.input_shape)).astype(network.dtype)
    return network.device.asarray(inputs), generator.integers(0, network.output_shape[-1], batch)


class Step(Workload):
    """Our step: every run starts from the same parameters and no velocity."""

    stateful = True

    def __init__(self, model: str, device: str, dtype: str, batch: int, method: str) -> None:
        self.network = build_model(model, device=device, dtype=dtype)
        self.device, self.method = self.network.device, method
        if method != "bp":
            self.network.use(self.network.plan(schedules=[method], batch_size=batch))
        self.inputs, self.labels = make_batch(self.network, batch)
        self.optimizer = SGD(self.network.parameters, lr=LEARNING_RATE, momentum=MOMENTUM)
        self.first_parameters = self.network.state_dict()
        self.first_state = self.optimizer.state_dict()
        self.loss: Any = None

    def reset(self) -> None:
        self.network.load_state_dict(self.first_parameters)
        self.optimizer.load_state_dict(self.first_state)

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

    def result(self) -> dict[str, np.ndarray]:
        host = self.device.to_host
        return {
            "loss": np.asarray(host(self.loss)),
            **{f"gradient {name}": np.array(host(array)) for name, array in self.network.gradients.items()},
            **{f"new {name}": array for name, array in self.network.state_dict().items()},
        }


class TorchStep(Workload):
    """PyTorch's step from the same parameters, inputs and labels."""

    stateful = True

    def __init__(self, model: str, device: str, dtype: str, batch: int) -> None:
        import torch

        network = build_model(model, device=device, dtype=dtype)
        self.device, place = network.device, torch_place(network.device)
        self.model = torch_network(network)
        inputs, labels = make_batch(network, batch)
        self.inputs = torch.tensor(self.device.to_host(inputs), device=place)
        self.labels = torch.tensor(labels, device=place)
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
        lap("backward")
        self.optimizer.step()
        lap("optimizer")

    def result(self) -> dict[str, np.ndarray]:
        return {
            "loss": to_numpy(self.loss),
            **{f"gradient {n}": to_numpy(p.grad) for n, p in self.model.named_parameters()},
            **{f"new {n}": to_numpy(p) for n, p in self.model.named_parameters()},
        }

    def device_bytes(self) -> int:
        return torch_bytes()
