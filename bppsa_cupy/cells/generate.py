"""Write the texts of the built-in cells: `python -m bppsa_cupy.cells.generate [FOLDER]`."""

from __future__ import annotations

import sys
from pathlib import Path

from bppsa_cupy.cells.definitions import DEFINITIONS, LINEAR_DEFINITIONS
from bppsa_cupy.raw_kernels.kernel import FOLDER


def texts() -> dict[str, str]:
    """The files of `raw_kernels/cells/` and `raw_kernels/linear_cells/` by path, made anew."""
    from bppsa_cupy.cells.form import write
    from bppsa_cupy.cells.linear import linear_module

    files = {}
    for name, definition in DEFINITIONS.items():
        files[f"cells/{name}.py"] = write(definition).module()
    for name, definition in LINEAR_DEFINITIONS.items():
        files[f"linear_cells/{name}.py"] = linear_module(definition)
    return files


def main(folder: Path = FOLDER) -> None:
    """Write every file of `texts` into a folder."""
    for path, text in texts().items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
