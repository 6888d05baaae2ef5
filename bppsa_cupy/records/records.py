"""The transposed Jacobians of a pass together, and the chain that the steps of a recurrent layer form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, overload

import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import ArgumentError, NonFiniteError, ShapeError
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.system.memory import check_host_memory

#: Values of a block of steps that are made dense at once.
BLOCK = 1 << 21


class JacobianRecords(Sequence[JacobianRecord]):
    """A sequence of records. Slices are JacobianRecords too.

    A recurrent layer has one record per time step, inner layer and direction. The records of all steps of one
    inner layer and direction form a chain. `dense`, `lengths`, `bp.lyapunov_exponents`, `bp.singular_values`
    and `bp.log_gradient_norms` need the records of a single chain. Select them with `where`.

    Parameters
    ----------
    records : iterable of JacobianRecord
        The records.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> net = bp.Sequential([bp.RNN(3, 4)], input_shape=(None, 3), device="host")
    >>> y = net.forward(np.ones((2, 7, 3), np.float32))
    >>> records = net.transposed_jacobians()
    >>> records, records.where(steps=slice(2, 5)).dense().shape
    (JacobianRecords(0 RNN l0 × 7), (3, 2, 4, 4))
    """

    def __init__(self, records: Iterable[JacobianRecord] = ()) -> None:
        self._records = tuple(records)

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[JacobianRecord]:
        return iter(self._records)

    @overload
    def __getitem__(self, index: int) -> JacobianRecord: ...

    @overload
    def __getitem__(self, index: slice) -> JacobianRecords: ...

    def __getitem__(self, index: int | slice) -> JacobianRecord | JacobianRecords:
        selected = self._records[index]
        return selected if isinstance(selected, JacobianRecord) else JacobianRecords(selected)

    def __repr__(self) -> str:
        steps = Counter(chain_label(record) for record in self._records)
        counts = ", ".join(f"{label} × {count}" if count > 1 else label for label, count in steps.items())
        return f"JacobianRecords({counts})"

    def where(
        self,
        *,
        layer: int | None = None,
        path: str | None = None,
        inner: int | None = None,
        direction: str | None = None,
        steps: int | slice | Iterable[int] | None = None,
    ) -> JacobianRecords:
        """Return the records that match all given criteria.

        Parameters
        ----------
        layer : int, optional
            The index of the layer in the network.
        path : str, optional
            The name of a layer inside another layer, such as "body.0". "" selects layers that are not nested.
        inner : int, optional
            The index of the inner layer of a recurrent layer, for example 1 for "LSTM l1".
        direction : "forward" or "backward", optional
            The direction of a recurrent layer.
        steps : int, slice or iterable of int, optional
            Time steps, counted from 0, for example 7, [3, 7] or slice(10, 20).

        Returns
        -------
        JacobianRecords

        Raises
        ------
        ArgumentError
            If no record matches. The message lists the values that exist.
        """
        wanted: dict[str, Any] = dict(layer=layer, path=path, inner=inner, direction=direction, steps=steps)
        records = self._records
        for name, value in wanted.items():
            if value is None:
                continue
            attribute, chosen = (name, [value]) if name != "steps" else ("step", value)
            known = sorted({getattr(record, attribute) for record in records} - {None})
            if isinstance(chosen, slice):
                chosen = range(max(known, default=0) + 1)[chosen]
            elif name == "steps":
                chosen = {*np.atleast_1d(chosen).tolist()}
            records = tuple(record for record in records if getattr(record, attribute) in chosen)
            if not records:
                ends = f"steps {known[0]} to {known[-1]}" if name == "steps" and known else ""
                there = ends or ", ".join(map(repr, known)) or "none"
                raise ArgumentError(f"no record has {name}={value!r}: the records have {there}")
        return JacobianRecords(records)

    def sample(self, sample: int) -> JacobianRecords:
        """Return the records of one sample, with data (nnz,).

        Raises ShapeError if there is no such sample.
        """
        return JacobianRecords(record.select(sample) for record in self._records)

    def chains(self) -> list[JacobianRecords]:
        """Return a list with one JacobianRecords per inner layer and direction of each recurrent layer."""
        groups: dict[Any, list[JacobianRecord]] = {}
        for record in self._records:
            if record.inner is not None:
                groups.setdefault(chain_key(record), []).append(record)
        return [JacobianRecords(group) for group in groups.values()]

    def dense(self) -> np.ndarray:
        """Return the transposed Jacobians of one inner layer and direction as a dense array on the host.

        Returns
        -------
        ndarray, (T, B, S, S)
            Transposed Jacobians in time order, in the dtype of the records. Rows are the elements of the
            state before the step, columns are the elements of the state after it. S is H, or 2 H for an LSTM
            (h, then c). Steps after the end of a sample are identity matrices.

        Raises
        ------
        ArgumentError
            If the records are not consecutive steps of one inner layer and direction.
        NonFiniteError
            If a Jacobian contains NaN or infinity. The message names the step.
        DeviceError
            If there is too little memory.
        """
        chain = make_chain("dense", self)
        dtype = chain.records[0].data.dtype
        needed = 2 * chain.steps * chain.batch * chain.size**2 * dtype.itemsize
        check_host_memory(needed, f"dense Jacobians of {chain.label}")
        return chain.dense(slice(0, chain.steps), dtype)

    def lengths(self) -> np.ndarray:
        """Return the number of valid steps (without padding) of each sample, (B,) int64.

        Raises ArgumentError if the records are not consecutive steps of one inner layer and direction.
        """
        return make_chain("lengths", self).lengths


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

    @property
    def live(self) -> np.ndarray:
        """(T, B) bool: whether a step of a sample is valid, that is, not padding."""
        return np.arange(self.steps)[:, None] < self.lengths


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


def step_records(name: str, matrices: np.ndarray) -> JacobianRecords:
    """The records of a chain of dense steps.

    Parameters
    ----------
    name : str
        The name of the layer; records call it "NAME l0".
    matrices : array
        (T, B, S, S), the transposed Jacobian of each: rows are the elements of the state before it.
    """
    steps, batch, size = matrices.shape[:3]
    pattern = Pattern.dense(size, size)
    values = matrices.reshape(steps, batch, size * size).swapaxes(1, 2)
    geometry = {"type": name, "state": size}
    return JacobianRecords(
        JacobianRecord(0, f"{name} l0", pattern, data, step, geometry=geometry)
        for step, data in enumerate(np.ascontiguousarray(values))
    )


def as_chain(owner: str, records: Any) -> StepChain:
    """The chain of records that a caller gave. Raises ShapeError or ArgumentError, naming `owner`."""
    if isinstance(records, JacobianRecord):
        records = (records,)
    if isinstance(records, np.ndarray) or (
        isinstance(records, list) and len(records) and not isinstance(records[0], JacobianRecord)
    ):
        if isinstance(records, list):
            records = np.stack([a.toarray() if hasattr(a, "toarray") else np.asarray(a) for a in records])
        arrays = records[:, None] if records.ndim == 3 else records
        if arrays.ndim != 4 or arrays.shape[2] != arrays.shape[3] or not arrays.size:
            raise ShapeError(f"{owner} got arrays of shape {arrays.shape}: pass (T, S, S) or (T, B, S, S)")
        records = step_records("array", np.asarray(arrays, np.float64).swapaxes(2, 3))
    if not isinstance(records, Sequence):
        raise ArgumentError(
            f"{owner} got a {type(records).__name__}: pass the records of net.transposed_jacobians(), "
            "load_jacobians(path) or bppsa_cupy.torch.jacobians(module, x), or Jacobians (T, S, S) as an "
            "array"
        )
    return make_chain(owner, records)
