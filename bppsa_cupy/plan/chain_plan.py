"""A planned chain: its schedules, and the products they need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.chain import Chain
from bppsa_cupy.plan.product import Product, multiply
from bppsa_cupy.plan.schedule import Schedule, Segment, Step
from bppsa_cupy.plan.sizes import ChainSizes, PlannedSizes
from bppsa_cupy.system.interrupts import interruptible


@dataclass(frozen=True, eq=False)
class ChainPlan:
    """A chain, the schedules planned for it by name, and every product by the digests of its factors.

    `products` may hold more than this chain's: equal steps, schedules and chains share one. Raises
    PlanError where a schedule is of another length, or a product it needs is missing.
    """

    chain: Chain
    schedules: Mapping[str, Schedule]
    products: Mapping[tuple[str, str], Product]
    _patterns: dict[Segment, Pattern] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        patterns = _element_patterns(self.chain)
        object.__setattr__(self, "_patterns", patterns)
        for name, schedule in self.schedules.items():
            if schedule.n != len(self.chain):
                raise PlanError(
                    f"schedule {name} is for {schedule.n} matrices, the chain has {len(self.chain)}"
                )
            for step in schedule.steps:
                if step.kind == "mm":
                    patterns[step.out] = self._find(step, patterns[step.right], patterns[step.left]).pattern

    def pattern(self, begin: int, end: int) -> Pattern:
        """The pattern of M(begin, end), for every segment that a schedule reads or computes."""
        if (begin, end) not in self._patterns:
            raise PlanError(f"segment [{begin}, {end}) is computed by none of {', '.join(self.schedules)}")
        return self._patterns[begin, end]

    def product(self, step: Step) -> Product:
        """The planned product of an "mm" step: A is the right operand's pattern, B the left one's."""
        return self._find(step, self.pattern(*step.right), self.pattern(*step.left))

    def _find(self, step: Step, a: Pattern, b: Pattern) -> Product:
        key = a.digest, b.digest
        if key not in self.products:
            raise PlanError(
                f"the product M{step.right}·M{step.left} ({key[0][:8]}…·{key[1][:8]}…) is missing"
            )
        return self.products[key]

    @cached_property
    def sizes(self) -> ChainSizes:
        """The sizes of every segment that a schedule computes, and of the products that make them."""
        return PlannedSizes(self.chain, self._patterns, self.products)


def multiply_chain(
    chain: Chain, schedules: Iterable[Schedule], products: dict[tuple[str, str], Product]
) -> Iterable[Product]:
    """Add to `products` each product of `schedules` that is not there yet; gives each as it is made."""
    patterns = _element_patterns(chain)
    for schedule in schedules:
        for step in schedule.steps:
            if step.kind == "mm":
                a, b = patterns[step.right], patterns[step.left]
                if (a.digest, b.digest) not in products:
                    interruptible()
                    products[a.digest, b.digest] = multiply(a, b)
                    yield products[a.digest, b.digest]
                patterns[step.out] = products[a.digest, b.digest].pattern


def _element_patterns(chain: Chain) -> dict[Segment, Pattern]:
    return {(k, k + 1): element.pattern for k, element in enumerate(chain.elements, 1)}
