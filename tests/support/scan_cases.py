"""Chains of matrices to scan, with values, and their scans by dense products."""

import numpy as np
import scipy.sparse

import bppsa_cupy as bp
from bppsa_cupy.csr import Pattern
from bppsa_cupy.plan import with_input_gradient
from bppsa_cupy.scan.numeric import RankScan

METHODS = ("linear", "blelloch", "hybrid")
KINDS = ("sparse", "diagonal", "dense", "selection", "empty")


def random_chain(rng, n, batch, kinds=KINDS, sizes=(1, 6)):
    """Patterns and values of J_1 … J_n of random kinds and sizes; some shared, some batched."""
    width = int(rng.integers(*sizes))
    operands = []
    for _ in range(n):
        kind = rng.choice(kinds)
        rows = width if kind == "diagonal" else int(rng.integers(*sizes))
        if kind == "diagonal":
            pattern = Pattern.diagonal(width)
        elif kind == "dense":
            pattern = Pattern.dense(rows, width)
        elif kind == "selection":
            counts = rng.integers(0, 2, rows)
            indptr = np.concatenate([[0], np.cumsum(counts)])
            pattern = Pattern((rows, width), indptr, rng.integers(0, width, int(counts.sum())))
        else:
            density = 0.0 if kind == "empty" else 0.5
            pattern = Pattern.from_scipy(scipy.sparse.random_array((rows, width), density=density, rng=rng))
        shape = (pattern.nnz,) if rng.integers(2) else (pattern.nnz, batch)
        operands.append((pattern, rng.standard_normal(shape)))
        width = rows
    return operands


def reference(gradient, operands, injections=None):
    """v(1) … v(n + 1) in float64 by dense products, a sample at a time."""
    vectors = [gradient]
    for k, (pattern, values) in enumerate(operands):
        columns = []
        for sample in range(gradient.shape[1]):
            data = values[:, sample] if values.ndim == 2 else values
            columns.append(pattern.to_scipy(data).toarray() @ vectors[-1][:, sample])
        vector = np.stack(columns, 1)
        if injections is not None and injections[k] is not None:
            vector = vector + injections[k]
        vectors.append(vector)
    return vectors


def random_partition(rng, items, ranks):
    """Contiguous parts anywhere, empty ones among them."""
    cuts = np.sort(rng.integers(0, items + 1, ranks - 1)).tolist()
    return bp.Partition((0, *cuts, items))


def scan_by_parts(group, partition, plan, method, gradient, operands, input_gradient=True):
    """v(1), … of a rank: None where a vector is another rank's."""
    schedule, batch = plan.schedule(0, method), gradient.shape[1]
    if input_gradient:
        schedule = with_input_gradient(schedule)
    device = bp.devices.get_device("host")
    scan = RankScan(
        group, partition.owners, device, gradient.dtype, plan.chains[0], schedule, plan.batch_size
    )
    part = partition.part(group.rank)
    assert {k - 1 for k in scan.elements_read} <= set(part)
    for k in scan.elements_read:
        scan.element(k, batch)[...] = operands[k - 1][1]
    if 1 in scan.owned:
        scan.vector(1, batch)[...] = gradient
    scan.run_batch(batch)
    count = len(operands) + input_gradient
    return [scan.vector(k, batch) if min(k, len(operands)) - 1 in part else None for k in range(1, count + 1)]
