"""Pictures of transposed Jacobians: where their zeros are guaranteed, possible, or not (paper, figure 5), and
the values of small ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.errors import ShapeError
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.tools.pictures.picture_file import picture

#: What a dot can be, from the weakest: a dot that stands for several elements shows the strongest.
KINDS = ("guaranteed zero", "possible zero", "non-zero")
COLOURS = ("#440154", "#2ec4d6", "#fde725")
#: The colour of a guaranteed zero beside values.
GUARANTEED = "#c9c9c9"
#: Most dots of a panel in each direction, and most entries that are looked at in one go.
DOTS, ENTRIES = 480, 1 << 22
#: What a panel shows; "auto" is the values where a window has at most SMALL rows and columns.
SHOWS, SMALL = ("auto", "values", "zeros"), 64
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


def values_of(
    record: JacobianRecord, rows: Range = (None, None), columns: Range = (None, None), sample: int = 0
) -> np.ma.MaskedArray:
    """A window of the matrix of one sample, guaranteed zeros masked. Raises ShapeError as `raster` does, and
    where a side is longer than DOTS."""
    window = [
        slice(*_window(record, side, wanted, size))
        for side, wanted, size in zip(("rows", "columns"), (rows, columns), record.pattern.shape, strict=True)
    ]
    height, width = (part.stop - part.start for part in window)
    if max(height, width) > DOTS:
        raise ShapeError(
            f"{record.label}: the values of {height} × {width} elements were requested, but a picture "
            f"shows at most {DOTS} × {DOTS}: crop it by rows and columns, or show zeros"
        )
    matrix, stored = record.to_scipy(sample), record.pattern.to_scipy()
    inside = tuple(window)
    return np.ma.masked_array(matrix[inside].toarray(), stored[inside].toarray() == 0)


def _blocks(indptr: np.ndarray, first: int, end: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows that hold about ENTRIES entries each."""
    while first < end:
        last = int(np.searchsorted(indptr, indptr[first] + ENTRIES, "right")) - 1
        last = min(max(last, first + 1), end)
        yield first, last
        first = last


def _window(record: JacobianRecord, side: str, wanted: Range, size: int) -> tuple[int, int]:
    first, end = wanted[0] or 0, size if wanted[1] is None else wanted[1]
    if not 0 <= first < end <= size:
        raise ShapeError(
            f"{record.label}: {side} {first}:{end} were requested, but the matrix has {size} {side}"
        )
    return first, end


def plot_records(
    records: Sequence[JacobianRecord],
    path: Path,
    *,
    rows: Range = (None, None),
    columns: Range = (None, None),
    sample: int = 0,
    show: str = "auto",
) -> None:
    """A PNG with a panel for each record: its values or its zeros, as `show` of SHOWS says. Raises ShapeError
    as `raster` and `values_of` do."""
    rasters = [raster(record, rows, columns, sample) for record in records]
    by_value = [
        values_of(record, rows, columns, sample) if _shows_values(show, window) else None
        for record, (_, window, _) in zip(records, rasters, strict=True)
    ]
    across = min(len(records), 4 if len(records) > 6 else 3)
    down = math.ceil(len(records) / across)
    options = {"figsize": (4.2 * across, 4.4 * down + 0.6), "squeeze": False, "layout": "constrained"}
    with picture(path, down, across, save={"dpi": 150}, **options) as (figure, axes):
        for panel in axes.flat[len(records) :]:
            panel.set_visible(False)
        for panel, record, image, values in zip(axes.flat, records, rasters, by_value, strict=False):
            dots, window, step = image
            if values is None:
                _draw_zeros(panel, dots, window, step)
            else:
                _draw_values(panel, values, window)
            first_row, end_row, first_column, end_column = window
            panel.set_box_aspect(min(1.0, max(1 / 3, (end_row - first_row) / (end_column - first_column))))
            panel.set(xlim=(first_column, end_column), ylim=(end_row, first_row))
            shape = " × ".join(f"{size:,}" for size in record.pattern.shape)
            dot = "" if step == (1, 1) or values is not None else f"\na dot is {step[0]} × {step[1]} elements"
            panel.set_title(f"{record.label}: {shape}{dot}", fontsize=9)
            after, before = ("output", "input") if record.inner is None else ("state after", "state before")
            panel.set_xlabel(f"element of the {after}", fontsize=8)
            panel.set_ylabel(f"element of the {before}", fontsize=8)
            for axis in (panel.xaxis, panel.yaxis):
                axis.get_major_locator().set_params(integer=True)
            panel.tick_params(labelsize=7)
        shown = {None if values is None else bool(np.ma.getmaskarray(values).any()) for values in by_value}
        _draw_legend(figure, shown)


def _shows_values(show: str, window: tuple[int, int, int, int]) -> bool:
    first_row, end_row, first_column, end_column = window
    small = max(end_row - first_row, end_column - first_column) <= SMALL
    return show == "values" or (show == "auto" and small)


def _draw_zeros(
    panel: Any, dots: np.ndarray, window: tuple[int, int, int, int], step: tuple[int, int]
) -> None:
    from matplotlib.colors import ListedColormap

    first_row, _, first_column, _ = window
    end_column, end_row = first_column + dots.shape[1] * step[1], first_row + dots.shape[0] * step[0]
    panel.imshow(
        dots, cmap=ListedColormap(COLOURS), vmin=0, vmax=len(KINDS) - 1, interpolation="nearest",
        aspect="auto", extent=(first_column, end_column, end_row, first_row),
    )  # fmt: skip


def _draw_values(panel: Any, values: np.ma.MaskedArray, window: tuple[int, int, int, int]) -> None:
    """Colours from blue to red about 0, with a bar; what is not finite is black."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    first_row, end_row, first_column, end_column = window
    finite = np.abs(values.compressed()[np.isfinite(values.compressed())])
    largest = float(finite.max(initial=0)) or 1.0
    panel.set_facecolor("black")
    shown = np.ma.masked_invalid(values.filled(0))
    image = panel.imshow(
        shown, cmap=colormaps["RdBu_r"], vmin=-largest, vmax=largest, interpolation="nearest", aspect="auto",
        extent=(first_column, end_column, end_row, first_row),
    )  # fmt: skip
    zeros = np.ma.masked_array(np.zeros(values.shape), ~np.ma.getmaskarray(values))
    panel.imshow(
        zeros, cmap=ListedColormap([GUARANTEED]), interpolation="nearest", aspect="auto",
        extent=(first_column, end_column, end_row, first_row),
    )  # fmt: skip
    bar = panel.figure.colorbar(image, ax=panel, fraction=0.046, pad=0.02)
    bar.ax.tick_params(labelsize=7)


def _draw_legend(figure: Any, shown: set[bool | None]) -> None:
    """Explain the colours.

    `shown` holds None if there is a panel of zeros, and True if a panel of values has guaranteed zeros.
    """
    from matplotlib.patches import Patch

    meanings = list(zip(COLOURS, KINDS, strict=True)) if None in shown else []
    if True in shown:
        meanings.append((GUARANTEED, "guaranteed zero" + (", beside values" if meanings else "")))
    patches = [Patch(facecolor=colour, edgecolor="black", label=kind) for colour, kind in meanings]
    if patches:
        figure.legend(handles=patches, loc="outside lower center", ncols=len(patches), fontsize=9)
