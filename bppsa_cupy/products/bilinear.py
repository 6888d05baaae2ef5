"""Products as bilinear maps of arrays of values: their derivatives are maps of the same kind.

A product is what a sum of terms a_i b_j c_k, with fixed (i, j, k), gives for one of its three operands from
the other two: the gradient of the sum. C = A·B is that for c, the gradients with respect to A and B are those
for a and b. So a form that is evaluated for each operand is differentiable as often as wanted.
`bppsa_cupy.torch.products` and `bppsa_cupy.jax.products` make such forms operators of their libraries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.errors import ArgumentError, ShapeError
from bppsa_cupy.products.blocks import inverse, transpose
from bppsa_cupy.products.factors import Factor, factor_of
from bppsa_cupy.products.multiplications import plan_multiplications
from bppsa_cupy.products.planned_product import factors_of, plan_gradients, plan_product
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.scan.launches import IndexMaps, Matrix, bind_spmv, kernel_and_arguments

#: The two operands that an operand follows from.
OTHERS = (1, 2), (0, 2), (0, 1)


class Form:
    """A sum of terms of three operands, 0 and 1 the factors and 2 the result.

    Attributes
    ----------
    names : tuple of 3 str
        Names of the operands, in errors.
    sizes : tuple of 3 int
        Sizes of the first axis of each, after those of the batch.
    axes : tuple of 3 int
        Axes of each, after those of the batch: the second one has any size, the same for all that have it.
    """

    names: tuple[str, str, str]
    sizes: tuple[int, int, int]
    axes: tuple[int, int, int]

    def evaluate(self, device: Device, wanted: int, u: Array, v: Array) -> Array:
        """Operand `wanted` from the other two, in order: each with or without one axis for the batch."""
        raise NotImplementedError

    def result_shape(self, wanted: int, *shapes: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of an operand from those of the other two, all without a batch. Raises ShapeError."""
        widths = [shape[1] for shape in shapes if len(shape) == 2]
        for k, shape in zip(OTHERS[wanted], shapes, strict=True):
            if shape[:1] != (self.sizes[k],) or shape[1:] not in ((), tuple(widths[:1])):
                raise ShapeError(
                    f"{self.names[k]} has shape (…, {', '.join(map(str, shape))}): pass "
                    f"(…, {', '.join(map(str, (self.sizes[k], *widths[:1])[: self.axes[k]]))})"
                )
        return (self.sizes[wanted], *widths[:1])[: self.axes[wanted]]


class PairForm(Form):
    """C = A·B with fixed patterns: one list of terms, in the order of C, of A and of B.

    Where the plan multiplies row by row, the host computes gradients row by row, too, without a list.
    """

    axes = 1, 1, 1
    names = "the first factor", "the second factor", "the gradient of the product"

    def __init__(self, a: Any, b: Any, mask: Any, out_format: str | None) -> None:
        self.plan = plan_product(a, b, mask=mask, out_format=out_format)
        first, second = self.plan.factors
        self.sizes = first.nnz, second.nnz, self.plan.pattern.nnz

    @cached_property
    def _factors(self) -> list[Factor]:
        return factors_of(self.plan)

    @cached_property
    def _gradients(self) -> Any:
        return plan_gradients(*self._factors)

    def evaluate(self, device: Device, wanted: int, u: Array, v: Array) -> Array:
        arrays = [device.xp.ascontiguousarray(x.T) for x in (u, v)]  # samples innermost
        (m,) = self.plan.multiplications
        product = m.many if 2 in (u.ndim, v.ndim) else m.single
        if wanted == 2 or product.kind != "row_wise" or device.name != "host":
            return (self.plan if wanted == 2 else self._gradients[wanted])(*arrays).T
        orders, flags = [factor.order for factor in self._factors], [x.ndim == 2 for x in arrays]
        batch = next((x.shape[1:] for x in arrays if x.ndim == 2), ())
        out = device.empty((self.sizes[wanted], *batch), u.dtype)
        pairs = zip(OTHERS[wanted], arrays, strict=True)
        values = [x if orders[k] is None else x[orders[k]] for k, x in pairs]
        values.insert(wanted, out)
        a, b, c = values
        maps, pair = self.plan.index_maps(device), (Matrix(product.a, a), Matrix(product.b, b))
        _, *arguments = kernel_and_arguments(maps, product, *pair, c, *batch or (1,))
        kernel = KERNELS["product_row_sums" if wanted else "product_row_dots"]
        device.bind(kernel, *arguments[:-2], *flags)()
        order = orders[wanted]
        return (out if order is None else out[inverse(order)]).T


class MatmulForm(Form):
    """Y = A·X with a fixed pattern of A and dense X (columns, k), Y (rows, k)."""

    axes = 1, 2, 2
    names = (
        "the sparse factor",
        "the dense operand with a row per column",
        "the dense operand with a row per row",
    )

    def __init__(self, matrix: Any) -> None:
        factor = factor_of("the matrix", matrix)
        self.pattern, order = factor.pattern, factor.order
        turned, entries = transpose(self.pattern)
        #: Of Y and X: the pattern that computes them, and the value of each of its entries.
        self._sides = {2: (self.pattern, order), 1: (turned, entries if order is None else order[entries])}
        places = np.stack([self.pattern.rows(), self.pattern.indices]).astype(self.pattern.indices.dtype)
        if order is not None:
            places[:, order] = places.copy()
        self._places = places[0].copy(), places[1].copy()
        rows, columns = self.pattern.shape
        self.sizes = self.pattern.nnz, columns, rows
        self._maps: dict[Device, IndexMaps] = {}

    def evaluate(self, device: Device, wanted: int, u: Array, v: Array) -> Array:
        maps = self._maps.setdefault(device, IndexMaps(device))
        pairs = list(zip((u, v), OTHERS[wanted], strict=True))
        batch = next((len(x) for x, k in pairs if x.ndim > self.axes[k]), None)
        shape = self.result_shape(wanted, *(x.shape[x.ndim - self.axes[k] :] for x, k in pairs))
        out = device.empty(((batch or 0,) if batch is not None else ()) + shape, u.dtype)
        if not out.size:
            return out
        for number in range(1 if batch is None else batch):
            first, second = (x if x.ndim == self.axes[k] else x[number] for x, k in pairs)
            result = out if batch is None else out[number]
            if wanted == 0:
                (nnz, columns, rows), places = self.sizes, maps.upload(*self._places)
                sizes = rows, columns, nnz, first.shape[1]
                device.bind(KERNELS["csr_sddmm"], *places, second, first, result, *sizes)()
            else:
                pattern, order = self._sides[wanted]
                values = first if order is None else first[maps.upload(order)[0]]
                bind_spmv(device, maps, Matrix(pattern, values), second, None, result)()
        return out


@dataclass(frozen=True)
class Evaluator:
    """Evaluates forms of the arrays of a library, with any axes for the batch, which broadcast.

    Attributes
    ----------
    bind : callable
        The differentiable call of `Form.evaluate`, on the device of its arrays.
    broadcast_to, moveaxis : callable
        The functions of the library.
    """

    bind: Callable[[Form, int, Any, Any], Any]
    broadcast_to: Callable[..., Any]
    moveaxis: Callable[..., Any]

    def __call__(self, form: Form, wanted: int, u: Any, v: Any) -> Any:
        """Operand `wanted` from the other two. Shared values are not repeated."""
        heads, tails = [], []
        for x, k in zip((u, v), OTHERS[wanted], strict=True):
            cut = max(0, x.ndim - form.axes[k])
            heads.append(tuple(x.shape[:cut]))
            tails.append(tuple(x.shape[cut:]))
        shape = form.result_shape(wanted, *tails)
        try:
            batch = np.broadcast_shapes(*heads)
        except ValueError:
            raise ShapeError(
                f"a product got batch axes {heads[0]} and {heads[1]}: pass batch axes that broadcast"
            ) from None
        operands = []
        for x, head, tail in zip((u, v), heads, tails, strict=True):
            if math.prod(head) == 1:
                operands.append(x.reshape(tail))
            else:
                operands.append(self.broadcast_to(x, (*batch, *tail)).reshape(math.prod(batch), *tail))
        return self.bind(form, wanted, *operands).reshape(*batch, *shape)

    def evaluate_mapped(self, form: Form, wanted: int, operands: Any, dims: Any) -> tuple[Any, int]:
        """The rule for vmap: all entries along `dims` are one batch, the first axis of the result."""
        pairs = list(zip(operands, dims, strict=True))
        moved = [x if dim is None else self.moveaxis(x, dim, 0) for x, dim in pairs]
        count = [
            x.ndim - form.axes[k] - (d is not None) for (x, d), k in zip(pairs, OTHERS[wanted], strict=True)
        ]
        aligned = [
            x.reshape(x.shape[0], 1, *x.shape[1:]) if dim is not None and operand_count < max(count) else x
            for x, dim, operand_count in zip(moved, dims, count, strict=True)
        ]
        return self(form, wanted, *aligned), 0

    def evaluate_gradient(
        self, form: Form, wanted: int, number: int, ndim: int, mate: Any, gradient: Any
    ) -> Any:
        """Return the gradient with respect to one of two operands with `ndim` axes.

        The gradient of a shared operand is summed over the batch.

        Parameters
        ----------
        number : int
            The number of the operand, 0 or 1; `mate` is the other operand.
        """
        by = OTHERS[wanted][number]
        known = {OTHERS[wanted][1 - number]: mate, wanted: gradient}
        result = self(form, by, *(known[k] for k in OTHERS[by]))
        return result if result.ndim == ndim else result.sum(0)


class DifferentiableProduct:
    """A differentiable product of two or more sparse matrices with fixed patterns.

    It can be differentiated with respect to the values of all factors.

    `product(a, b)` takes the values (…, nnz) of each factor and returns the values of the product,
    (…, nnz of `plan.pattern`). Leading axes are batch axes and broadcast. Created by `plan_product` of
    `bppsa_cupy.torch` or `bppsa_cupy.jax`.

    Attributes
    ----------
    plan : PlannedProduct
        The plan of the last product of two factors, with `pattern`, `out_format` and `to_scipy`.
    """

    def __init__(
        self,
        evaluate: Callable[..., Any],
        factors: Sequence[Any],
        mask: Any = None,
        out_format: str | None = None,
    ) -> None:
        self._evaluate, self._count = evaluate, len(factors)
        pairs = [(0, 1)]
        if len(factors) != 2:
            converted = [factor_of(f"factor {number}", factor) for number, factor in enumerate(factors, 1)]
            if len(converted) < 2:
                raise ArgumentError(f"plan_product got {len(converted)} factors: pass two or more")
            wanted = None if mask is None else factor_of("mask", mask).pattern
            pairs = [(m.left, m.right) for m in plan_multiplications(converted, wanted)]
        operands, self._forms = [*factors], list[tuple[int, int, PairForm]]()
        for left, right in pairs:
            last = len(self._forms) == len(pairs) - 1
            options = (mask, out_format) if last else (None, "csr")
            form = PairForm(operands[left], operands[right], *options)
            self._forms.append((left, right, form))
            operands.append(form.plan.pattern)
        self.plan = self._forms[-1][2].plan

    def __call__(self, *values: Any) -> Any:
        """The product's values (…, nnz), in the order of the data of `plan.to_scipy`."""
        if len(values) != self._count:
            raise ArgumentError(
                f"a product of {self._count} factors got {len(values)} arrays of values: pass one per factor"
            )
        results = [*values]
        for left, right, form in self._forms:
            results.append(self._evaluate(form, 2, results[left], results[right]))
        return results[-1]


class SparseMatmul:
    """Differentiable products of a sparse matrix with dense matrices.

    They can be differentiated with respect to the values of all operands.

    `matmul(values, x)` multiplies the sparse and a dense matrix (SpMM). `matmul.sddmm(x, y)` multiplies two
    dense matrices at the positions of the pattern. Leading axes are batch axes and broadcast. Created by
    `plan_matmul` of `bppsa_cupy.torch` or `bppsa_cupy.jax`.

    Attributes
    ----------
    pattern : Pattern
        The pattern of the sparse matrix.
    """

    def __init__(self, evaluate: Callable[..., Any], matrix: Any) -> None:
        self._evaluate, self._form = evaluate, MatmulForm(matrix)
        self.pattern = self._form.pattern

    def __call__(self, values: Any, x: Any) -> Any:
        """A·X, (…, rows, k), of values (…, nnz) of A and X (…, columns, k)."""
        return self._evaluate(self._form, 2, values, x)

    def sddmm(self, x: Any, y: Any) -> Any:
        """The entries of X·Yᵀ at the pattern, (…, nnz), of X (…, rows, k) and Y (…, columns, k)."""
        return self._evaluate(self._form, 0, y, x)
