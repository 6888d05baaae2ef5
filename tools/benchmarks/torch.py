"""The step of a module of bppsa_cupy.torch beside our own network's, and beside torch.nn's."""

from __future__ import annotations

import argparse
import itertools
from typing import Any

import numpy as np

from bppsa_cupy.devices import get_device
from bppsa_cupy.layers import GRU, LSTM, RNN
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.tools.benchmarks.harness import Row, Side, compared_row, measure, require_equal, timed_row
from bppsa_cupy.tools.benchmarks.rivals import best, to_numpy, torch_side, torch_sides
from bppsa_cupy.tools.benchmarks.workload import OVERALL, Lap, Workload
from bppsa_cupy.tools.machine import torch_device

AGAINST = ("torch", "none")
LAYERS = {"gru": GRU, "lstm": LSTM, "rnn": RNN}
SIZES = list(itertools.product((100, 1000), (20, 128), (1, 16)))

#: How close every gradient must be to the other sides', relative to the norm.
TOLERANCE = 1e-4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--cell and --batch-first."""
    parser.add_argument("--cell", choices=LAYERS, default="gru")
    parser.add_argument(
        "--batch-first", action="store_true", help="sequences (B, T, F) for both modules (default (T, B, F))"
    )


def run(arguments: argparse.Namespace) -> list[Row]:
    """A step, forward and back to every parameter, of all sizes; with --quick of a small one."""
    sizes = [(12, 4, 2)] if arguments.quick else SIZES
    return [row for steps, hidden, batch in sizes for row in _rows(arguments, steps, hidden, batch)]


def _rows(arguments: argparse.Namespace, steps: int, hidden: int, batch: int) -> list[Row]:
    common = {
        "cell": arguments.cell,
        "device": arguments.device,
        "steps": steps,
        "hidden": hidden,
        "batch": batch,
    }
    module = {**common, "batch_first": arguments.batch_first}
    sides = {
        "module": Side(ModuleStep, {**module, "package": "bppsa_cupy.torch"}, arguments.threads),
        "network": Side(NetworkStep, common, arguments.threads),
        "nothing": Side(EmptyStep, {**module, "package": "torch.nn"}, arguments.threads),
    }
    if arguments.against == "torch":
        options = {**module, "package": "torch.nn"}
        if arguments.device == "cuda":
            sides["torch.nn with cuDNN"] = torch_side(ModuleStep, options, arguments.threads)
        else:
            sides |= torch_sides("torch.nn", ModuleStep, options, arguments.threads)
    measured = measure(sides, arguments.repeats, 0.0 if arguments.quick else 0.02)
    layout = "B, T, F" if arguments.batch_first else "T, B, F"
    case = f"{arguments.cell.upper()}, ({layout}): T={steps} H={hidden} B={batch}"
    ours, network, nothing = (measured.pop(name) for name in ("module", "network", "nothing"))
    for side, other in {"our network": network, **measured}.items():
        require_equal(f"{case}, {side}", ours.result, other.result, TOLERANCE)
    rows = [
        compared_row(case, "step", ours, ("our network", network), lap=OVERALL),
        timed_row(case, "autograd alone", nothing.seconds[OVERALL], note="a function that computes nothing"),
    ]
    rival = best(measured)
    return [*rows, compared_row(case, "step", ours, rival, lap=OVERALL)] if rival else rows


def make_network(cell: str, device: str, steps: int, hidden: int) -> Sequential:
    """One recurrent layer of as many units as features."""
    return Sequential([LAYERS[cell](hidden, hidden)], (steps, hidden), device=device)


def make_arrays(steps: int, hidden: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """An input and a gradient by the output, (B, T, H)."""
    generator = np.random.default_rng(0)
    x, gradient = generator.standard_normal((2, batch, steps, hidden), dtype=np.float32)
    return x, gradient


class NetworkStep(Workload):
    """Our network's, on the memory of its last pass; timed run by run, as modules are."""

    stateful = True

    def __init__(self, cell: str, device: str, steps: int, hidden: int, batch: int) -> None:
        self.network = make_network(cell, device, steps, hidden)
        self.device = self.network.device
        self.x, self.gradient = map(self.device.asarray, make_arrays(steps, hidden, batch))

    def run(self, lap: Lap) -> None:
        self.network.forward(self.x, into=self.network.last_pass)
        self.network.backward(self.gradient)

    def result(self) -> dict[str, np.ndarray]:
        host = self.device.to_host
        return {name[2:]: np.array(host(array)) for name, array in self.network.gradients.items()}


class ModuleStep(Workload):
    """That of a module of a package, by PyTorch's autograd, with the same parameters."""

    stateful = True

    def __init__(
        self, cell: str, device: str, steps: int, hidden: int, batch: int, package: str, batch_first: bool
    ) -> None:
        import torch

        import bppsa_cupy.torch

        modules: Any = bppsa_cupy.torch if package == "bppsa_cupy.torch" else torch.nn
        self.device = get_device(device)
        where = torch_device(self.device)
        self.module = getattr(modules, cell.upper())(hidden, hidden, batch_first=batch_first).to(where)
        state = make_network(cell, "host", steps, hidden).state_dict()
        self.module.load_state_dict({name[2:]: torch.tensor(array) for name, array in state.items()})
        arrays = (torch.tensor(array, device=where) for array in make_arrays(steps, hidden, batch))
        self.x, self.gradient = (
            array if batch_first else array.transpose(0, 1).contiguous() for array in arrays
        )

    def reset(self) -> None:
        self.module.zero_grad()

    def run(self, lap: Lap) -> None:
        y, _ = self.module(self.x)
        y.backward(self.gradient)

    def result(self) -> dict[str, np.ndarray]:
        return {name: to_numpy(parameter.grad) for name, parameter in self.module.named_parameters()}


class EmptyStep(ModuleStep):
    """PyTorch's autograd around a function of the same tensors that computes nothing."""

    def __init__(self, **options: Any) -> None:
        import torch

        super().__init__(**options)
        y, gradients = (
            torch.empty_like(self.gradient),
            [torch.empty_like(p) for p in self.module.parameters()],
        )

        class Nothing(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
                ctx.save_for_backward(*parameters)
                return y.detach()

            @staticmethod
            def backward(ctx: Any, gradient: torch.Tensor) -> Any:
                return None, *(g.detach() for g in gradients)

        class Empty(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> Any:
                return Nothing.apply(x, *self.parameters()), None

        self.module.__class__ = Empty
