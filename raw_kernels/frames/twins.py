"""The kernels of a cell, made once."""

from __future__ import annotations

from functools import cache

from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.frames.host.backward import make_backward
from bppsa_cupy.raw_kernels.frames.host.fill import make_fill
from bppsa_cupy.raw_kernels.frames.host.forward import make_forward
from bppsa_cupy.raw_kernels.frames.host.reduce import make_reduce
from bppsa_cupy.raw_kernels.frames.kernels import make_kernels
from bppsa_cupy.raw_kernels.frames.steps import make_backward_step, make_forward_step
from bppsa_cupy.raw_kernels.kernel import Kernel


@cache
def kernels_of(form: CellForm) -> dict[str, Kernel]:
    """A cell's kernels by verb (`VERBS`)."""
    forward, backward = make_forward(form), make_backward(form)
    twins = {
        "forward": forward,
        "backward": backward,
        "forward_step": make_forward_step(forward),
        "backward_step": make_backward_step(form, backward),
        "reduce": make_reduce(form),
        "fill": make_fill(form),
    }
    return make_kernels(form, twins)
