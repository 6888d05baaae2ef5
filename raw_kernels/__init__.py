"""Kernel pairs: `NAME.cu` (CUDA C++) and `NAME.py` (its Numba twin), and those of recurrent cells, which
fill the frames with what is in cells/ and, of linear ones, in linear_cells/."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module

if __name__ != "bppsa_cupy.raw_kernels":
    raise ImportError("import bppsa_cupy.raw_kernels: a bare `raw_kernels` would be a second copy")

from bppsa_cupy.raw_kernels.kernel import FOLDER, Kernel


class _Kernels(Mapping[str, Kernel]):
    """Every kernel by name: a pair of files in this folder, in cells/ or in linear_cells/, is all it takes to
    be listed. One is imported when it is asked for, those of cells together."""

    def __init__(self) -> None:
        self._pairs = sorted(path.stem for path in FOLDER.glob("*.cu"))

    @cached_property
    def _of_cells(self) -> dict[str, Kernel]:
        from bppsa_cupy.raw_kernels.cells import FORMS
        from bppsa_cupy.raw_kernels.frames.twins import kernels_of
        from bppsa_cupy.raw_kernels.linear.kernels import linear_kernels_of
        from bppsa_cupy.raw_kernels.linear_cells import LINEAR_FORMS

        families = *map(kernels_of, FORMS.values()), *map(linear_kernels_of, LINEAR_FORMS.values())
        return {kernel.name: kernel for family in families for kernel in family.values()}

    def __getitem__(self, name: str) -> Kernel:
        if name in self._pairs:
            return import_module(f"bppsa_cupy.raw_kernels.{name}").KERNEL
        return self._of_cells[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*self._pairs, *self._of_cells))

    def __len__(self) -> int:
        return len(self._pairs) + len(self._of_cells)


KERNELS = _Kernels()
