"""Which products of two a chain of factors takes, and how each is computed for one sample and for several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import scipy.sparse

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.plan.loops import least_keys
from bppsa_cupy.plan.product import (
    MAXIMAL_TERMS,
    Product,
    entry_terms,
    has_full_rows,
    multiply,
    multiply_masked,
    row_sums,
    term_list,
)
from bppsa_cupy.products.blocks import block_sizes, coarsen, cover, divisor, refine, transpose, triangle_of
from bppsa_cupy.products.factors import Factor

#: Terms that a row of C has at most, on average, where a term list is quickest, for one sample and for
#: several: the values that a row reads stay in the first caches. Measured on rows of 10 to 50,000 terms.
TERMS_PER_ROW = 1024, 512
#: For one sample a term list is also quickest where rows of B have at most this many entries on average:
#: the loop of the row-wise kernel costs as much as so short a row.
SHORT_ROW = 16
#: Blocks pay from so many multiply-adds per pair of blocks.
LEAST_BLOCK = 4
#: Blocks pay from so many multiply-adds per value that a call has to bring into the order of blocks.
TERMS_PER_GATHERED = 2
#: Random keys per column; the relative error of a row's estimate is one over their root. Sums over rows are
#: closer.
SAMPLES = 8
#: An estimate replaces a bound if it is below this share of the bound: closer ones differ by chance.
SHARE = 0.8

Run = tuple[int, int]


@dataclass(frozen=True)
class Multiplication:
    """One product of two operands: factors have the numbers 0, 1, …, results the ones after, in order.

    Attributes
    ----------
    left, right : int
        The operands' numbers; ~k is the transpose of factor k.
    many : Product
        The planned product for several samples.
    single : Product
        The same for one sample.
    block : tuple of 3 int
        Rows, inner size and columns of the blocks that patterns and maps are of; (1, 1, 1): elements.
    """

    left: int
    right: int
    many: Product
    single: Product
    block: tuple[int, int, int] = (1, 1, 1)

    @property
    def is_blocked(self) -> bool:
        """Whether patterns are of blocks."""
        return self.block != (1, 1, 1)

    @property
    def multiply_adds(self) -> int:
        """Multiplications of two numbers, for one sample."""
        return self.single.multiply_adds * math.prod(self.block)

    @classmethod
    def plan(cls, left: int, right: int, product: Product, reordered: bool = False) -> Multiplication:
        """The multiplication by the kinds that are quickest.

        A term list writes an entry at once, and its reads have no order; row by row, a factor's rows are read
        in their order. The kinds that lean on a structure take samples as lanes, which one leaves empty.

        Parameters
        ----------
        reordered : bool, default: False
            An operand or the result has its values in another order: a term list holds the order.
        """
        if product.kind in ("terms", "masked") or (product.kind == "dense" and not reordered):
            return cls(left, right, product, product)
        terms = product.multiply_adds
        short = terms <= SHORT_ROW * product.a.nnz
        single, many = (
            terms <= max(most * product.pattern.shape[0], product.pattern.nnz) for most in TERMS_PER_ROW
        )
        if terms > MAXIMAL_TERMS or not (single or short):
            return cls(left, right, product, replace(product, kind="row_wise", maps={}))
        listed = as_terms(product)
        by_terms = (many and product.kind == "row_wise") or reordered
        return cls(left, right, listed if by_terms else product, listed)


def as_terms(product: Product) -> Product:
    """The same product by a term list."""
    if product.maps:
        return product
    return replace(product, kind="terms", maps=term_list(product.a, product.b, product.pattern))


def plan_multiplications(
    factors: Sequence[Factor], mask: Pattern | None = None, reordered: bool = False
) -> tuple[Multiplication, ...]:
    """The products of two that make the product of two or more factors, the last one all of it.

    Three factors or more are multiplied in the order of about the fewest multiply-adds (`choose_cuts`).

    Raises ShapeError where sizes do not fit.

    Parameters
    ----------
    mask : Pattern or None, default: None
        The entries of the product that are wanted; None for all.
    reordered : bool, default: False
        The product's values are in another order than the pattern's.
    """
    patterns = [factor.pattern for factor in factors]
    for number, (left, right) in enumerate(pairwise(patterns), 1):
        if left.shape[1] != right.shape[0]:
            raise ShapeError(
                f"factor {number} has shape {left.shape} and factor {number + 1} has shape {right.shape}: "
                "pass factors with as many columns as the next factor has rows"
            )
    axes = _axes(factors, mask)
    made = _plan_blocks(factors, axes, mask, reordered)
    if max(axes) > 1 and max(product.single.multiply_adds for product in made) > MAXIMAL_TERMS:
        made = _plan_blocks(factors, [1] * len(axes), mask, reordered)
    return made


def plan_gram_multiplications(
    factors: Sequence[Factor], triangle: str
) -> tuple[tuple[Multiplication, ...], Pattern | None]:
    """The products of two that make AᵀA of the factor A, or AᵀDA of A and D; and the pattern of a triangle.

    A diagonal D scales the elements of A, which Aᵀ·(DA) reads as blocks. Raises ShapeError.
    """
    a, *weights = factors
    size = a.pattern.shape[0]
    sizes = [*(a.block or block_sizes(a.pattern))]
    for d in weights:
        if d.pattern.shape != (size, size):
            raise ShapeError(
                f"plan_gram got weights of shape {d.pattern.shape} for A of shape {a.pattern.shape}: pass "
                f"weights of shape {(size, size)}"
            )
        if not d.pattern.is_diagonal:
            sizes[0] = math.gcd(sizes[0], *(d.block or block_sizes(d.pattern)))
    rows, columns = (divisor(number) for number in sizes)
    terms = int((a.pattern.row_lengths.astype(np.int64) ** 2).sum())
    gathered = a.pattern.nnz * (a.placement(rows, columns)[1] is not None)
    pays = rows * columns**2 >= LEAST_BLOCK and terms >= max(1, TERMS_PER_GATHERED * gathered)
    if not pays or terms > MAXIMAL_TERMS * rows * columns**2:
        rows = columns = 1
    made, right = [], 0
    b = coarse = coarsen(a.pattern, rows, columns)
    for d in weights:
        right = 2
        if d.pattern.is_diagonal or rows == columns == 1:
            made = [Multiplication.plan(1, 0, multiply(d.pattern, a.pattern), reordered=True)]
            b = coarsen(made[0].single.pattern, rows, columns)
        else:
            first = as_terms(multiply(coarsen(d.pattern, rows, rows), coarse))
            made, b = [Multiplication(1, 0, first, first, (rows, rows, columns))], first.pattern
    transposed, mask = transpose(coarse)[0], None
    product = multiply(transposed, b)
    if triangle != "both":
        mask = triangle_of(refine(product.pattern, columns, columns), triangle)
        product = multiply_masked(transposed, b, triangle_of(product.pattern, triangle))
    if rows * columns > 1:
        product = as_terms(product)
        return (*made, Multiplication(~0, right, product, product, (columns, rows, columns))), mask
    return (*made, Multiplication.plan(~0, right, product, reordered=True)), mask


def _plan_blocks(
    factors: Sequence[Factor], axes: Sequence[int], mask: Pattern | None, reordered: bool
) -> tuple[Multiplication, ...]:
    """The products of blocks, whose sizes along the axes of the chain are `axes`."""
    n = len(factors)
    patterns = [coarsen(f.pattern, *axes[k : k + 2]) for k, f in enumerate(factors)]
    cuts = choose_cuts(patterns, axes)
    made: list[Multiplication] = []

    def operand(begin: int, end: int) -> int:
        """The number of a run of factors, its products made first."""
        if end == begin + 1:
            return begin
        cut = cuts[begin, end]
        left, right = operand(begin, cut), operand(cut, end)
        a, b = patterns[left], patterns[right]
        last = end - begin == n
        if last and mask is not None:
            product = multiply_masked(a, b, cover(mask, axes[0], axes[-1]))
        else:
            product = multiply(a, b)
        block = axes[begin], axes[cut], axes[end]
        if max(axes) > 1:
            product = as_terms(product) if product.multiply_adds <= MAXIMAL_TERMS else product
            made.append(Multiplication(left, right, product, product, block))
        else:
            orders = any(k < n and factors[k].order is not None for k in (left, right))
            made.append(Multiplication.plan(left, right, product, orders or (last and reordered)))
        patterns.append(product.pattern)
        return len(patterns) - 1

    operand(0, n)
    return tuple(made)


def _axes(factors: Sequence[Factor], mask: Pattern | None) -> list[int]:
    """The sizes of blocks along the axes of a chain; ones where blocks do not pay."""
    ones = [1] * (len(factors) + 1)
    sizes = []
    for factor in factors:
        p = factor.pattern
        if factor.block is None and (p.is_diagonal or p.is_selection or p.is_dense or has_full_rows(p)):
            return ones
        sizes.append(factor.block or block_sizes(p))
    ends = (0, 0) if mask is None else block_sizes(mask)
    befores, afters = [ends[0], *(s[1] for s in sizes)], [*(s[0] for s in sizes), ends[1]]
    axes = [divisor(math.gcd(*both)) for both in zip(befores, afters, strict=True)]
    if any(
        rows * inner * columns < LEAST_BLOCK
        for rows, inner, columns in zip(axes[:-2], axes[1:-1], axes[2:], strict=True)
    ):
        return ones
    gathered = [
        0 if f.placement(*axes[k : k + 2])[1] is None else f.pattern.nnz for k, f in enumerate(factors)
    ]
    for (left, right), values in zip(pairwise(factors), pairwise(gathered), strict=True):
        terms = int(entry_terms(left.pattern, right.pattern).sum())
        if terms < max(1, TERMS_PER_GATHERED * sum(values)):
            return ones
    return axes


# ---- the order in which a chain is multiplied, chosen before any product is made ----

# The multiply-adds of a product L·R are the entries in column j of L times those in row j of R, summed over
# j. Bounds on these entries follow from the factors. Where a bound counts many entries more than once, an
# estimate replaces it (Cohen, "Structure prediction and sparse matrix multiplication", J. Comb. Optim. 2,
# 1998). Time grows with the entries of all factors times their number.


def choose_cuts(factors: Sequence[Pattern], axes: Sequence[int]) -> dict[Run, int]:
    """For each run (begin, end) of two factors or more, where its last product cuts it.

    Parameters
    ----------
    axes : sequence of int
        Sizes of the blocks that the patterns are of, along the axes of the chain.
    """
    n = len(factors)
    if n == 2:
        return {(0, 2): 1}
    transposed = [Pattern.from_scipy(scipy.sparse.csr_array(f.to_scipy().T)) for f in reversed(factors)]
    rows, columns = _row_lengths(factors), _row_lengths(transposed)
    work = {(begin, begin + 1): 0.0 for begin in range(n)}
    cuts: dict[Run, int] = {}
    for length in range(2, n + 1):
        for begin in range(n + 1 - length):
            end = begin + length
            costs = {
                cut: work[begin, cut]
                + work[cut, end]
                + float(columns[n - cut, n - begin] @ rows[cut, end]) * axes[begin] * axes[cut] * axes[end]
                for cut in range(begin + 1, end)
            }
            cuts[begin, end] = min(costs, key=costs.__getitem__)
            work[begin, end] = costs[cuts[begin, end]]
    return cuts


def _row_lengths(factors: Sequence[Pattern]) -> dict[Run, np.ndarray]:
    """About how many entries each row of a run's product has, (rows,) float64.

    Only runs that another factor precedes: no other ones are right operands.
    """
    lengths: dict[Run, np.ndarray] = {}
    for end in range(2, len(factors) + 1):
        columns = factors[end - 1].shape[1]
        keys = np.random.default_rng(0).exponential(size=(columns, SAMPLES)).astype(np.float32)
        bound = np.ones(columns, np.int64)
        for begin in range(end - 1, 0, -1):
            factor = factors[begin]
            bound = np.minimum(row_sums(factor, bound[factor.indices]), columns)
            least = np.empty((factor.shape[0], SAMPLES), np.float32)
            least_keys(factor.indptr, factor.indices, keys, least)
            keys = least
            # The least of m exponential variables has the rate m.
            estimate = (SAMPLES - 1) / keys.sum(1)
            likely = begin < end - 1 and estimate.sum() < SHARE * bound.sum()
            lengths[begin, end] = np.minimum(bound, estimate if likely else columns).astype(np.float64)
    return lengths
