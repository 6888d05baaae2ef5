"""Keys of cells: those of two that compute another function anywhere are never equal."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from cell_cases import drawn_cells, edited, with_number
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core.dispatcher import Dispatcher

from bppsa_cupy.cells.probe import Points
from bppsa_cupy.errors import CellError
from bppsa_cupy.layers import CellLayer
from bppsa_cupy.raw_kernels.frames.forward_lanes import make_forward_lanes
from bppsa_cupy.raw_kernels.frames.twins import kernels_of
from bppsa_cupy.raw_kernels.kernel import Variant
from bppsa_cupy.system.function_digest import function_digest
from bppsa_cupy.torch.geometry import mode_of

ROOM = "bppsa_cupy.raw_kernels"
#: Pairs that one drawn cell gives.
EDITS = 8


def keys_of(cell):
    """Every key of a step forward, by what it is of."""
    return {
        "compiled form": function_digest(make_forward_lanes(cell.form, False), ROOM),
        "function": function_digest(cell.form.functions.forward, ROOM),
        "cell": cell.digest,
        "CUDA text": kernels_of(cell.form)["forward"].source(Variant()),
        "module": mode_of(cell),
        "layer": repr(CellLayer(cell, 2, 3)),
    }


def values_of(drawn):
    """What tells a cell's function from another's: its values at points, as NumPy has them."""
    points = Points(*np.random.default_rng(1).uniform(-2, 2, (4, 8, 16)))
    return np.array(drawn.values(points))


def test_pairs_that_differ_in_one_place_have_other_keys(pytestconfig, monkeypatch):
    monkeypatch.setattr(Dispatcher, "compile", None)  # nothing is compiled
    wanted, pairs = pytestconfig.getoption("--cell-pairs"), 0

    @settings(max_examples=wanted // 4)
    @given(drawn=drawn_cells(), random=st.randoms(use_true_random=False))
    def law(drawn, random):
        nonlocal pairs
        if pairs >= wanted:
            return
        drawn = with_number(drawn, random.choice)
        values, keys = values_of(drawn), keys_of(drawn.cell())
        for _ in range(EDITS):
            other = edited(drawn, random.choice)
            if np.allclose(values_of(other), values, 0, 1e-12, equal_nan=True):
                continue  # g h + (1 - g) h, of any g, is h
            with suppress(CellError):  # a value that is read no more, or is not finite
                same = {name for name, key in keys_of(other.cell()).items() if key == keys[name]}
                assert not same, other
                pairs += 1

    law()
    assert pairs >= wanted
