"""`bppsa-reproduce pipeline`: training with stale weights, table by table, resumable."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from bppsa_cupy.data import Dataset, load, number_of_batches
from bppsa_cupy.devices import get_device
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.models import build_model
from bppsa_cupy.pipeline import Placement
from bppsa_cupy.pipeline.memory import stage_memory
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.lines import aligned
from bppsa_cupy.tools.machine import provenance
from bppsa_cupy.tools.pictures.picture_file import check_picture, picture
from bppsa_cupy.tools.reproduction.stale_weights_runs import TABLE5, TABLE6, TABLES, Run, table2, train_all

#: Accuracies this much below a panel's best, in points, are left out of the picture.
FAR = 25


def run(arguments: argparse.Namespace) -> None:
    """Train what is not in the result file yet, and write file, table and picture after each run; of table 6
    count."""
    arguments.output.mkdir(parents=True, exist_ok=True)
    if arguments.table == "6":
        _memory(arguments)
        return
    name = f"pipeline-{arguments.table}"
    path, drawing = arguments.output / f"{name}.json", arguments.output / f"{name}.png"
    check_picture(drawing)
    data = "digits" if arguments.table == "digits" else arguments.data
    if data is None:
        raise BppsaError(f"table {arguments.table} takes --data, a folder of MNIST or CIFAR-10")
    dataset = load(data)
    if dataset.test is None:
        raise BppsaError(f"{dataset.name} has no test samples, by which accuracy is told: give other data")
    wanted = list(_wanted(arguments, dataset))
    if not wanted:
        raise BppsaError(
            f"table {arguments.table} has no such row for data of shape {dataset.input_shape}: give the "
            "data it is of, MNIST or CIFAR-10, and leave --models and --like out"
        )
    digest = dataset.digest
    done = _read(path)
    keys = [_key(one.describe(), digest) for one in wanted]
    left = [one for one, key in zip(wanted, keys, strict=True) if key not in done]
    device = get_device(arguments.device)
    facts = {"name": name, "command": arguments.command, **provenance(device, device.workers)}
    bar = tqdm(total=len(left), unit="run", disable=None)
    for one, result in train_all(left, data, arguments.device, arguments.processes):
        done[_key(one.describe(), digest)] = {**one.describe(), "digest": digest, **result}
        cli.write_json(path, {**facts, "runs": list(done.values())})
        bar.update()
        bar.write(f"{one.model} {one.row}, seed {one.seed}: {_percent(result['accuracy'])}")
    bar.close()
    rows = summary([done[key] for key in keys])
    lines = [["model", "row", "stale weights", "paper", "mean", "seeds"]]
    for row in rows:
        seeds = " ".join(f"{value:.2f}" if value else "diverged" for value in row["accuracies"])
        told = f"{row['stale_percent']:.1f} %", _percent(row["paper"]), _percent(row["mean"]), seeds
        lines.append([row["model"], row["row"], *told])
    print("\n".join(aligned(lines, "<<>>><")))
    draw(rows, drawing, f"Table {arguments.table}" if arguments.table != "digits" else "LeNet-5 on digits")


def _wanted(arguments: argparse.Namespace, dataset: Dataset) -> Iterator[Run]:
    """The runs that the arguments ask for, those of a seed after those of the one before."""
    kind = "digits" if arguments.table == "digits" else "mnist" if dataset.input_shape[0] == 1 else "cifar10"
    runs = list(table2(beside=not arguments.plain) if arguments.table == "2" else TABLES[arguments.table]())
    for seed in range(arguments.seeds):
        for one in runs:
            chosen = arguments.models is None or one.model in arguments.models
            if one.data != kind or not chosen or (arguments.like or "") not in one.row:
                continue
            if arguments.epochs is not None:
                shortest = min(other.steps for other in runs if other.model == one.model)
                epoch = number_of_batches(dataset.train, one.batch_size)
                steps = arguments.epochs * epoch * one.steps // shortest
                after = None if one.after is None else one.after * steps // one.steps
                one = replace(one, steps=steps, after=after, paper=None)
            yield replace(one, seed=seed)


def _key(run: Mapping[str, Any], digest: str) -> str:
    """What a result belongs to: a run, as JSON holds it, on the data of this digest."""
    known = {name: run[name] for name in Run.__dataclass_fields__ if name not in ("row", "paper")}
    return json.dumps({**known, "digest": digest}, sort_keys=True)


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """The results that are there, by key. Raises BppsaError where the file holds others."""
    if not path.exists():
        return {}
    try:
        runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
        return {_key(one, one["digest"]): one for one in runs}
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise BppsaError(
            f"{path} holds no results of this command ({cause}): move it away, or give another --output"
        ) from cause


def summary(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By model and row: the paper's accuracy, and mean, least and most over the seeds; a run that diverged
    counts as 100 % wrong."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in results:
        found.setdefault((one["model"], one["row"]), []).append(one)
    rows = []
    for (model, row), runs in found.items():
        values = np.array([one["accuracy"] or 0.0 for one in runs])
        first = runs[0]
        rows.append(
            {
                "model": model,
                "row": row,
                "panel": f"{model}, lr {first['optimizer']['lr']}",
                "stages": 2 * (len(first["ppv"]) + 1) if first["ppv"] else 0,
                "way": _way(first),
                "paper": first["paper"],
                "stale_percent": first["stale_percent"],
                "mean": float(values.mean()),
                "accuracies": values.tolist(),
            }
        )
    return rows


def _way(run: dict[str, Any]) -> str:
    """How a run goes through the stages."""
    if not run["ppv"]:
        return "non-pipelined"
    return run["schedule"] + (" hybrid" if run["after"] is not None else "")


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} %"


def _memory(arguments: argparse.Namespace) -> None:
    """Table 6: memory of residual networks in a pipeline of two stages; pipeline-6.json."""
    device = get_device(arguments.device)
    rows: list[dict[str, Any]] = []
    for model, (activations, weights, increase) in TABLE6.items():
        ppv = TABLE5[model]
        memory = stage_memory(Placement(build_model(model, device=device), ppv), "stale", samples=1)
        counted = sum(own.activations for own in memory)
        rows.append(
            {
                "model": model,
                "ppv": list(ppv),
                "activations": counted / 2**20,
                "weights": sum(own.weights for own in memory) / 2**20,
                "increase_percent": 100 * sum(own.copies for own in memory) / counted,
                "paper": {"activations": activations, "weights": weights, "increase_percent": increase},
            }
        )
    name = f"pipeline-{arguments.table}"
    facts = {"name": name, "command": arguments.command, **provenance(device, device.workers)}
    cli.write_json(
        arguments.output / f"{name}.json", {**facts, "unit": "MiB, activations of a sample", "rows": rows}
    )
    lines = [["model", "ppv", "activations", "paper", "weights", "paper", "increase", "paper"]]
    for row in rows:
        theirs = row["paper"]
        lines.append(
            [
                row["model"], ",".join(map(str, row["ppv"])),
                f"{row['activations']:.2f} MiB", f"{theirs['activations']:.2f}",
                f"{row['weights']:.2f} MiB", f"{theirs['weights']:.2f}",
                f"{row['increase_percent']:.1f} %", f"{theirs['increase_percent']}",
            ]
        )  # fmt: skip
    print("\n".join(aligned(lines, "<<>>>>>>")))


def draw(rows: list[dict[str, Any]], path: Path, title: str) -> None:
    """A panel per network and rate: mean accuracy by stages, a line per way, seeds as points, and the paper's
    accuracy as diamonds.

    rows  of `summary`
    """
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    size = {"figsize": (6.5 * len(panels), 4.5), "layout": "constrained", "squeeze": False}
    with picture(path, 1, len(panels), save={"dpi": 120}, **size) as (figure, axes):
        figure.suptitle(title)
        for axis, panel in zip(axes[0], panels, strict=True):
            _by_stages(axis, [row for row in rows if row["panel"] == panel])
            axis.set_title(panel)


def _by_stages(axes: Any, rows: list[dict[str, Any]]) -> None:
    counts = sorted({row["stages"] for row in rows})
    axes.set(xlabel="stages, forward and backward", ylabel="test accuracy, percent")
    axes.set_xticks(range(len(counts)), [str(count) if count else "non-pipelined" for count in counts])
    for number, way in enumerate(dict.fromkeys(row["way"] for row in rows)):
        own = [row for row in rows if row["way"] == way]
        places = [counts.index(row["stages"]) + 0.06 * number for row in own]
        axes.plot(places, [row["mean"] for row in own], "o-", color=f"C{number}", label=way)
        for x, row in zip(places, own, strict=True):
            seeds = row["accuracies"]
            axes.plot([x] * len(seeds), seeds, ".", color=f"C{number}", alpha=0.45)
    told = [(counts.index(row["stages"]), row["paper"]) for row in rows if row["paper"] is not None]
    if told:
        axes.plot(*zip(*told, strict=True), "D", color="black", fillstyle="none", label="paper")
    near = [value for row in rows for value in (*row["accuracies"], row["paper"] or 0.0)]
    axes.set_ylim(max(min(near), max(near) - FAR) - 1, max(near) + 1)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
