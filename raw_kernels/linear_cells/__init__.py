"""The built-in linear cells by name, each with its functions written out."""

from importlib import import_module

from bppsa_cupy.raw_kernels.kernel import FOLDER
from bppsa_cupy.raw_kernels.linear.form import LinearForm

#: A module in this folder is listed by itself.
LINEAR_FORMS: dict[str, LinearForm] = {
    path.stem: import_module(f"bppsa_cupy.raw_kernels.linear_cells.{path.stem}").FORM
    for path in sorted((FOLDER / "linear_cells").glob("[!_]*.py"))
}
