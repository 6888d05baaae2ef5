"""Kernel pairs: `NAME.cu` (CUDA C++) and `NAME.py` (its Numba twin), and those of recurrent cells, which
fill the frames with what is in cells/."""

from importlib import import_module

if __name__ != "bppsa_cupy.raw_kernels":
    raise ImportError("import bppsa_cupy.raw_kernels: a bare `raw_kernels` would be a second copy")

from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.twins import kernels_of
from bppsa_cupy.raw_kernels.kernel import FOLDER, Kernel

#: Every kernel by name: a pair of files in this folder, or in cells/, is all it takes to be listed.
KERNELS: dict[str, Kernel] = {
    path.stem: import_module(f"bppsa_cupy.raw_kernels.{path.stem}").KERNEL
    for path in sorted(FOLDER.glob("*.cu"))
} | {kernel.name: kernel for form in FORMS.values() for kernel in kernels_of(form).values()}
