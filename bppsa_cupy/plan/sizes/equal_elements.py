"""The sizes of a chain of equal elements: told by two of them, however long the chain is."""

from __future__ import annotations

import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.chain import Chain, Element
from bppsa_cupy.plan.schedule import Segment, Step
from bppsa_cupy.plan.sizes.chain_sizes import ChainSizes
from bppsa_cupy.plan.sizes.counted import CountedSizes


class EqualElements(ChainSizes):
    """The sizes of n equal elements, square and dense, or diagonal: their products have the same pattern.

    Raises PlanError for a pattern of another kind.
    """

    def __init__(self, pattern: Pattern, n: int, *, shared: bool = False) -> None:
        rows, columns = pattern.shape
        if rows != columns or not (pattern.nnz == rows * columns or pattern.is_diagonal):
            raise PlanError(
                f"equal elements of {rows}×{columns} with {pattern.nnz} entries were asked for: they must be "
                "square and dense, or diagonal"
            )
        element = Element("J", pattern, shared)
        self.chain, self._two = Chain((element,) * n), CountedSizes(Chain((element, element)))

    def nnz(self, segment: Segment) -> int:
        return self._two.nnz((1, 2))

    def pattern_numbers(self, segments: np.ndarray) -> np.ndarray:
        return np.zeros(len(segments), np.int64)

    def multiply_adds(self, step: Step) -> int:
        return self._two.multiply_adds(_like(step))

    def kind(self, step: Step) -> str:
        return self._two.kind(_like(step))

    def map_bytes(self, step: Step) -> int:
        return self._two.map_bytes(_like(step))


def _like(step: Step) -> Step:
    """The step of two elements that is like this one."""
    return Step(0, 0, 1, 2, "mv") if step.kind == "mv" else Step(0, 1, 2, 3, "mm")
