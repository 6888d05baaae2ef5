"""The settings of the runs: the paper's as far as a processor can, and quick ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bppsa_cupy.tools.benchmarks.sequences import batch_case, group_case, length_case
from bppsa_cupy.tools.paper import SETS, TABLE1, TABLE4, TABLE5, TABLE6
from bppsa_cupy.tools.reproduction import lenet5, runs
from bppsa_cupy.tools.reproduction.cells import Cell


@dataclass(frozen=True)
class Profile:
    """How large the runs are.

    repeats, quick   of benchmarks, as bppsa-bench has them
    columns          of a Jacobian that autograd makes
    corner           rows and columns of a Jacobian that figure 5 shows
    layers           of VGG-11 whose Jacobians are looked at
    lengths, batches, groups  rows of tables 4, 5 and 6
    most_steps       no row has more
    images           settings of figure 6
    bits, audio      settings of figures 7 and 13: steps of training, learning rates, samples
    dtypes           of the trainings
    sets             of figure 13
    work             the network of figure 10
    devices, depth   of appendix B: numbers of devices, and layers
    """

    name: str
    repeats: int
    columns: int
    images: Mapping[str, Any]
    bits: Mapping[str, Any]
    audio: Mapping[str, Any]
    corner: int = 240
    quick: bool = False
    layers: tuple[int, ...] = tuple(TABLE1)
    lengths: tuple[int, ...] = tuple(TABLE4)
    batches: tuple[int, ...] = tuple(TABLE5)
    groups: tuple[tuple[str, int], ...] = tuple(TABLE6)
    most_steps: int = 30000
    dtypes: tuple[str, ...] = ("float64", "float32")
    sets: tuple[str, ...] = tuple(SETS)
    work: Mapping[str, Any] = field(
        default_factory=lambda: {"model": "vgg11", "prune": 0.97, "seed": 0, "full": True}
    )
    devices: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    depth: int = 64


FULL = Profile(
    "full",
    repeats=20,
    columns=1000,
    images={"iterations": 2000, "batch_size": 256, "lr": 0.001},
    bits={"iterations": 20000, "samples": 32000, "length": 1000, "lr": 3e-4},
    audio={"iterations": 4000, "samples": 1100, "lr": 1e-3},
)
QUICK = Profile(
    "quick",
    repeats=4,
    columns=50,
    images={"iterations": 150, "batch_size": 64, "lr": 0.01},
    bits={"iterations": 200, "samples": 3200, "length": 1000, "lr": 3e-4},
    audio={"iterations": 100, "samples": 220, "lr": 1e-3},
)


@dataclass(frozen=True)
class Given:
    """What the command line says of data and device.

    images  of figure 6, as bppsa-train takes them
    audio   files of bppsa-data by set, of figure 13; a set that is not there has waves in its place
    """

    device: str
    threads: int
    images: str = "digits"
    audio: Mapping[str, Path] = field(default_factory=dict)


def make_cells(profile: Profile, given: Given) -> dict[str, Cell]:
    """All runs by name, in the order in which they are made: first what takes little."""
    cells = [
        *_space(profile),
        *_operators(profile, given),
        *_images(profile, given),
        *_sequences(profile, given),
        *_recurrent(profile, given),
        Cell("work", runs.work, profile.work, 60),
    ]
    return {cell.name: cell for cell in cells}


def _space(profile: Profile) -> list[Cell]:
    return [Cell("space", runs.space, {"layers": profile.depth, "devices": list(profile.devices)}, 1)]


def _measured(profile: Profile, given: Given) -> dict[str, Any]:
    return {
        "device": given.device, "threads": given.threads, "repeats": profile.repeats, "quick": profile.quick
    }  # fmt: skip


def _operators(profile: Profile, given: Given) -> list[Cell]:
    found = []
    for layer in profile.layers:
        settings = {"layer": layer, "columns": profile.columns, **_measured(profile, given)}
        found.append(Cell(f"operator {layer}", runs.operator, settings, 20))
        found.append(Cell(f"zeros {layer}", runs.zeros, {"layer": layer, "corner": profile.corner}, 5))
    return found


def _images(profile: Profile, given: Given) -> list[Cell]:
    common = {"data": given.images, "momentum": 0.9, "seed": 0, "device": given.device, **profile.images}
    seconds = profile.images["iterations"] * profile.images["batch_size"] / 64 * 0.005
    found = []
    for dtype in profile.dtypes:
        for run in lenet5.labels(dtype):
            settings = {**common, "dtype": dtype, "run": run}
            weight = 5 + seconds * (8 if run == "blelloch" else 1)
            found.append(Cell(f"LeNet-5 {dtype} {run}", runs.convolutional_training, settings, weight))
    return found


def _sequences(profile: Profile, given: Given) -> list[Cell]:
    common = {
        "epochs": 10000, "batch_size": 16, "clip": 1.0, "seed": 0, "threads": 1, "device": given.device
    }  # fmt: skip
    found = []
    for dtype in profile.dtypes:
        settings = {**common, "model": "rnn", "dtype": dtype, **profile.bits}
        weight = 20 + 0.06 * profile.bits["iterations"]
        found.append(Cell(f"RNN {dtype}", runs.recurrent_training, settings, weight))
    for name in profile.sets:
        for dtype in profile.dtypes:
            file = given.audio.get(name)
            data = {"data": None if file is None else str(file), "sizes": list(SETS[name])}
            settings = {**common, "model": "gru", "dtype": dtype, **data, **profile.audio}
            weight = 20 + 0.08 * profile.audio["iterations"]
            found.append(Cell(f"GRU {name} {dtype}", runs.recurrent_training, settings, weight))
    return found


def _recurrent(profile: Profile, given: Given) -> list[Cell]:
    common = {"most_steps": profile.most_steps, **_measured(profile, given)}
    rows = [("rnn", length_case(length), length * 16) for length in profile.lengths]
    rows += [("rnn", batch_case(batch), 1000 * batch) for batch in profile.batches if batch != 16]
    rows += [("gru", group_case(*group), 3 * SETS[group[0]][0] * group[1]) for group in profile.groups]
    return [
        Cell(
            f"{cell} {case}", runs.recurrent, {"cell": cell, "case": case, **common},
            10 + work * profile.repeats * 2e-5,
        )
        for cell, case, work in rows
    ]  # fmt: skip
