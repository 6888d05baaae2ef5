"""When the actions of a pipeline ran, as Perfetto and Chrome's tracing show it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.distributed import Group
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.pipeline.schedules import KINDS, Action
from bppsa_cupy.system.files import write_text


@dataclass
class Trace:
    """Actions with the seconds at which they began and ended, and those at which their input was there.

    rows  an action, its batch being the number of the step from 1 over all epochs; its beginning, when its
          input was there, its end: seconds of one clock for all ranks of a machine
    """

    rows: list[tuple[Action, float, float, float]] = field(default_factory=list)

    def add(self, action: Action, begun: float, ready: float, ended: float) -> None:
        self.rows.append((action, begun, ready, ended))

    def gathered(self, group: Group) -> Trace:
        """The rows of all ranks, on every rank; collective."""
        own = np.array([[*action, *times] for action, *times in self.rows], np.float64).reshape(-1, 8)
        counts = np.empty(group.size, np.int64)
        group.allgather(np.array([len(own)]), counts)
        every = np.empty((int(counts.sum()), 8))
        group.allgather(own, every, counts.tolist())
        rows = ((Action(*map(int, row[:5])), row[5:]) for row in every.tolist())
        return Trace([(action, begun, ready, ended) for action, (begun, ready, ended) in rows])

    def events(self) -> list[dict[str, Any]]:
        """Chrome's trace events: complete ones ("X"), a process per stage, times in microseconds."""
        first = min((begun for _, begun, _, _ in self.rows), default=0.0)
        found = []
        for action, begun, ready, ended in self.rows:
            kind, place = KINDS[action.kind], {"ph": "X", "pid": action.stage, "tid": action.stage}
            waited = {"ts": 1e6 * (begun - first), "dur": 1e6 * (ready - begun)}
            worked = {"ts": 1e6 * (ready - first), "dur": 1e6 * (ended - ready)}
            name = f"{kind} {action.batch}.{action.micro}" if action.micro else f"{kind} {action.batch}"
            if ready > begun:
                found.append({"name": "wait", "cat": "wait", **place, **waited})
            found.append({"name": name, "cat": kind, **place, **worked, "args": dict(action._asdict())})
        return found

    def save(self, path: Path) -> None:
        """Write the events as JSON, which https://ui.perfetto.dev opens. Raises BppsaError where the file
        cannot be written."""
        if not self.rows:
            raise BppsaError("the trace holds no action: train with it first")
        write_text(path, json.dumps({"traceEvents": self.events(), "displayTimeUnit": "ms"}))
