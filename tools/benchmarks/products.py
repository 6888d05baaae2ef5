"""Planned products against SciPy, cupyx and MKL: of solvers' matrices, and of a pruned network's up-sweep."""

from __future__ import annotations

import argparse
import ctypes
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from scipy.sparse import csr_array

from bppsa_cupy.devices import get_device
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.plan.product import multiply
from bppsa_cupy.plan.schedule import hybrid
from bppsa_cupy.products import plan_gram, plan_product
from bppsa_cupy.scan.launches import IndexMaps, Matrix, bind_product
from bppsa_cupy.tools.benchmarks.harness import OVERALL, BenchmarkError, Case, Rival, Step
from bppsa_cupy.tools.benchmarks.train import make_network

#: What the rivals of --against are called in rows.
NAMES = {"scipy": "SciPy A @ B", "cupyx": "cupyx A @ B", "mkl": "MKL, pattern stored"}
#: Rows and columns of an aggregate of grid points.
AGGREGATE = 3
#: Levels of an up-sweep that are measured.
LEVELS = 2


# ---- bppsa-bench product ----


def product_cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """Products that solvers and graph networks compute again and again, one sample in float64."""
    side = 12 if arguments.quick else arguments.side
    problems = [(name, formula) for name, (_, formulas) in PROBLEMS.items() for formula in formulas]
    for name, formula in problems[:: 9 if arguments.quick else 1]:
        step = partial(product_step, name, formula, side, arguments.device)
        threads = {"MKL_THREADING_LAYER": "GNU"}
        rivals = {
            text: Rival(partial(step, key), both=False, variables=threads)
            for key, text in NAMES.items()
            if key in arguments.against
        }
        case = name if name.startswith("chain") else f"{name} {formula}"
        yield Case(case, step, rivals, tolerance=1e-12, quantities={OVERALL: "product"})


def product_step(name: str, formula: str, side: int, device: str, rival: str | None = None) -> Step:
    """A planned product, or a rival's products in the same order."""
    where, (product, factors) = get_device(device), plan_named(name, formula, side)
    if rival is not None:
        return (mkl_step if rival == "mkl" else scipy_step)(product, factors, where)
    values = [where.asarray(factor.data.reshape(-1)) for factor in factors]
    out = where.zeros(product.pattern.nnz, "float64")
    kinds = ", ".join(f"{m.single.kind}{m.block if m.is_blocked else ''}" for m in product.multiplications)
    return Step(
        {OVERALL: product.bind(*values, out=out)},
        lambda: {OVERALL: times_vector(product.to_scipy(out))},
        where,
        note=lambda: f"{kinds}: {product.pattern.nnz:,} entries, {product.multiply_adds:,} multiply-adds",
    )


def scipy_step(product: Any, factors: Sequence[Any], device: Any) -> Step:
    """The products of a plan by SciPy's `@`."""
    operands = dict(enumerate(factors))

    def multiply_all() -> None:
        for k, m in enumerate(product.multiplications, len(factors)):
            left = operands[m.left] if m.left >= 0 else operands[~m.left].T
            operands[k] = left @ operands[m.right]

    return Step({OVERALL: multiply_all}, lambda: {OVERALL: times_vector(operands[max(operands)])}, device)


class Descriptor(ctypes.Structure):
    """A general matrix, as MKL is told."""

    _fields_ = [("type", ctypes.c_int), ("mode", ctypes.c_int), ("diagonal", ctypes.c_int)]


def mkl_step(product: Any, factors: Sequence[Any], device: Any) -> Step:
    """The products of a plan by mkl_sparse_sp2m, which keeps their patterns: a run computes values alone.

    Factors are BSR where all have the same square blocks; BSR is transposed before, CSR in each run.
    """
    files = sorted((Path(sys.prefix) / "lib").glob("libmkl_rt.so*"))
    if not files:
        raise BenchmarkError("--against mkl needs MKL: pip install mkl, or use --against scipy")
    mkl, general, unit = ctypes.CDLL(str(files[0])), Descriptor(20, 0, 0), ctypes.c_double(1)
    sizes = {getattr(factor, "blocksize", (0, 1)) for factor in factors}
    block = min(sizes)[0] if len(sizes) == 1 and len(set(*sizes)) == 1 else 0
    arrays = list[np.ndarray]()  # which MKL reads

    def call(name: str, *arguments: Any) -> None:
        status = getattr(mkl, f"mkl_sparse_{name}")(*arguments)
        if status:
            raise BenchmarkError(f"mkl_sparse_{name} failed with status {status}")

    def pointer(array: np.ndarray) -> ctypes.c_void_p:
        arrays.append(array)
        return ctypes.c_void_p(array.ctypes.data)

    def create(matrix: Any) -> ctypes.c_void_p:
        matrix = matrix if block else csr_array(matrix)
        matrix.sort_indices()
        indptr, indices = (array.astype(np.int32) for array in (matrix.indptr, matrix.indices))
        shape = (101, *(n // block for n in matrix.shape), block) if block else matrix.shape  # 101: by rows
        made, lists = ctypes.c_void_p(), map(pointer, (indptr, indptr[1:], indices, matrix.data))
        call(f"d_create_{'bsr' if block else 'csr'}", ctypes.byref(made), 0, *shape, *lists)
        return made

    results = dict(enumerate(product.multiplications, len(factors)))
    turned = {k for k, factor in enumerate(factors) if factor.format == "csc"}
    operands = {k: create(f.T if k in turned else f) for k, f in enumerate(factors)}
    operands |= {k: ctypes.c_void_p() for k in results}
    for m in product.multiplications:
        if m.left < 0:
            operands[m.left] = create(factors[~m.left].T) if block else operands[~m.left]
            turned |= set() if block else {m.left}

    def multiply_all(request: int) -> None:
        for k, m in results.items():
            pair = [(11 if k in turned else 10, general, operands[k]) for k in (m.left, m.right)]
            call("sp2m", *pair[0], *pair[1], request, ctypes.byref(operands[k]))

    def result() -> dict[str, np.ndarray]:
        x, y = np.linspace(1, 2, product.pattern.shape[1]), np.zeros(product.pattern.shape[0])
        call("d_mv", 10, unit, operands[max(results)], general, pointer(x), unit, pointer(y))
        return {OVERALL: y}

    multiply_all(90)  # SPARSE_STAGE_FULL_MULT
    return Step({OVERALL: partial(multiply_all, 92)}, result, device)  # SPARSE_STAGE_FINALIZE_MULT


# ---- matrices by name, for a grid of `side` points a side or of a size like it ----


def ones_at(rows: Any, columns: Any, shape: tuple[int, int]) -> csr_array:
    """A matrix with ones at these places."""
    result = csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)
    result.sum_duplicates()
    return result


def as_blocks(pattern: Any, rows: int, columns: int) -> Any:
    """A BSR matrix with a dense block for each entry."""
    pattern = csr_array(pattern)
    pattern.sort_indices()
    arrays = np.ones((pattern.nnz, rows, columns)), pattern.indices, pattern.indptr
    return scipy.sparse.bsr_array(arrays, shape=(pattern.shape[0] * rows, pattern.shape[1] * columns))


diagonal = partial(scipy.sparse.eye_array, format="csr")


def multigrid(axes: int, side: int) -> dict[str, Any]:
    """The Laplacian A of nearest neighbours on a grid along two or three axes, and the prolongation P of
    smoothed aggregation (Vaněk, Mandel and Brezina 1996)."""
    side = side if axes == 2 else max(6, side // 5)
    line = scipy.sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(side, side))
    terms = [[line if k == axis else diagonal(side) for k in range(axes)] for axis in range(axes)]
    a = csr_array(sum(reduce(scipy.sparse.kron, parts) for parts in terms))
    places = np.indices((side,) * axes).reshape(axes, -1) // AGGREGATE
    across = (-(-side // AGGREGATE),) * axes
    columns = np.ravel_multi_index(tuple(places), across)
    p = a @ ones_at(np.arange(columns.size), columns, (columns.size, int(np.prod(across))))
    p.sort_indices()
    return {"A": a, "P": p}


def finite_elements(side: int) -> dict[str, Any]:
    """Linear triangles on a square: gradients G, stiffness K, diagonals D and M; and A and P of two unknowns
    per node, in BSR."""
    corner = (np.arange(side - 1)[:, None] * side + np.arange(side - 1)).reshape(-1, 1)
    lower, upper = np.array([[0, 1, side], [1, side, side + 1]])
    nodes = np.concatenate([corner + lower, corner + upper])
    g = ones_at(np.arange(nodes.size) // 3, nodes.ravel(), (len(nodes), side**2))
    k, p = g.T @ g, multigrid(2, side)["P"]
    k.sort_indices()
    g = csr_array(as_blocks(g, 2, 1))
    blocks = {"A": as_blocks(k, 2, 2), "P": as_blocks(p, 2, 2)}
    return {"G": g, "D": diagonal(g.shape[0]), "K": csr_array(k), "M": diagonal(side**2), **blocks}


def bundle_adjustment(observations: int, side: int) -> dict[str, Any]:
    """J of so many observations at 129 points a side, 100 cameras of 9 values, points of 3; and W and V of
    the Schur complement, in BSR."""
    count, cameras, rng = observations * side**2 // 129**2 + 1, 100, np.random.default_rng(0)
    points = max(1, count // 6)
    point, camera = np.divmod(np.unique(rng.integers(0, cameras * points, count)), cameras)
    seen = [9 * camera[:, None] + np.arange(9), 9 * cameras + 3 * point[:, None] + np.arange(3)]
    columns = np.repeat(np.concatenate(seen, 1), 2, 0)
    shape = len(columns), 9 * cameras + 3 * points
    return {
        "J": ones_at(np.arange(columns.size) // 12, columns.ravel(), shape),
        "W": as_blocks(ones_at(camera, point, (cameras, points)), 9, 3),
        "V": as_blocks(diagonal(points), 3, 3),
    }


def pose_graph(size: int, side: int) -> dict[str, Any]:
    """J of consecutive poses and as many loop closures, and Ω of their information, in blocks of `size`."""
    poses, rng = side**2 // 8 + 2, np.random.default_rng(0)
    edges = np.concatenate([np.arange(poses - 1)[:, None] + [0, 1], rng.integers(0, poses, (poses, 2))])
    edges = edges[edges[:, 0] != edges[:, 1]]
    pattern = ones_at(np.arange(edges.size) // 2, edges.ravel(), (len(edges), poses))
    return {"J": as_blocks(pattern, size, size), "Ω": as_blocks(diagonal(len(edges)), size, size)}


def random_rows(share: float, degree: int, skew: float, side: int) -> dict[str, Any]:
    """A of about `degree` entries per row, in few columns if `skew` is above 1, and a diagonal D."""
    rows, rng = int(share * side**2) + 10, np.random.default_rng(0)
    columns = (rows * rng.random(rows * degree) ** skew).astype(int)
    return {"A": ones_at(np.arange(columns.size) // degree, columns, (rows, rows)), "D": diagonal(rows)}


def linear_program(near: int, degree: int, side: int) -> dict[str, Any]:
    """B of `degree` entries per variable, among `near` constraints or among all if 0, and a diagonal D."""
    rows, rng = side**2 // 4 + 40, np.random.default_rng(0)
    first = rng.integers(0, rows, (3 * rows, 1))
    columns = (first + rng.integers(0, near or rows, (3 * rows, degree))) % rows
    b = ones_at(np.arange(columns.size) // degree, columns.ravel(), (3 * rows, rows))
    return {"B": b, "D": diagonal(3 * rows)}


#: Matrices by name, and 24 products of them, of the kinds of pyamg, scikit-fem, BAL, g2o, graph networks and
#: interior-point methods. Without dots AᵀA and AᵀDA are those of `plan_gram`; Aᵀ of CSR is CSC.
PROBLEMS: dict[str, tuple[Callable[[int], dict[str, Any]], tuple[str, ...]]] = {
    "multigrid 2-D": (partial(multigrid, 2), ("A·A", "A·P", "Pᵀ·A·P")),
    "multigrid 3-D": (partial(multigrid, 3), ("A·A", "A·P", "Pᵀ·A·P")),
    "finite elements": (finite_elements, ("GᵀDG", "K·M·K", "A·A", "Pᵀ·A·P")),
    "bundle adjustment 30k": (partial(bundle_adjustment, 30_000), ("JᵀJ", "Jᵀ·J", "W·V·Wᵀ")),
    "bundle adjustment 250k": (partial(bundle_adjustment, 250_000), ("JᵀJ",)),
    "pose graph 3-D": (partial(pose_graph, 6), ("Jᵀ·J", "JᵀΩJ")),
    "pose graph 2-D": (partial(pose_graph, 3), ("JᵀΩJ",)),
    "uniform graph": (partial(random_rows, 1 / 4, 10, 1.0), ("A·A", "D·A·D")),
    "skewed graph": (partial(random_rows, 1 / 4, 10, 1.5), ("A·A",)),
    "chain of 20": (partial(random_rows, 1 / 32, 2, 1.0), ("·".join("A" * 20),)),
    "network flow": (partial(linear_program, 0, 2), ("BᵀDB",)),
    "staircase program": (partial(linear_program, 40, 6), ("BᵀDB",)),
    "random program": (partial(linear_program, 0, 4), ("BᵀDB",)),
}


def plan_named(name: str, formula: str, side: int) -> tuple[Any, list[Any]]:
    """A planned product and its factors, with random values."""
    matrices, rng = PROBLEMS[name][0](side), np.random.default_rng(1)
    plan: Any = plan_product if "·" in formula else plan_gram
    names = formula.split("·") if "·" in formula else [formula[0], *formula[2:-1]]
    factors = [matrices[n[0]].T if n.endswith("ᵀ") else matrices[n].copy() for n in names]
    for factor in factors:
        factor.data = rng.standard_normal(factor.data.shape)
    return plan(*factors), factors


# ---- bppsa-bench spgemm ----


def spgemm_cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """Every live product of the first two levels of an up-sweep, and their sum. The rival multiplies operands
    with the planned pattern, and operands without the zeros of these samples, which no plan can know."""
    model, share = ("lenet5", 0.5) if arguments.quick else (arguments.model, arguments.prune)
    batch = 2 if arguments.quick else arguments.batch_size
    samples = sorted({int(k) for k in np.linspace(0, batch - 1, min(arguments.rival_samples, batch))})
    for level in range(LEVELS):
        options = {
            "model": model, "share": share, "device": arguments.device, "batch": batch, "level": level,
            "samples": samples,
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
                partial(level_step, **options), rivals, tolerance=1e-5,
                quantities={OVERALL: "product"}, note=f"per sample, B={batch}",
            )  # fmt: skip


def multiply_pairs(pairs: dict[str, list[tuple[Any, Any]]], device: Any) -> Step:
    """The rival's A @ B of each pair, a part per product. The results are C·x."""
    products: dict[str, list[Any]] = {}

    def multiply_all(name: str) -> None:
        products[name] = [a @ b for a, b in pairs[name]]

    def result() -> dict[str, np.ndarray]:
        host = {name: [getattr(c, "get", lambda c=c: c)() for c in outs] for name, outs in products.items()}
        return {name: np.stack([times_vector(c) for c in outs]) for name, outs in host.items()}

    parts = {name: partial(multiply_all, name) for name in pairs}
    return Step(parts, result, device, reset=products.clear, per=len(next(iter(pairs.values()))))


def times_vector(matrix: Any) -> np.ndarray:
    """C·x for a vector x, by which results are compared."""
    return matrix @ np.linspace(1, 2, matrix.shape[1])


class UpSweep:
    """The live products of the first levels of a network's up-sweep, by pattern, in order of their levels."""

    def __init__(self, network: Sequential, levels: int) -> None:
        chains = network.architecture.chains()
        if len(chains) != 1:
            raise BenchmarkError(
                f"the network has {len(chains)} chains, but the benchmark needs one: pass another --model"
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
    network, where = make_network(model, share, {"device": device, "seed": 0}), get_device(device)
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

    def matrix(segment: tuple[int, int], sample: int) -> csr_array:
        values = matrices[segment].values
        column = values if values.ndim == 1 else values[:, sample].copy()
        return sweep.patterns[segment].to_scipy(np.array(where.to_host(column)))

    if rival is None:

        def result() -> dict[str, np.ndarray]:
            return {
                sweep.label(step): np.stack([times_vector(matrix(step.out, sample)) for sample in samples])
                for step in steps
            }

        return Step(launches, result, where, per=batch)
    to_rival = csr_array if rival == "scipy" else import_module("cupyx.scipy.sparse").csr_matrix
    pairs = dict[str, list[Any]]()
    for step in steps:
        for sample in samples:
            pair = [matrix(side, sample) for side in (step.right, step.left)]
            for operand in pair if without_zeros else ():
                operand.eliminate_zeros()
            pairs.setdefault(sweep.label(step), []).append(list(map(to_rival, pair)))
    return multiply_pairs(pairs, where)


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
