"""Planned products against SciPy's or cupyx's A @ B, one sample at a time: of solvers' matrices, and of a
pruned network's up-sweep."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse
from scipy.sparse import csr_array

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import get_device
from bppsa_cupy.devices.cuda import import_cupyx_sparse
from bppsa_cupy.models import build_model
from bppsa_cupy.network.prune import prune
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.plan.product import multiply
from bppsa_cupy.plan.schedule import hybrid
from bppsa_cupy.products import plan_product
from bppsa_cupy.scan.launches import IndexMaps, Matrix, bind_product
from bppsa_cupy.tools.benchmarks.harness import OVERALL, BenchmarkError, Case, Rival, Step

#: What the rivals of --against are called in rows.
NAMES = {"scipy": "SciPy A @ B", "cupyx": "cupyx A @ B"}
#: Relative to the norm of the rival's values.
TOLERANCE = {"float64": 1e-12, "float32": 1e-5}
#: The part of the free memory that a level's values may take: the rest is for the rival's process.
MEMORY_FRACTION = 0.6
#: Rows and columns of an aggregate of grid points.
AGGREGATE = 3
#: Levels of an up-sweep that are measured.
LEVELS = 2


def spread_samples(batch: int, count: int) -> list[int]:
    """At most `count` samples, spread over a batch."""
    return sorted({int(k) for k in np.linspace(0, batch - 1, min(count, batch))})


# ---- bppsa-bench product ----


def product_cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """Pairs of matrices that solvers multiply, by batch size."""
    side = arguments.side or (12 if arguments.quick else 129)
    for pair in [*PAIRS][: 1 if arguments.quick else None]:
        for batch in arguments.batch:
            options = {
                "pair": pair, "side": side, "dtype": arguments.dtype, "device": arguments.device,
                "batch": batch, "samples": spread_samples(batch, arguments.rival_samples),
            }  # fmt: skip
            rivals = {
                name: Rival(partial(product_step, **options, rival=key), both=False)
                for key, name in NAMES.items()
                if key in arguments.against
            }
            yield Case(
                f"{pair}, B={batch}", partial(product_step, **options), rivals,
                tolerance=TOLERANCE[arguments.dtype], quantities={OVERALL: "product"}, note="per sample",
            )  # fmt: skip


def product_step(
    pair: str,
    side: int,
    dtype: str,
    device: str,
    batch: int,
    samples: Sequence[int],
    rival: str | None = None,
) -> Step:
    """One call of a planned product for the whole batch, into the same `out`; or the rival's A @ B of the
    same values, one sample after another."""
    where, factors = get_device(device), PAIRS[pair](side)
    plan_product(*factors, device=where)  # the first compiles
    started = time.perf_counter()
    product = plan_product(*factors, device=where)
    planning = time.perf_counter() - started
    rng = np.random.default_rng(1)
    values = [rng.standard_normal((factor.nnz, batch)).astype(dtype) for factor in product.factors]
    if rival is not None:
        pairs = [
            tuple(
                csr_of_rival(rival, pattern.to_scipy(array[:, sample].copy()))
                for pattern, array in zip(product.factors, values, strict=True)
            )
            for sample in samples
        ]
        return multiply_pairs({OVERALL: pairs}, {OVERALL: product.pattern}, where)
    operands = [where.asarray(array) for array in values]
    out = where.zeros((product.pattern.nnz, batch), dtype)
    (made,) = product.multiplications
    kind = (made.single if batch == 1 else made.many).kind
    return Step(
        {OVERALL: lambda: product(*operands, out=out)},
        lambda: {OVERALL: where.to_host(out)[:, samples].T.copy()},
        where,
        per=batch,
        note=lambda: (
            f"{kind}, {product.pattern.nnz:,} entries, {product.multiply_adds:,} multiply-adds, planned in "
            f"{1e3 * planning:.3g} ms"
        ),
    )


def csr_of_rival(rival: str, matrix: csr_array) -> Any:
    """A matrix, as the rival holds it."""
    if rival == "scipy":
        return matrix
    return import_cupyx_sparse().csr_matrix(scipy.sparse.csr_matrix(matrix))


def multiply_pairs(
    pairs: dict[str, list[tuple[Any, ...]]], patterns: dict[str, Pattern], device: Any
) -> Step:
    """The rival's A @ B of each pair, a part per product; its values are those at the planned entries."""
    products: dict[str, list[Any]] = {}

    def multiply_all(name: str) -> None:
        products[name] = [a @ b for a, b in pairs[name]]

    def to_scipy(matrix: Any) -> csr_array:
        return matrix if isinstance(matrix, csr_array) else csr_array(matrix.get())

    def result() -> dict[str, np.ndarray]:
        return {
            name: np.stack([values_at(to_scipy(matrix), patterns[name]) for matrix in matrices])
            for name, matrices in products.items()
        }

    parts = {name: partial(multiply_all, name) for name in pairs}
    return Step(parts, result, device, reset=products.clear, per=len(next(iter(pairs.values()))))


def values_at(matrix: csr_array, pattern: Pattern) -> np.ndarray:
    """The values (nnz,) of a matrix at a pattern's entries. Raises BenchmarkError for an entry outside."""
    if matrix.shape != pattern.shape:
        raise BenchmarkError(f"the rival's product is {matrix.shape}, the planned one {pattern.shape}")
    columns = pattern.shape[1]
    planned = pattern.rows().astype(np.int64) * columns + pattern.indices
    # Of operands without zeros cupyx's products have entries twice, and zeros that are in no pattern.
    there = matrix.data != 0
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))[there]
    keys = rows * columns + matrix.indices[there]
    positions = np.searchsorted(planned, keys)
    positions[positions == planned.size] = 0
    if keys.size and not (planned.size and np.array_equal(planned[positions], keys)):
        raise BenchmarkError("the rival's product has an entry outside the planned pattern")
    values = np.zeros(pattern.nnz, matrix.dtype)
    np.add.at(values, positions, matrix.data[there])
    return values


# ---- pairs of matrices ----


def laplacian(side: int) -> csr_array:
    """The 5-point Laplacian on a square grid of `side` points a side."""
    ones = np.ones(side)
    line = scipy.sparse.dia_array(([-ones, 2 * ones, -ones], [-1, 0, 1]), shape=(side, side))
    unit = scipy.sparse.eye_array(side)
    return sorted_csr(scipy.sparse.kron(line, unit) + scipy.sparse.kron(unit, line))


def smoothed_prolongation(operator: csr_array, side: int) -> csr_array:
    """P = (I - 2/3 D⁻¹ A) T, where T has a column for each square of AGGREGATE by AGGREGATE grid points
    (smoothed aggregation: Vaněk, Mandel and Brezina 1996)."""
    rows, columns = np.divmod(np.arange(side * side), side)
    across = -(-side // AGGREGATE)
    places = rows // AGGREGATE * across + columns // AGGREGATE
    indptr = np.arange(side * side + 1)
    tentative = csr_array((np.ones(side * side), places, indptr), shape=(side * side, across * across))
    weights = scipy.sparse.diags_array(2 / 3 / operator.diagonal())
    return sorted_csr(tentative - weights @ (operator @ tentative))


def sorted_csr(matrix: scipy.sparse.sparray) -> csr_array:
    """In CSR with sorted rows."""
    result = csr_array(matrix)
    result.sum_duplicates()
    return result


def _squared_laplacian(side: int) -> tuple[csr_array, csr_array]:
    a = laplacian(side)
    return a, a


def _galerkin_right(side: int) -> tuple[csr_array, csr_array]:
    a = laplacian(side)
    return a, smoothed_prolongation(a, side)


def _galerkin_left(side: int) -> tuple[csr_array, csr_array]:
    a, p = _galerkin_right(side)
    return sorted_csr(p.T), sorted_csr(a @ p)


def _random(side: int) -> tuple[csr_array, csr_array]:
    rng, rows = np.random.default_rng(0), side * side // 4
    both = [scipy.sparse.random_array((rows, rows), density=min(1.0, 10 / rows), rng=rng) for _ in range(2)]
    return sorted_csr(both[0]), sorted_csr(both[1])


def _blocks(side: int) -> tuple[csr_array, csr_array]:
    rng, blocks = np.random.default_rng(0), max(1, side * side // 16)
    both = [
        scipy.sparse.random_array((blocks, blocks), density=min(1.0, 3 / blocks), rng=rng) for _ in range(2)
    ]
    return tuple(sorted_csr(scipy.sparse.kron(matrix, np.ones((4, 4)))) for matrix in both)


#: The two factors by name, for a grid of so many points a side; the others have sizes like it.
PAIRS: dict[str, Callable[[int], tuple[csr_array, csr_array]]] = {
    "5-point Laplacian squared": _squared_laplacian,
    "Galerkin A·P": _galerkin_right,
    "Galerkin R·(A·P)": _galerkin_left,
    "random, 10 entries a row": _random,
    "4 by 4 blocks, 3 a row": _blocks,
}


# ---- bppsa-bench spgemm ----


def spgemm_cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """Every live product of the first two levels of an up-sweep, and their sum. The rival multiplies operands
    with the planned pattern, and operands without the zeros of these samples, which no plan can know."""
    model, share = ("lenet5", 0.5) if arguments.quick else (arguments.model, arguments.prune)
    batch = 2 if arguments.quick else arguments.batch_size or (64 if arguments.device == "cuda" else 16)
    sweep = UpSweep(make_network(model, share, "host"), LEVELS)
    for level in range(LEVELS):
        limit = int(MEMORY_FRACTION * get_device(arguments.device).free_memory())
        fitting = sweep.fitting_batch(level, batch, limit)
        options = {
            "model": model, "share": share, "device": arguments.device, "batch": fitting, "level": level,
            "samples": spread_samples(fitting, arguments.rival_samples),
        }  # fmt: skip
        against = [(key, name) for key, name in NAMES.items() if key in arguments.against]
        for without_zeros in (False, True) if against else (False,):
            rivals = {
                name: Rival(
                    partial(level_step, **options, rival=key, without_zeros=without_zeros), both=False
                )
                for key, name in against
            }
            yield Case(
                f"level {level} sum{', zeros left out' if without_zeros else ''}",
                partial(level_step, **options), rivals, tolerance=TOLERANCE["float32"],
                quantities={OVERALL: "product"}, note=f"per sample, B={fitting}",
            )  # fmt: skip


def make_network(model: str, share: float, device: str) -> Sequential:
    """The model from seed 0, pruned by magnitude layer by layer."""
    network = build_model(model, device=device, seed=0)
    if share > 0:
        prune(network, share)
    return network


class UpSweep:
    """The live products of the first levels of a network's up-sweep, by pattern, in order of their levels."""

    def __init__(self, network: Sequential, levels: int) -> None:
        chains = network.architecture.chains()
        if len(chains) != 1:
            raise BenchmarkError(
                f"the network has {len(chains)} chains: the benchmark takes a network of one"
            )
        (self.chain,) = chains
        self.steps = [s for s in hybrid(len(self.chain), levels).steps if s.kind == "mm" and s.level < levels]
        self.patterns = {(k, k + 1): element.pattern for k, element in enumerate(self.chain.elements, 1)}
        self.products = {}
        for step in sorted(self.steps):
            product = multiply(self.patterns[step.right], self.patterns[step.left])
            self.products[step.out], self.patterns[step.out] = product, product.pattern

    def label(self, step: Any) -> str:
        """Level, layers and kind of a product."""
        names = [self.chain.elements[k - 1].name.split()[1] for k in reversed(range(step.begin, step.end))]
        cut = step.end - step.split
        last = self.chain.elements[step.end - 2].name.split()[0]
        factors = f"({'·'.join(names[:cut])})·({'·'.join(names[cut:])})"
        return f"level {step.level}: {factors} from layer {last}, {self.products[step.out].kind}"

    def shape_of_values(self, segment: tuple[int, int], batch: int) -> tuple[int, ...]:
        """Shape of the values of a matrix."""
        nnz = self.patterns[segment].nnz
        return (nnz,) if self.chain.shared(*segment) else (nnz, batch)

    def fitting_batch(self, level: int, batch: int, limit: int) -> int:
        """The largest batch, at most `batch`, whose values up to that level take at most `limit` bytes."""
        steps = [step for step in self.steps if step.level <= level]
        if not any(step.level == level for step in steps):
            raise BenchmarkError(f"the network has no live product in level {level} of the up-sweep")
        segments = {segment for step in steps for segment in (step.left, step.right, step.out)}
        for smaller in range(batch, 0, -1):
            if 4 * sum(int(np.prod(self.shape_of_values(segment, smaller))) for segment in segments) <= limit:
                return smaller
        raise BenchmarkError(f"level {level} of one sample takes more than the {limit} bytes there are")


def level_step(
    model: str,
    share: float,
    device: str,
    batch: int,
    level: int,
    samples: Sequence[int],
    rival: str | None = None,
    without_zeros: bool = False,
) -> Step:
    """Every product of a level for the whole batch by planned kernels, or the rival's A @ B; a part per
    product.

    Operands are the Jacobians that `fill` writes after a forward pass of random images; those of a level
    above 0 are the products before it.
    """
    network, where = make_network(model, share, device), get_device(device)
    sweep = UpSweep(network, level + 1)
    matrices = _filled(network, sweep, batch)
    maps, launches = IndexMaps(where), dict[str, Callable[[], object]]()
    steps = [step for step in sweep.steps if step.level == level]
    for step in sweep.steps:
        a, b, product = matrices[step.right], matrices[step.left], sweep.products[step.out]
        c = where.empty(sweep.shape_of_values(step.out, batch), network.dtype)
        matrices[step.out] = Matrix(product.pattern, c)
        launch = bind_product(where, maps, product, a, b, c, batch)
        if step.level < level:
            launch()
        else:
            launches[sweep.label(step)] = launch

    def values(segment: tuple[int, int], sample: int) -> np.ndarray:
        data = matrices[segment].values
        return np.array(where.to_host(data if data.ndim == 1 else data[:, sample].copy()))

    if rival is None:

        def result() -> dict[str, np.ndarray]:
            return {
                sweep.label(step): np.stack([values(step.out, sample) for sample in samples])
                for step in steps
            }

        return Step(launches, result, where, per=batch)
    pairs: dict[str, list[tuple[Any, ...]]] = {}
    for step in steps:
        pairs[sweep.label(step)] = []
        for sample in samples:
            pair = [sweep.patterns[key].to_scipy(values(key, sample)) for key in (step.right, step.left)]
            for matrix in pair if without_zeros else ():
                matrix.eliminate_zeros()
            pairs[sweep.label(step)].append(tuple(csr_of_rival(rival, matrix) for matrix in pair))
    return multiply_pairs(pairs, {sweep.label(step): sweep.patterns[step.out] for step in steps}, where)


def _filled(network: Sequential, sweep: UpSweep, batch: int) -> dict[tuple[int, int], Matrix]:
    """The Jacobians that the products read, after a forward pass."""
    images = np.random.default_rng(0).standard_normal((batch, *network.input_shape)).astype(network.dtype)
    network.forward(network.device.asarray(images))
    assert network.last_pass is not None
    matrices = {}
    read = {segment for step in sweep.steps for segment in (step.left, step.right)}
    for k, element in enumerate(sweep.chain.elements, 1):
        if (k, k + 1) in read:
            index = int(element.name.split()[0])
            state = network.last_pass.layers[index]
            values = network.device.empty(sweep.shape_of_values((k, k + 1), batch), network.dtype)
            network.architecture.jacobians[index].fill(network.device, state.parameters, state.saved, values)
            matrices[k, k + 1] = Matrix(element.pattern, values)
    return matrices
