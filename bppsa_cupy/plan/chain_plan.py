"""A planned chain: its schedules, and the products they need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from bppsa_cupy.csr import Pattern
from bppsa_cupy.plan.chain import Chain
from bppsa_cupy.plan.product import Product, multiply
from bppsa_cupy.plan.schedule import Schedule, Segment, Step
from bppsa_cupy.plan.sizes import ChainSizes, PlannedSizes


@dataclass(frozen=True, eq=False)
class ChainPlan:
    """A chain, the schedules planned for it by name, and every product by the digests of its factors.

    `products` may hold more than this chain's: equal steps, schedules and chains share one. Products that
    are missing are made.
    """

    chain: Chain
    schedules: Mapping[str, Schedule]
    products: dict[tuple[str, str], Product]
    _patterns: dict[Segment, Pattern] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        patterns = {(k, k + 1): element.pattern for k, element in enumerate(self.chain.elements, 1)}
        object.__setattr__(self, "_patterns", patterns)
        for schedule in self.schedules.values():
            for step in schedule.steps:
                if step.kind == "mm":
                    a, b = patterns[step.right], patterns[step.left]
                    if (a.digest, b.digest) not in self.products:
                        self.products[a.digest, b.digest] = multiply(a, b)
                    patterns[step.out] = self.products[a.digest, b.digest].pattern

    def pattern(self, begin: int, end: int) -> Pattern:
        """The pattern of M(begin, end), for every segment that a schedule reads or computes."""
        return self._patterns[begin, end]

    def product(self, step: Step) -> Product:
        """The planned product of an "mm" step: A is the right operand's pattern, B the left one's."""
        return self.products[self.pattern(*step.right).digest, self.pattern(*step.left).digest]

    @cached_property
    def sizes(self) -> ChainSizes:
        """The sizes of every segment that a schedule computes, and of the products that make them."""
        return PlannedSizes(self.chain, self._patterns, self.products)
