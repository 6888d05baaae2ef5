"""Lyapunov exponents: how fast a recurrent layer's state forgets, or blows up, what it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_integer, is_one_of
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.records.chain import StepChain
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.records.records import as_chain

#: How the stretches of the steps are averaged.
AVERAGES = ("mean", "smooth")


def lyapunov_exponents(
    records: Sequence[JacobianRecord],
    count: int | None = None,
    *,
    skip: int = 0,
    average: str = "mean",
    lengths: Any = None,
) -> np.ndarray:
    """The Lyapunov exponents of each sample along one direction of one recurrent layer, from the largest on.

    records  the steps of one chain, as `net.transposed_jacobians().where(layer=0)` gives them
    count    how many, 1 to S; by default all S. S is H, and of an LSTM 2 H, its state being (h, c)
    skip     steps of the walk that are left out of the average, while directions settle
    average  "mean", the definition; or "smooth": weights exp(-1 / (u (1 - u))) over the steps, u from 0 to 1,
             which forget how directions settle, and where the motion is quasi-periodic, as that of a linear
             network is, converge faster than any power of T (Das, Saiki, Sander & Yorke 2017)
    lengths  (B,) how many steps of each sample are no padding, from 0 to T; by default `records.lengths()`

    Returns (B, count) float64, natural logarithms a step: a small change of the state grows by exp(exponent)
    each step, and a gradient by exp(exponent) each step back. -inf is a direction that is lost, as through a
    ReLU that is off; a sample without any step has 0. An orthonormal basis goes through the Jacobians in the
    order of the walk, and is made orthonormal again by a QR decomposition after every one; an exponent is the
    average of log |r_ii| (Benettin et al. 1980). All of it is in float64, whatever the records are in, and
    nothing overflows however long the chain is.

    Of a chain of T steps "mean" tells an exponent up to O(1 / T), as directions settle and turn.

    Law: the sum of all exponents is the average of log |det J_t|.

    Raises ShapeError where records are not the steps of one recurrent layer and direction, and for an
    argument that does not fit; NonFiniteError that names the step with NaN or infinity.
    """
    owner = "lyapunov_exponents"
    chain, ends = as_chain(owner, records, lengths)
    count = chain.size if count is None else as_integer(owner, "count", count, 1)
    if count > chain.size:
        raise ShapeError(
            f"{owner} got count={count}: the state of {chain.label} has {chain.size} elements, so there are "
            f"{chain.size} exponents"
        )
    skip = as_integer(owner, "skip", skip, 0)
    if skip and (ends <= skip).any():
        short = int(np.argmin(ends))
        raise ShapeError(
            f"{owner} got skip={skip}: sample {short} has {ends[short]} steps, so skip is below that"
        )
    if not is_one_of(average, AVERAGES):
        raise ShapeError(f"{owner} got average={average!r}: it takes {' or '.join(map(repr, AVERAGES))}")
    weights = _weights(chain, ends, skip, average)[:, :, None]
    stretched = stretches(chain, count)
    stretched[weights[:, :, 0] == 0] = 0  # of steps that are left out, -inf among them
    exponents = (stretched * weights).sum(axis=0)
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


def _weights(chain: StepChain, lengths: np.ndarray, skip: int, average: str) -> np.ndarray:
    """(T, B) what each step counts, by time: of sum 1 a sample, or 0 for one without any step."""
    place = places(chain, lengths) - skip
    taken = np.maximum(lengths - skip, 1)
    weights = np.where(place >= 0, 1.0, 0.0)
    if average == "smooth":
        part = (np.maximum(place, 0) + 1) / (taken + 1)
        weights *= np.exp(-1 / (part * (1 - part)) + 4)
    sums = weights.sum(axis=0)
    return np.asarray(weights / np.where(sums == 0, 1, sums))
