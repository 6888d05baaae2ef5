"""The step Jacobians of one direction of one recurrent layer, as a chain: what products over time take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from bppsa_cupy.errors import ArgumentError, NonFiniteError, ShapeError
from bppsa_cupy.records.record import JacobianRecord

#: Values of a block of steps that are made dense at once.
BLOCK = 1 << 21


class StepChain:
    """T steps of one inner layer and direction, by time; every step between the first and the last is there.

    Attributes
    ----------
    records : tuple of JacobianRecord
        Records of the steps, with equal patterns and batches.
    label : str
        The name in titles and errors: "0 GRU l0", "2 LSTM l1 backward".
    pattern : Pattern
        The CSR pattern of every step.
    steps, batch, size : int
        T, B, and S, the elements of the state of a sample: H, or 2 H of an LSTM (h, c).
    first : int
        The time step of the first record.
    reverse : bool
        Whether the layer walks from the last time step to the first.
    """

    def __init__(self, records: Sequence[JacobianRecord]) -> None:
        self.records, first = tuple(records), records[0]
        self.label, self.pattern, self.first = chain_label(first), first.pattern, first.step
        self.steps, self.batch, self.size = len(records), first.batch or 1, first.pattern.shape[0]
        self.reverse = first.direction == "backward"

    def dense(self, steps: slice, dtype: type | np.dtype = np.float64) -> np.ndarray:
        """(n, B, S, S) the matrices of some positions: rows the state before the step, columns the one after.

        Raises NonFiniteError that names the first step with NaN or infinity.
        """
        values = np.stack([record.on_host().data for record in self.records[steps]])
        values = values.reshape(len(values), self.pattern.nnz, self.batch)
        finite = np.isfinite(values).all(axis=(1, 2))
        if not finite.all():
            bad = self.records[steps][int(np.argmin(finite))]
            raise NonFiniteError(
                f"the Jacobian of {bad.label!r} contains NaN or infinity: check the weights and inputs of "
                "the forward pass"
            )
        result = np.zeros((len(values), self.batch, self.size * self.size), dtype)
        result[:, :, self.pattern.rows() * self.size + self.pattern.indices] = values.swapaxes(1, 2)
        return result.reshape(len(values), self.batch, self.size, self.size)

    def blocks(self, *, falling: bool = False) -> Iterator[tuple[slice, np.ndarray]]:
        """Every position once, by time or from the last to the first, and its matrices in float64, as many
        at once as BLOCK allows; those of a block are by time."""
        length = max(1, BLOCK // max(1, self.batch * self.size * self.size))
        for begin in range(0, self.steps, length):
            end = min(begin + length, self.steps)
            steps = slice(self.steps - end, self.steps - begin) if falling else slice(begin, end)
            yield steps, self.dense(steps)

    def walk(self, *, back: bool = False) -> Iterator[tuple[int, np.ndarray]]:
        """Positions in the order of the layer's walk, or from its end to its start, and their matrices
        (B, S, S) in float64."""
        falling = self.reverse != back
        for steps, matrices in self.blocks(falling=falling):
            inside = range(len(matrices) - 1, -1, -1) if falling else range(len(matrices))
            yield from ((steps.start + position, matrices[position]) for position in inside)

    @property
    def lengths(self) -> np.ndarray:
        """(B,) int64, the number of steps of each sample without padding."""
        ends = self.records[0].lengths
        if ends is None:
            return np.full(self.batch, self.steps)
        return np.clip(ends - self.first, 0, self.steps)

    def live(self, lengths: np.ndarray) -> np.ndarray:
        """(T, B) bool: whether a step of a sample is valid, that is, not padding."""
        return np.arange(self.steps)[:, None] < lengths


def chain_label(record: JacobianRecord) -> str:
    """Return the name of the chain of a record."""
    place = f"{record.layer}.{record.path}" if record.path else str(record.layer)
    return f"{place} {record.name}" + ("" if record.direction == "forward" else f" {record.direction}")


def chain_key(record: JacobianRecord) -> tuple[int, str, str, str]:
    """Return the key that all records of one chain share."""
    return record.layer, record.path, record.name, record.direction


def make_chain(owner: str, records: Sequence[JacobianRecord]) -> StepChain:
    """The chain of these records, in any order.

    Raises ArgumentError, naming `owner`, for records of other layers, of several chains, or with missing or
    repeated steps. Raises ShapeError for steps with different patterns or batches.
    """
    if not len(records):
        raise ArgumentError(f"{owner} got no records: pass the records of a recurrent layer, one per step")
    for record in records:
        if record.inner is None:
            raise ArgumentError(
                f"{owner} got {record.label!r}, which does not belong to a recurrent layer: select the "
                "records of a recurrent layer, for example records.where(layer=0)"
            )
    labels = {chain_key(record): chain_label(record) for record in records}
    if len(labels) > 1:
        raise ArgumentError(
            f"{owner} got the records of {len(labels)} chains, {', '.join(map(repr, labels.values()))}: "
            "select one chain with records.where(layer=…, inner=…, direction=…)"
        )
    ordered = sorted(records, key=lambda record: record.step)
    first = ordered[0]
    for before, after in pairwise(ordered):
        if after.step != before.step + 1:
            raise ArgumentError(
                f"{owner} got step {after.step} of {chain_label(first)!r} after step {before.step}: pass "
                "consecutive steps, each once"
            )
    rows, columns = first.pattern.shape
    for record in ordered:
        same = record.pattern is first.pattern or record.pattern == first.pattern
        same &= record.data.shape == first.data.shape and record.sample == first.sample
        same &= record.lengths is first.lengths or np.array_equal(
            np.asarray(first.lengths), np.asarray(record.lengths)
        )
        if not same:
            raise ShapeError(
                f"{owner} got {first.label!r} of shape {first.pattern.shape}, data {first.data.shape} and "
                f"lengths {first.lengths}, and {record.label!r} of {record.pattern.shape}, "
                f"{record.data.shape} and {record.lengths}: pass steps with equal patterns, batches, "
                "samples and lengths"
            )
    if rows != columns:
        raise ShapeError(
            f"{owner} got {first.label!r} of shape {first.pattern.shape}: pass square Jacobians of a state"
        )
    return StepChain(ordered)
