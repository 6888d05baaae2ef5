"""What a pipeline of a network keeps and misses: `bppsa-plan pipeline`."""

from __future__ import annotations

import argparse
import json
import math
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bppsa_cupy.errors import BppsaError
from bppsa_cupy.layers import Flatten
from bppsa_cupy.layers.base import Shape
from bppsa_cupy.layers.elementwise import Elementwise
from bppsa_cupy.layers.stack import LayerStack, Place, walk
from bppsa_cupy.pipeline import SCHEDULES, Placement, make_schedule
from bppsa_cupy.pipeline.placement import Item
from bppsa_cupy.pipeline.schedules import (
    PipelineSchedule,
    check_schedule,
    live_passes,
    staleness,
)
from bppsa_cupy.system.units import counted, in_bytes
from bppsa_cupy.tools.lines import COLUMNS, fact, print_table
from bppsa_cupy.tools.models import make_network, placed
from bppsa_cupy.tools.pictures.picture_file import check_picture
from bppsa_cupy.tools.plans.pipeline_picture import draw_pipeline

#: Columns of memory by name.
BYTES = {
    "weights": "weights", "activations": "activations", "copies": "copies",
    "weight_copies": "weight copies", "total": "in all",
}  # fmt: skip


def run_pipeline(arguments: argparse.Namespace) -> None:
    """Print the report, and draw it."""
    if arguments.draw is not None:
        check_picture(arguments.draw)
    network = make_network(arguments)
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
        self.names = tuple(SCHEDULES) if arguments.pipeline == "all" else (arguments.pipeline,)
        self._micro = arguments.micro_batches
        if self._micro is not None and not any(SCHEDULES[name].micro for name in self.names):
            check_schedule(self.names[0], self._micro)
        if (most := max(map(self.micro, self.names))) > self.batch:
            raise BppsaError(
                f"a batch of {self.batch} samples cannot be split into {most} micro-batches: pass "
                f"--micro-batches 1 to {self.batch}, or a larger --batch-size"
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
                    "bytes": {**asdict(memory_of_stage), "total": memory_of_stage.total},
                }
                for stage, memory_of_stage in enumerate(memory)
            ],
        }


def print_pipeline(facts: Mapping[str, Any]) -> None:
    """The network's stages; then each stage under one schedule, or a line a schedule."""
    ppv = ",".join(map(str, facts["ppv"])) or "none"
    counted_layers = counted(len(facts["counted"]), "counted layer")
    batch, where = counted(facts["batch_size"], "sample"), f"{facts['dtype']}, on {facts['device']}"
    print(fact("network", f"{facts['model']}: {counted_layers}, cut after {ppv}"))
    print(fact("weights", f"{100 * facts['stale_share']:.1f} % are stale"))
    print(fact("batch", f"{batch}, {where}"))
    _print_stages(facts)
    if len(facts["schedules"]) > 1:
        _print_all(facts["schedules"])
        return
    for schedule in facts["schedules"]:
        _print_schedule(schedule)


def _print_stages(facts: Mapping[str, Any]) -> None:
    print("\nstages")
    rows = [(str(stage["stage"]), stage["layers"], f"{stage['weights']:,}") for stage in facts["stages"]]
    print_table(("", "layers", "weights"), rows, "><>")


def _print_schedule(schedule: Mapping[str, Any]) -> None:
    micro = f", {schedule['micro_batches']} micro-batches" if schedule["micro_batches"] > 1 else ""
    title = f"{schedule['name']}{micro}: {schedule['summary']}"
    print("\n" + textwrap.fill(title, COLUMNS, subsequent_indent="  "))
    rows = [
        (
            f"stage {stage}",
            str(stage_facts["staleness"]),
            str(stage_facts["live_passes"]),
            *(in_bytes(stage_facts["bytes"][name]) for name in BYTES),
        )
        for stage, stage_facts in enumerate(schedule["stages"])
    ]
    print_table(("", "stale", "alive", *BYTES.values()), rows, "<>>>>>>>")
    activations, copies = (
        sum(stage["bytes"][name] for stage in schedule["stages"]) for name in ("activations", "copies")
    )
    if copies:
        print(f"  copies of activations: {100 * copies / activations:.1f} % more")


def _print_all(schedules: list[Mapping[str, Any]]) -> None:
    micro = [f" of {s['micro_batches']}" if s["micro_batches"] > 1 else "" for s in schedules]
    names = [schedule["name"] + suffix for schedule, suffix in zip(schedules, micro, strict=True)]
    _print_by_stage("updates that a forward pass misses (passes alive)", names, schedules,
                    lambda stage: f"{stage['staleness']} ({stage['live_passes']})")  # fmt: skip
    _print_by_stage("memory", names, schedules, lambda stage: in_bytes(stage["bytes"]["total"]))


def _print_by_stage(
    title: str, names: list[str], schedules: list[Mapping[str, Any]], cell: Callable[[Mapping[str, Any]], str]
) -> None:
    print(f"\n{title}")
    count = len(schedules[0]["stages"])
    rows = [(name, *map(cell, schedule["stages"])) for name, schedule in zip(names, schedules, strict=True)]
    print_table(("", *(f"stage {number}" for number in range(count))), rows, "<" + ">" * count)


# ---- memory of the stages, by the formula of section 6.6 of the paper ----


@dataclass(frozen=True)
class StageMemory:
    """Bytes of one stage while the pipeline is full.

    `activations` are the outputs of the layers in one pass, and as much again for their gradients. `copies`
    are the outputs of further live passes, without gradients. `weight_copies` are the copies of the
    parameters that backward passes use.
    """

    weights: int
    activations: int
    copies: int
    weight_copies: int

    @property
    def total(self) -> int:
        return self.weights + self.activations + self.copies + self.weight_copies


def stage_memory(
    placement: Placement, name: str, samples: int, *, micro: int = 1, itemsize: int = 4
) -> tuple[StageMemory, ...]:
    """The memory of every stage under the schedule `name`.

    Parameters
    ----------
    placement : Placement
    name : str
        One of `SCHEDULES`. Under ``"stale"`` the paper's stage i of K + 1 keeps 2 (K − i + 1) copies.
    samples : int
        Batch size; passes hold ``ceil(samples / micro)`` of them.
    micro : int
        Micro-batches per batch.
    itemsize : int
        Bytes per value; the paper counts 4.

    Notes
    -----
    Counted are outputs of convolutions, normalisations, pooling, linear and recurrent layers, padded
    shortcuts, and sums of residual blocks. Elementwise layers and flattening are not counted, as in the
    paper's table 6. A sequence of open length counts as one step.
    """
    stages, each = len(placement.stages), -(-samples // micro)
    rows = []
    for stage, items in enumerate(placement.stages):
        weights = itemsize * placement.weights[stage]
        outputs = itemsize * each * sum(map(_item_outputs, items))
        further = live_passes(name, stages, stage, micro) - 1
        stashed = staleness(name, stages, stage) if SCHEDULES[name].stashes else 0
        rows.append(StageMemory(weights, 2 * outputs, further * outputs, stashed * weights))
    return tuple(rows)


def _item_outputs(item: Item) -> int:
    """Values per sample that an item's layers output."""
    if item.kind == "open":
        return 0
    if item.kind == "close":
        return sum(map(_layer_outputs, walk(item.shortcut))) + _size(item.output_shape)
    return sum(map(_layer_outputs, walk(LayerStack([item.layer], item.input_shape))))


def _layer_outputs(place: Place) -> int:
    return 0 if isinstance(place.layer, (Elementwise, Flatten)) else _size(place.output_shape)


def _size(shape: Shape) -> int:
    return math.prod(1 if size is None else size for size in shape)
