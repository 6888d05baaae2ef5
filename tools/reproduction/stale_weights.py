"""`bppsa-reproduce pipeline`: LeNet-5 on digits with stale weights, resumable."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from bppsa_cupy.data import load
from bppsa_cupy.devices import get_device
from bppsa_cupy.errors import BppsaError, NonFiniteError
from bppsa_cupy.models import build_model
from bppsa_cupy.pipeline import Pipeline
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.lines import aligned
from bppsa_cupy.tools.machine import provenance
from bppsa_cupy.tools.pictures.picture_file import check_picture, picture
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.optimizers import SGD
from bppsa_cupy.training.settings import Settings

#: Accuracies this much below a panel's best, in points, are left out of the picture.
FAR = 25
#: Counted layers after which LeNet-5 is cut; a run takes the first 1, 2, … of them.
CUTS = (1, 2, 3, 4)
STEPS_PER_EPOCH = 45


@dataclass(frozen=True)
class Run:
    """One training run of LeNet-5 on 8×8 digits.

    `row` is a title for readers. An empty `ppv` means no pipeline. After `after` of the `steps`, training
    continues without the pipeline; None means never.
    """

    row: str
    lr: float
    steps: int
    ppv: tuple[int, ...] = ()
    schedule: str = "stale"
    after: int | None = None
    seed: int = 0

    def describe(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {**asdict(self), "ppv": list(self.ppv)}


def digits() -> Iterator[Run]:
    """Seconds a run: at two rates, by every way with stale weights."""
    for rate, epochs in ((0.01, 12), (0.003, 24)):
        steps = epochs * STEPS_PER_EPOCH
        yield Run(f"non-pipelined, lr {rate}", rate, steps)
        for count in range(1, 5):
            stages = f"{2 * (count + 1)} stages"
            case = Run(f"{stages}, lr {rate}", rate, steps, CUTS[:count])
            yield case
            yield replace(case, row=f"{stages}, stale-1f1b, lr {rate}", schedule="stale-1f1b")
            row = f"{stages}, hybrid 12 + 6 epochs, lr {rate}"
            yield replace(case, row=row, after=12 * STEPS_PER_EPOCH, steps=18 * STEPS_PER_EPOCH)


def train_one(case: Run, device: str) -> dict[str, Any]:
    """Train as `case` says, by one process, whatever the number of stages.

    Returns its accuracy on the test set at the end, percent, the best one, and the curve [[step, accuracy],
    …] by epoch; None and the step at which it was where training diverged.
    """
    dataset = load("digits")
    network = build_model(
        "lenet5", input_shape=dataset.input_shape, classes=dataset.classes, seed=case.seed, device=device
    )
    optimizer = SGD(network.parameters, lr=case.lr, momentum=0.9)
    settings = Settings(
        epochs=-(-case.steps // STEPS_PER_EPOCH), iterations=case.steps, batch_size=32, seed=case.seed
    )
    pipeline = Pipeline(network, case.ppv, case.schedule, non_pipelined_after=case.after)
    started = time.perf_counter()
    try:
        rows = train(pipeline, dataset, optimizer, settings).evaluations()
    except NonFiniteError as error:
        result: dict[str, Any] = {"accuracy": None, "best": None, "diverged": str(error), "curve": []}
    else:
        curve = [[row["step"], 100 * row["test_accuracy"]] for row in rows]
        best = max(accuracy for _, accuracy in curve)
        result = {"accuracy": curve[-1][1], "best": best, "curve": curve}
    stale = pipeline.placement.stale_share
    return {**result, "stale_percent": 100 * stale, "seconds": time.perf_counter() - started}


def run_pipeline(arguments: argparse.Namespace) -> None:
    """Train what is not in the result file yet, and write file, table and picture after each run."""
    arguments.output.mkdir(parents=True, exist_ok=True)
    name = "pipeline-digits"
    path, drawing = arguments.output / f"{name}.json", arguments.output / f"{name}.png"
    check_picture(drawing)
    wanted = list(_wanted(arguments))
    if not wanted:
        raise BppsaError(f"there is no row with {arguments.like!r} in its name: leave --like out")
    done = _read(path)
    left = [case for case in wanted if _key(case.describe()) not in done]
    device = get_device(arguments.device)
    facts = {"name": name, "command": arguments.command, **provenance(device, device.workers)}
    for case in tqdm(left, unit="run", disable=None):
        result = train_one(case, arguments.device)
        done[_key(case.describe())] = {**case.describe(), **result}
        cli.write_json(path, {**facts, "runs": list(done.values())})
        tqdm.write(f"{case.row}, seed {case.seed}: {_percent(result['accuracy'])}")
    rows = summary([done[_key(case.describe())] for case in wanted])
    lines = [["row", "stale weights", "mean", "seeds"]]
    for row in rows:
        seeds = " ".join(f"{value:.2f}" if value else "diverged" for value in row["accuracies"])
        lines.append([row["row"], f"{row['stale_percent']:.1f} %", _percent(row["mean"]), seeds])
    print("\n".join(aligned(lines, "<>><")))
    draw(rows, drawing)


def _wanted(arguments: argparse.Namespace) -> Iterator[Run]:
    """The runs that the arguments ask for, those of a seed after those of the one before."""
    runs = list(digits())
    shortest = min(case.steps for case in runs)
    for seed in range(arguments.seeds):
        for case in runs:
            if arguments.like not in case.row:
                continue
            if arguments.epochs is not None:
                steps = arguments.epochs * STEPS_PER_EPOCH * case.steps // shortest
                after = None if case.after is None else case.after * steps // case.steps
                case = replace(case, steps=steps, after=after)
            yield replace(case, seed=seed)


def _key(case: Mapping[str, Any]) -> str:
    """The run that a result belongs to, as JSON holds it."""
    return json.dumps({k: case[k] for k in Run.__dataclass_fields__ if k != "row"}, sort_keys=True)


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """The results that are there, by key. Raises BppsaError where the file holds others."""
    if not path.exists():
        return {}
    try:
        runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
        return {_key(result): result for result in runs}
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise BppsaError(
            f"{path} holds no results of this command ({cause}): move it away, or give another --output"
        ) from cause


def summary(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By row: mean and values of the accuracy over the seeds; a run that diverged counts as 100 % wrong."""
    by_row: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        by_row.setdefault(result["row"], []).append(result)
    rows = []
    for row, runs in by_row.items():
        values = np.array([result["accuracy"] or 0.0 for result in runs])
        first = runs[0]
        rows.append(
            {
                "row": row,
                "panel": f"lr {first['lr']}",
                "stages": 2 * (len(first["ppv"]) + 1) if first["ppv"] else 0,
                "way": _way(first),
                "stale_percent": first["stale_percent"],
                "mean": float(values.mean()),
                "accuracies": values.tolist(),
            }
        )
    return rows


def _way(case: dict[str, Any]) -> str:
    """How a run goes through the stages."""
    if not case["ppv"]:
        return "non-pipelined"
    return case["schedule"] + (" hybrid" if case["after"] is not None else "")


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} %"


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw the rows of `summary`: a panel per rate, with accuracy by stages, a line per way, and seeds."""
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    size = {"figsize": (6.5 * len(panels), 4.5), "layout": "constrained", "squeeze": False}
    with picture(path, 1, len(panels), save={"dpi": 120}, **size) as (figure, axes):
        figure.suptitle("LeNet-5 on digits")
        for axis, panel in zip(axes[0], panels, strict=True):
            _by_stages(axis, [row for row in rows if row["panel"] == panel])
            axis.set_title(panel)


def _by_stages(axes: Any, rows: list[dict[str, Any]]) -> None:
    counts = sorted({row["stages"] for row in rows})
    axes.set(xlabel="stages, forward and backward", ylabel="test accuracy, percent")
    axes.set_xticks(range(len(counts)), [str(count) if count else "non-pipelined" for count in counts])
    for number, way in enumerate(dict.fromkeys(row["way"] for row in rows)):
        points = [row for row in rows if row["way"] == way]
        places = [counts.index(row["stages"]) + 0.06 * number for row in points]
        axes.plot(places, [row["mean"] for row in points], "o-", color=f"C{number}", label=way)
        for x, row in zip(places, points, strict=True):
            seeds = row["accuracies"]
            axes.plot([x] * len(seeds), seeds, ".", color=f"C{number}", alpha=0.45)
    near = [value for row in rows for value in row["accuracies"]]
    axes.set_ylim(max(min(near), max(near) - FAR) - 1, max(near) + 1)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
