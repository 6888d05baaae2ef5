"""Structures of factors for planned products, and their values."""

import numpy as np
from symbolic_oracle import full_rows, random_pattern, random_selection

import bppsa_cupy as bp

STRUCTURES = {
    "general": lambda g, r, c: random_pattern(g, r, c, 0.3),
    "selection": random_selection,
    "full rows": full_rows,
    "dense": lambda g, r, c: bp.Pattern.dense(r, c),
    "diagonal": lambda g, r, c: bp.Pattern.diagonal(r),
    "empty": lambda g, r, c: random_pattern(g, r, c, 0.0),
}


def factors_of(rng, structures, size):
    """Patterns of these structures whose sizes fit."""
    factors, rows = [], int(rng.integers(size + 1))
    for name in structures:
        factors.append(STRUCTURES[name](rng, rows, int(rng.integers(size + 1))))
        rows = factors[-1].shape[1]
    return factors


def values_of(rng, patterns, batch, dtype=np.float64):
    """Values of patterns, with zeros among them; where there is a batch, some serve every sample."""
    shapes = [(p.nnz,) if batch is None or rng.integers(2) else (p.nnz, batch) for p in patterns]
    return [(rng.integers(-2, 3, shape) * rng.random(shape)).astype(dtype) for shape in shapes]
