"""Picture files: checked before the work, written whole or not at all."""

from __future__ import annotations

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
        raise BppsaError(f"{path} names no format of pictures: give a name that ends in .png, .pdf or .svg")
    check_writable(path)


def save_figure(figure: Any, path: Path, **options: Any) -> None:
    """Write a Matplotlib figure to `path`, in the format its suffix names; `options` are savefig's.

    The file appears when it is whole. Raises BppsaError where it cannot be written.
    """
    check_picture(path)
    with whole_file(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:].lower(), **options)
