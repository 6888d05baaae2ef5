"""What is told of the steps of a pipeline: losses, updates that were blocked, rates; a row a step."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from bppsa_cupy.pipeline.links import Links
from bppsa_cupy.training.steps import Row, Work, not_finite

#: What a step that is not finite suggests.
CURE = "take fewer cuts, a lower learning rate, the schedule stale-1f1b or predicted weights"

#: Waits for an array that is on its way to the host.
Fetched = Callable[[], np.ndarray]


class Rows:
    """The rows of the batches of one run, at the first stage of this process.

    links        by which stages tell each other of a batch, from the last stage to the first
    first, last  the first stage of this process, and the last of all
    """

    def __init__(self, work: Work, links: Links, first: int, last: int) -> None:
        self._work, self._links, self._first, self._last = work, links, first, last
        self._losses: dict[int, list[Fetched]] = {}
        self._blocked: dict[tuple[int, int], Fetched] = {}
        self._rates: dict[int, float | None] = {}
        self._rows: dict[int, Row] = {}

    def set_rate(self, batch: int) -> None:
        """Let the optimizer have the rate of a batch, which is noted."""
        self._rates[batch] = self._work.set_rate(self._work.first + batch)

    def add_loss(self, batch: int, loss: Fetched) -> None:
        """Note a micro-batch's part of the loss of a batch."""
        self._losses.setdefault(batch, []).append(loss)

    def updated(self, stage: int, batch: int, blocked: Fetched) -> None:
        """Note that a stage was updated by a batch, and tell of the batch before it."""
        self._blocked[stage, batch] = blocked
        if batch:
            self.tell(stage, batch - 1)

    def tell(self, stage: int, batch: int) -> None:
        """Hand on what is known of a batch that a stage was updated by; its row, at the first stage of this
        process. Raises NonFiniteError naming its step."""
        blocked = bool(self._blocked.pop((stage, batch))()[0])
        if stage == self._last:
            loss = math.fsum(float(value()) for value in self._losses.pop(batch))
        else:
            loss, before = self._links.told(stage, batch)
            blocked = blocked or bool(before)
        if stage > 0:
            self._links.report(stage, batch, np.array([loss, blocked], np.float64))
        step = self._work.first + batch
        if not math.isfinite(loss) or blocked:
            found = "a gradient is not finite" if math.isfinite(loss) else f"the loss is {loss}"
            raise not_finite(f"{found} at", step, CURE)
        if stage == self._first:
            self._rows[batch] = {"step": step, "epoch": self._work.epoch + 1, "loss": float(loss)}
            rate = self._rates.pop(batch)
            if rate is not None:
                self._rows[batch]["lr"] = rate

    def take(self, batch: int) -> Row:
        """The row of a batch, once."""
        return self._rows.pop(batch)
