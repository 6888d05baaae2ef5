"""Cells whose texts were generated beforehand (`python -m bppsa_cupy.cells.generate`), by name."""

from importlib import import_module

from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.kernel import FOLDER

#: A pair of files in this folder, the struct and the twin, is all it takes to be listed.
FORMS: dict[str, CellForm] = {
    path.stem: import_module(f"bppsa_cupy.raw_kernels.cells.{path.stem}").FORM
    for path in sorted((FOLDER / "cells").glob("*.cuh"))
}
