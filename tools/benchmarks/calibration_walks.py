"""What a calibration times of passes over time: walks, reductions, scans of boundaries and single steps, in
float32, each as its kernel alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm import tqdm

from bppsa_cupy.devices import Device
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.processors.models import GpuModel
from bppsa_cupy.processors.sizes import WalkSize
from bppsa_cupy.processors.warps import Warps, reducing, stepping, walking
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.frames.twins import kernels_of
from bppsa_cupy.raw_kernels.kernel import Kernel, Variant
from bppsa_cupy.tools.benchmarks.calibration_work import launch_seconds
from bppsa_cupy.tools.on_gpu.ahead import compile_ahead
from bppsa_cupy.tools.on_gpu.lines import filled_arguments
from bppsa_cupy.tools.on_gpu.times import scalars_of, time_launches

CELLS = ("rnn_tanh", "gru", "lstm")

#: H, T and B of walks of few warps, with weights in registers, by whole blocks and in memory; with the steps
#: of a chunk, of walks by chunks, which fill a GPU, and of reductions; H, B and chunks of scans over
#: boundaries.
FEW = ((20, 1000, 16), (64, 1000, 16), (20, 1000, 1), (128, 1000, 16), (256, 200, 16), (256, 200, 1))
MANY = ((20, 20000, 16, 100), (64, 20000, 16, 100), (128, 4000, 16, 40), (256, 2000, 16, 40))
REDUCED = ((20, 20000, 16, 25), (20, 20000, 16, 200), (40, 4000, 16, 40), (64, 4000, 16, 40))
SCANNED = ((20, 16, 200), (20, 16, 1000), (40, 16, 200), (64, 16, 200), (128, 16, 50))
#: H and B of single steps; the weights of the last are beyond any L2.
STEPS = (*((hidden, batch) for hidden in (256, 512, 1024, 2048) for batch in (1, 16, 64)), (3072, 16))

#: Seconds of the launches of a graph, about.
GRAPH_SECONDS = 1e-3
#: Samples of what the host waits for.
SAMPLES = 20


@dataclass(frozen=True)
class KernelCase:
    """One launch of a kernel over time.

    verb   "forward", "backward", "reduce", "scan", "forward_step" or "backward_step"
    chunk  steps that a warp goes through: those of a chunk, or all; of a scan those between its boundaries
    """

    verb: str
    size: WalkSize
    chunk: int = 1

    def __str__(self) -> str:
        size = self.size
        numbers = f"T={size.steps} B={size.batch} H={size.hidden}, chunks of {self.chunk}"
        return f"{self.kernel.name} {numbers}"

    @property
    def kernel(self) -> Kernel:
        """The kernel that is launched."""
        return KERNELS["chunk_scan"] if self.verb == "scan" else kernels_of(self.size.cell)[self.verb]

    @property
    def is_step(self) -> bool:
        """Whether it is one step of a walk, which is timed in a graph."""
        return self.verb.endswith("_step")

    @property
    def way(self) -> str:
        """Of a walk or a step: "forward" or "backward"."""
        return self.verb.removesuffix("_step")

    @property
    def scalars(self) -> dict[str, Any]:
        """The kernel's scalars."""
        size = self.size
        found = scalars_of(self.kernel, size.hidden, size.steps, size.batch)
        own = {"chunk": self.chunk, "chunks": size.chunks(self.chunk), "states": size.cell.states}
        return {name: own.get(name, value) for name, value in found.items()}

    @property
    def read(self) -> float:
        """Bytes that a single step reads; 0 where the model counts none."""
        return stepping(self.size, self.way)[1] if self.is_step else 0.0

    def class_in(self, model: GpuModel) -> str:
        """What its factor is called."""
        if self.is_step:
            return "step"
        return "scan" if self.verb == "scan" else model.class_of(self._warps(model))

    def counted_in(self, model: GpuModel) -> float:
        """Seconds that `model` predicts, without those of a launch, and of a step without its reads."""
        if self.verb == "scan":
            return model.scan_seconds(self.size, self.size.chunks(self.chunk))
        return self.chunk * model.step_seconds(self._warps(model))

    def _warps(self, model: GpuModel) -> Warps:
        if self.is_step:
            return stepping(self.size, self.way)[0]
        if self.verb == "reduce":
            return reducing(self.size, self.chunk, model.shared_bytes)
        return walking(self.size, self.verb, self.size.chunks(self.chunk), model.shared_bytes)


def cases(quick: bool) -> list[KernelCase]:
    """The launches that are timed: a few sizes of each kind of kernel and cell; quick, a small one a verb."""
    if quick:
        size = WalkSize(FORMS["rnn_tanh"], 12, 2, 4, 4)
        return [
            KernelCase("forward", size, 12), KernelCase("backward", size, 12), KernelCase("reduce", size, 3),
            KernelCase("scan", size, 3), KernelCase("forward_step", size), KernelCase("backward_step", size),
        ]  # fmt: skip
    forms = [FORMS[name] for name in CELLS]
    # To a scan, cells are their states.
    scanned = {form.states: form for form in forms}.values()
    return [case for form in forms for case in _cases_of(form)] + [
        KernelCase("scan", WalkSize(form, chunks, batch, hidden, 4), 1)
        for form in scanned
        for hidden, batch, chunks in SCANNED
    ]


def _cases_of(form: CellForm) -> Iterator[KernelCase]:
    for hidden, steps, batch in FEW:
        for verb in ("forward", "backward"):
            yield KernelCase(verb, WalkSize(form, steps, batch, hidden, 4), steps)
    for hidden, steps, batch, chunk in MANY:
        size = WalkSize(form, steps, batch, hidden, 4)
        yield KernelCase("backward", size, chunk)
        # A forward kernel knows no chunks: each is as one more sample.
        yield KernelCase("forward", WalkSize(form, chunk, batch * size.chunks(chunk), hidden, 4), chunk)
    for hidden, steps, batch, chunk in REDUCED:
        yield KernelCase("reduce", WalkSize(form, steps, batch, hidden, 4), chunk)
    for hidden, batch in STEPS:
        for verb in ("forward_step", "backward_step"):
            yield KernelCase(verb, WalkSize(form, 1, batch, hidden, 4))


def time_overheads(device: Device) -> dict[str, Any]:
    """The seconds of a GpuModel that no size changes: `launch`, `following` and `check`."""
    count, real = KERNELS["step_count"], Variant()
    flag = device.zeros(1, np.int32)
    in_graph = device.bind(count, flag, device.zeros(1, np.int64))
    waits = []
    for _ in range(SAMPLES):
        device.synchronize()
        start = time.perf_counter()
        device.fetch(flag)()
        waits.append(time.perf_counter() - start)
    return {
        "launch": float(np.median(time_launches(device, count, real, {}, False))),
        "following": launch_seconds(device, in_graph, GRAPH_SECONDS),
        "check": float(np.median(waits)),
    }


def variants_of(device: Device, chosen: Sequence[KernelCase]) -> Iterator[tuple[str, Variant]]:
    """The kernels' names and variants."""
    for case in chosen:
        facts = device.facts_of_launch(case.scalars, case.size.itemsize)
        yield case.kernel.name, case.kernel.variant_for(Variant(), facts)


def time_cases(
    device: Device, chosen: Sequence[KernelCase], processes: int
) -> Iterator[tuple[KernelCase, float]]:
    """Each case with the seconds of a launch, or of a step of a graph of them. One that does not fit the
    device is told of on stderr, and left out.

    processes  that compile
    """
    if device.name == "cuda":
        compile_ahead(variants_of(device, chosen), processes)
    for case in tqdm(chosen, desc="walks", disable=not sys.stderr.isatty()):
        try:
            yield case, _seconds(device, case)
        except (BppsaError, MemoryError) as error:
            print(f"{case} is left out: {error}", file=sys.stderr)


def _seconds(device: Device, case: KernelCase) -> float:
    if not case.is_step:
        return float(np.median(time_launches(device, case.kernel, Variant(), case.scalars, False)))
    arguments = filled_arguments(device, case.kernel, Variant(), case.scalars, case.size.hidden**-0.5)
    return launch_seconds(device, device.bind(case.kernel, *arguments), GRAPH_SECONDS)
