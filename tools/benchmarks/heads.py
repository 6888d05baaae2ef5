"""Recurrent layers with heads against PyTorch's dense ones, and against the same layers stepped by PyTorch.

PyTorch has no recurrent layer with heads: what it offers is the dense layer, which is another function, or a
loop over the steps, which gives the same gradients.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from bppsa_cupy.errors import BppsaError
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.benchmarks import sequences
from bppsa_cupy.tools.benchmarks.harness import Row, Side, compared_row, measure, require_equal
from bppsa_cupy.tools.benchmarks.rivals import (
    TorchWorkload,
    best,
    thread_count,
    to_numpy,
    torch_device,
    torch_sides,
)
from bppsa_cupy.tools.benchmarks.sequences import TOLERANCE, Gradients, TorchGradients, some_of
from bppsa_cupy.tools.benchmarks.workload import OVERALL, Lap

if TYPE_CHECKING:
    from torch import Tensor

AGAINST = sequences.AGAINST
FEATURES = 8
#: Units, units of a head, batches and steps that are measured, and with --quick.
HIDDEN, HEAD, BATCH, STEPS = 512, 16, [1, 16], 10000
QUICK_HIDDEN, QUICK_STEPS = 32, 12
DENSE, STEPPED = "PyTorch's dense layer", "stepped by PyTorch"
QUANTITIES = ("forward", "backward", OVERALL)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--cells, --hidden, --head-size, --batch, --steps, --case-seconds."""
    parser.add_argument(
        "--cells", type=some_of({name: name for name in STEPS_OF}), default=list(STEPS_OF),
        metavar="NAME,NAME", help=f"of {', '.join(STEPS_OF)} (default all)",
    )  # fmt: skip
    parser.add_argument("--hidden", type=cli.positive, metavar="H", help=f"units (default {HIDDEN})")
    parser.add_argument(
        "--head-size", type=cli.positive, default=HEAD, metavar="N", help=f"units of a head (default {HEAD})"
    )
    parser.add_argument(
        "--batch", type=cli.positive_list, metavar="N,N",
        help=f"samples B (default {','.join(map(str, BATCH))}; with --quick one)",
    )  # fmt: skip
    parser.add_argument("--steps", type=cli.positive, metavar="T", help=f"steps (default {STEPS})")
    parser.add_argument(
        "--case-seconds", type=cli.positive, default=60, metavar="S",
        help="a case's samples stop at so many seconds, if there are three a side (default 60)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> list[Row]:
    """Forward, backward and overall, against either rival."""
    hidden = arguments.hidden or (QUICK_HIDDEN if arguments.quick else HIDDEN)
    if hidden % arguments.head_size:
        raise BppsaError(
            f"--hidden {hidden} is no multiple of --head-size {arguments.head_size}: heads are of one size"
        )
    batches = arguments.batch or (BATCH[:1] if arguments.quick else BATCH)
    rows = []
    for cell, batch in itertools.product(arguments.cells, batches):
        rows += _rows(arguments, cell, hidden, batch)
    return rows


def _rows(arguments: argparse.Namespace, cell: str, hidden: int, batch: int) -> list[Row]:
    steps = arguments.steps or (QUICK_STEPS if arguments.quick else STEPS)
    heads = hidden // arguments.head_size
    dense = {
        "cell": cell, "device": arguments.device, "steps": steps, "features": FEATURES, "batch": batch,
        "hidden": hidden,
    }  # fmt: skip
    options = {**dense, "heads": heads}
    rivals: dict[str, dict[str, Side]] = {}
    if arguments.against == "torch":
        rivals[DENSE] = torch_sides(DENSE, DenseGradients, dense, arguments.threads)
        rivals[STEPPED] = torch_sides(STEPPED, SteppedGradients, options, arguments.threads)
    case = f"{cell} H={hidden}, {heads} heads, B={batch} T={steps}"

    def check(results: Mapping[str, Any]) -> None:
        for side in rivals.get(STEPPED, ()):
            require_equal(f"{case}, {side}", results["ours"], results[side], TOLERANCE)

    sides = {"ours": Side(Gradients, options, arguments.threads)}
    for found in rivals.values():
        sides |= found
    measured = measure(
        sides, arguments.repeats, 0.0 if arguments.quick else 0.02, limit_seconds=arguments.case_seconds,
        check=check,
    )  # fmt: skip
    ours, note = measured["ours"], f"ours on {thread_count(arguments.threads)}"
    groups = [best({name: measured[name] for name in names}) for names in rivals.values()] or [None]
    return [compared_row(case, quantity, ours, one, note=note) for one in groups for quantity in QUANTITIES]


class DenseGradients(TorchGradients):
    """PyTorch's dense layer, which flushes denormal numbers as ours does: gradients of the last state fall to
    them within a thousand steps, and a step then takes a hundred times as long."""

    def __init__(self, **options: Any) -> None:
        import torch

        super().__init__(**options)
        torch.set_flush_denormal(True)


class SteppedGradients(TorchWorkload):
    """A layer with heads as one writes it in PyTorch: the inputs' products of all steps at once, and a step
    a product of matrices by head and what the cell does with it."""

    stateful = True

    def __init__(self, cell: str, device: str, steps: int, features: int, batch: int, **sizes: int) -> None:
        import torch

        network = sequences.make_network(cell, device, steps, features, **sizes)
        where = torch_device(network.device)
        self.device, self.step, self.heads = network.device, STEPS_OF[cell], sizes["heads"]
        self.parameters = {
            name: torch.tensor(array, device=where, requires_grad=True)
            for name, array in network.state_dict().items()
        }
        torch.set_flush_denormal(True)
        inputs, labels = sequences.make_batch(steps, features, batch)
        self.inputs, self.labels = torch.tensor(inputs, device=where), torch.tensor(labels, device=where)
        self.loss: Any = None

    def reset(self) -> None:
        for parameter in self.parameters.values():
            parameter.grad = None

    def run(self, lap: Lap) -> None:
        import torch

        own, heads = self.parameters, self.heads
        by_input = torch.nn.functional.linear(self.inputs, own["0.weight_ih_l0"], own["0.bias_ih_l0"])
        rows, size = own["0.weight_hh_l0"].shape
        gates, batch = rows // (heads * size), len(self.inputs)
        weights = own["0.weight_hh_l0"].view(gates, heads, size, size).permute(1, 3, 0, 2)
        weights = weights.reshape(heads, size, gates * size)
        # (T, heads, B, gates · size), and the biases (heads, 1, gates · size)
        by_input = by_input.view(batch, -1, gates, heads, size).permute(1, 3, 0, 2, 4)
        by_input = by_input.reshape(-1, heads, batch, gates * size)
        bias = own["0.bias_hh_l0"].view(gates, heads, size).permute(1, 0, 2).reshape(heads, 1, gates * size)
        states = (by_input.new_zeros(heads, batch, size),) * (2 if self.step is lstm_step else 1)
        for x in by_input:
            states = self.step(x, torch.baddbmm(bias, states[0], weights), states)
        last = states[0].permute(1, 0, 2).reshape(batch, -1)
        output = torch.nn.functional.linear(last, own["1.weight"], own["1.bias"])
        self.loss = torch.nn.functional.cross_entropy(output, self.labels)
        lap("forward")
        self.loss.backward()
        lap("backward")

    def result(self) -> dict[str, Any]:
        gradients = {name: to_numpy(one.grad) for name, one in self.parameters.items()}
        return {"loss": to_numpy(self.loss), **gradients}


def gru_step(x: Tensor, u: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """PyTorch's GRU, from the inputs' and the states' products of its gates r, z and n."""
    (xr, xz, xn), (ur, uz, un) = x.chunk(3, -1), u.chunk(3, -1)
    r, z = (xr + ur).sigmoid(), (xz + uz).sigmoid()
    n = (xn + r * un).tanh()
    return (n + z * (states[0] - n),)


def lstm_step(x: Tensor, u: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """PyTorch's LSTM, from the inputs' and the states' products of its gates i, f, g and o."""
    i, f, g, o = (x + u).chunk(4, -1)
    c = f.sigmoid() * states[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


STEPS_OF: dict[str, Callable[..., tuple[Any, ...]]] = {"gru": gru_step, "lstm": lstm_step}
