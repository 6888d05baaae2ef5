"""The harness of all benchmarks: it measures the two sides of a case in turn and compares what they compute.

A case gives callables, `ours` and those of its rivals. Each is called in a process of its own, so that
threads and memory of one side do not touch the other's, and returns a `Step`, the work to time.
"""

from __future__ import annotations

import importlib
import math
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np
from tqdm import tqdm

from bppsa_cupy.devices import Device
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.tools import cli

#: The sum of all parts of a step.
OVERALL = "overall"
#: Samples of a side that are taken however long they take.
LEAST_SAMPLES = 3
#: Between two samples: the waiting threads of a pool spin for some milliseconds before they sleep.
PAUSE_SECONDS = 0.02
#: A side whose first run takes longer is not run again: its sample is the first run.
SLOW_SECONDS = 20.0
#: Seconds of a sample at least, where a run is shorter and may be repeated.
SAMPLE_SECONDS = 0.02
MEMORY_NOTE = {
    "host": "rise of the process's largest resident size over that after the imports",
    "cuda": "bytes held by the memory pool of CuPy (ours) or PyTorch (theirs)",
}
#: PyTorch's OpenMP threads spin as long as GNU's OpenMP has them by default, which the host device changes.
DEFAULT_WAIT = {"GOMP_SPINCOUNT": "300000"}


class BenchmarkError(BppsaError):
    """A side of a benchmark failed, or the sides' results differ."""


@dataclass
class Step:
    """The work of one side.

    Attributes
    ----------
    parts : mapping of str to callable
        The functions to run, in this order. Several parts are timed one by one, and as a sum.
    result : callable
        Returns the arrays that the last run computed, by name, for the comparison with the other sides.
    device : Device
        Whose work is timed: by the clock on the host, by CUDA events on a GPU.
    reset : callable, optional
        Sets what every run starts from. It is not timed.
    prepare : callable, optional
        Is called before each sample, for settings that sides in one process share.
    per : float, default 1
        Units of work in a run; seconds are divided by it.
    note : callable, optional
        Returns the note that rows contain for this side.
    pool_bytes : callable, optional
        Returns the bytes of the GPU's memory that the side holds; by default those of CuPy's pool.
    """

    parts: Mapping[str, Callable[[], object]]
    result: Callable[[], dict[str, Any]]
    device: Device
    reset: Callable[[], None] | None = None
    prepare: Callable[[], None] | None = None
    per: float = 1.0
    note: Callable[[], str] = str
    pool_bytes: Callable[[], int] | None = None


@dataclass(frozen=True)
class Rival:
    """A library that our side is compared with.

    Attributes
    ----------
    build : callable
        Returns the rival's step; pickle can send it to another process.
    imports : tuple of str
        Modules whose memory is not counted.
    variables : mapping
        Environment variables of its process.
    both : bool, default True
        Whether it runs on one thread and on all, and the faster one counts.
    compared : bool, default True
        Whether its results must equal ours.
    """

    build: Callable[[], Step]
    imports: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    both: bool = True
    compared: bool = True


def torch_rival(build: Callable[[], Step], **options: Any) -> Rival:
    """PyTorch, with its own defaults for waiting threads."""
    return Rival(build, ("torch",), DEFAULT_WAIT, **options)


def jax_rival(build: Callable[[], Step], **options: Any) -> Rival:
    """JAX, whose pool has as many threads as the process may use."""
    return Rival(build, ("jax",), **options)


@dataclass(frozen=True)
class Case:
    """One line of a benchmark: our side and its rivals, by name.

    Attributes
    ----------
    tolerance : float
        The largest relative difference of a result to the rival's. Results that differ more are an error;
        with infinity the rows only tell the difference.
    least : float, default 0
        The least norm that differences are relative to, as a part of the norm of all results.
    threads : int, optional
        Threads of both sides; by default those of the command.
    quantities : mapping
        Names of parts in rows, if they differ from the names in `parts`.
    paper : mapping
        The paper's ratio of a quantity.
    memory : bool
        Whether a row compares peak memory.
    together : bool
        Whether the sides share one process, as on a GPU whose contexts would take turns.
    """

    name: str
    ours: Callable[[], Step]
    rivals: Mapping[str, Rival]
    tolerance: float = 1e-4
    least: float = 0.0
    threads: int | None = None
    quantities: Mapping[str, str] = field(default_factory=dict)
    paper: Mapping[str, float | None] = field(default_factory=dict)
    note: str = ""
    memory: bool = False
    together: bool = False


@dataclass
class Measurement:
    """Seconds of a side by quantity, its result, and its memory peak in bytes (see MEMORY_NOTE).

    Sample i of all sides was measured side by side.
    """

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    result: dict[str, Any] = field(default_factory=dict)
    peak: int = 0
    note: str = ""


@dataclass(frozen=True)
class Row:
    """One line of a benchmark's report.

    `quantity` is forward, backward, overall, fill, product or step. `ours`, `theirs` are medians in `unit`,
    and `ratio` is theirs / ours, so that values above 1 are better for us. Without a rival, `theirs` and
    `ratio` are None. `spread` has the first and third quartile of ours, theirs, and of the ratios per sample.
    `paper` is the ratio or value of the paper, and `note` a remark about the measurement.
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
    ours: Sequence[float],
    theirs: Sequence[float] | None = None,
    against: str | None = None,
    **more: Any,
) -> Row:
    """The row of two sides' samples of one quantity, in seconds."""
    median, spread = float(np.median(ours)), {"ours": quartiles(ours)}
    if theirs is None:
        return Row(case, quantity, median, spread=spread, **more)
    rival = float(np.median(theirs))
    spread["theirs"] = quartiles(theirs)
    spread["ratio"] = quartiles([b / a for a, b in zip(ours, theirs, strict=False)])
    return Row(case, quantity, median, rival, against, ratio=rival / median, spread=spread, **more)


def quartiles(samples: Sequence[float]) -> list[float]:
    """First and third quartile."""
    return [float(q) for q in np.percentile(samples, (25, 75))]


# ---- cases ----


def run_cases(cases: Iterable[Case], arguments: Any) -> Iterator[list[Row]]:
    """The rows of each case whose name holds a text of --like. A case that fails is named on stderr, and the
    others go on; raises BenchmarkError at the end then."""
    count, failed = 0, []
    for case in tqdm(cases, unit="case", disable=not sys.stderr.isatty()):
        if not any(text in case.name for text in arguments.like):
            continue
        count += 1
        try:
            yield rows_of(case, arguments)
        except BenchmarkError as error:
            failed.append(case.name)
            cli.warn(f"left out: {case.name}: {error}")
    if failed:
        raise BenchmarkError(f"{len(failed)} of {count} cases were left out: {', '.join(failed)}")
    if not count:
        raise BenchmarkError(f"no case has {' or '.join(arguments.like)} in its name: give another --like")


def rows_of(case: Case, arguments: Any) -> list[Row]:
    """Measure a case."""
    threads = case.threads or arguments.threads
    with ExitStack() as stack:
        ours = _opened(stack, case, "ours", Rival(case.ours, both=False), threads, arguments)
        ours("build")
        asked, names, rows = {"ours": ours}, {}, []
        for name, rival in case.rivals.items():
            both = rival.both and arguments.device == "host" and case.threads is None and not case.together
            for each in sorted({1, threads}) if both else [threads]:
                side = f"{name}, {count_threads(each)}" if both else name
                try:
                    asked[side] = _opened(stack, case, side, rival, each, arguments)
                    asked[side]("build")
                    names[side] = name
                except BenchmarkError as error:
                    # What a rival cannot do, for lack of memory or of an implementation, is told.
                    asked.pop(side, None)
                    cli.warn(f"{case.name}: left out: {error}")
        differences = _differences(case, asked, names)
        measured = interleave(asked, arguments.repeats, arguments.case_seconds)
        if case.memory:
            for side, ask in asked.items():
                measured[side].peak = ask("bytes")
    our_side = measured.pop("ours")
    groups: dict[str, dict[str, Measurement]] = {}
    for side, measurement in measured.items():
        groups.setdefault(names[side], {})[side] = measurement
    if case.rivals and not groups:
        raise BenchmarkError("every rival failed: see the warnings above")
    for group in groups.values():
        fastest = min(group, key=lambda side: float(np.median(group[side].seconds[OVERALL])))
        rows += _compared(case, arguments, our_side, fastest, group[fastest], differences.get(fastest, ""))
    return rows or _compared(case, arguments, our_side, None, None, "")


def _compared(
    case: Case,
    arguments: Any,
    ours: Measurement,
    against: str | None,
    theirs: Measurement | None,
    difference: str,
) -> list[Row]:
    notes = (case.note, ours.note, theirs and theirs.note, difference)
    note = "; ".join(text for text in notes if text) or None
    rows = []
    for part, seconds in ours.seconds.items():
        if theirs is not None and part not in theirs.seconds:
            continue
        quantity = case.quantities.get(part, part)
        rival = (theirs.seconds[part], against) if theirs is not None else ()
        rows.append(timed_row(case.name, quantity, seconds, *rival, paper=case.paper.get(part), note=note))
    if case.memory:
        mine, note = ours.peak / 2**20, MEMORY_NOTE["cuda" if arguments.device == "cuda" else "host"]
        peak = None if theirs is None else theirs.peak / 2**20
        ratio = peak / mine if peak is not None and mine else None
        rows.append(Row(case.name, "peak memory", mine, peak, against, "MiB", ratio=ratio, note=note))
    return rows


def _differences(case: Case, asked: Mapping[str, Ask], names: Mapping[str, str]) -> dict[str, str]:
    """What rows say of each rival's difference to our results. Raises BenchmarkError if it is too large."""
    differences, ours = {}, asked["ours"]("result")
    for side, name in names.items():
        if case.rivals[name].compared:
            theirs = asked[side]("result")
            if math.isinf(case.tolerance):
                differences[side] = f"results differ by {difference(ours, theirs, case.least):.1e}"
            else:
                require_equal(side, ours, theirs, case.tolerance, case.least)
    return differences


def difference(ours: Mapping[str, Any], theirs: Mapping[str, Any], least: float = 0.0) -> float:
    """The largest difference in norm of any array, relative to the norm of the rival's, or to `least` times
    the norm of all arrays where that is more."""
    norms = {name: float(np.linalg.norm(np.asarray(array, np.float64))) for name, array in theirs.items()}
    floor = least * math.hypot(*norms.values())
    worst = 0.0
    for name, array in theirs.items():
        if np.shape(ours[name]) != np.shape(array):
            return math.inf
        apart = float(np.linalg.norm(np.asarray(ours[name], np.float64) - np.asarray(array, np.float64)))
        limit = max(norms[name], floor)
        worst = max(worst, apart / limit if limit else (math.inf if apart else 0.0))
        if math.isnan(apart):
            return math.inf
    return worst


def require_equal(
    name: str, ours: Mapping[str, Any], theirs: Mapping[str, Any], tolerance: float, least: float = 0.0
) -> None:
    """Raise BenchmarkError unless the sides' arrays agree: times of different work are not reported. Arrays
    that only our side has are not compared."""
    missing = theirs.keys() - ours.keys()
    if missing:
        raise BenchmarkError(f"{name} has results that bppsa-cupy lacks: {sorted(missing)}")
    worst = difference(ours, theirs, least)
    if not worst <= tolerance:
        raise BenchmarkError(
            f"results differ from {name} by {worst:.3g} in norm, but at most {tolerance:.3g} is allowed: the "
            "times are not reported"
        )


def count_threads(threads: int) -> str:
    """A number of threads in words."""
    return f"{threads} thread{'s' if threads > 1 else ''}"


# ---- sides ----


class Ask(Protocol):
    """Asks a side, see `answer`."""

    def __call__(self, question: str) -> Any:
        """The answer. Raises BenchmarkError with the error that the side met."""


def interleave(
    asked: Mapping[str, Ask], repeats: int, limit_seconds: float = math.inf
) -> dict[str, Measurement]:
    """Samples of sides that are built, in turn: A B A B …. After LEAST_SAMPLES of a side no more are begun
    than are likely to end within the limit."""
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
        measured[name].note = ask("note")
    return measured


class Timer:
    """Times runs of one step.

    A sample is one run that is not timed, which wakes threads and fills caches, then `number` timed ones, so
    many that they take `sample_seconds`. A step that takes longer than SLOW_SECONDS is run once. With
    `cpu_time`, seconds are those of the process's CPU time.
    """

    def __init__(self, step: Step, sample_seconds: float, cpu_time: bool = False) -> None:
        self.step, self.number = step, 1
        self.mark: Callable[[], Any] = time.process_time if cpu_time else step.device.timestamp
        self.seconds = (lambda start, end: end - start) if cpu_time else step.device.seconds
        self.first: dict[str, float] | None = self.time_each()
        if self.first[OVERALL] * step.per <= SLOW_SECONDS:
            self.first = None
            once = max(self.sample()[OVERALL] * step.per, 1e-9)
            self.number = max(1, min(100_000, int(sample_seconds / once)))

    def sample(self) -> dict[str, float]:
        """Seconds per unit of work, by part and overall."""
        if self.first is not None:
            return self.first
        step, device = self.step, self.step.device
        if step.prepare is not None:
            step.prepare()
        self.run_once()
        device.synchronize()
        if step.reset is not None or len(step.parts) > 1:
            return self.time_each()
        start = self.mark()
        for _ in range(self.number):
            self.run_once()
        return {OVERALL: self.seconds(start, self.mark()) / self.number / step.per}

    def run_once(self) -> None:
        """All parts, from the state that `reset` leaves."""
        if self.step.reset is not None:
            self.step.reset()
        for part in self.step.parts.values():
            part()

    def time_each(self) -> dict[str, float]:
        """Runs that are timed one by one, part by part."""
        step, device = self.step, self.step.device
        seconds: dict[str, float] = defaultdict(float)
        for _ in range(self.number):
            if step.reset is not None:
                step.reset()
            device.synchronize()
            marks = [self.mark()]
            for part in step.parts.values():
                part()
                marks.append(self.mark())
            scale = 1 / (self.number * step.per)
            for name, before, after in zip(step.parts, marks, marks[1:], strict=False):
                seconds[name] += self.seconds(before, after) * scale
            if len(step.parts) > 1 or OVERALL not in step.parts:
                seconds[OVERALL] += self.seconds(marks[0], marks[-1]) * scale
        return dict(seconds)


def answer(question: str, step: Step, timer: Timer, before: int) -> Any:
    """The answer to "build" (seconds of a run), "sample", "result", "note" or "bytes"."""
    if question == "sample":
        return timer.sample()
    if question == "result":
        return step.result()
    if question == "note":
        return step.note()
    if question == "bytes":
        return peak_bytes(step, before)
    return None


def peak_bytes(step: Step, before: int) -> int:
    """Bytes of memory that a side took at most."""
    if step.pool_bytes is not None and step.device.name == "cuda":
        return step.pool_bytes()
    if step.device.name == "cuda":
        return int(step.device.xp.get_default_memory_pool().total_bytes())
    return peak_host_bytes() - before


def peak_host_bytes() -> int:
    """The largest resident size of this process so far, Linux's VmHWM: ru_maxrss of a child starts at its
    parent's."""
    with open("/proc/self/status", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmHWM")


def _opened(stack: ExitStack, case: Case, name: str, rival: Rival, threads: int, arguments: Any) -> Ask:
    if case.together or arguments.quick:
        return _local(name, rival.build, 0.0 if arguments.quick else SAMPLE_SECONDS, arguments.cpu_time)
    return stack.enter_context(side_process(name, rival, threads, SAMPLE_SECONDS, arguments.cpu_time))


def _local(name: str, build: Callable[[], Step], *timing: Any) -> Ask:
    """A side in this process."""
    side: list[Any] = []

    def ask(question: str) -> Any:
        try:
            if not side:
                step = build()
                side.extend((step, Timer(step, *timing), peak_host_bytes()))
            return answer(question, *side)
        except Exception as error:  # the other sides still count
            raise BenchmarkError(f"{name}: {type(error).__name__}: {error}") from error

    return ask


@contextmanager
def side_process(name: str, rival: Rival, threads: int, *timing: Any) -> Iterator[Ask]:
    """A side's process, which ends with the block; `timing` is what `Timer` takes beside the step."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(there, rival.build, rival.imports, *timing), daemon=True)
    # NPROC sizes XLA's pool of threads.
    variables = {**thread_variables(threads), "NPROC": str(threads), **rival.variables}
    with environment(variables), _without_interrupts():
        process.start()
    there.close()

    def ask(question: str) -> Any:
        with suppress(OSError):  # the process may have ended with an error that waits to be read
            here.send(question)
        try:
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


def serve(connection: Connection, build: Callable[[], Step], imports: Sequence[str], *timing: Any) -> None:
    """A side's process: it answers questions until "stop", by pairs of an error's text or None, and what was
    asked for."""
    try:
        for module in imports:
            importlib.import_module(module)
        before = peak_host_bytes()
        while (question := connection.recv()) != "stop":
            if question == "build":
                step = build()
                timer = Timer(step, *timing)
            connection.send((None, answer(question, step, timer, before)))
    except (BppsaError, ImportError) as error:
        connection.send((str(error), None))
    except Exception:
        connection.send((traceback.format_exc(), None))


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


def thread_variables(threads: int) -> dict[str, str]:
    """Environment variables that give a process's pools `threads` threads."""
    names = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return dict.fromkeys(names, str(threads))


# ---- steps ----


def passes_step(
    network: Any, inputs: Any, labels: Any, *, method: str = "auto", optimizer: Any = None, **more: Any
) -> Step:
    """A network's forward pass with the loss, its backward pass, and the optimizer's step where there is one.
    The result has the loss and all gradients."""
    from bppsa_cupy.training.losses import cross_entropy

    device, results = network.device, dict[str, Any]()
    inputs = device.asarray(inputs)

    def forward() -> None:
        output = network.forward(inputs, into=network.last_pass)
        results["loss"], results["gradient"] = cross_entropy(output, labels, device=device)

    def backward() -> None:
        network.backward(results["gradient"], method=method)

    def result() -> dict[str, np.ndarray]:
        gradients = {name: np.array(device.to_host(array)) for name, array in network.gradients.items()}
        return {"loss": np.asarray(device.to_host(results["loss"])), **gradients}

    parts: dict[str, Callable[[], object]] = {"forward": forward, "backward": backward}
    if optimizer is not None:
        parts["optimizer"] = lambda: optimizer.step(network.gradients)
    return Step(parts, result, device, **more)
