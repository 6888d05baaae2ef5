"""Planned products of solvers' matrices against SciPy's or cupyx's A @ B, a sample at a time."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Device, get_device
from bppsa_cupy.devices.cuda import import_cupyx_sparse
from bppsa_cupy.products import PlannedProduct, plan_product
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.benchmarks.harness import (
    Measurement,
    Row,
    Side,
    compared_row,
    measure,
    quartiles,
    require_equal,
)
from bppsa_cupy.tools.benchmarks.sparse_matrices import CASES
from bppsa_cupy.tools.benchmarks.upsweep import in_pattern, sampled
from bppsa_cupy.tools.benchmarks.workload import OVERALL, Lap, Workload

AGAINST = ("scipy", "cupyx", "none")
BATCHES = [1, 16, 64]
#: How close the values must be to the rival's, relative to their norm.
TOLERANCE = {"float64": 1e-12, "float32": 1e-5}
#: Plans that are made, the median of whose times is told; the first of all is not.
PLANS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--batch, --samples, --side, --dtype."""
    parser.add_argument(
        "--batch", type=cli.positive_list, default=BATCHES, metavar="N,N",
        help=f"samples B of a call (default {','.join(map(str, BATCHES))})",
    )  # fmt: skip
    parser.add_argument(
        "--samples", type=cli.positive, default=2, help="samples that the rival multiplies (default 2)"
    )
    parser.add_argument("--side", type=cli.positive, help="of the grid, in points (default 129; quick 12)")
    parser.add_argument("--dtype", choices=TOLERANCE, default="float64", help="default float64")


def run(arguments: argparse.Namespace) -> Iterator[list[Row]]:
    """Of each case, of one with --quick, the time a sample by B, and after how many calls planning has paid;
    at the end the geometric means of the ratios by B."""
    side = arguments.side or (12 if arguments.quick else 129)
    ratios: dict[int, list[float]] = {batch: [] for batch in arguments.batch}
    for case in [*CASES][: 1 if arguments.quick else None]:
        options = {"case": case, "side": side, "dtype": arguments.dtype, "device": arguments.device}
        rows = []
        for batch in arguments.batch:
            rows += _rows(
                arguments, {**options, "batch": batch, "samples": sampled(batch, arguments.samples)}
            )
            ratios[batch] += [row.ratio for row in rows[-2:] if row.quantity == "product" and row.ratio]
        yield rows
    means = [_mean_row(batch, found) for batch, found in ratios.items() if found]
    if means:
        yield means


def _rows(arguments: argparse.Namespace, options: dict[str, Any]) -> list[Row]:
    """Of one case and B: the time a sample, and planning."""
    name = f"{options['case']}, B={options['batch']}"
    sides = {"ours": Side(Planned, options, arguments.threads)}
    if arguments.against != "none":
        rival_name, factory = RIVALS[arguments.against]
        sides[rival_name] = Side(factory, options, arguments.threads)

    def check(results: Mapping[str, Any]) -> None:
        for rival in results.keys() - {"ours"}:
            ours, theirs = ({"values": results[one]["values"]} for one in ("ours", rival))
            require_equal(f"{name}, {rival}", ours, theirs, TOLERANCE[options["dtype"]])

    measured = measure(sides, arguments.repeats, 0.0 if arguments.quick else 0.02, check=check)
    ours = measured.pop("ours")
    rival = next(iter(measured.items()), None)
    scales = 1 / options["batch"], 1 / len(options["samples"])
    timed = compared_row(
        name, "product", ours, rival, lap=OVERALL, scales=scales, note=f"a sample; {ours.result['note']}"
    )
    return [timed, _planning_row(name, ours, timed, options["batch"])]


def _planning_row(name: str, ours: Measurement, timed: Row, batch: int) -> Row:
    """The time of planning, and in the note the calls after which it has paid."""
    samples, note = ours.result["planning"], None
    planning = float(np.median(samples))
    if timed.theirs is not None:
        saved = (timed.theirs - timed.ours) * batch
        note = "not paid by any calls"
        if saved > 0:
            note = f"paid after {int(np.ceil(planning / saved))} calls of B={batch}"
    return Row(name, "planning", planning, spread={"ours": quartiles(samples)}, note=note)


def _mean_row(batch: int, ratios: list[float]) -> Row:
    mean = float(np.exp(np.mean(np.log(ratios))))
    note = f"of the ratios of {len(ratios)} cases"
    return Row(f"geometric mean, B={batch}", "ratio", mean, unit="times", note=note)


class Planned(Workload):
    """Our side: one call of a planned product for the whole batch, into the same `out`."""

    def __init__(
        self, case: str, side: int, dtype: str, device: str, batch: int, samples: Sequence[int]
    ) -> None:
        self.device: Device = get_device(device)
        self.samples = samples
        factors = CASES[case](side)
        self.planning = []
        for _ in range(1 + PLANS):
            start = time.perf_counter()
            self.product: PlannedProduct = plan_product(*factors, device=self.device)
            self.planning.append(time.perf_counter() - start)
        generator = np.random.default_rng(1)
        self.host = [
            generator.standard_normal((factor.nnz, batch)).astype(dtype) for factor in self.product.factors
        ]
        self.values = [self.device.asarray(values) for values in self.host]
        self.out = self.device.zeros((self.product.pattern.nnz, batch), dtype)

    def run(self, lap: Lap) -> None:
        self.product(*self.values, out=self.out)

    def result(self) -> dict[str, Any]:
        (made,) = self.product.multiplications
        kind = (made.one if self.out.shape[1] == 1 else made.many).kind
        sizes = f"{self.product.pattern.nnz:,} entries, {self.product.multiply_adds:,} multiply-adds"
        return {
            "values": self.device.to_host(self.out)[:, self.samples].T.copy(),
            "planning": self.planning[1:],
            "note": f"{kind}, {sizes}",
        }


class ScipyProduct(Workload):
    """SciPy: A @ B of the same values, one chosen sample after the other."""

    def __init__(
        self, case: str, side: int, dtype: str, device: str, batch: int, samples: Sequence[int]
    ) -> None:
        planned = Planned(case, side, dtype, device, batch, samples)
        self.device, self.pattern = planned.device, planned.product.pattern
        self.pairs = [
            tuple(
                self.matrix(pattern, values[:, sample].copy())
                for pattern, values in zip(planned.product.factors, planned.host, strict=True)
            )
            for sample in samples
        ]
        self.products: list[Any] = []

    def matrix(self, pattern: Pattern, data: np.ndarray) -> Any:
        """A factor, as the rival holds it."""
        return pattern.to_scipy(data)

    def run(self, lap: Lap) -> None:
        self.products = [a @ b for a, b in self.pairs]

    def result(self) -> dict[str, Any]:
        """Values in the planned pattern; an entry outside is an error, one that is missing is 0."""
        return {"values": np.stack([in_pattern(self.to_scipy(c), self.pattern) for c in self.products])}

    def to_scipy(self, matrix: Any) -> scipy.sparse.csr_array:
        """A product on the host."""
        return matrix


class CupyxProduct(ScipyProduct):
    """cupyx's CSR matrices on a GPU."""

    @cached_property
    def csr_matrix(self) -> Any:
        """The class of the matrices."""
        return import_cupyx_sparse().csr_matrix

    def matrix(self, pattern: Pattern, data: np.ndarray) -> Any:
        return self.csr_matrix(scipy.sparse.csr_matrix(super().matrix(pattern, data)))

    def to_scipy(self, matrix: Any) -> scipy.sparse.csr_array:
        return scipy.sparse.csr_array(matrix.get())


RIVALS: Mapping[str, tuple[str, type[ScipyProduct]]] = {
    "scipy": ("SciPy A @ B", ScipyProduct),
    "cupyx": ("cupyx A @ B", CupyxProduct),
}
