"""The products of an up-sweep's levels, by planned kernels and by SciPy or cupyx."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device, get_device
from bppsa_cupy.devices.cuda import import_cupyx_sparse
from bppsa_cupy.models import build_model
from bppsa_cupy.network.prune import prune
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.plan import Product, Segment, Step
from bppsa_cupy.plan.algorithms import dead_products, hybrid
from bppsa_cupy.plan.product import multiply
from bppsa_cupy.scan.launches import Matrix, bind_product
from bppsa_cupy.scan.maps import IndexMaps
from bppsa_cupy.tools.benchmarks.harness import BenchmarkError
from bppsa_cupy.tools.benchmarks.workload import Lap, Workload

#: Bytes of the array that a GPU's rate of copying is measured with.
COPIED = 1 << 28


def make_network(model: str, fraction: float, device: str) -> Sequential:
    """The model from seed 0, pruned by magnitude layer by layer."""
    network = build_model(model, device=device, seed=0)
    if fraction > 0:
        prune(network, fraction)
    return network


def sampled(batch: int, count: int) -> list[int]:
    """At most `count` samples, spread over a batch."""
    return sorted({int(k) for k in np.linspace(0, batch - 1, min(count, batch))})


class UpSweep:
    """The products of the first levels of a network's up-sweep, by pattern.

    steps  the live products, in order of their levels
    dead   those that no gradient needs
    """

    def __init__(self, network: Sequential, levels: int) -> None:
        chains = network.chains()
        if len(chains) != 1:
            raise BenchmarkError(
                f"the network has {len(chains)} chains: the benchmark takes a network of one"
            )
        (self.chain,) = chains
        n = len(self.chain)
        self.steps = [s for s in hybrid(n, levels).steps if s.kind == "mm" and s.level < levels]
        self.dead = [s for s in dead_products(n, levels) if s.kind == "mm" and s.level < levels]
        self.patterns: dict[Segment, Pattern] = {
            (k, k + 1): element.pattern for k, element in enumerate(self.chain.elements, 1)
        }
        self.products: dict[Segment, Product] = {}
        for step in sorted(self.steps + self.dead):
            product = multiply(self.patterns[step.right], self.patterns[step.left])
            self.products[step.out], self.patterns[step.out] = product, product.pattern

    def level(self, level: int) -> list[Step]:
        """The products of one level."""
        return [step for step in self.steps if step.level == level]

    def label(self, step: Step) -> str:
        """Level, layers and kind."""
        names = [self.chain.elements[k - 1].name.split()[1] for k in reversed(range(step.begin, step.end))]
        cut = step.end - step.split
        left, right = "·".join(names[:cut]), "·".join(names[cut:])
        last = self.chain.elements[step.end - 2].name.split()[0]
        factors = f"({left})·({right})" if step.level else f"{left}·{right}"
        return f"level {step.level}: {factors} from layer {last}, {self.products[step.out].kind}"

    def values(self, segment: Segment, batch: int) -> int:
        """Number of values of a matrix."""
        return self.patterns[segment].nnz * (1 if self.chain.shared(*segment) else batch)

    def bytes(self, steps: Iterable[Step], batch: int) -> int:
        """Bytes of values and integers that products have to move: operands, results, maps, once each."""
        moved = 0
        for step in steps:
            product = self.products[step.out]
            moved += 4 * sum(self.values(segment, batch) for segment in (step.left, step.right, step.out))
            moved += product.map_bytes
            moved += product.a.indices.nbytes if product.kind not in ("scale_rows", "dense") else 0
            if product.kind == "row_wise":
                moved += product.b.indices.nbytes + product.pattern.indices.nbytes
        return moved

    def note(self, step: Step, batch: int) -> str:
        """What a product has to do."""
        product, moved = self.products[step.out], self.bytes([step], batch)
        return (
            f"B={batch}; {product.pattern.nnz:,} entries, {product.multiply_adds:,} multiply-adds a sample, "
            f"{moved / 2**20:,.0f} MiB a batch"
        )

    def fitting_batch(self, level: int, batch: int, limit: int) -> int:
        """The largest batch, at most `batch`, whose values up to that level take at most `limit` bytes.

        Raises BenchmarkError where one sample does not fit.
        """
        for smaller in range(batch, 0, -1):
            steps = [step for step in self.steps if step.level <= level]
            segments = {segment for step in steps for segment in (step.left, step.right, step.out)}
            if 4 * sum(self.values(segment, smaller) for segment in segments) <= limit:
                return smaller
        raise BenchmarkError(f"level {level} of one sample takes more than the {limit} bytes there are")


class PlannedLevel(Workload):
    """Our kernels: every product of a level for the whole batch, a lap a product.

    Operands are the Jacobians that `fill` writes after a forward pass of random images; those of a
    level above 0 are the products before it.
    """

    stateful = True

    def __init__(
        self, model: str, fraction: float, device: str, batch: int, level: int, samples: Sequence[int]
    ) -> None:
        network = make_network(model, fraction, device)
        self.device: Device = get_device(device)
        self.sweep, self.batch, self.samples = UpSweep(network, level + 1), batch, samples
        self.matrices = self._fill(network)
        maps = IndexMaps(self.device)
        self.launches: list[tuple[str, Any]] = []
        for step in self.sweep.steps:
            a, b = self.matrices[step.right], self.matrices[step.left]
            product = self.sweep.products[step.out]
            c = self._empty(step.out, product.pattern, network.dtype)
            self.matrices[step.out] = Matrix(product.pattern, c)
            launch = bind_product(self.device, maps, product, a, b, c, batch)
            if step.level == level:
                self.launches.append((str(step.out), launch))
            else:
                launch()

    def _fill(self, network: Sequential) -> dict[Segment, Matrix]:
        shape = (self.batch, *network.input_shape)
        images = np.random.default_rng(0).standard_normal(shape).astype(network.dtype)
        network.forward(self.device.asarray(images))
        assert network.last_pass is not None
        matrices = {}
        read = {segment for step in self.sweep.steps for segment in (step.left, step.right)}
        for k, element in enumerate(self.sweep.chain.elements, 1):
            if (k, k + 1) not in read:
                continue
            index = int(element.name.split()[0])
            state, jacobian = network.last_pass.layers[index], network.jacobians[index]
            values = self._empty((k, k + 1), element.pattern, network.dtype)
            jacobian.fill(self.device, state.parameters, state.saved, values)
            matrices[k, k + 1] = Matrix(element.pattern, values)
        return matrices

    def _empty(self, segment: Segment, pattern: Pattern, dtype: Any) -> Array:
        shared = self.sweep.chain.shared(*segment)
        return self.device.empty((pattern.nnz,) if shared else (pattern.nnz, self.batch), dtype)

    def run(self, lap: Lap) -> None:
        for name, launch in self.launches:
            launch()
            lap(name)

    def sample(self, segment: Segment, sample: int) -> np.ndarray:
        """A matrix's values for one sample, on the host."""
        values = self.matrices[segment].values
        return np.array(self.device.to_host(values if values.ndim == 1 else values[:, sample].copy()))

    def result(self) -> dict[str, Any]:
        level = self.sweep.steps[-1].level
        values = {
            str(step.out): np.stack([self.sample(step.out, sample) for sample in self.samples])
            for step in self.sweep.level(level)
        }
        return {"values": values, "batch": self.batch, "copy_bytes_per_second": self._copy_rate()}

    def _copy_rate(self) -> float | None:
        """Bytes a second, read and written, of a copy on a GPU."""
        if self.device.name != "cuda":
            return None
        source = self.device.zeros((COPIED // 4,), np.float32)
        target, times = self.device.zeros(source.shape, source.dtype), []
        for _ in range(5):
            start = self.device.timestamp()
            target[...] = source
            times.append(self.device.seconds(start, self.device.timestamp()))
        return 2 * COPIED / float(np.median(times))


class ScipyLevel(Workload):
    """SciPy: A @ B of the same values, a lap a product, in which it multiplies the chosen samples.

    eliminate_zeros  whether the operands lose the zeros of these samples first
    """

    stateful = True

    def __init__(
        self,
        model: str,
        fraction: float,
        device: str,
        batch: int,
        level: int,
        samples: Sequence[int],
        eliminate_zeros: bool = False,
    ) -> None:
        planned = PlannedLevel(model, fraction, device, batch, level, samples)
        self.device, self.samples = planned.device, samples
        self.patterns = {
            str(step.out): planned.sweep.patterns[step.out] for step in planned.sweep.level(level)
        }
        self.pairs: dict[str, list[tuple[Any, Any]]] = {}
        for step in planned.sweep.level(level):
            pairs = []
            for sample in samples:
                pair = [self.matrix(planned, segment, sample) for segment in (step.right, step.left)]
                for matrix in pair if eliminate_zeros else ():
                    matrix.eliminate_zeros()
                pairs.append((pair[0], pair[1]))
            self.pairs[str(step.out)] = pairs
        self.products: dict[str, list[Any]] = {}

    def matrix(self, planned: PlannedLevel, segment: Segment, sample: int) -> Any:
        """One sample of a matrix, as the rival holds it."""
        return planned.sweep.patterns[segment].to_scipy(planned.sample(segment, sample))

    def run(self, lap: Lap) -> None:
        for name, pairs in self.pairs.items():
            self.products[name] = [a @ b for a, b in pairs]
            lap(name)

    def reset(self) -> None:
        self.products.clear()

    def result(self) -> dict[str, Any]:
        """Values in the planned patterns; an entry outside is an error, one that is missing is 0."""
        values = {
            name: np.stack([in_pattern(self.to_scipy(product), self.patterns[name]) for product in products])
            for name, products in self.products.items()
        }
        return {"values": values, "batch": len(self.samples)}

    def to_scipy(self, matrix: Any) -> scipy.sparse.csr_array:
        """A product on the host."""
        return matrix


class CupyxLevel(ScipyLevel):
    """cupyx's CSR matrices on a GPU."""

    @cached_property
    def csr_matrix(self) -> Any:
        """The class of the matrices."""
        return import_cupyx_sparse().csr_matrix

    def matrix(self, planned: PlannedLevel, segment: Segment, sample: int) -> Any:
        return self.csr_matrix(scipy.sparse.csr_matrix(super().matrix(planned, segment, sample)))

    def to_scipy(self, matrix: Any) -> scipy.sparse.csr_array:
        return scipy.sparse.csr_array(matrix.get())


def in_pattern(matrix: scipy.sparse.csr_array, pattern: Pattern) -> np.ndarray:
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
