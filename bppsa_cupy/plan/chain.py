"""What is planned: a chain of transposed Jacobians, by pattern alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.plan.partition import Partition


@dataclass(frozen=True)
class Element:
    """One matrix of the input array of the scan.

    Attributes
    ----------
    name : str
        The name in pictures and errors: "3 Conv2d", or "5.body.0 Conv2d" inside a block.
    pattern : Pattern
        The pattern of the transposed Jacobian, (d_in, d_out).
    shared : bool
        Whether all samples share one set of values, (nnz,).
    vjp_multiply_adds : int or None
        Multiply-adds per sample of the VJP of the layer, if they differ from nnz: a pruned convolution runs
        dense.
    item : int
        The index of the item that a `Partition` assigns to a rank: a layer of the network, or a matrix of the
        chain.
    """

    name: str
    pattern: Pattern
    shared: bool
    vjp_multiply_adds: int | None = None
    item: int = 0

    @property
    def matrix(self) -> tuple[str, bool, int | None]:
        """The facts that a plan depends on: the pattern's digest, `shared` and `vjp_multiply_adds`."""
        return self.pattern.digest, self.shared, self.vjp_multiply_adds

    @property
    def vjp_terms(self) -> int:
        """Multiply-adds of the layer's own VJP of one sample."""
        return self.pattern.nnz if self.vjp_multiply_adds is None else self.vjp_multiply_adds


@dataclass(frozen=True)
class Chain:
    """The matrices a_1 … a_n of equation 5, from the last layer's Jacobian to the first one's.

    Element k, 1 <= k <= n, is `elements[k - 1]`; element 0 is the gradient vector by the output.
    Raises ShapeError where neighbours' sizes do not fit: rows of a_k must be columns of a_{k+1}.
    """

    elements: tuple[Element, ...]

    def __post_init__(self) -> None:
        for k, (nearer, farther) in enumerate(zip(self.elements, self.elements[1:], strict=False), 1):
            if nearer.pattern.shape[0] != farther.pattern.shape[1]:
                raise ShapeError(
                    f"element {k} ({nearer.name}) has {nearer.pattern.shape[0]} rows, but element {k + 1} "
                    f"({farther.name}) has {farther.pattern.shape[1]} columns: both numbers must be equal"
                )

    def __len__(self) -> int:
        return len(self.elements)

    def shared(self, begin: int, end: int) -> bool:
        """Whether one set of values of M(begin, end) serves every sample: all its elements are shared."""
        return begin > 0 and bool(self._not_shared[begin] == self._not_shared[end])

    def length(self, k: int) -> int:
        """Number of elements of the vector v(k), 1 <= k <= n + 1; 0 where the chain is empty."""
        return int(self.lengths[k])

    def owners(self, partition: Partition) -> tuple[int, ...]:
        """The rank of each element."""
        return tuple(int(partition.owners[element.item]) for element in self.elements)

    @cached_property
    def lengths(self) -> np.ndarray:
        """(n + 2,) `length` of every k, from 1 on."""
        inner = (element.pattern.shape[1] for element in self.elements)
        last = self.elements[-1].pattern.shape[0] if self.elements else 0
        return np.array([0, *inner, last], np.int64)

    @cached_property
    def _not_shared(self) -> np.ndarray:
        """(n + 2,) how many of the elements before the k-th are not shared."""
        return np.cumsum([0, 0, *(not element.shared for element in self.elements)])
