"""`bppsa-reproduce pipeline`: accuracies of training with stale weights, table by table, resumable."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from bppsa_cupy.data import Dataset, load, number_of_batches
from bppsa_cupy.devices import get_device
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.benchmarks.machine import provenance
from bppsa_cupy.tools.figures import pipeline_memory
from bppsa_cupy.tools.figures.picture_file import check_picture
from bppsa_cupy.tools.figures.pipeline_cases import TABLES, Run, table2
from bppsa_cupy.tools.figures.pipeline_picture import draw
from bppsa_cupy.tools.figures.pipeline_run import train_all
from bppsa_cupy.tools.lines import aligned


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `bppsa-reproduce pipeline`."""
    choices = (*TABLES, "6")
    parser.add_argument("--table", choices=choices, required=True, help="of the paper, or 'digits'")
    parser.add_argument("--data", help="a folder of MNIST or CIFAR-10, as bppsa-train takes it")
    parser.add_argument(
        "--models", type=names, metavar="MODEL,…", help="of table 2 (default: those of the data)"
    )
    parser.add_argument("--plain", action="store_true", help="of table 2: the paper's rows alone")
    parser.add_argument("--rows", metavar="TEXT", help="the rows that hold this text alone")
    parser.add_argument("--seeds", type=cli.positive, default=1, help="runs of each row (default 1)")
    parser.add_argument(
        "--epochs", type=cli.positive, help="shorter runs: so many epochs in place of the paper's"
    )
    parser.add_argument("--processes", type=cli.positive, default=1, help="runs at a time, one thread each")


def names(text: str) -> tuple[str, ...]:
    """The argument type of names: "lenet5,vgg16"."""
    return tuple(part.strip() for part in text.split(","))


def run(arguments: argparse.Namespace) -> None:
    """Train what is not in the result file yet, and write file, table and picture after each run; of table 6
    count."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.table == "6":
        pipeline_memory.run(arguments)
        return
    name = f"pipeline-{arguments.table}"
    path, drawing = arguments.out / f"{name}.json", arguments.out / f"{name}.png"
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
            "data it is of, MNIST or CIFAR-10, and leave --models and --rows out"
        )
    digest = dataset.digest
    done = _read(path)
    left = [one for one in wanted if _key(one, digest) not in done]
    device = get_device(arguments.device)
    facts = {"name": name, "command": arguments.command, **provenance(device, device.workers)}
    bar = tqdm(total=len(left), unit="run", disable=None)
    for one, result in train_all(left, data, arguments.device, arguments.processes):
        done[_key(one, digest)] = {**one.describe(), "digest": digest, **result}
        cli.write_json(path, {**facts, "runs": list(done.values())})
        bar.update()
        bar.write(f"{one.model} {one.row}, seed {one.seed}: {_percent(result['accuracy'])}")
    bar.close()
    rows = summary([done[_key(one, digest)] for one in wanted])
    for line in aligned(_table(rows), "<<>>><"):
        print(line)
    draw(rows, drawing, f"Table {arguments.table}" if arguments.table != "digits" else "LeNet-5 on digits")


def _wanted(arguments: argparse.Namespace, dataset: Dataset) -> Iterator[Run]:
    """The runs that the arguments ask for, those of a seed after those of the one before."""
    kind = "digits" if arguments.table == "digits" else "mnist" if dataset.input_shape[0] == 1 else "cifar10"
    runs = list(table2(beside=not arguments.plain) if arguments.table == "2" else TABLES[arguments.table]())
    for seed in range(arguments.seeds):
        for one in runs:
            chosen = arguments.models is None or one.model in arguments.models
            if one.data != kind or not chosen or (arguments.rows or "") not in one.row:
                continue
            if arguments.epochs is not None:
                steps = arguments.epochs * number_of_batches(dataset.train, one.batch_size)
                after = None if one.after is None else one.after * steps // one.steps
                one = replace(one, steps=steps, after=after, paper=None)
            yield replace(one, seed=seed)


def _key(one: Run, digest: str) -> str:
    """What a result belongs to: a run on the data of this digest."""
    return json.dumps({**one.describe(), "paper": None, "row": None, "digest": digest}, sort_keys=True)


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """The results that are there, by key. Raises BppsaError where the file holds others."""
    if not path.exists():
        return {}
    try:
        runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
        fields = {name: None for name in Run.__dataclass_fields__}
        return {_key(Run(**{name: _plain(one[name]) for name in fields}), one["digest"]): one for one in runs}
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise BppsaError(
            f"{path} holds no results of this command ({cause}): move it away, or give another --out"
        ) from cause


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


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
                "curve": first["curve"],
            }
        )
    return rows


def _way(run: dict[str, Any]) -> str:
    """How a run goes through the stages."""
    if not run["ppv"]:
        return "non-pipelined"
    predicted, hybrid = run["predict"], run["after"] is not None
    return run["schedule"] + (" predicted" if predicted else "") + (" hybrid" if hybrid else "")


def _table(rows: list[dict[str, Any]]) -> list[list[str]]:
    lines = [["model", "row", "stale weights", "paper", "mean", "seeds"]]
    for row in rows:
        seeds = " ".join(f"{value:.2f}" if value else "diverged" for value in row["accuracies"])
        told = f"{row['stale_percent']:.1f} %", _percent(row["paper"]), _percent(row["mean"]), seeds
        lines.append([row["model"], row["row"], *told])
    return lines


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} %"
