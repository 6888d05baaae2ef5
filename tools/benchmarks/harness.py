"""Measuring side by side: interleaved samples, checked results, rows of medians and spreads."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np

from bppsa_cupy.errors import BppsaError
from bppsa_cupy.tools.benchmarks.workload import Workload, serve, thread_variables

#: Samples of a side that are taken however long they take.
LEAST_SAMPLES = 3

#: Between two samples: the waiting threads of a pool spin for some milliseconds before they sleep.
PAUSE_SECONDS = 0.02

MEMORY_NOTE = {
    "host": "rise of the process's largest resident size over that after the imports",
    "cuda": "bytes held by the memory pool of CuPy (ours) or PyTorch (theirs)",
}


class BenchmarkError(BppsaError):
    """A side of a benchmark failed, or the sides' results differ."""


@dataclass(frozen=True)
class Side:
    """One side: a process that builds `factory(**options)` and runs it on `threads` threads.

    factory   importable by name in another process
    imports   modules whose memory is not counted
    variables environment variables of the process
    """

    factory: Callable[..., Workload]
    options: Mapping[str, Any]
    threads: int
    imports: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Measurement:
    """What was measured of a side.

    seconds  by quantity, one a sample; sample i of all sides was taken side by side
    result   of the last timed run
    peak     bytes, see MEMORY_NOTE
    """

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    result: Any = None
    peak: int = 0


#: The side that ours is compared with, by name; None where there is none.
Rival = tuple[str, Measurement] | None


@dataclass(frozen=True)
class Row:
    """One line of a benchmark.

    case      what was worked on
    quantity  forward, backward, overall, fill, product, step, …
    ours, theirs  medians (`theirs` None without a rival), in `unit`
    against   the rival
    ratio     theirs / ours, above 1 is better for us; None where there is none
    spread    first and third quartile of ours, theirs, and of the ratios sample by sample
    paper     the paper's ratio or value, where it gives one
    note      how it was measured, where that is not plain
    """

    case: str
    quantity: str
    ours: float
    theirs: float | None = None
    against: str | None = None
    unit: str = "s"
    ratio: float | None = None
    spread: dict[str, list[float]] = field(default_factory=dict)
    paper: float | None = None
    note: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The row as JSON holds it; `paper` and `note` only where there are some."""
        row = asdict(self)
        return {k: v for k, v in row.items() if v is not None or k not in ("paper", "note")}


def timed_row(
    case: str,
    quantity: str,
    ours: list[float],
    theirs: list[float] | None = None,
    against: str | None = None,
    **more: Any,
) -> Row:
    """The row of two sides' samples of one quantity, in seconds."""
    median, spread = float(np.median(ours)), {"ours": quartiles(ours)}
    if theirs is None:
        return Row(case, quantity, median, spread=spread, **more)
    rival = float(np.median(theirs))
    spread["theirs"] = quartiles(theirs)
    spread["ratio"] = quartiles([b / a for a, b in zip(ours, theirs, strict=True)])
    return Row(case, quantity, median, rival, against, ratio=rival / median, spread=spread, **more)


def compared_row(
    case: str,
    quantity: str,
    ours: Measurement,
    rival: Rival,
    *,
    lap: str | None = None,
    scales: tuple[float, float] = (1.0, 1.0),
    **more: Any,
) -> Row:
    """The row of two sides' samples of a lap, the quantity's by default, times each side's scale."""
    mine, theirs = (
        [scale * seconds for seconds in side.seconds[lap or quantity]]
        for side, scale in zip((ours, rival[1] if rival else ours), scales, strict=True)
    )
    return timed_row(case, quantity, mine, *((theirs, rival[0]) if rival else ()), **more)


def memory_row(case: str, device: str, ours: Measurement, rival: Rival) -> Row:
    """The row of two sides' peak memory."""
    mine, note = ours.peak / 2**20, MEMORY_NOTE[device]
    if rival is None:
        return Row(case, "peak memory", mine, unit="MiB", note=note)
    name, theirs = rival
    ratio = theirs.peak / ours.peak if ours.peak else None
    return Row(case, "peak memory", mine, theirs.peak / 2**20, name, "MiB", ratio=ratio, note=note)


def quartiles(samples: list[float]) -> list[float]:
    """First and third quartile."""
    return [float(q) for q in np.percentile(samples, (25, 75))]


def measure(
    sides: Mapping[str, Side],
    repeats: int,
    sample_seconds: float = 0.02,
    *,
    limit_seconds: float = math.inf,
    check: Callable[[Mapping[str, Any]], None] = lambda results: None,
) -> dict[str, Measurement]:
    """Take `repeats` samples of every side in turn: A B A B …, each side in a process of its own.

    So a side's waiting threads and memory do not touch the other's. Results are of the last timed run.

    limit_seconds  after LEAST_SAMPLES a side no more are begun than are likely to end within it
    check          is called with the results by side before the first sample, and with the last ones

    Raises BenchmarkError where a side fails, and what `check` raises.
    """
    with ExitStack() as stack:
        asked = {
            name: stack.enter_context(side_process(name, side, sample_seconds))
            for name, side in sides.items()
        }
        for ask in asked.values():
            ask("build")
        check({name: ask("result") for name, ask in asked.items()})
        measured = interleave(asked, repeats, limit_seconds)
        check({name: one.result for name, one in measured.items()})
    return measured


class Ask(Protocol):
    """Asks a side's process, see `serve`."""

    def __call__(self, question: str, within: float = math.inf) -> Any:
        """The answer. Raises BenchmarkError with the error that the process met, and where there is none
        within so many seconds, which end the process."""


def interleave(
    asked: Mapping[str, Ask], repeats: int, limit_seconds: float = math.inf
) -> dict[str, Measurement]:
    """Samples of sides that are built, as `measure` takes them, and what the last runs left."""
    measured = {name: Measurement() for name in asked}
    started = time.perf_counter()
    for taken in range(repeats):
        seconds_so_far = time.perf_counter() - started
        if taken >= LEAST_SAMPLES and seconds_so_far * (taken + 1) / taken > limit_seconds:
            break
        for name, ask in asked.items():
            time.sleep(PAUSE_SECONDS)
            for quantity, seconds in ask("sample").items():
                measured[name].seconds[quantity].append(seconds)
    for name, ask in asked.items():
        measured[name].result = ask("result")
        measured[name].peak = ask("bytes")
    return measured


@contextmanager
def side_process(name: str, side: Side, sample_seconds: float) -> Iterator[Ask]:
    """A side's process, which ends with the block."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(
        target=serve,
        args=(there, side.factory, dict(side.options), side.imports, sample_seconds),
        daemon=True,
    )
    with environment({**thread_variables(side.threads), **side.variables}), _without_interrupts():
        process.start()
    there.close()

    def ask(question: str, within: float = math.inf) -> Any:
        with suppress(OSError):  # the process may have ended with an error that waits to be read
            here.send(question)
        try:
            if not here.poll(within if within < math.inf else None):
                process.kill()
                raise BenchmarkError(f"{name}: no answer to {question!r} within {within:.3g} s")
            error, value = here.recv()
        except (EOFError, OSError):
            process.join(10)
            error = f"the process ended with exit code {process.exitcode}"
        if error is not None:
            raise BenchmarkError(f"{name}: {error}")
        return value

    try:
        yield ask
    finally:
        with suppress(OSError):
            here.send("stop")
        process.join(10)
        if process.is_alive():
            process.kill()
            process.join()
        here.close()


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Ctrl-C is blocked in the block, and for good in a process that starts in it: its asker ends it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Environment variables of the block, and of processes that start in it."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def require_equal(
    what: str,
    ours: Mapping[str, np.ndarray],
    theirs: Mapping[str, np.ndarray],
    tolerance: float,
    least: float = 0.0,
) -> None:
    """Raise BenchmarkError unless every array of `ours` is `theirs`'s within `tolerance` of its norm, or of
    `least` where that is more.

    Times of sides that do not do the same work are not reported.
    """
    if ours.keys() != theirs.keys():
        raise BenchmarkError(f"{what}: our side gives {sorted(ours)}, theirs {sorted(theirs)}")
    for name, array in ours.items():
        rival = np.asarray(theirs[name])
        if np.shape(array) != rival.shape:
            raise BenchmarkError(
                f"{what}: {name} has shape {np.shape(array)} on our side, {rival.shape} on theirs"
            )
        difference = float(np.linalg.norm(np.asarray(array, np.float64) - rival))
        limit = tolerance * max(float(np.linalg.norm(rival.astype(np.float64))), least)
        if not difference <= limit:
            raise BenchmarkError(
                f"{what}: {name} differs by {difference:.3g} in norm, {limit:.3g} is allowed: "
                "the times are not reported"
            )
