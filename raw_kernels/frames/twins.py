"""The four kernels of a cell, made once."""

from __future__ import annotations

from functools import cache

from bppsa_cupy.raw_kernels.frames.backward import make_backward
from bppsa_cupy.raw_kernels.frames.fill import make_fill
from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.frames.forward import make_forward
from bppsa_cupy.raw_kernels.frames.kernels import make_kernels
from bppsa_cupy.raw_kernels.frames.reduce import make_reduce
from bppsa_cupy.raw_kernels.kernel import Kernel


@cache
def kernels_of(form: CellForm) -> dict[str, Kernel]:
    """A cell's "forward", "backward", "reduce" and "fill"."""
    twins = {
        "forward": make_forward(form),
        "backward": make_backward(form),
        "reduce": make_reduce(form),
        "fill": make_fill(form),
    }
    return make_kernels(form, twins)
