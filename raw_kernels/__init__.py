"""Kernel pairs, a family per file: `FAMILY.cu` (CUDA C++) and `FAMILY.py` (Numba twins). Kernels of recurrent
cells fill the frames with the texts of cells/ and linear_cells/."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module

if __name__ != "bppsa_cupy.raw_kernels":
    raise ImportError("import bppsa_cupy.raw_kernels: a bare `raw_kernels` would be a second copy")

from bppsa_cupy.raw_kernels.kernel import FOLDER, Kernel, read_source, split_family


class _Kernels(Mapping[str, Kernel]):
    """Every kernel by name. A section of a family's `.cu` file and the twin of its name list a kernel.

    A family is imported when one of its kernels is asked for; the kernels of all cells are made together.
    """

    @cached_property
    def _families(self) -> dict[str, str]:
        """The family of each kernel that belongs to no cell."""
        files = sorted(path.name for path in FOLDER.glob("*.cu"))
        return {name: file[:-3] for file in files for name in split_family(read_source(file))}

    @cached_property
    def _of_cells(self) -> dict[str, Kernel]:
        from bppsa_cupy.raw_kernels.cells import FORMS
        from bppsa_cupy.raw_kernels.frames.twins import kernels_of
        from bppsa_cupy.raw_kernels.linear.kernels import linear_kernels_of
        from bppsa_cupy.raw_kernels.linear_cells import LINEAR_FORMS

        families = *map(kernels_of, FORMS.values()), *map(linear_kernels_of, LINEAR_FORMS.values())
        return {kernel.name: kernel for family in families for kernel in family.values()}

    def __getitem__(self, name: str) -> Kernel:
        if name in self._families:
            return getattr(import_module(f"bppsa_cupy.raw_kernels.{self._families[name]}"), name)
        return self._of_cells[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*self._families, *self._of_cells))

    def __len__(self) -> int:
        return len(self._families) + len(self._of_cells)


KERNELS = _Kernels()
