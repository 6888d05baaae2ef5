"""A GPU on paper whose clock goes on by what a model predicts for each launch, read from its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bppsa_cupy.devices.base import Launch
from bppsa_cupy.processors.models import GpuModel
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.twins import kernels_of
from bppsa_cupy.raw_kernels.kernel import Kernel, LaunchShape, Variant
from bppsa_cupy.timescan import WalkSize
from bppsa_cupy.tools.instruments.launches.paper import PaperGpu

CELLS = {kernel.name: (form, verb) for form in FORMS.values() for verb, kernel in kernels_of(form).items()}


class TimedGpu(PaperGpu):
    """A GPU that is as quick as `truth` says. No code is compiled for it, and nothing waits for it."""

    def __init__(self, truth: GpuModel) -> None:
        super().__init__()
        self.truth, self.clock, self.shared = truth, 0.0, truth.shared_bytes

    @property
    def shared_bytes(self) -> int:
        return self.shared

    def synchronize(self) -> None:
        pass

    def timestamp(self) -> float:
        return self.clock

    def seconds(self, start: float, end: float) -> float:
        return end - start

    def fetch(self, array: Any) -> Callable[[], Any]:
        return lambda: array

    def _prepare(self, kernel: Kernel, variant: Variant, shape: LaunchShape, arguments: list[Any]) -> Launch:
        seconds = self._own(kernel, {p.name: a for p, a in zip(kernel.parameters, arguments, strict=True)})

        def launch() -> None:
            self.clock += self.truth.launch + seconds

        return launch

    def sequence(self, launches: Sequence[Launch]) -> Launch:
        """A graph: its launches follow each other, and cost the host nothing."""

        def run() -> None:
            start = self.clock
            for launch in launches:
                launch()
            apart = self.truth.launch - self.truth.following
            self.clock = max(start, self.clock - apart * len(launches))

        return run

    def _own(self, kernel: Kernel, given: dict[str, Any]) -> float:
        """Seconds of a launch without what every launch takes."""
        if kernel.name == "step_count":
            return 0.0
        form, verb = CELLS.get(
            kernel.name, (FORMS["rnn_tanh" if given.get("states") == 1 else "lstm"], "scan")
        )
        size = WalkSize(form, given.get("steps", 1), given["batch"], given["hidden"], 4, given["sets"])
        if verb == "scan":
            return self.truth.scan_seconds(size, given["chunks"])
        if verb == "reduce":
            return self.truth.reduce_seconds(size, given["chunk"])
        if verb.endswith("_step"):
            way = verb.removesuffix("_step")
            return self.truth.single_step_seconds(size, way) - self.truth.following
        chunk = given.get("chunk", size.steps)
        return chunk * self.truth.walk_in_blocks_seconds(size, verb, size.chunks(chunk))
