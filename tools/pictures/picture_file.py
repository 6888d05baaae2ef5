"""Picture files: checked before the work, written whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bppsa_cupy.errors import BppsaError
from bppsa_cupy.system.files import check_writable, whole_file

#: The formats that Matplotlib writes without other programs, by suffix.
FORMATS = ("png", "pdf", "svg")


def check_picture(path: Path) -> None:
    """Raise BppsaError where no picture could be written to `path`: folder, format, or no Matplotlib."""
    if find_spec("matplotlib") is None:
        raise BppsaError("a picture needs matplotlib: install the extra 'plot'")
    if path.suffix[1:].lower() not in FORMATS:
        raise BppsaError(f"{path} is not a known picture format: give a name that ends in .png, .pdf or .svg")
    check_writable(path)


def save_figure(figure: Any, path: Path, **options: Any) -> None:
    """Write a Matplotlib figure to `path`, in the format its suffix names; `options` are savefig's.

    The file appears when it is whole. Raises BppsaError where it cannot be written.
    """
    check_picture(path)
    with whole_file(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:].lower(), **options)


@contextmanager
def picture(
    path: Path, rows: int = 1, columns: int = 1, *, save: dict[str, Any], **options: Any
) -> Iterator[tuple[Any, Any]]:
    """Make a Matplotlib figure and its axes for the block, and write it to `path` at the end of the block.

    `save` has the options of `savefig`, and `options` those of `subplots`. Raises BppsaError like
    `check_picture`, before the block, and if the file cannot be written.
    """
    check_picture(path)
    try:
        import matplotlib
    except ImportError as error:
        raise BppsaError(f"a picture needs matplotlib ({error}): install the extra 'plot'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(rows, columns, **options)
    try:
        yield figure, axes
        save_figure(figure, path, **save)
    finally:
        pyplot.close(figure)
