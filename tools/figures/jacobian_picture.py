"""Pictures of transposed Jacobians: where their zeros are guaranteed, possible, or not (paper, figure 5)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from bppsa_cupy.errors import ShapeError
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.tools.figures.picture_file import picture

#: What a dot can be, from the weakest: a dot that stands for several elements shows the strongest.
KINDS = ("guaranteed zero", "possible zero", "non-zero")
COLOURS = ("#440154", "#2ec4d6", "#fde725")
#: Most dots of a panel in each direction, and most entries that are looked at in one go.
DOTS, ENTRIES = 480, 1 << 22
#: Half-open ranges of rows or columns; an end that is None is the matrix's own.
Range = tuple[int | None, int | None]


def raster(
    record: JacobianRecord, rows: Range = (None, None), columns: Range = (None, None), sample: int = 0
) -> tuple[np.ndarray, tuple[int, int, int, int], tuple[int, int]]:
    """A window of the matrix of one sample as dots.

    Returns the dots, (height, width) uint8 positions in KINDS, each side at most DOTS; the window (first row,
    end row, first column, end column); and the elements a dot stands for, (rows, columns). Raises
    ShapeError where the window does not lie in the matrix, or the record lacks the sample.
    """
    height, width = record.pattern.shape
    first_row, end_row = _window(record, "rows", rows, height)
    first_column, end_column = _window(record, "columns", columns, width)
    step = math.ceil((end_row - first_row) / DOTS), math.ceil((end_column - first_column) / DOTS)
    shape = -(-(end_row - first_row) // step[0]), -(-(end_column - first_column) // step[1])
    dots = np.zeros(shape, np.uint8)
    values, pattern = record.on_host().values(sample), record.pattern
    for start, end in _blocks(pattern.indptr, first_row, end_row):
        entries = slice(pattern.indptr[start], pattern.indptr[end])
        y = np.repeat(np.arange(start, end) - first_row, pattern.row_lengths[start:end]) // step[0]
        x = pattern.indices[entries] - first_column
        inside = (x >= 0) & (x < end_column - first_column)
        y, x, nonzero = y[inside], x[inside] // step[1], (values[entries] != 0)[inside]
        dots[y, x] = np.maximum(dots[y, x], 1)
        dots[y[nonzero], x[nonzero]] = 2
    return dots, (first_row, end_row, first_column, end_column), step


def _blocks(indptr: np.ndarray, first: int, end: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows that hold about ENTRIES entries each."""
    while first < end:
        last = int(np.searchsorted(indptr, indptr[first] + ENTRIES, "right")) - 1
        last = min(max(last, first + 1), end)
        yield first, last
        first = last


def _window(record: JacobianRecord, what: str, wanted: Range, size: int) -> tuple[int, int]:
    first, end = wanted[0] or 0, size if wanted[1] is None else wanted[1]
    if not 0 <= first < end <= size:
        raise ShapeError(f"{record.label}: {what} {first}:{end} were asked for, the matrix has {size} {what}")
    return first, end


def plot_records(
    records: Sequence[JacobianRecord],
    path: Path,
    *,
    rows: Range = (None, None),
    columns: Range = (None, None),
    sample: int = 0,
) -> None:
    """A PNG with a panel for each record. Raises ShapeError as `raster` does."""
    rasters = [raster(record, rows, columns, sample) for record in records]
    across = min(len(records), 4 if len(records) > 6 else 3)
    down = math.ceil(len(records) / across)
    options = {"figsize": (4.2 * across, 4.4 * down + 0.6), "squeeze": False, "layout": "constrained"}
    with picture(path, down, across, save={"dpi": 150}, **options) as (figure, axes):
        from matplotlib.colors import ListedColormap
        from matplotlib.patches import Patch

        for panel in axes.flat[len(records) :]:
            panel.set_visible(False)
        for panel, record, (dots, window, step) in zip(axes.flat, records, rasters, strict=False):
            first_row, end_row, first_column, end_column = window
            panel.imshow(
                dots,
                cmap=ListedColormap(COLOURS),
                vmin=0,
                vmax=len(KINDS) - 1,
                interpolation="nearest",
                aspect="auto",
                extent=(
                    first_column,
                    first_column + dots.shape[1] * step[1],
                    first_row + dots.shape[0] * step[0],
                    first_row,
                ),
            )
            panel.set_box_aspect(min(1.0, max(1 / 3, (end_row - first_row) / (end_column - first_column))))
            panel.set(xlim=(first_column, end_column), ylim=(end_row, first_row))
            shape = " × ".join(f"{size:,}" for size in record.pattern.shape)
            dot = "" if step == (1, 1) else f"\na dot is {step[0]} × {step[1]} elements"
            panel.set_title(f"{record.label}: {shape}{dot}", fontsize=9)
            panel.set_xlabel("element of the output", fontsize=8)
            panel.set_ylabel("element of the input", fontsize=8)
            panel.tick_params(labelsize=7)
        patches = [
            Patch(facecolor=colour, edgecolor="black", label=kind)
            for kind, colour in zip(KINDS, COLOURS, strict=True)
        ]
        figure.legend(handles=patches, loc="outside lower center", ncols=len(KINDS), fontsize=9)
