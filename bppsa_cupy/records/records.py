"""The transposed Jacobians of a network's pass together: choosing among them, and dense arrays of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np

from bppsa_cupy.arguments import as_integers
from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import ArgumentError, ShapeError
from bppsa_cupy.records.chain import StepChain, chain_key, chain_label, make_chain
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.system.memory import check_host_memory


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
        wanted = {"layer": layer, "path": path, "inner": inner, "direction": direction}
        records: tuple[JacobianRecord, ...] = self._records
        for name, value in wanted.items():
            if value is not None:
                records = _kept(records, name, value)
        if steps is not None:
            numbers = _step_numbers(steps, 1 + max((record.step for record in records), default=0))
            selected = tuple(record for record in records if record.step in numbers)
            if not selected:
                known = sorted({record.step for record in records})
                there = f"steps {known[0]} to {known[-1]}" if known else "no steps"
                raise ArgumentError(f"no record has steps={steps!r}: the records have {there}")
            records = selected
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


def as_chain(owner: str, records: Any, lengths: Any = None) -> tuple[StepChain, np.ndarray]:
    """The chain of records that a caller gave, and how many steps of each sample are no padding.

    Raises ShapeError or ArgumentError, naming `owner`.

    Parameters
    ----------
    lengths : object, default: None
        (B,) integers from 0 to T, or None for those of the records.
    """
    if isinstance(records, JacobianRecord):
        records = (records,)
    if isinstance(records, np.ndarray) or (
        isinstance(records, list) and len(records) and not isinstance(records[0], JacobianRecord)
    ):
        records = _records_of_arrays(owner, records)
    if not isinstance(records, Sequence):
        raise ArgumentError(
            f"{owner} got a {type(records).__name__}: pass the records of net.transposed_jacobians(), "
            "load_jacobians(path) or bppsa_cupy.torch.jacobians(module, x), or Jacobians (T, S, S) as an "
            "array"
        )
    chain = make_chain(owner, records)
    if lengths is None:
        return chain, chain.lengths
    array = as_integers(owner, "lengths", lengths)
    if array.shape != (chain.batch,):
        raise ShapeError(
            f"{owner} got lengths of {array.dtype} and shape {array.shape}: pass integers of shape "
            f"({chain.batch},) for a batch of {chain.batch}"
        )
    if array.min() < 0 or array.max() > chain.steps:
        raise ShapeError(
            f"{owner} got lengths from {array.min()} to {array.max()}, but {chain.label} has {chain.steps} "
            f"steps: pass lengths from 0 to {chain.steps}"
        )
    return chain, array.astype(np.int64)


def _records_of_arrays(owner: str, arrays: Any) -> JacobianRecords:
    """The records of J_t: an array (T, S, S) or (T, B, S, S), or a list of arrays or SciPy matrices."""
    if isinstance(arrays, list):
        arrays = np.stack([a.toarray() if hasattr(a, "toarray") else np.asarray(a) for a in arrays])
    if arrays.ndim == 3:
        arrays = arrays[:, None]
    if arrays.ndim != 4 or arrays.shape[2] != arrays.shape[3] or not arrays.size:
        raise ShapeError(f"{owner} got arrays of shape {arrays.shape}: pass (T, S, S) or (T, B, S, S)")
    return step_records("array", np.asarray(arrays, np.float64).swapaxes(2, 3))


def _kept(records: tuple[JacobianRecord, ...], name: str, value: Any) -> tuple[JacobianRecord, ...]:
    selected = tuple(record for record in records if getattr(record, name) == value)
    if not selected:
        known = sorted({getattr(record, name) for record in records} - {None})
        there = f"the records have {', '.join(map(repr, known))}" if known else "none of the records has one"
        raise ArgumentError(f"no record has {name}={value!r}: {there}")
    return selected


def _step_numbers(steps: Any, end: int) -> range | set[int]:
    """The step numbers that were asked for, of those below `end`."""
    return range(end)[steps] if isinstance(steps, slice) else set(np.atleast_1d(steps).tolist())
