"""Kernel pairs: `NAME.cu` (CUDA C++) and `NAME.py` (its signature and its Numba twin)."""

from importlib import import_module

if __name__ != "bppsa_cupy.raw_kernels":
    raise ImportError("import bppsa_cupy.raw_kernels: a bare `raw_kernels` would be a second copy")

from bppsa_cupy.raw_kernels.kernel import FOLDER, Kernel

#: Every kernel by name: a pair of files in this folder is all it takes to be listed.
KERNELS: dict[str, Kernel] = {
    path.stem: import_module(f"bppsa_cupy.raw_kernels.{path.stem}").KERNEL
    for path in sorted(FOLDER.glob("*.cu"))
}
