"""The built-in cells by name, each with its functions written out."""

from importlib import import_module

from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.kernel import FOLDER

#: A module in this folder is listed by itself.
FORMS: dict[str, CellForm] = {
    path.stem: import_module(f"bppsa_cupy.raw_kernels.cells.{path.stem}").FORM
    for path in sorted((FOLDER / "cells").glob("[!_]*.py"))
}
