"""The sizes of a planned chain: those of its patterns and products, as they are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.chain import Chain
from bppsa_cupy.plan.product import Product
from bppsa_cupy.plan.schedule import Segment, Step
from bppsa_cupy.plan.sizes.chain_sizes import ChainSizes


class PlannedSizes(ChainSizes):
    """Sizes read off patterns and products, or their outlines; no array is looked at.

    patterns  of every segment that is computed
    products  by the digests of their factors
    Raises PlanError where a segment or a product that is asked for was not planned.
    """

    def __init__(
        self,
        chain: Chain,
        patterns: Mapping[Segment, Pattern],
        products: Mapping[tuple[str, str], Product],
    ) -> None:
        self.chain, self._patterns, self._products = chain, patterns, products

    def nnz(self, segment: Segment) -> int:
        return self._pattern(segment).nnz

    def pattern_numbers(self, segments: np.ndarray) -> np.ndarray:
        numbers: dict[str, int] = {}
        digests = (self._pattern((begin, end)).digest for begin, end in segments.tolist())
        return np.array([numbers.setdefault(digest, len(numbers)) for digest in digests], np.int64)

    def multiply_adds(self, step: Step) -> int:
        return self.nnz(step.right) if step.kind == "mv" else self._product(step).multiply_adds

    def kind(self, step: Step) -> str:
        return self._product(step).kind

    def map_bytes(self, step: Step) -> int:
        return 0 if step.kind == "mv" else self._product(step).map_bytes

    def _pattern(self, segment: Segment) -> Pattern:
        if segment not in self._patterns:
            raise PlanError(f"segment [{segment[0]}, {segment[1]}) was not planned")
        return self._patterns[segment]

    def _product(self, step: Step) -> Product:
        return self._products[self._pattern(step.right).digest, self._pattern(step.left).digest]
