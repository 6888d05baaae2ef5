"""What a network is made of, layer by layer: shapes, parameters, and how large its Jacobians are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bppsa_cupy.layers import Recurrent
from bppsa_cupy.network.architecture import Architecture, Section
from bppsa_cupy.system.units import counted, in_bytes

HEAD = "layer", "output", "parameters", "Jacobian nnz", "bytes"
NONE = "–"


@dataclass(frozen=True)
class SummaryRow:
    """One layer in a network's summary.

    Attributes
    ----------
    name : str
        Place of the layer, as in parameter names: "0", "3.body.1".
    layer : str
        Class name.
    output_shape : tuple of (int or None)
        Shape of one sample; None if the number of steps is open.
    parameters : int
        Number of learned values. The count of a residual block includes its layers, whose rows follow.
    jacobians : int or None
        Transposed Jacobians per sample: 1, or one per step, inner layer and direction of a recurrent layer. 0
        for layers without one, None if the number of steps is open.
    nnz : int
        Stored entries of each Jacobian.
    jacobian_bytes : int or None
        CSR size of all Jacobians of one sample, with indices and row pointers counted once.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> net = bp.Sequential([bp.Linear(4, 3), bp.Tanh()], input_shape=(4,), device="host")
    >>> [(row.layer, row.nnz) for row in net.summary().rows]
    [('Linear', 12), ('Tanh', 3)]
    """

    name: str
    layer: str
    output_shape: tuple[int | None, ...]
    parameters: int
    jacobians: int | None
    nnz: int
    jacobian_bytes: int | None

    def cells(self) -> tuple[str, ...]:
        """The texts of one table line."""
        name = f"{'  ' * (self.name.count('.') // 2)}{self.name} {self.layer}"
        parameters = f"{self.parameters:,}" if self.parameters else NONE
        if not self.nnz:
            return name, _shape(self.output_shape), parameters, NONE, NONE
        count = self.jacobians
        times = "T × " if count is None else f"{count:,} × " if count > 1 else ""
        size = NONE if self.jacobian_bytes is None else in_bytes(self.jacobian_bytes)
        return name, _shape(self.output_shape), parameters, f"{times}{self.nnz:,}", size


@dataclass(frozen=True)
class Summary:
    """The layers of a network, with their sizes; `str` is a table.

    Layers of a residual block follow their block.

    Attributes
    ----------
    rows : tuple of SummaryRow
        One row per layer.
    dtype : numpy.dtype
        Dtype of parameters and Jacobian values.
    input_shape : tuple of (int or None)
        Shape of one sample.
    masked : int
        Number of parameters that masks keep 0.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> net = bp.Sequential([bp.Linear(4, 3), bp.Tanh()], input_shape=(4,), device="host")
    >>> print(str(net.summary()).splitlines()[-2])
    15 parameters, 60 B
    """

    rows: tuple[SummaryRow, ...]
    dtype: np.dtype
    input_shape: tuple[int | None, ...]
    masked: int

    @property
    def parameters(self) -> int:
        """The number of learned values of the network."""
        return sum(row.parameters for row in self.rows if "." not in row.name)

    @property
    def nnz(self) -> int | None:
        """Stored Jacobian entries of one sample; None if the number of steps is open."""
        counts = [(row.jacobians, row.nnz) for row in self.rows]
        return None if None in dict(counts) else sum(count * nnz for count, nnz in counts if count)

    @property
    def jacobian_bytes(self) -> int | None:
        """CSR size of all Jacobians of one sample; None if the number of steps is open."""
        sizes = [row.jacobian_bytes for row in self.rows]
        return None if None in sizes else sum(size for size in sizes if size)

    def __str__(self) -> str:
        lines = [HEAD, *(row.cells() for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = [
            "  ".join(
                f"{cell:{'<' if place < 2 else '>'}{width}}"
                for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
            ).rstrip()
            for cells in lines
        ]
        held = f", of which masks hold {self.masked:,} at 0" if self.masked else ""
        size = in_bytes(self.parameters * self.dtype.itemsize)
        total = "as many as there are steps, which the input's shape leaves open"
        if self.nnz is not None and self.jacobian_bytes is not None:
            total = f"{counted(self.nnz, 'entry', 'entries')}, {in_bytes(self.jacobian_bytes)}"
        return "\n".join(
            [
                f"{self.dtype}, input {_shape(self.input_shape)}",
                *table,
                f"{counted(self.parameters, 'parameter')}, {size}{held}",
                f"Jacobians of one sample: {total}",
            ]
        )


def summarize(architecture: Architecture, dtype: np.dtype) -> Summary:
    """The summary of an architecture, in its mode."""
    rows = tuple(_rows(architecture.section, dtype.itemsize, architecture.training))
    masked = sum(int((~mask).sum()) for mask in architecture.masks.values())
    return Summary(rows, dtype, architecture.input_shape, masked)


def _rows(section: Section, itemsize: int, training: bool) -> Iterator[SummaryRow]:
    stack = section.stack
    for index, layer in enumerate(stack.layers):
        shape, operator, pattern = stack.shapes[index], section.jacobians[index], None
        count: int | None = 0
        if isinstance(layer, Recurrent):
            pattern = layer.step_pattern
            count = None if shape[0] is None else shape[0] * layer.num_layers * layer.directions
        elif operator is not None:
            pattern, count = operator.pattern, 1
        elif None in shape and not layer.is_barrier(training):
            count = None
        size = None if count is None else 0
        if pattern is not None and count is not None:
            size = count * pattern.nnz * itemsize + pattern.indices.nbytes + pattern.indptr.nbytes
        yield SummaryRow(
            f"{section.place}{index}", type(layer).__name__, stack.shapes[index + 1],
            sum(map(math.prod, layer.parameter_shapes().values())), count,
            0 if pattern is None else pattern.nnz, size,
        )  # fmt: skip
        for inner in section.branches.get(index, {}).values():
            yield from _rows(inner, itemsize, training)


def _shape(shape: tuple[int | None, ...]) -> str:
    return " × ".join("T" if size is None else str(size) for size in shape)
