"""What a pipeline of a network keeps, misses and takes: `bppsa-plan pipeline`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.errors import BppsaError
from bppsa_cupy.pipeline import SCHEDULES, Placement, make_schedule
from bppsa_cupy.pipeline.memory import StageMemory, stage_memory
from bppsa_cupy.pipeline.schedules import (
    PipelineSchedule,
    check_schedule,
    checked_ranks,
    live_passes,
    staleness,
)
from bppsa_cupy.pipeline.simulation import Simulation, simulate, simulate_accelerators
from bppsa_cupy.pipeline.times import (
    StageTimes,
    measured_bubbles,
    measured_times,
    message_seconds,
    predicted_times,
)
from bppsa_cupy.pipeline.torchsummary import summary
from bppsa_cupy.plan import cost_model_of
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.pictures.picture_file import check_picture
from bppsa_cupy.tools.pipelines import add_ppv, placed
from bppsa_cupy.tools.plans.pipeline_picture import draw_pipeline
from bppsa_cupy.tools.plans.pipeline_text import print_pipeline

#: Arrays of an optimizer's state, each as large as the parameters.
OPTIMIZER_ARRAYS = {"sgd": 1, "adam": 2, "adamw": 2}


def add_pipeline(commands: Any) -> None:
    """The subcommand `pipeline`."""
    parser = commands.add_parser(
        "pipeline", help="staleness, memory, predicted times and bubbles of a pipeline's schedules"
    )
    cli.add_model(parser)
    add_ppv(parser)
    parser.add_argument(
        "--schedule",
        choices=(*SCHEDULES, "all"),
        default="stale",
        help="one, or all beside each other (default stale)",
    )
    parser.add_argument(
        "--batch-size", type=cli.positive, default=32, metavar="B", help="samples (default 32)"
    )
    parser.add_argument(
        "--micro-batches",
        type=cli.positive,
        metavar="M",
        help="of a batch, for schedules that have them (default K + 1)",
    )
    parser.add_argument(
        "--ranks", type=cli.positive, metavar="P",
        help="that share the stages by an interleaved schedule (default: as many as have several each)",
    )  # fmt: skip
    parser.add_argument(
        "--optimizer", choices=tuple(OPTIMIZER_ARRAYS), default="sgd",
        help="whose state is counted (default sgd, with momentum)",
    )  # fmt: skip
    parser.add_argument(
        "--batches", type=cli.positive, default=50, metavar="N",
        help="that go through, from an empty pipeline to an empty one (default 50)",
    )  # fmt: skip
    parser.add_argument(
        "--stage-times", type=Path, metavar="FILE",
        help="in place of predicted ones: a trace of bppsa-train --trace, or JSON {forward, backward, "
        "update: [seconds of a batch by stage]}",
    )  # fmt: skip
    parser.add_argument(
        "--draw", type=Path, metavar="PNG", help="figure 4's diagram, and the predicted times"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    parser.set_defaults(run=run_pipeline)


def run_pipeline(arguments: argparse.Namespace) -> None:
    """Print the report, and draw it."""
    if arguments.ppv is None:
        raise BppsaError("give --ppv, where the network is cut: layer numbers, as 7,13, or balanced:K")
    if arguments.draw is not None:
        check_picture(arguments.draw)
    network = cli.make_network(arguments)
    if None in network.architecture.input_shape:
        raise BppsaError("the network leaves the number of steps open: give --input-shape T,F")
    placement = Placement(network, placed(network, arguments.ppv))
    report = Report(arguments, placement, network.device.name, network.dtype)
    facts = report.facts()
    if arguments.json:
        print(json.dumps(facts))
    else:
        print_pipeline(facts)
    if arguments.draw is not None:
        draw_pipeline(facts, [report.simulated(name, drawn=True) for name in report.names], arguments.draw)


class Report:
    """What is reckoned of one placement under one schedule, or all."""

    def __init__(
        self, arguments: argparse.Namespace, placement: Placement, device: str, dtype: np.dtype
    ) -> None:
        self.placement, self.device, self.dtype = placement, device, dtype
        self.model, self.batch, self.batches = arguments.model, arguments.batch_size, arguments.batches
        self.stages = len(placement.stages)
        self.names = tuple(SCHEDULES) if arguments.schedule == "all" else (arguments.schedule,)
        self._micro, self._ranks = arguments.micro_batches, arguments.ranks
        if self._ranks is not None and not any(SCHEDULES[name].interleaves for name in self.names):
            checked_ranks(self.names[0], self.stages, 1, self._ranks)
        self.optimizer_arrays = OPTIMIZER_ARRAYS[arguments.optimizer]
        if self._micro is not None and not any(SCHEDULES[name].micro for name in self.names):
            check_schedule(self.names[0], self._micro)
        if (most := max(map(self.micro, self.names))) > self.batch:
            raise BppsaError(
                f"{most} micro-batches of a batch of {self.batch} samples: a micro-batch holds one at least"
            )
        self.given: StageTimes | None = None
        self.bubbles: dict[int, float] = {}
        self.source = f"predicted by the cost model of {cost_model_of(device).label}"
        if arguments.stage_times is not None:
            self.given, self.bubbles = read_times(arguments.stage_times, self.stages)
            self.source = str(arguments.stage_times)

    def micro(self, name: str) -> int:
        """Micro-batches of a batch under a schedule."""
        if not SCHEDULES[name].micro:
            return 1
        return self._micro or min(self.stages, self.batch)

    def times(self, micro: int) -> StageTimes:
        """Of passes of a micro-batch, of the largest one where they differ."""
        if self.given is not None:
            return self.given.scaled(1 / micro)
        return predicted_times(self.placement, self.device, -(-self.batch // micro), self.dtype)

    def simulated(self, name: str, *, drawn: bool = False) -> Simulation:
        """A schedule on its ranks; of the batches that a picture shows."""
        micro, batches = self.micro(name), self.batches
        if drawn:
            batches = min(batches, 2 * self.stages + 3)
        messages = message_seconds(self.placement, self.device, -(-self.batch // micro), self.dtype)
        return simulate(self._schedule(name, batches), self.times(micro), messages)

    def _schedule(self, name: str, batches: int) -> PipelineSchedule:
        return make_schedule(name, self.stages, batches, self.micro(name), self.ranks(name))

    def ranks(self, name: str) -> int | None:
        """That were asked for, of a schedule which interleaves."""
        return self._ranks if SCHEDULES[name].interleaves else None

    def facts(self) -> dict[str, Any]:
        """As JSON holds it."""
        placement, times = self.placement, self.times(1)
        alone, counted = times.by_stage(), summary(placement)
        stages = [
            {
                "stage": stage,
                "layers": placement.describe(stage),
                "weights": placement.weights[stage],
                "forward_seconds": times.forward[stage],
                "backward_seconds": times.backward[stage],
                "update_seconds": times.update[stage],
            }
            for stage in range(self.stages)
        ]
        return {
            "model": self.model,
            "counted": list(placement.counted),
            "ppv": list(placement.ppv),
            "stale_share": placement.stale_share,
            "device": self.device,
            "dtype": self.dtype.name,
            "batch_size": self.batch,
            "batches": self.batches,
            "times": self.source,
            "measured_bubbles": list(self.bubbles.values()),
            "stages": stages,
            "seconds_alone": sum(alone),
            "speedup_limit": sum(alone) / max(alone) if max(alone) else 1.0,
            "torchsummary": {
                "weights": counted.weights,
                "activations_per_sample": list(counted.activations),
                "increase_per_sample": counted.increase,
                "increase_share": counted.share,
            },
            "schedules": [self._of_schedule(name, sum(alone)) for name in self.names],
        }

    def _of_schedule(self, name: str, alone: float) -> dict[str, Any]:
        micro, simulation = self.micro(name), self.simulated(name)
        count, ranks = simulation.count, self.ranks(name)
        memory = stage_memory(
            self.placement, name, self.batch, self.dtype, micro=micro, device=self.device,
            optimizer_arrays=self.optimizer_arrays, ranks=ranks,
        )  # fmt: skip
        alive = [live_passes(name, self.stages, stage, micro, ranks) for stage in range(self.stages)]
        return {
            "name": name,
            "summary": SCHEDULES[name].summary,
            "micro_batches": micro,
            "ranks": [
                {
                    "stages": list(range(self.stages)[rank::count]),
                    "staleness": staleness(name, self.stages, rank),
                    "live_passes": sum(alive[rank::count]),
                    "bytes": memory_facts(memory[rank::count]),
                    "bubble": float(bubble),
                }
                for rank, bubble in enumerate(simulation.bubbles)
            ],
            **speed_facts(simulation, alone),
            "accelerators": self._accelerators(alone) if name == "stale" else None,
        }

    def _accelerators(self, alone: float) -> dict[str, Any]:
        """Of the paper's 2 K + 1 accelerators."""
        simulation = simulate_accelerators(self._schedule("stale", self.batches), self.times(1))
        bubbles = [float(share) for share in simulation.bubbles]
        return {"count": simulation.count, "bubbles": bubbles, **speed_facts(simulation, alone)}


def memory_facts(memory: Sequence[StageMemory]) -> dict[str, int]:
    """As JSON holds it, of the stages of a rank together."""
    found = {field.name: sum(getattr(own, field.name) for own in memory) for field in fields(StageMemory)}
    return {**found, "total": sum(own.total for own in memory)}


def speed_facts(simulation: Simulation, alone: float) -> dict[str, float]:
    """As JSON holds it; `alone` is what a batch takes on one rank."""
    each = simulation.seconds_per_batch
    return {
        "seconds": simulation.seconds,
        "seconds_per_batch": each,
        "bubble": float(np.mean(simulation.bubbles)),
        "speedup": alone / each if each else 1.0,
    }


def read_times(path: Path, stages: int) -> tuple[StageTimes, dict[int, float]]:
    """Stage times of a file, of a whole batch, and the bubbles by rank where it is a trace. Raises BppsaError
    for a file that holds none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if "traceEvents" in found:
            events = found["traceEvents"]
            return measured_times(events, stages), measured_bubbles(events)
        rows = {name: tuple(map(float, found[name])) for name in ("forward", "backward", "update")}
        times = StageTimes(**rows, sent=tuple(map(float, found.get("sent", rows["backward"]))))
    except (ValueError, TypeError, KeyError, UnicodeDecodeError) as error:
        if isinstance(error, BppsaError):
            raise
        raise BppsaError(
            f"{path} holds no stage times ({type(error).__name__}: {error}): give a trace, or JSON as "
            '{"forward": [0.1, 0.2], "backward": [0.2, 0.3], "update": [0.01, 0.01]}'
        ) from error
    if times.stages != stages:
        raise BppsaError(f"{path} has the times of {times.stages} stages: the pipeline has {stages}")
    return times, {}
