"""One side of a benchmark: work that is timed in a process of its own."""

from __future__ import annotations

import abc
import importlib
import traceback
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any

from bppsa_cupy.devices import Device
from bppsa_cupy.errors import BppsaError

#: Marks the end of a named part of the work.
Lap = Callable[[str], None]

#: How many times as long as a sample is to take a run takes that is not tried twice.
LONG = 50

#: The whole of a run, beside its laps.
OVERALL = "overall"


class Workload(abc.ABC):
    """What is timed.

    device    whose work is timed: by the clock on the host, by CUDA events on the GPU
    stateful  whether a run changes what the next one starts from: then `reset` goes before each
    """

    device: Device
    stateful = False

    def reset(self) -> None:
        """Set the state every run starts from; not timed."""

    @abc.abstractmethod
    def run(self, lap: Lap) -> None:
        """The work; `lap(quantity)` after each of its parts, where it has some."""

    @abc.abstractmethod
    def result(self) -> Any:
        """What the last run left, for the comparison; anything pickle takes."""

    def device_bytes(self) -> int:
        """Bytes of the GPU's memory that were taken at most; asked for on a GPU alone."""
        return int(self.device.xp.get_default_memory_pool().total_bytes())


class Timer:
    """Times runs of one workload.

    A sample is one run that is not timed, which wakes threads and fills caches, then `number` timed
    ones; `number` is such that they take `sample_seconds`, going by the seconds of a run `once`: the second
    sample's, or those of the first where that took by far more.
    """

    def __init__(self, workload: Workload, sample_seconds: float) -> None:
        self.workload, self.number = workload, 1
        self.once = self.sample()[OVERALL]
        if self.once < LONG * sample_seconds:
            self.once = self.sample()[OVERALL]
        self.number = max(1, min(100_000, int(sample_seconds / max(self.once, 1e-9))))

    def sample(self) -> dict[str, float]:
        """Seconds a run, by lap and overall."""
        workload, device = self.workload, self.workload.device
        workload.reset()
        workload.run(_no_lap)
        device.synchronize()
        if workload.stateful:
            return self._sample_each()
        start = device.timestamp()
        for _ in range(self.number):
            workload.run(_no_lap)
        return {OVERALL: device.seconds(start, device.timestamp()) / self.number}

    def _sample_each(self) -> dict[str, float]:
        workload, device = self.workload, self.workload.device
        seconds: dict[str, float] = defaultdict(float)
        for _ in range(self.number):
            workload.reset()
            device.synchronize()
            marks = [("", device.timestamp())]
            workload.run(lambda quantity, marks=marks: marks.append((quantity, device.timestamp())))  # type: ignore[misc]
            end = device.timestamp()
            seconds[OVERALL] += device.seconds(marks[0][1], end) / self.number
            for (_, before), (quantity, after) in pairwise(marks):
                seconds[quantity] += device.seconds(before, after) / self.number
        return dict(seconds)


def peak_host_bytes() -> int:
    """The largest resident size of this process so far.

    Linux's VmHWM: ru_maxrss of a child starts at its parent's.
    """
    with open("/proc/self/status", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmHWM")


def serve(
    connection: Connection,
    factory: Callable[..., Workload],
    options: Mapping[str, Any],
    imports: Sequence[str],
    sample_seconds: float,
) -> None:
    """A side's process: answer "build" by the seconds of a run, then "sample", "result", "bytes" in any
    order, until "stop".

    `imports` are modules whose memory is not the workload's.

    Every answer is a pair: an error's text or None, and what was asked for.
    """
    try:
        for module in imports:
            importlib.import_module(module)
        before = peak_host_bytes()
        while (question := connection.recv()) != "stop":
            if question == "build":
                workload = factory(**options)
                timer = Timer(workload, sample_seconds)
                connection.send((None, timer.once))
            elif question == "sample":
                connection.send((None, timer.sample()))
            elif question == "result":
                connection.send((None, workload.result()))
            elif workload.device.name == "cuda":
                connection.send((None, workload.device_bytes()))
            else:
                connection.send((None, peak_host_bytes() - before))
    except (BppsaError, ImportError) as error:
        connection.send((str(error), None))
    except Exception:
        connection.send((traceback.format_exc(), None))


def thread_variables(threads: int) -> dict[str, str]:
    """Environment variables that give a process's pools `threads` threads."""
    names = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return dict.fromkeys(names, str(threads))


def _no_lap(quantity: str) -> None:
    """The lap of a run that is timed as a whole."""
