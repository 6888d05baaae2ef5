"""What CuPy has no name for in CUDA's driver: how many thread-block clusters of a kernel run at once.

Source: CUDA's header `cuda.h`, of version 11.8 on.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

from bppsa_cupy.raw_kernels.kernel import LaunchShape

#: Of a launch the attribute with a cluster's extents; of a function the one that lets it have more than 8
#: blocks.
CLUSTER_DIMENSION, NON_PORTABLE_CLUSTERS = 4, 14


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute, whose value is of 64 bytes."""

    _fields_ = (
        ("id", ctypes.c_uint),
        ("padding", ctypes.c_char * 4),
        ("cluster", ctypes.c_uint * 3),
        ("others", ctypes.c_char * 52),
    )


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("count", ctypes.c_uint),
    )


@cache
def library() -> ctypes.CDLL | None:
    """The driver; None where it is missing."""
    try:
        return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return None


def tells_clusters() -> bool:
    """Whether there is a driver that knows clusters."""
    return hasattr(library(), "cuOccupancyMaxActiveClusters")


def active_clusters(function: int, shape: LaunchShape, cluster: int) -> int:
    """How many clusters of so many blocks of a launch the current GPU runs at once; 0 where it has none of
    that size.

    function  its address, as CuPy gives it
    """
    attribute = LaunchAttribute(CLUSTER_DIMENSION, b"", (cluster, 1, 1))
    config = LaunchConfig(shape.grid, shape.block, shape.shared_bytes, None, ctypes.pointer(attribute), 1)
    count = ctypes.c_int()
    driver: Any = library()
    status = driver.cuOccupancyMaxActiveClusters(
        ctypes.byref(count), ctypes.c_void_p(function), ctypes.byref(config)
    )
    return 0 if status else count.value
