"""Keys of cells: those of two that compute another function anywhere are never equal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from cell_cases import TextStep, drawn_steps, probe_points
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numba.core.dispatcher import Dispatcher
from recurrent_reference import spaces, step_of

from bppsa_cupy.errors import CellError
from bppsa_cupy.layers import CellLayer
from bppsa_cupy.raw_kernels.frames.host.forward import make_forward_lanes
from bppsa_cupy.raw_kernels.frames.twins import kernels_of
from bppsa_cupy.raw_kernels.kernel import Variant
from bppsa_cupy.system.linking import function_key
from bppsa_cupy.torch.engine import mode_of

#: What may stand for a part of a step's text.
EDITS = {
    r"\d\.\d+": ("0.3", "1.000000001", "7.0"),
    r" \+ ": (" - ", " * "),
    r"\* ": ("* -1.0 * ",),
    r"s\.h": ("1.5 * s.h",),
    "tanh|sigmoid|squash|relu": ("tanh", "sigmoid", "squash", "relu"),
}


@st.composite
def pairs(draw):
    """A drawn step, and the same with an edit of one place of one text; the change may mean nothing."""
    texts = list(draw(drawn_steps()).texts)
    number, pattern = draw(st.integers(0, len(texts) - 1)), draw(st.sampled_from(sorted(EDITS)))
    places = list(re.finditer(pattern, texts[number]))
    assume(places)
    place, new = draw(st.sampled_from(places)), draw(st.sampled_from(EDITS[pattern]))
    edited = texts[number][: place.start()] + new + texts[number][place.end() :]
    return TextStep(tuple(texts)), TextStep((*texts[:number], edited, *texts[number + 1 :]))


def values_of(cell):
    """What tells a cell's function from another's: its values at points, as PyTorch has them."""
    points = probe_points(cell.form, 16)
    return np.array(step_of(cell)(*spaces(cell, *([*map(torch.tensor, kind)] for kind in points))))


def keys_of(cell):
    """Every key of a step forward, by what it is of."""
    return {
        "compiled form": repr(function_key(make_forward_lanes(cell.form, False))),
        "function": repr(function_key(cell.form.functions.forward)),
        "cell": cell.digest,
        "CUDA text": kernels_of(cell.form)["forward"].source(Variant()),
        "module": mode_of(cell),
        "layer": repr(CellLayer(cell, 2, 3)),
    }


@settings(max_examples=10)
@given(pairs())
def test_pairs_that_differ_in_one_place_have_other_keys(pair):
    first = pair[0].cell()
    try:
        other = pair[1].cell()
    except CellError:  # a value that is read no more
        assume(False)
    assume(not np.allclose(values_of(first), values_of(other), 0, 1e-12))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dispatcher, "compile", None)  # nothing is compiled
        assert not keys_of(first).items() & keys_of(other).items()


RUN = """
import sys
import bppsa_cupy as bp
from cell_cases import TextStep
from recurrent_reference import compare

for text in sys.argv[1:]:
    layer = bp.CellLayer(TextStep((text,)).cell(), 2, 3)
    net = bp.Sequential([layer], (4, 2), dtype="float64", device="host")
    compare(net, 5, 4, ragged=False)
"""
#: Steps that differ in one place.
NEAR = [
    f"{function}(x.a + {number} * u.a) * s.h"
    for function, number in (("tanh", "1.5"), ("tanh", "1.500001"), ("sigmoid", "1.5"), ("tanh", "-1.5"))
]


@pytest.mark.long
def test_near_cells_on_one_cache_compute_each_its_own_function(tmp_path):
    """In two processes at once, and in another order on the warm cache."""
    support = str(Path(__file__).parents[1] / "support")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": support}
    for texts, processes in ((NEAR, 2), (NEAR[::-1], 1)):
        command = [sys.executable, "-c", RUN, *texts]
        started = [subprocess.Popen(command, env=environment) for _ in range(processes)]
        assert [process.wait() for process in started] == [0] * processes
