"""Cost models: a machine in a few numbers, by kind of product."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.product.symbolic import MAPS

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
class CostModel:
    """A worker in a few numbers. Steps that run at once run on workers of their own, each as fast.

    A device of the executors is one worker: it runs one step at a time, on all of its cores.

    rate                of every kind of work without one of its own
    seconds_per_launch  added to every step of a scan, a launch that was bound before
    seconds_per_call    added to every VJP, fill and transposition, which Python calls one by one
    rates               rates of single `KINDS`, and of single `work_classes` of them
    """

    name: str
    rate: Rate
    seconds_per_launch: float
    seconds_per_call: float
    rates: Mapping[str, Rate] = field(default_factory=dict)

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


#: What `bppsa-bench calibrate` found on 2 cores of an AMD EPYC (Zen 5), in round numbers.
_HOST_RATES = {
    "csr_mv": Rate(3.4e10, 4e10, 1.2e9),
    "csr_mv large": Rate(8e9, 1.5e10, 5e8),
    "dense": Rate(5e10, 4.5e10),
    "fill": Rate(3e9, 2e10),
    "full_rows": Rate(math.inf, 7e9, 5e8),
    "full_rows large": Rate(math.inf, 2e9, 1.2e8),
    "row_wise": Rate(3e9, 4e9, 2.3e8),
    "row_wise large": Rate(1.7e9, 4e9, 1e8),
    "scale_columns": Rate(math.inf, 6e10, 6e8),
    "scale_columns large": Rate(math.inf, 2e10, 3.6e8),
    "scale_rows": Rate(math.inf, 9e10, 6.5e8),
    "scale_rows large": Rate(math.inf, 2e10, 3.6e8),
    "select_rows": Rate(math.inf, 7e10, 9e8),
    "select_rows large": Rate(math.inf, 1.3e10, 1.8e8),
    "terms": Rate(math.inf, 6e9, 2.6e8),
    "terms large": Rate(3e9, 8e9, 1e8),
    "transpose": Rate(math.inf, 2e10),
    "vjp": Rate(3.2e10, 5e10),
}

#: `ideal`: a multiply-add is one second, nothing else costs. `host`, `cuda`: estimates for where nothing
#: was measured; `cuda` is of an H200's copy rate and a launch inside a CUDA graph.
MODELS = {
    "ideal": CostModel("ideal", Rate(1.0, math.inf), 0.0, 0.0, rates={"fill": Rate(math.inf, math.inf)}),
    "host": CostModel("host", Rate(2e10, 3e10, 1e9), 4e-6, 7e-6, rates=_HOST_RATES),
    "cuda": CostModel("cuda", Rate(1.5e13, 3.5e12), 2.5e-6, 2e-5, rates={"vjp": Rate(2e13, 3.5e12)}),
}


def find_model(name: str | CostModel) -> CostModel:
    """The cost model called `name`: as `bppsa-bench calibrate` measured it here, else the built-in one.

    Raises PlanError for an unknown one.
    """
    if isinstance(name, CostModel):
        return name
    if name not in MODELS:
        raise PlanError(f"cost model {name!r} was asked for: the models are {', '.join(MODELS)}")
    if name == "ideal":
        return MODELS[name]
    from bppsa_cupy.plan.cost.calibration import calibrated

    return calibrated(name) or MODELS[name]


def model_of(device: str) -> CostModel:
    """The cost model of the device called `device`; one without its own is taken for the host."""
    return find_model(device if device in ("host", "cuda") else "host")
