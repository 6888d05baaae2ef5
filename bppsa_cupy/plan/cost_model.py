"""Cost models: a machine in a few numbers, by kind of product."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.symbolic import MAPS

#: What a model may have a rate of its own for: the kinds of product, a CSR matrix times a vector, and a
#: layer's own VJP.
KINDS = (*MAPS, "csr_mv", "vjp")


@dataclass(frozen=True)
class Rate:
    """How fast work of one kind runs: multiply-adds or bytes, whichever of the two takes longer."""

    multiply_adds_per_second: float
    bytes_per_second: float

    def seconds(self, multiply_adds: int, moved: int) -> float:
        """The time of so many multiply-adds over so many bytes."""
        return max(multiply_adds / self.multiply_adds_per_second, moved / self.bytes_per_second)


@dataclass(frozen=True)
class CostModel:
    """A machine in a few numbers.

    rate                of every kind of work without one of its own
    seconds_per_launch  added to every step
    seconds_per_vjp     added to every layer's own VJP, which runs by library calls
    shared              whether the rates are the whole device's, so that steps that run at once share
                        them; otherwise every worker has its own (the paper's p workers)
    rates               rates of single `KINDS`
    """

    name: str
    rate: Rate
    seconds_per_launch: float
    seconds_per_vjp: float
    shared: bool
    rates: Mapping[str, Rate] = field(default_factory=dict)

    def work_seconds(self, kind: str, multiply_adds: int, moved: int) -> float:
        """The time of a step, or of a VJP, of one of `KINDS`, without its launch."""
        return self.rates.get(kind, self.rate).seconds(multiply_adds, moved)


#: `ideal`: a multiply-add is one second, nothing else costs. `host`: a 2-core CPU, planned kernels.
#: `cuda`: an H200's measured copy rate and a launch inside a CUDA graph.
MODELS = {
    "ideal": CostModel("ideal", Rate(1.0, float("inf")), 0.0, 0.0, shared=False),
    "host": CostModel("host", Rate(4e9, 1.5e10), 5e-6, 3e-5, shared=True, rates={"vjp": Rate(3e10, 1.5e10)}),
    "cuda": CostModel(
        "cuda", Rate(1.5e13, 3.5e12), 2.5e-6, 2e-5, shared=True, rates={"vjp": Rate(2e13, 3.5e12)}
    ),
}


def find_model(name: str | CostModel) -> CostModel:
    """The cost model called `name`. Raises PlanError for an unknown one."""
    if isinstance(name, CostModel):
        return name
    if name not in MODELS:
        raise PlanError(f"cost model {name!r} was asked for: the models are {', '.join(MODELS)}")
    return MODELS[name]


def model_of(device: str) -> CostModel:
    """The cost model of the device called `device`; one without its own is taken for the host."""
    return MODELS.get(device, MODELS["host"])
