"""Keys of cells: those of two that compute another function anywhere are never equal."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import cell_runs
import numpy as np
import pytest
from cell_cases import drawn_cells, edited, with_number
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core.dispatcher import Dispatcher

from bppsa_cupy.cells.probe import Points
from bppsa_cupy.errors import CellError
from bppsa_cupy.layers import CellLayer
from bppsa_cupy.raw_kernels.frames.host.forward import make_forward_lanes
from bppsa_cupy.raw_kernels.frames.twins import kernels_of
from bppsa_cupy.raw_kernels.kernel import Variant
from bppsa_cupy.system.compile_cache import function_key
from bppsa_cupy.torch.engine_layer import mode_of

#: Pairs that one drawn cell gives.
EDITS = 8


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


def values_of(drawn):
    """What tells a cell's function from another's: its values at points, as NumPy has them."""
    points = Points(*np.random.default_rng(1).uniform(-2, 2, (4, 8, 16)))
    return np.array(drawn.values(points))


def drawn_pairs(wanted, edits, take):
    """Hand `wanted` pairs of cells or more that compute other functions to `take`, up to `edits` a cell."""
    pairs = 0

    @settings(max_examples=2 * wanted // edits)
    @given(drawn=drawn_cells(), random=st.randoms(use_true_random=False))
    def draw(drawn, random):
        nonlocal pairs
        drawn = with_number(drawn, random.choice)
        values = values_of(drawn)
        for _ in range(edits):
            other = edited(drawn, random.choice)
            if np.allclose(values_of(other), values, 0, 1e-12, equal_nan=True):
                continue  # g h + (1 - g) h, of any g, is h
            with suppress(CellError):  # a value that is read no more, or is not finite
                other.cell()
                take(drawn, other)
                pairs += 1

    draw()
    assert pairs >= wanted


def test_pairs_that_differ_in_one_place_have_other_keys(pytestconfig, monkeypatch):
    monkeypatch.setattr(Dispatcher, "compile", None)  # nothing is compiled

    def differ(drawn, other):
        keys = keys_of(drawn.cell())
        same = {name for name, key in keys_of(other.cell()).items() if key == keys[name]}
        assert not same, other

    drawn_pairs(pytestconfig.getoption("--cell-pairs"), EDITS, differ)


@pytest.mark.long
def test_pairs_on_one_cache_compute_each_its_own_function(pytestconfig, tmp_path):
    """Half of the pairs in one process, which another accompanies, half in two, one after another; and all
    again on the warm cache."""
    pairs, wanted = [], pytestconfig.getoption("--cell-runs")
    drawn_pairs(wanted, 2, lambda *pair: pairs.append(pair))
    half = wanted // 2
    together = [drawn for pair in pairs[:half] for drawn in pair]
    first, second = ([pair[side] for pair in pairs[half:wanted]] for side in (0, 1))
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "BPPSA_QUIET": "1"}
    file = tmp_path / "cells"
    for cells, processes in ((together, 2), (first, 1), (second, 1)) * 2:
        file.write_bytes(pickle.dumps(cells))
        command = [sys.executable, Path(cell_runs.__file__), file]
        started = [
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, encoding="utf-8")
            for _ in range(processes)
        ]
        for process in started:
            wrong, _ = process.communicate()
            assert (process.returncode, wrong.split()) == (0, [])
