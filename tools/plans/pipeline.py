"""What a pipeline of a network keeps and misses: `bppsa-plan pipeline`."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.errors import BppsaError
from bppsa_cupy.pipeline import SCHEDULES, Placement, make_schedule
from bppsa_cupy.pipeline.memory import stage_memory
from bppsa_cupy.pipeline.schedules import (
    PipelineSchedule,
    check_schedule,
    live_passes,
    staleness,
)
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.pictures.picture_file import check_picture
from bppsa_cupy.tools.pipelines import add_ppv, placed
from bppsa_cupy.tools.plans.pipeline_picture import draw_pipeline
from bppsa_cupy.tools.plans.pipeline_text import print_pipeline


def add_pipeline(commands: Any) -> None:
    """The subcommand `pipeline`."""
    parser = commands.add_parser("pipeline", help="staleness and memory of a pipeline's schedules")
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
        "--draw", type=Path, metavar="PNG", help="the schedules by cycles; figure 4 for the stale one"
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
        draw_pipeline(facts, list(map(report.schedule, report.names)), arguments.draw)


class Report:
    """The facts of one placement under one schedule, or all."""

    def __init__(
        self, arguments: argparse.Namespace, placement: Placement, device: str, dtype: np.dtype
    ) -> None:
        self.placement, self.device, self.dtype = placement, device, dtype
        self.model, self.batch = arguments.model, arguments.batch_size
        self.stages = len(placement.stages)
        self.names = tuple(SCHEDULES) if arguments.schedule == "all" else (arguments.schedule,)
        self._micro = arguments.micro_batches
        if self._micro is not None and not any(SCHEDULES[name].micro for name in self.names):
            check_schedule(self.names[0], self._micro)
        if (most := max(map(self.micro, self.names))) > self.batch:
            raise BppsaError(
                f"{most} micro-batches of a batch of {self.batch} samples: a micro-batch holds one at least"
            )

    def micro(self, name: str) -> int:
        """Micro-batches of a batch under a schedule."""
        if not SCHEDULES[name].micro:
            return 1
        return self._micro or min(self.stages, self.batch)

    def schedule(self, name: str) -> PipelineSchedule:
        """A schedule of the batches that a picture shows."""
        return make_schedule(name, self.stages, 2 * self.stages + 3, self.micro(name))

    def facts(self) -> dict[str, Any]:
        """As JSON holds it."""
        placement = self.placement
        stages = [
            {"stage": stage, "layers": placement.describe(stage), "weights": placement.weights[stage]}
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
            "stages": stages,
            "schedules": list(map(self._of_schedule, self.names)),
        }

    def _of_schedule(self, name: str) -> dict[str, Any]:
        micro = self.micro(name)
        memory = stage_memory(self.placement, name, self.batch, micro=micro, itemsize=self.dtype.itemsize)
        return {
            "name": name,
            "summary": SCHEDULES[name].summary,
            "micro_batches": micro,
            "stages": [
                {
                    "staleness": staleness(name, self.stages, stage),
                    "live_passes": live_passes(name, self.stages, stage, micro),
                    "bytes": {**asdict(own), "total": own.total},
                }
                for stage, own in enumerate(memory)
            ],
        }
