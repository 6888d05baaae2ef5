"""Which products of two a chain of factors takes, and how each is computed for one sample and for several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.plan.product import MAXIMAL_TERMS, Product, multiply, term_list
from bppsa_cupy.products.chain_order import choose_cuts

#: Terms that a row of C has at most, on average, where a term list is quickest: what they read stays in the
#: first caches. Measured for B = 1 and 16 on rows of 10 to 14,000 terms.
TERMS_PER_ROW = 512


@dataclass(frozen=True)
class Multiplication:
    """One product of two operands: factors have the numbers 0, 1, …, results the ones after, in order.

    left, right  the operands' numbers
    many         the planned product for several samples
    one          the same for one sample
    """

    left: int
    right: int
    many: Product
    one: Product

    @classmethod
    def plan(cls, left: int, right: int, product: Product) -> Multiplication:
        """The multiplication by the kinds that are quickest.

        A term list writes an entry at once, and its reads have no order; row by row, a factor's rows are read
        in their order. The kinds that lean on a structure take samples as lanes, which one leaves empty.
        """
        listed = product.multiply_adds <= max(TERMS_PER_ROW * product.pattern.shape[0], product.pattern.nnz)
        if product.kind in ("dense", "terms"):
            return cls(left, right, product, product)
        if not listed or product.multiply_adds > MAXIMAL_TERMS:
            return cls(left, right, product, replace(product, kind="row_wise", maps={}))
        maps = term_list(product.a, product.b, product.pattern)
        terms = replace(product, kind="terms", maps=maps)
        return cls(left, right, terms if product.kind == "row_wise" else product, terms)


def plan_multiplications(factors: Sequence[Pattern]) -> tuple[Multiplication, ...]:
    """The products of two that make the product of two or more factors, the last one all of it.

    Three factors or more are multiplied in the order of about the fewest multiply-adds (`choose_cuts`).
    Raises ShapeError where sizes do not fit.
    """
    for number, (left, right) in enumerate(pairwise(factors), 1):
        if left.shape[1] != right.shape[0]:
            raise ShapeError(
                f"factor {number} of shape {left.shape} times factor {number + 1} of shape {right.shape}: "
                "the columns of one must be the rows of the next"
            )
    cuts = choose_cuts(factors)
    patterns = list(factors)
    made: list[Multiplication] = []

    def operand(begin: int, end: int) -> int:
        """The number of a run of factors, its products made first."""
        if end == begin + 1:
            return begin
        cut = cuts[begin, end]
        left, right = operand(begin, cut), operand(cut, end)
        made.append(Multiplication.plan(left, right, multiply(patterns[left], patterns[right])))
        patterns.append(made[-1].many.pattern)
        return len(patterns) - 1

    operand(0, len(factors))
    return tuple(made)
