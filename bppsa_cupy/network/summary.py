"""What a network is made of, layer by layer: shapes, parameters, and how large its Jacobians are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.layers import Recurrent
from bppsa_cupy.network.architecture import Architecture
from bppsa_cupy.network.sections import Section
from bppsa_cupy.system.units import counted, in_bytes

#: Most characters of a line of `Summary`'s text.
WIDTH = 100
HEAD = "layer", "output", "parameters", "Jacobian nnz", "bytes"
NO_JACOBIAN = "–"


@dataclass(frozen=True)
class SummaryRow:
    """One layer.

    name          where it stands, as its parameters are named: "0", "3.body.1"
    layer         its class's name
    input_shape, output_shape  of one sample; None where the number of steps is left open
    parameters    learnt numbers; those of a residual block are its layers', whose rows follow
    kept          those of them that masks keep
    by_kept       whether the layer goes by the list of these
    jacobians     transposed Jacobians of a sample: 1, or of a recurrent layer one a step, inner layer and
                  direction; 0 of a barrier and of what only reshapes; None where the steps are left open
    nnz           stored entries of each of them
    jacobian_bytes  of them all for one sample as CSR: values, and indices and row pointers once
    """

    name: str
    layer: str
    input_shape: tuple[int | None, ...]
    output_shape: tuple[int | None, ...]
    parameters: int
    kept: int
    by_kept: bool
    jacobians: int | None
    nnz: int
    jacobian_bytes: int | None


@dataclass(frozen=True)
class Summary:
    """A network's layers in order, those inside of residual blocks after their block.

    rows   one a layer
    dtype  of parameters and Jacobians' values
    parameters, kept, nnz, jacobian_bytes  sums over the network; nnz and bytes of one sample, None where the
           steps are left open

    `str` of it is a table of at most 100 columns.
    """

    rows: tuple[SummaryRow, ...]
    dtype: np.dtype
    input_shape: tuple[int | None, ...]

    @property
    def parameters(self) -> int:
        return sum(row.parameters for row in self._outermost)

    @property
    def kept(self) -> int:
        return sum(row.kept for row in self._outermost)

    @property
    def nnz(self) -> int | None:
        return _sum(None if row.jacobians is None else row.jacobians * row.nnz for row in self.rows)

    @property
    def jacobian_bytes(self) -> int | None:
        return _sum(row.jacobian_bytes for row in self.rows)

    @property
    def _outermost(self) -> Iterator[SummaryRow]:
        return (row for row in self.rows if "." not in row.name)

    def __str__(self) -> str:
        lines = [HEAD, *map(_cells, self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rest = sum(widths[2:]) + 2 * (len(HEAD) - 1)
        widths[1] = min(widths[1], max(WIDTH - rest - widths[0], 12))
        widths[0] = min(widths[0], WIDTH - rest - widths[1])
        text = []
        for cells in lines:
            named = (
                f"{_cut(cell, width):{width}}" for cell, width in zip(cells[:2], widths[:2], strict=True)
            )
            numbers = (f"{cell:>{width}}" for cell, width in zip(cells[2:], widths[2:], strict=True))
            text.append("  ".join((*named, *numbers)).rstrip())
        return "\n".join(
            [_cut(f"{self.dtype}, input {_shape(self.input_shape)}", WIDTH), *text, *self._totals()]
        )

    def _totals(self) -> Iterator[str]:
        itemsize, masked = self.dtype.itemsize, self.parameters - self.kept
        held = f", of which masks hold {masked:,} at 0" if masked else ""
        yield f"{counted(self.parameters, 'parameter')}, {in_bytes(self.parameters * itemsize)}{held}"
        if listed := [f"{row.name} {row.layer}" for row in self.rows if row.by_kept]:
            yield _cut(f"By the list of kept weights: {', '.join(listed)}", WIDTH)
        if self.nnz is None or self.jacobian_bytes is None:
            yield "Jacobians: as many as there are steps, which the input's shape leaves open"
        else:
            entries = counted(self.nnz, "entry", "entries")
            yield f"Jacobians of one sample: {entries}, {in_bytes(self.jacobian_bytes)}"


def summarize(architecture: Architecture, dtype: np.dtype, device: str) -> Summary:
    """The summary of an architecture, in its mode, on the device of that name."""
    masks, training, kept = architecture.masks, architecture.training, architecture.kept(device)
    rows = tuple(_rows(architecture.section, masks, kept, "", dtype.itemsize, training))
    return Summary(rows, dtype, architecture.input_shape)


def _rows(
    section: Section,
    masks: Mapping[str, np.ndarray],
    kept: Mapping[str, np.ndarray],
    place: str,
    itemsize: int,
    training: bool,
) -> Iterator[SummaryRow]:
    stack = section.stack
    for index, layer in enumerate(stack.layers):
        name, shape = f"{place}{index}", stack.shapes[index]
        sizes = {own: math.prod(size) for own, size in layer.parameter_shapes().items()}
        lost = sum(int((~masks[f"{name}.{own}"]).sum()) for own in sizes if f"{name}.{own}" in masks)
        pattern, count = _jacobians(section, index, training)
        values = None if count is None else count * pattern.nnz * itemsize if pattern else 0
        own_bytes = pattern.indices.nbytes + pattern.indptr.nbytes if pattern else 0
        yield SummaryRow(
            name, type(layer).__name__, shape, stack.shapes[index + 1], sum(sizes.values()),
            sum(sizes.values()) - lost, f"{name}.weight" in kept, count, pattern.nnz if pattern else 0,
            None if values is None else values + own_bytes,
        )  # fmt: skip
        for branch, inner in section.branches.get(index, {}).items():
            yield from _rows(inner, masks, kept, f"{name}.{branch}.", itemsize, training)


def _jacobians(section: Section, index: int, training: bool) -> tuple[Pattern | None, int | None]:
    """The pattern of a layer's transposed Jacobian, and how many of it a sample has."""
    layer, shape = section.stack.layers[index], section.stack.shapes[index]
    if isinstance(layer, Recurrent):
        count = None if shape[0] is None else shape[0] * layer.num_layers * layer.directions
        return layer.step_pattern, count
    operator = section.jacobians[index]
    if operator is not None:
        return operator.pattern, 1
    return None, None if None in shape and not layer.is_barrier(training) else 0


def _cells(row: SummaryRow) -> tuple[str, ...]:
    """A line's cells."""
    depth = row.name.count(".") // 2
    name = f"{'  ' * depth}{row.name} {row.layer}"
    parameters = f"{row.parameters:,}" if row.parameters else NO_JACOBIAN
    if not row.nnz:
        return name, _shape(row.output_shape), parameters, NO_JACOBIAN, NO_JACOBIAN
    times = "T × " if row.jacobians is None else f"{row.jacobians:,} × " if row.jacobians > 1 else ""
    size = NO_JACOBIAN if row.jacobian_bytes is None else in_bytes(row.jacobian_bytes)
    return name, _shape(row.output_shape), parameters, f"{times}{row.nnz:,}", size


def _shape(shape: tuple[int | None, ...]) -> str:
    return " × ".join("T" if size is None else str(size) for size in shape)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _sum(numbers: Iterator[int | None]) -> int | None:
    found = list(numbers)
    return None if None in found else sum(number for number in found if number is not None)
