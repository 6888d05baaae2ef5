"""Lyapunov exponents: how fast a recurrent layer's state forgets, or blows up, what it was."""

from __future__ import annotations

from typing import Any

import numpy as np

from bppsa_cupy.errors import ShapeError
from bppsa_cupy.records.chain import StepChain
from bppsa_cupy.records.records import as_chain


def chain_exponents(
    records: Any, count: int | None = None, burn_in: int = 0, lengths: Any = None
) -> np.ndarray:
    """`bp.lyapunov_exponents` of stored Jacobians: (B, count) float64, largest first.

    A sample without any step has 0.
    """
    owner = "lyapunov_exponents"
    chain, ends = as_chain(owner, records, lengths)
    count = chain.size if count is None else count
    if count > chain.size:
        raise ShapeError(
            f"{owner} got count={count}, but {chain.label} has only {chain.size} state elements: pass a "
            f"count of at most {chain.size}"
        )
    if burn_in and (ends <= burn_in).any():
        short = int(np.argmin(ends))
        raise ShapeError(
            f"{owner} got burn_in={burn_in}, but sample {short} has only {ends[short]} steps: pass a smaller "
            "burn_in"
        )
    counted = places(chain, ends) >= burn_in
    stretched = stretches(chain, count)
    stretched[~counted] = 0  # of steps that are left out, -inf among them
    exponents = (stretched / np.maximum(counted.sum(axis=0), 1)[:, None]).sum(axis=0)
    return -np.sort(-exponents, axis=1)


def stretches(chain: StepChain, count: int) -> np.ndarray:
    """(T, B, count) log |r_ii| of each step's QR decomposition, by time."""
    result = np.empty((chain.steps, chain.batch, count))
    basis = np.tile(np.eye(chain.size, count), (chain.batch, 1, 1))
    for position, transposed in chain.walk():
        basis, triangle = np.linalg.qr(transposed.swapaxes(1, 2) @ basis)
        with np.errstate(divide="ignore"):
            np.log(np.abs(np.diagonal(triangle, axis1=1, axis2=2)), out=result[position])
    return result


def places(chain: StepChain, lengths: np.ndarray) -> np.ndarray:
    """(T, B) int64, by time: the place of each step in its sample's walk, from 0; -1 for padding."""
    times = np.arange(chain.steps)[:, None]
    order = lengths - 1 - times if chain.reverse else times
    return np.where(times < lengths, order, -1)
