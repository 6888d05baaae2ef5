"""The chunk products of an RNN on tensor cores: 3xTF32, which is nearly float32."""

from collections.abc import Mapping
from typing import Any

from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.twins import kernels_of
from bppsa_cupy.raw_kernels.kernel import (
    MAXIMAL_GRID,
    Kernel,
    LaunchShape,
    read_parameters,
    read_source,
    split_family,
)

_NAME = "rnn_tanh_tf32_reduce"
_TEXT = split_family(read_source("reduce_tf32.cu"))[_NAME]


def launch(s: Mapping[str, Any]) -> LaunchShape:
    """A warp for 16 columns of maps, four warps per block."""
    maps = max(0, -(-s["steps"] // s["chunk"]) - s["first"]) * s["batch"]
    columns = maps * (s["hidden"] + (1 if s["per_step"] else 0))
    return LaunchShape((min(-(-columns // 64), MAXIMAL_GRID), 1, 1), (128, 1, 1))


#: `rnn_tanh_reduce` up to rounding, with the same twin.
rnn_tanh_tf32_reduce = Kernel(
    _NAME,
    read_parameters(_NAME, _TEXT),
    launch,
    kernels_of(FORMS["rnn_tanh"])["reduce"].twin,
    _TEXT,
    reals=("float32",),
)
