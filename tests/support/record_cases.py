"""Jacobians of a small network, and whether two lots of records are the same."""

import numpy as np
import scipy.sparse

from bppsa_cupy.csr import Pattern
from bppsa_cupy.records.record import JacobianRecord


def make(layer, shape, batch, *, seed=0, density=0.3, dtype=np.float32, **fields):
    """A record of random pattern and values, some of them stored zeros."""
    generator = np.random.default_rng(seed)
    pattern = Pattern.from_scipy(scipy.sparse.random_array(shape, density=density, rng=generator))
    data = generator.integers(-2, 3, (pattern.nnz,) if batch is None else (pattern.nnz, batch)).astype(dtype)
    return JacobianRecord(layer, "Conv2d", pattern, data, **fields)


def assert_same(ours, theirs):
    assert len(ours) == len(theirs)
    fields = ("layer", "name", "step", "direction", "geometry", "gradient_norm", "sample", "pattern", "batch")
    for actual, expected in zip(ours, theirs, strict=True):
        for name in fields:
            assert getattr(actual, name) == getattr(expected, name), name
        assert actual.data.dtype == expected.data.dtype
        assert actual.pattern.indptr.dtype == expected.pattern.indptr.dtype
        np.testing.assert_array_equal(actual.data, expected.data)
        assert np.array_equal(actual.lengths, expected.lengths)
