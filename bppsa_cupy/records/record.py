"""The transposed Jacobians of one pass, as they are handed to a reader."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse

from bppsa_cupy.arguments import as_integer, as_integers, as_number, check_plain
from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError

#: The name of a record of a recurrent layer: its class, and the inner layer, as PyTorch counts them.
_RECURRENT = re.compile(r"\w+ l(\d+)")


@dataclass(frozen=True, eq=False)
class JacobianRecord:
    """(∂y/∂x)ᵀ of one layer, for all samples of a batch or for one of them.

    layer          the layer's index in its network
    name           the layer's class, e.g. "Conv2d"; of a recurrent layer with the inner layer, e.g. "GRU l0"
    pattern        (elements of x, elements of y)
    data           (nnz,) values that serve every sample, or (nnz, B); float32 or float64, on any device
    step           the time step of a recurrent layer, else 0
    direction      "forward", or "backward" for the second half of a bidirectional layer
    geometry       what the pattern follows from (the layer's arguments, its input's shape), as JSON holds it
    gradient_norm  2-norm over the batch of the loss's gradient by the layer's output; None where there was no
                   backward pass, and of a recurrent layer's steps
    path           where inside that layer, e.g. "body.0"; "" for the layer itself
    sample         the one sample that `data` (nnz,) belongs to; None otherwise
    lengths        (B,) integers on the host, the number of steps of each sample in a recurrent layer: later
                   steps are padding. None where no sample is padded

    Raises ShapeError where data and pattern do not fit, and for a field of another kind; layer, step and
    sample count from 0.
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

    def __post_init__(self) -> None:
        owner = "a JacobianRecord"
        for name in ("layer", "step", "sample"):
            value = getattr(self, name)
            if name != "sample" or value is not None:
                object.__setattr__(self, name, as_integer(owner, name, value, 0))
        if self.gradient_norm is not None:
            takes = "a number of at least 0"
            norm = as_number(owner, "gradient_norm", self.gradient_norm, lambda v: not v < 0, takes)
            object.__setattr__(self, "gradient_norm", norm)
        texts = dict.fromkeys(("name", "direction", "path"), str)
        for name, kind in {**texts, "geometry": dict, "pattern": Pattern}.items():
            if not isinstance(getattr(self, name), kind):
                given = type(getattr(self, name)).__name__
                raise ShapeError(f"{owner} got a {given} as {name}: it takes a {kind.__name__}")
        if not hasattr(self.data, "dtype"):
            raise ShapeError(f"{self.label} got a {type(self.data).__name__} as data: it takes an array")
        check_plain(self.label, "data", self.data)
        axes = (1,) if self.sample is not None else (1, 2)
        if self.data.ndim not in axes or self.data.shape[0] != self.pattern.nnz:
            takes = f"({self.pattern.nnz},)" + (f" or ({self.pattern.nnz}, B)" if 2 in axes else "")
            raise ShapeError(f"{self.label} got data of shape {self.data.shape}: its pattern takes {takes}")
        if self.data.dtype not in (np.float32, np.float64):
            raise ShapeError(f"{self.label} got data of {self.data.dtype}: it takes float32 or float64")
        if self.lengths is not None:
            lengths = as_integers(self.label, "lengths", self.lengths)
            wanted = 1 if self.shared else self.batch
            if lengths.shape != (wanted,) or (lengths < 0).any():
                raise ShapeError(
                    f"{self.label} got lengths of shape {lengths.shape}: it takes ({wanted},) integers from 0"
                )
            object.__setattr__(self, "lengths", lengths.astype(np.int64, copy=False))

    @property
    def label(self) -> str:
        """What it is called in tables and errors, e.g. "3 Conv2d", "4.body.0 Conv2d" or "0 RNN step 7"."""
        step = f" step {self.step}" if self.step else ""
        direction = "" if self.direction == "forward" else f" {self.direction}"
        place = f"{self.layer}.{self.path}" if self.path else str(self.layer)
        return f"{place} {self.name}{step}{direction}"

    @cached_property
    def inner(self) -> int | None:
        """Which inner layer of a recurrent layer it is of, as `name` says; None for another layer."""
        match = _RECURRENT.fullmatch(self.name)
        return None if match is None else int(match[1])

    @property
    def shared(self) -> bool:
        """Whether one set of values serves every sample."""
        return self.data.ndim == 1 and self.sample is None

    @property
    def batch(self) -> int | None:
        """The number of samples in `data`; None where `shared`."""
        if self.shared:
            return None
        return 1 if self.data.ndim == 1 else int(self.data.shape[1])

    def values(self, sample: int = 0) -> Array:
        """(nnz,) the values of one sample, 0 <= sample < batch, where they are. Raises ShapeError."""
        sample = as_integer(self.label, "sample", sample)
        if sample < 0 or (self.batch is not None and sample >= self.batch):
            known = "any sample from 0" if self.batch is None else f"samples 0 to {self.batch - 1}"
            raise ShapeError(f"{self.label}: sample {sample} was asked for, the record holds {known}")
        return self.data if self.data.ndim == 1 else self.data[:, sample]

    def select(self, sample: int) -> JacobianRecord:
        """The record of one sample, its data (nnz,); a shared record as it is."""
        values = self.values(sample)
        if self.data.ndim == 1:
            return self
        lengths = None if self.lengths is None else self.lengths[sample : sample + 1]
        return replace(self, data=values, sample=sample, lengths=lengths)

    def on_host(self) -> JacobianRecord:
        """The same record with NumPy data; the record itself where it has them."""
        if isinstance(self.data, np.ndarray):
            return self
        return replace(self, data=self.data.get())

    def to_scipy(self, sample: int = 0) -> scipy.sparse.csr_array:
        """The matrix of one sample, a copy, inactive entries as stored zeros. Raises ShapeError."""
        return self.pattern.to_scipy(np.array(self.on_host().values(sample)))

    def to_cupyx(self, sample: int = 0) -> Any:
        """The matrix of one sample as a cupyx.scipy.sparse.csr_matrix on the current GPU, a copy.

        Raises ShapeError, and DeviceError where there is no GPU.
        """
        from bppsa_cupy.devices.cuda import import_cupy, import_cupyx_sparse

        values = self.values(sample)
        cupy, sparse = import_cupy(), import_cupyx_sparse()
        arrays = (cupy.array(array) for array in (values, self.pattern.indices, self.pattern.indptr))
        return sparse.csr_matrix(tuple(arrays), shape=self.pattern.shape)
