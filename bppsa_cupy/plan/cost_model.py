"""Cost models: a machine in a few numbers, by kind of product."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bppsa_cupy.plan.product import MAPS

#: What a model may have a rate of its own for: the kinds of product, a CSR matrix times a vector, a
#: layer's own VJP, writing the values of a Jacobian before a scan ("fill"), and moving a vector between
#: the layers' layout (B, d) and the scan's (d, B) ("transpose").
KINDS = (*MAPS, "csr_mv", "vjp", "fill", "transpose")

#: Work over more bytes than this has a rate of its own: it reads memory where smaller work reads caches.
LARGE_BYTES = 2**24


@dataclass(frozen=True)
class Rate:
    """How fast work of one kind runs: its arithmetic or its bytes, whichever takes longer.

    Arithmetic is multiply-adds, and the starts of a kernel's inner loop, which runs over the batch: one for
    each term of a product, whatever the batch is.
    """

    multiply_adds_per_second: float
    bytes_per_second: float
    loops_per_second: float = math.inf

    def seconds(self, multiply_adds: int, moved: int, loops: float = 0) -> float:
        """The time of so many multiply-adds in so many loops over so many bytes."""
        arithmetic = multiply_adds / self.multiply_adds_per_second + loops / self.loops_per_second
        return max(arithmetic, moved / self.bytes_per_second)


@dataclass(frozen=True)
class Link:
    """What a message from one rank to another takes: a start, and its bytes.

    latency           seconds of a message of no bytes
    bytes_per_second  of a long one; infinity where bytes cost nothing
    """

    latency: float
    bytes_per_second: float

    def seconds(self, nbytes: Any) -> Any:
        """The time of messages of so many bytes, a number or an array."""
        return self.latency + nbytes / self.bytes_per_second


@dataclass(frozen=True)
class CostModel:
    """A worker in a few numbers. Steps that run at once run on workers of their own, each as fast.

    A device of the executors is one worker: it runs one step at a time, on all of its cores.

    rate                of every kind of work without one of its own
    seconds_per_launch  added to every step of a scan, a launch that was bound before
    seconds_per_call    added to every VJP, fill and transposition, which Python calls one by one
    rates               rates of single `KINDS`, and of single `work_classes` of them
    link                between ranks; a rank is a worker that holds its own elements
    calibrated          whether the rates were measured on the machine at hand
    """

    name: str
    rate: Rate
    seconds_per_launch: float
    seconds_per_call: float
    rates: Mapping[str, Rate] = field(default_factory=dict)
    link: Link = Link(0.0, math.inf)
    calibrated: bool = field(default=False, compare=False)

    @property
    def label(self) -> str:
        """What its predictions are told by."""
        return self.name if self.calibrated or self.name == "ideal" else f"{self.name}, uncalibrated"

    def work_seconds(self, kind: str, multiply_adds: int, moved: int, width: int | None = None) -> float:
        """The time of work of one of `KINDS`, without its launch or call, at its class's rate.

        width  multiply-adds of one inner loop: the batch, or 1; None where no such loop is known
        """
        loops = multiply_adds / width if width else 0
        for name in work_classes(kind, moved):
            if name in self.rates:
                return self.rates[name].seconds(multiply_adds, moved, loops)
        return self.rate.seconds(multiply_adds, moved, loops)


def work_classes(kind: str, moved: int) -> tuple[str, ...]:
    """What work may have a rate as, the narrowest class first: "terms large" beyond LARGE_BYTES, "terms"."""
    return (f"{kind} large", kind) if moved > LARGE_BYTES else (kind,)


#: A multiply-add is one second, nothing else costs.
IDEAL = CostModel("ideal", Rate(1.0, math.inf), 0.0, 0.0, rates={"fill": Rate(math.inf, math.inf)})
