"""Training steps, plain and as one CUDA graph, beside PyTorch, eager and in a CUDA graph."""

from __future__ import annotations

import argparse
import gc
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

import bppsa_cupy as bp
from bppsa_cupy.devices import Device, get_device
from bppsa_cupy.models import build_model
from bppsa_cupy.network.prune import prune
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.benchmarks.harness import BenchmarkError, Row, timed_row
from bppsa_cupy.tools.benchmarks.rivals import to_numpy, torch_network, torch_recurrent
from bppsa_cupy.tools.benchmarks.sequence_sides import LAYERS, make_batch
from bppsa_cupy.tools.benchmarks.sequence_sides import make_network as make_recurrent
from bppsa_cupy.tools.benchmarks.sequences import CASES, FEATURES
from bppsa_cupy.tools.benchmarks.train import LEARNING_RATE, LEAST_GRADIENT, MOMENTUM
from bppsa_cupy.tools.benchmarks.workload import OVERALL, Lap, Timer, Workload
from bppsa_cupy.tools.machine import torch_device
from bppsa_cupy.training.losses import cross_entropy

AGAINST = ("torch", "none")
#: Steps from the initial parameters after which the sides are compared: the second one captures a graph.
STEPS = 3
#: The largest relative difference of loss and gradients to eager PyTorch without TF32.
TOLERANCE = 1e-4
#: Seconds of a sample at least, where a step is shorter; rounds of samples at least and at most.
SAMPLE_SECONDS, LEAST_ROUNDS, MOST_ROUNDS = 0.01, 3, 15

#: What rows of memory hold.
MEMORY = "what the free memory of the GPU fell by: arrays, pools and loaded kernels"

PLAIN, CAPTURED = "plain", "captured"
EAGER, GRAPH = "PyTorch", "PyTorch in a CUDA graph"
TF32 = " with TF32"
#: Sizes of the grid; the batches and widths come first at which PyTorch is strongest.
HIDDEN, BATCH, GRID_STEPS = (1024, 512, 64, 128, 256), (64, 16, 1), 1000
#: The recurrent cases of the paper, and image models with the share of weights pruned, by value.
PAPER = ("T1000", "S", "M", "L", "T10", "T30000", "B256")
MODELS = (("vgg11", 0.97), ("lenet5", None), ("resnet20", None), ("vgg11", None))
IMAGE_BATCH = (16, 64, 256)


@dataclass(frozen=True)
class Case:
    """A network, by device, and a batch of inputs and labels.

    kind  "paper", "images" or "grid"
    """

    name: str
    kind: str
    make_network: Callable[[str], Sequential]
    make_batch: Callable[[], tuple[np.ndarray, np.ndarray]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--cases, --like, --case-seconds."""
    parser.add_argument(
        "--cases", nargs="+", choices=("paper", "images", "grid"), default=["paper", "images", "grid"],
        help="the paper's recurrent networks, image models, a grid of recurrent layers (default all)",
    )  # fmt: skip
    parser.add_argument("--like", default="", metavar="TEXT", help="only cases whose name contains TEXT")
    parser.add_argument(
        "--case-seconds", type=float, default=2.0, metavar="S",
        help=f"no round of samples starts after S seconds, but for the first {LEAST_ROUNDS} (default 2)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> Iterator[list[Row]]:
    """The rows of each case. A side that fails is named on stderr, and the others go on; raises
    BenchmarkError at the end then."""
    failed: list[str] = []
    for case in cases(arguments.quick):
        if case.kind not in arguments.cases or arguments.like not in case.name:
            continue
        started = time.perf_counter()
        try:
            rows = measure_case(case, arguments, failed)
        except Exception as error:  # the other cases still count
            failed.append(f"{case.name}: {type(error).__name__}: {error}")
            cli.warn(failed[-1])
            continue
        print(f"{case.name}: {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True)
        yield rows
    if failed:
        raise BenchmarkError(f"{len(failed)} sides failed: {'; '.join(failed)}")


def cases(quick: bool = False) -> Iterator[Case]:
    """All cases, those of the goals first; with `quick` a small one of each kind."""
    paper = {case.name: case for cell in CASES.values() for case in cell}
    for name in ("T10",) if quick else PAPER:
        one = paper[name]
        sizes = one.steps, one.features, one.batch
        yield recurrent_case(f"{one.cell.upper()} {name}", "paper", one.cell, *sizes, one.hidden)
    for (model, share), batch in [(MODELS[1], 2)] if quick else itertools.product(MODELS, IMAGE_BATCH):
        yield image_case(model, share, batch)
    grid = itertools.product(BATCH, HIDDEN, LAYERS)
    for batch, hidden, cell in [(2, 6, "gru")] if quick else grid:
        steps = 12 if quick else GRID_STEPS
        name = f"{cell.upper()} H={hidden} B={batch} T={steps}"
        yield recurrent_case(name, "grid", cell, steps, FEATURES, batch, hidden)


def recurrent_case(
    name: str, kind: str, cell: str, steps: int, features: int, batch: int, hidden: int
) -> Case:
    """The paper's model: the last state of one recurrent layer, and a linear layer."""
    make = partial(make_recurrent, cell, steps=steps, features=features, hidden=hidden)
    return Case(name, kind, make, partial(make_batch, steps, features, batch))


def image_case(model: str, share: float | None, batch: int) -> Case:
    """A model for images of 32 × 32, and random ones."""
    generator = np.random.default_rng(0)
    images = generator.standard_normal((batch, 3, 32, 32)).astype(np.float32)
    labels = generator.integers(0, 10, batch)
    pruned = "" if share is None else f" pruned by {share:.0%}"
    make = partial(make_image_network, model, share)
    return Case(f"{model}{pruned} B={batch}", "images", make, lambda: (images, labels))


def make_image_network(model: str, share: float | None, device: str) -> Sequential:
    """The model on a device. The largest weights are looked for only once."""
    network = build_model(model, device=device)
    if share is not None:
        network.set_masks(masks_of(model, share))
    return network


@cache
def masks_of(model: str, share: float) -> dict[str, np.ndarray]:
    """The masks of the model pruned by magnitude."""
    network = build_model(model, device="host")
    prune(network, share)
    return dict(network.masks)


class PlainStep(Workload):
    """A step of bppsa-cupy, part by part."""

    stateful = True

    def __init__(self, case: Case, device: str) -> None:
        self.network = case.make_network(device)
        self.device = self.network.device
        inputs, self.labels = case.make_batch()
        self.inputs = self.device.asarray(inputs)
        self.optimizer = bp.SGD(self.network.parameters, lr=LEARNING_RATE, momentum=MOMENTUM)
        self.loss: Any = None

    def run(self, lap: Lap) -> None:
        network = self.network
        output = network.forward(self.inputs, into=network.last_pass)
        self.loss, gradient = cross_entropy(output, self.labels, device=self.device)
        lap("forward")
        network.backward(gradient)
        lap("backward")
        self.optimizer.step(network.gradients)
        lap("optimizer")

    def result(self) -> dict[str, np.ndarray]:
        host = self.device.to_host
        gradients = {name: np.array(host(array)) for name, array in self.network.gradients.items()}
        return {"loss": np.asarray(host(self.loss)), **gradients}

    def note(self) -> str:
        """The ways that the passes of recurrent layers ran."""
        forward, back = self.network.last_pass, self.network.last_backward
        ways = [*getattr(forward, "forward_ways", ()), *getattr(back, "backward_ways", ())]
        return ", ".join(map(str, ways))


class CapturedStep(PlainStep):
    """The same as one CUDA graph."""

    def __init__(self, case: Case, device: str) -> None:
        super().__init__(case, device)
        self.step = bp.CapturedStep(self.network, self.optimizer)

    def run(self, lap: Lap) -> None:
        self.loss = self.step(self.inputs, self.labels)

    def result(self) -> dict[str, np.ndarray]:
        self.loss = np.asarray(self.loss.loss)
        return super().result()

    def note(self) -> str:
        return f"{self.step.ran}; {super().note()}"


class TorchStep(Workload):
    """A step of PyTorch, eager. Gradients of pruned weights become 0."""

    stateful = True

    def __init__(self, case: Case, device: str, tf32: bool = False) -> None:
        import torch

        network, self.device, self.tf32 = case.make_network("host"), get_device(device), tf32
        self.where = torch_device(self.device)
        self.reset()
        torch.backends.cudnn.benchmark = True
        self.recurrent = case.kind != "images"
        self.model = (torch_recurrent if self.recurrent else torch_network)(network).to(self.where)
        inputs, labels = case.make_batch()
        self.given = torch.tensor(inputs, device=self.where), torch.tensor(labels, device=self.where)
        self.inputs, self.labels = (one.clone() for one in self.given)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, fused=True
        )
        named = dict(self.model.named_parameters())
        self.masked = [named[name] for name in network.masks]
        self.masks: Any = [
            torch.tensor(m, dtype=torch.float32, device=self.where) for m in network.masks.values()
        ]
        self.loss: Any = None

    def reset(self) -> None:
        """Switch TF32 on or off for products, convolutions and recurrent layers."""
        import torch

        torch.backends.cuda.matmul.allow_tf32 = self.tf32
        torch.backends.cudnn.allow_tf32 = self.tf32

    def output(self) -> Any:
        """The scores, (B, classes)."""
        if not self.recurrent:
            return self.model(self.inputs)
        recurrent, linear = self.model
        states = recurrent(self.inputs)[1]
        return linear((states[0] if isinstance(states, tuple) else states)[-1])

    def run(self, lap: Lap) -> None:
        import torch

        self.loss = torch.nn.functional.cross_entropy(self.output(), self.labels)
        lap("forward")
        self.optimizer.zero_grad(set_to_none=True)
        self.loss.backward()
        if self.masked:
            gradients: Any = [parameter.grad for parameter in self.masked]
            torch._foreach_mul_(gradients, self.masks)
        lap("backward")
        self.optimizer.step()
        lap("optimizer")

    def result(self) -> dict[str, np.ndarray]:
        names = self.model.named_parameters()
        return {"loss": to_numpy(self.loss), **{name: to_numpy(one.grad) for name, one in names}}

    def note(self) -> str:
        return ""


class GraphedTorchStep(TorchStep):
    """The same in a CUDA graph, with copies of inputs and labels into its buffers."""

    def __init__(self, case: Case, device: str, tf32: bool = False) -> None:
        import torch

        super().__init__(case, device, tf32)
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(STEPS - 1):
                super().run(_no_lap)
        torch.cuda.current_stream().wait_stream(beside)
        self.optimizer.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            super().run(_no_lap)

    def run(self, lap: Lap) -> None:
        for buffer, given in zip((self.inputs, self.labels), self.given, strict=True):
            buffer.copy_(given, non_blocking=True)
        self.graph.replay()


def sides_of(device: str, against: str) -> dict[str, Callable[[Case, str], Any]]:
    """What makes each side; graphs only on CUDA."""
    sides: dict[str, Callable[[Case, str], Any]] = {CAPTURED: CapturedStep, PLAIN: PlainStep}
    if against == "torch":
        sides[EAGER] = TorchStep
        if device == "cuda":
            sides[GRAPH] = GraphedTorchStep
            sides[EAGER + TF32] = partial(TorchStep, tf32=True)
            sides[GRAPH + TF32] = partial(GraphedTorchStep, tf32=True)
    return sides


def measure_case(case: Case, arguments: argparse.Namespace, failed: list[str]) -> list[Row]:
    """The rows of a case; sides that fail are added to `failed`."""
    sides: dict[str, Any] = {}
    memory: dict[str, float] = {}
    device = get_device(arguments.device)
    for name, make in sides_of(arguments.device, arguments.against).items():
        try:
            free = _release(device)
            sides[name] = _built(make, case, arguments.device)
            memory[name] = (free - _free_bytes(device)) / 2**20
        except Exception as error:  # the other sides and cases still count
            failed.append(f"{case.name}, {name}: {type(error).__name__}: {error}")
            cli.warn(failed[-1])
    try:
        notes = _differences(sides)
        for name, make in (CAPTURED, CapturedStep), (PLAIN, PlainStep):
            if name in sides and sides[name].network.masks:
                # Gradients that were read are written for all weights from then on, pruned ones too.
                sides[name] = _built(make, case, arguments.device)
        return _rows(case, sides, notes, memory if device.name == "cuda" else {}, arguments)
    finally:
        sides.clear()
        _release(device)


def _built(make: Callable[[Case, str], Any], case: Case, device: str) -> Any:
    side = make(case, device)
    side.reset()
    for _ in range(1 if isinstance(side, GraphedTorchStep) else STEPS):
        side.run(_no_lap)
    _wait(side)
    return side


def _differences(sides: Mapping[str, Any]) -> dict[str, str]:
    """What rows say of each side's difference to PyTorch without TF32."""
    if EAGER not in sides:
        return {}
    wanted, notes = sides[EAGER].result(), {}
    for name, side in sides.items():
        apart = difference(side.result(), wanted)
        verdict = "" if apart <= TOLERANCE else f", more than {TOLERANCE:g}"
        notes[name] = f"differs by {apart:.1e}{verdict}"
    return notes


def _rows(
    case: Case,
    sides: Mapping[str, Any],
    differences: Mapping[str, str],
    memory: Mapping[str, float],
    arguments: argparse.Namespace,
) -> list[Row]:
    seconds = interleave(sides, arguments.case_seconds)
    notes = {n: "; ".join(filter(None, (side.note(), differences.get(n)))) for n, side in sides.items()}
    rivals = [name for name in sides if name not in (CAPTURED, PLAIN)]
    exact = [name for name in rivals if TF32 not in name]
    strongest = min(exact, key=lambda name: float(np.median(seconds[name])), default=None)
    rows = []
    for ours, like in ((CAPTURED, GRAPH), (PLAIN, EAGER)):
        if ours not in sides:
            continue
        against: list[str | None] = [*rivals] or [None]
        for rival in against:
            said = [notes[ours]] if rival is None else [notes[ours], f"{rival}: {notes[rival]}"]
            said += ["the strongest without TF32"] if rival and rival == strongest else []
            note, theirs = "; ".join(filter(None, said)) or None, seconds[rival] if rival else None
            rows.append(timed_row(case.name, f"step, {ours}", seconds[ours], theirs, rival, note=note))
        if ours in memory:
            rival = like if like in memory else None
            of_rival = memory[like] if rival else None
            rows.append(Row(case.name, f"memory, {ours}", memory[ours], of_rival, rival, "MiB", note=MEMORY))
    if PLAIN in sides:
        laps = {
            name: _laps(sides[name], min(arguments.repeats, 5)) for name in (PLAIN, EAGER) if name in sides
        }
        for quantity in ("forward", "backward", "optimizer", OVERALL):
            mine, *others = ([lap[quantity] for lap in taken] for taken in laps.values())
            rows.append(timed_row(case.name, quantity, mine, *((others[0], EAGER) if others else ())))
    return rows


def difference(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> float:
    """The largest difference in norm of loss and gradients. It is relative to the norm of each array, or to a
    hundredth of that of all gradients where that is more."""
    norms = {name: float(np.linalg.norm(np.asarray(one, np.float64))) for name, one in theirs.items()}
    least = LEAST_GRADIENT * float(np.sqrt(sum(norms[name] ** 2 for name in theirs if name != "loss")))
    return max(
        float(np.linalg.norm(np.asarray(ours[name], np.float64) - theirs[name])) / max(norms[name], least)
        for name in theirs
    )


def interleave(sides: Mapping[str, Any], limit: float) -> dict[str, list[float]]:
    """Seconds of a step of each side, one sample per round. A sample is some steps in a row, without a wait
    between them, from an idle device to an idle one."""
    for side in sides.values():
        _sample(side, 2)  # what was captured may have to be captured again
    once = {name: _sample(side, 2) for name, side in sides.items()}
    numbers = {name: max(1, int(SAMPLE_SECONDS / seconds)) for name, seconds in once.items()}
    found: dict[str, list[float]] = {name: [] for name in sides}
    started = time.perf_counter()
    for taken in range(MOST_ROUNDS):
        if taken >= LEAST_ROUNDS and time.perf_counter() - started > limit:
            break
        for name, side in sides.items():
            _sample(side, 1)
            found[name].append(_sample(side, numbers[name]))
    return found


def _sample(side: Any, number: int) -> float:
    side.reset()
    _wait(side)
    started = time.perf_counter()
    for _ in range(number):
        side.run(_no_lap)
    _wait(side)
    return (time.perf_counter() - started) / number


def _laps(side: Any, samples: int) -> list[dict[str, float]]:
    timer = Timer(side, 0.0)
    return [timer.sample() for _ in range(samples)]


def _wait(side: Any) -> None:
    side.device.synchronize()
    if isinstance(side, TorchStep) and side.device.name == "cuda":
        import torch

        torch.cuda.synchronize()


def _release(device: Device) -> int:
    """Give memory that the pools do not need back to the GPU; the bytes that are free then."""
    gc.collect()
    if device.name == "cuda":
        import torch

        device.xp.get_default_memory_pool().free_all_blocks()
        torch.cuda.empty_cache()
    return _free_bytes(device)


def _free_bytes(device: Device) -> int:
    return int(device.xp.cuda.runtime.memGetInfo()[0]) if device.name == "cuda" else 0


def _no_lap(quantity: str) -> None:
    """The lap of a step that is timed as a whole."""
