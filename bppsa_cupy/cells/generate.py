"""Write the texts of the built-in cells: `python -m bppsa_cupy.cells.generate [FOLDER]`."""

from __future__ import annotations

import sys
from pathlib import Path

from bppsa_cupy.cells.definitions import DEFINITIONS
from bppsa_cupy.raw_kernels.kernel import FOLDER


def texts() -> dict[str, str]:
    """The files of `raw_kernels/cells/` by name, made anew."""
    from bppsa_cupy.cells.form import write

    files = {}
    for name, definition in DEFINITIONS.items():
        written = write(definition)
        files[f"{name}.cuh"] = written.cuda
        files[f"{name}.py"] = written.module()
    return files


def main(folder: Path = FOLDER / "cells") -> None:
    """Write every file of `texts` into a folder."""
    for name, text in texts().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
