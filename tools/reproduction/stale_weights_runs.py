"""The tables of the paper on stale weights: what they report, and the training runs behind them, with the
hyper-parameters of its appendix A.

Rates that the paper lowers twice, by hand or at epochs of its own choice, fall here by one step schedule; the
second accelerator's own rate (appendix B, table 7) is not taken.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from multiprocessing import get_context
from typing import Any

from bppsa_cupy.data import Dataset, load, number_of_batches
from bppsa_cupy.errors import NonFiniteError
from bppsa_cupy.models import build_model
from bppsa_cupy.pipeline import Pipeline
from bppsa_cupy.tools.benchmarks.harness import environment, thread_variables
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.optimizers import SGD
from bppsa_cupy.training.settings import Settings

_load = lru_cache(maxsize=1)(load)

#: What the paper reports, percent: table 2, by network and number of stages; 0 stands for non-pipelined.
TABLE2 = {
    "lenet5": {0: 99.00, 4: 98.64, 6: 98.62, 8: 98.61, 10: 98.47},
    "alexnet": {0: 82.51, 4: 78.47, 6: 78.32, 8: 78.47},
    "vgg16": {0: 91.36, 4: 90.53, 6: 88.96, 8: 83.73, 10: 79.85},
    "resnet20": {0: 91.50, 4: 90.05, 6: 88.00, 8: 83.01},
}
#: Table 1: where registers are inserted; a network's row of table 2 takes the first 1, 2, … of them.
TABLE1 = {
    "lenet5": (1, 2, 3, 4),
    "alexnet": (1, 2, 3),
    "vgg16": (2, 4, 7, 10),
    "resnet20": (7, 13, 19),
}
#: Table 3: ResNet-20 with 8 to 20 stages, registers after every second layer from 3 on.
TABLE3 = {8: 90.28, 10: 88.37, 12: 88.73, 14: 87.94, 16: 87.30, 18: 86.23, 20: 79.09}
#: Table 4: hybrid training of ResNet-20 with PPV (5, 12, 17): pipelined and non-pipelined iterations.
TABLE4 = {(0, 30000): 91.50, (30000, 0): 88.29, (20000, 10000): 90.71, (20000, 20000): 91.72}
#: Table 5: placements of residual networks.
TABLE5 = {"resnet20": (7,), "resnet56": (19,), "resnet110": (37,), "resnet224": (75,), "resnet362": (121,)}

#: The paper's activations of a sample and weights, MiB, and increase, percent, by network.
TABLE6 = {
    "resnet20": (3.84, 1.03, 67),
    "resnet56": (10.87, 3.25, 58),
    "resnet110": (21.43, 6.59, 57),
    "resnet224": (43.70, 13.64, 57),
    "resnet362": (70.67, 22.17, 57),
}


@dataclass(frozen=True)
class Run:
    """One training run.

    row        of the table: what the run is, for a reader
    data       the kind of data it takes: "mnist", "cifar10" or "digits"
    ppv        () is non-pipelined
    after      steps after which it goes on non-pipelined; None for never
    steps      in all
    optimizer  arguments of SGD
    paper      the accuracy that the paper reports, percent
    """

    row: str
    model: str
    data: str
    ppv: tuple[int, ...] = ()
    schedule: str = "stale"
    after: int | None = None
    steps: int = 30000
    batch_size: int = 100
    optimizer: dict[str, Any] = field(default_factory=dict)
    lr_schedule: str | None = None
    augment: str | None = None
    paper: float | None = None
    seed: int = 0

    def describe(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {**asdict(self), "ppv": list(self.ppv)}

    @property
    def stages(self) -> int:
        """As the paper counts: forward and backward ones."""
        return 2 * (len(self.ppv) + 1) if self.ppv else 0


#: Hyper-parameters of appendix A by network: those of `Run`. Step schedules are in epochs of 50,000 images.
RECIPES: dict[str, dict[str, Any]] = {
    "lenet5": {
        "data": "mnist",
        "optimizer": {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.0005},
        "lr_schedule": "inv:0.0001:0.75",
    },
    "alexnet": {
        "data": "cifar10",
        "optimizer": {"lr": 0.001, "momentum": 0.9, "weight_decay": 0.004, "nesterov": True},
        "lr_schedule": "step:200:0.1",
        "steps": 250000,
    },
    "vgg16": {
        "data": "cifar10",
        "optimizer": {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.0005, "nesterov": True},
        "lr_schedule": "half:50",
        "steps": 250000,
        "augment": "crop-flip",
    },
    "resnet": {
        "data": "cifar10",
        "optimizer": {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.0001},
        "lr_schedule": "step:100:0.1",
        "steps": 100000,
        "batch_size": 128,
        "augment": "crop-flip",
    },
}


def make_run(row: str, model: str, **options: Any) -> Run:
    """A run by the network's recipe, which `options` change."""
    recipe = RECIPES["resnet" if model.startswith("resnet") else model]
    return Run(row=row, model=model, **{**recipe, **options})


def table2(models: tuple[str, ...] = tuple(TABLE2), *, beside: bool = True) -> Iterator[Run]:
    """Non-pipelined, and a pipeline of 4, 6, … stages; with `beside`, the order of 1F1B, and hybrid:
    the last third non-pipelined."""
    for model in models:
        cuts, paper = TABLE1[model], TABLE2[model]
        base = make_run("non-pipelined", model, paper=paper[0])
        yield base
        for count in range(1, len(cuts) + 1):
            stages = 2 * (count + 1)
            run = replace(base, row=f"{stages} stages", ppv=cuts[:count], paper=paper[stages])
            yield run
            if not beside:
                continue
            plain = replace(run, paper=None)
            yield replace(plain, row=f"{stages} stages, stale-1f1b", schedule="stale-1f1b")
            yield replace(plain, row=f"{stages} stages, hybrid", after=run.steps * 2 // 3)


def table3() -> Iterator[Run]:
    """ResNet-20 with more and more stages; each at the paper's rate for pipelines, and at the other one."""
    for rate in (0.1, 0.01):
        options = {"optimizer": {**RECIPES["resnet"]["optimizer"], "lr": rate}}
        yield make_run(
            f"non-pipelined, lr {rate}", "resnet20", paper=91.50 if rate == 0.1 else None, **options
        )
        for stages, paper in TABLE3.items():
            told = paper if rate == 0.01 else None
            ppv = tuple(range(3, stages, 2))
            yield make_run(f"{stages} stages, lr {rate}", "resnet20", ppv=ppv, paper=told, **options)


def table4() -> Iterator[Run]:
    """Hybrid training of ResNet-20."""
    for (pipelined, rest), paper in TABLE4.items():
        rate = 0.01 if pipelined else 0.1
        yield make_run(
            f"{pipelined} + {rest} iterations",
            "resnet20",
            ppv=(5, 12, 17) if pipelined else (),
            after=pipelined if pipelined and rest else None,
            steps=pipelined + rest,
            optimizer={**RECIPES["resnet"]["optimizer"], "lr": rate},
            paper=paper,
        )


def digits() -> Iterator[Run]:
    """LeNet-5 on 8×8 digits: seconds a run. At two rates, by every way with stale weights."""
    for rate, epochs in ((0.01, 12), (0.003, 24)):
        per_epoch = 45
        steps = epochs * per_epoch
        common: dict[str, Any] = {
            "data": "digits", "batch_size": 32, "steps": steps, "lr_schedule": None,
            "optimizer": {"lr": rate, "momentum": 0.9},
        }  # fmt: skip
        yield make_run(f"non-pipelined, lr {rate}", "lenet5", **common)
        for count in range(1, 5):
            stages = f"{2 * (count + 1)} stages"
            run = make_run(f"{stages}, lr {rate}", "lenet5", ppv=TABLE1["lenet5"][:count], **common)
            yield run
            yield replace(run, row=f"{stages}, stale-1f1b, lr {rate}", schedule="stale-1f1b")
            row = f"{stages}, hybrid 12 + 6 epochs, lr {rate}"
            yield replace(run, row=row, after=12 * per_epoch, steps=18 * per_epoch)


#: The runs of each table.
TABLES = {"2": table2, "3": table3, "4": table4, "digits": digits}


def train_one(run: Run, data: str, device: str) -> dict[str, Any]:
    """Train as `run` says on the data set at `data`, by one process, whatever the number of stages.

    Returns its accuracy on the test set at the end, percent, the best one, and the curve [[step, accuracy],
    …] by epoch; None and the step at which it was where training diverged.
    """
    dataset: Dataset = _load(data)
    network = build_model(
        run.model, input_shape=dataset.input_shape, classes=dataset.classes, seed=run.seed, device=device
    )
    optimizer = SGD(network.parameters, **run.optimizer)
    per_epoch = number_of_batches(dataset.train, run.batch_size)
    settings = Settings(
        epochs=-(-run.steps // per_epoch), iterations=run.steps, batch_size=run.batch_size, seed=run.seed,
        lr_schedule=run.lr_schedule, augment=run.augment,
    )  # fmt: skip
    pipeline = Pipeline(network, run.ppv, run.schedule, non_pipelined_after=run.after)
    started = time.perf_counter()
    try:
        rows = train(pipeline, dataset, optimizer, settings).evaluations()
    except NonFiniteError as error:
        found: dict[str, Any] = {"accuracy": None, "best": None, "diverged": str(error), "curve": []}
    else:
        curve = [[row["step"], 100 * row["test_accuracy"]] for row in rows]
        best = max(accuracy for _, accuracy in curve)
        found = {"accuracy": curve[-1][1], "best": best, "curve": curve}
    stale = pipeline.placement.stale_share
    return {**found, "stale_percent": 100 * stale, "seconds": time.perf_counter() - started}


def train_all(
    runs: Iterable[Run], data: str, device: str, processes: int
) -> Iterator[tuple[Run, dict[str, Any]]]:
    """The results of the runs as they come: one after another with all threads of this process, or several at
    a time, each by a process with one thread."""
    if processes == 1:
        for run in runs:
            yield run, train_one(run, data, device)
        return
    with (
        environment(thread_variables(1)),
        ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool,
    ):
        coming = {pool.submit(train_one, run, data, device): run for run in runs}
        try:
            for done in as_completed(coming):
                yield coming[done], done.result()
        finally:
            pool.shutdown(cancel_futures=True)
