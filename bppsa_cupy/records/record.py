"""The transposed Jacobians of one pass, as they are handed to a reader."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse

from bppsa_cupy.arguments import as_integer, as_integers, check_plain
from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError

#: The name of a record of a recurrent layer: its class, and the inner layer, as PyTorch counts them.
_RECURRENT = re.compile(r"\w+ l(\d+)")


@dataclass(frozen=True, eq=False)
class JacobianRecord:
    """The transposed Jacobian (∂y/∂x)ᵀ of one layer, for all samples of a batch or for one sample.

    Parameters
    ----------
    layer : int
        The index of the layer in its network.
    name : str
        The class of the layer, such as "Conv2d". For recurrent layers the inner layer follows: "GRU l0".
    pattern : Pattern
        The positions of the stored entries, of shape (elements of x, elements of y).
    data : array, (nnz,) or (nnz, B)
        The stored entries, float32 or float64, on any device. (nnz,) contains one set of values, for all
        samples or only for `sample`. (nnz, B) contains one set per sample.
    step : int, default: 0
        The time step of a recurrent layer.
    direction : {"forward", "backward"}, default: "forward"
        The direction of a recurrent layer. "backward" is the second direction of a bidirectional layer.
    geometry : dict, default: {}
        Type and arguments of the layer and the shape of its input, which determine the pattern.
    gradient_norm : float, optional
        2-norm, over the whole batch, of the gradient with respect to y. None before a backward pass, and for
        the steps of a recurrent layer.
    sample : int, optional
        The index of the sample if `data` has shape (nnz,) and belongs to one sample only.
    path : str, default: ""
        The name of the layer inside layer `layer`, such as "body.0" in a residual block.
    lengths : ndarray of int, (B,), optional
        The number of valid time steps of each sample, for a recurrent layer. Later steps are padding.

    Raises
    ------
    ShapeError
        If data and pattern do not fit, or an argument has the wrong type.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> record = bp.JacobianRecord(1, "ReLU", bp.Pattern.diagonal(2), np.array([[1.0, 0.0], [1.0, 1.0]]))
    >>> record
    JacobianRecord 1 ReLU: Pattern 2 × 2, 2 entries, 2 samples
    >>> record.to_scipy(sample=1).toarray().tolist()
    [[0.0, 0.0], [0.0, 1.0]]
    """

    layer: int
    name: str
    pattern: Pattern
    data: Array
    step: int = 0
    direction: str = "forward"
    geometry: dict[str, Any] = field(default_factory=dict)
    gradient_norm: float | None = None
    sample: int | None = None
    path: str = ""
    lengths: np.ndarray | None = None

    def __repr__(self) -> str:
        samples = "shared by all samples" if self.shared else f"{self.batch} samples"
        return f"JacobianRecord {self.label}: {self.pattern}, {samples}"

    def __post_init__(self) -> None:
        check_plain(self.label, "data", self.data)
        axes = (1,) if self.sample is not None else (1, 2)
        if self.data.ndim not in axes or self.data.shape[0] != self.pattern.nnz:
            takes = f"({self.pattern.nnz},)" + (f" or ({self.pattern.nnz}, B)" if 2 in axes else "")
            raise ShapeError(f"{self.label} got data of shape {self.data.shape}: pass {takes}")
        if self.data.dtype not in (np.float32, np.float64):
            raise ShapeError(f"{self.label} got data of {self.data.dtype}: pass float32 or float64")
        if self.lengths is not None:
            lengths = as_integers(self.label, "lengths", self.lengths)
            wanted = 1 if self.shared else self.batch
            if lengths.shape != (wanted,) or (lengths < 0).any():
                raise ShapeError(
                    f"{self.label} got lengths {lengths.tolist()}: pass {wanted} integers of at least 0"
                )
            object.__setattr__(self, "lengths", lengths.astype(np.int64, copy=False))

    @property
    def label(self) -> str:
        """The name in tables and errors, such as "3 Conv2d", "4.body.0 Conv2d" or "0 RNN l0 step 7"."""
        step = f" step {self.step}" if self.step else ""
        direction = "" if self.direction == "forward" else f" {self.direction}"
        place = f"{self.layer}.{self.path}" if self.path else str(self.layer)
        return f"{place} {self.name}{step}{direction}"

    @cached_property
    def inner(self) -> int | None:
        """The index of the inner layer of a recurrent layer, 1 for "LSTM l1". None for other layers."""
        match = _RECURRENT.fullmatch(self.name)
        return None if match is None else int(match[1])

    @property
    def shared(self) -> bool:
        """Whether all samples share one set of values."""
        return self.data.ndim == 1 and self.sample is None

    @property
    def batch(self) -> int | None:
        """The number of samples in `data`. None if `shared`."""
        if self.shared:
            return None
        return 1 if self.data.ndim == 1 else int(self.data.shape[1])

    def values(self, sample: int = 0) -> Array:
        """Return the values of one sample, (nnz,), on the device of `data`.

        Raises ShapeError if there is no such sample.
        """
        sample = as_integer(self.label, "sample", sample)
        if sample < 0 or (self.batch is not None and sample >= self.batch):
            known = "any sample from 0" if self.batch is None else f"samples 0 to {self.batch - 1}"
            raise ShapeError(f"{self.label} has no sample {sample}: pass {known}")
        return self.data if self.data.ndim == 1 else self.data[:, sample]

    def select(self, sample: int) -> JacobianRecord:
        """Return the record of one sample, with data (nnz,), or this record if it has such data."""
        values = self.values(sample)
        if self.data.ndim == 1:
            return self
        lengths = None if self.lengths is None else self.lengths[sample : sample + 1]
        return replace(self, data=values, sample=sample, lengths=lengths)

    def on_host(self) -> JacobianRecord:
        """Return the record with its data as a NumPy array, copied only if the data are on a GPU."""
        if isinstance(self.data, np.ndarray):
            return self
        return replace(self, data=self.data.get())

    def to_scipy(self, sample: int = 0) -> scipy.sparse.csr_array:
        """Return a copy of the transposed Jacobian of one sample, with `pattern`.

        Entries that are zero for the current input are stored zeros. Raises ShapeError if there is no such
        sample.
        """
        return self.pattern.to_scipy(np.array(self.on_host().values(sample)))
