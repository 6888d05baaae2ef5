"""One training run of a table, in a process of its own or in this one."""

from __future__ import annotations

import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from bppsa_cupy.data import Dataset, load, number_of_batches
from bppsa_cupy.errors import NonFiniteError
from bppsa_cupy.models import build_model
from bppsa_cupy.pipeline import Pipeline
from bppsa_cupy.tools.figures.pipeline_cases import Run
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.optimizers import SGD
from bppsa_cupy.training.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Variables that hold a process to one thread, set before it starts.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

_load = lru_cache(maxsize=1)(load)


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
        epochs=-(-run.steps // per_epoch),
        iterations=run.steps,
        batch_size=run.batch_size,
        seed=run.seed,
        lr_schedule=run.lr_schedule,
        augment=run.augment,
    )
    pipeline = Pipeline(network, run.ppv, run.schedule, predict=run.predict, non_pipelined_after=run.after)
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
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            coming = {pool.submit(train_one, run, data, device): run for run in runs}
            try:
                for done in as_completed(coming):
                    yield coming[done], done.result()
            finally:
                pool.shutdown(cancel_futures=True)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
