"""Matrix products by cuBLAS itself: CuPy refuses to call cuBLAS while a stream is captured.

Source: NVIDIA, cuBLAS Library, "Using the cuBLAS API" (streams, workspaces, CUDA graphs) and `cublas<t>gemm`.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

#: Bytes of workspace that cuBLAS takes on Hopper by default; smaller GPUs take less.
WORKSPACE = 32 << 20
_POINTER, _INT = ctypes.c_void_p, ctypes.c_int
_GEMM: tuple[Any, ...] = (_POINTER, *[_INT] * 5, *[_POINTER] * 2, _INT, _POINTER, _INT, *[_POINTER] * 2, _INT)


@functools.cache
def open_library(cupy: Any) -> Any:
    """The cuBLAS that CuPy has loaded to make a handle."""
    version = cupy.cuda.runtime.runtimeGetVersion() // 1000
    name = f"cublas64_{version}.dll" if sys.platform == "win32" else f"libcublas.so.{version}"
    library = ctypes.CDLL(name)
    library.cublasSetStream_v2.argtypes = (_POINTER, _POINTER)
    library.cublasSetWorkspace_v2.argtypes = (_POINTER, _POINTER, ctypes.c_size_t)
    library.cublasSgemm_v2.argtypes = library.cublasDgemm_v2.argtypes = _GEMM
    return library


def call_gemm(cupy: Any, real: str, arguments: tuple[int, ...], workspace: int) -> None:
    """Call cublasSgemm or cublasDgemm on the current stream.

    Parameters
    ----------
    real : {"float32", "float64"}
        The type of all matrices.
    arguments : tuple of int
        The arguments after the handle, pointers as addresses.
    workspace : int
        The address of WORKSPACE bytes on the GPU for a captured call; 0: the workspace of cuBLAS.

    Raises
    ------
    cupy.cuda.cublas.CUBLASError
        If cuBLAS gives another status than success.
    """
    handle = cupy.cuda.get_cublas_handle()
    library = open_library(cupy)
    gemm = library.cublasSgemm_v2 if real == "float32" else library.cublasDgemm_v2
    # Setting the stream also resets the workspace.
    status = library.cublasSetStream_v2(handle, cupy.cuda.get_current_stream().ptr)
    if not status and workspace:
        status = library.cublasSetWorkspace_v2(handle, workspace, WORKSPACE)
    status = status or gemm(handle, *arguments)
    if status:
        raise cupy.cuda.cublas.CUBLASError(status)
