"""Saves what a recurrent backward pass needs in the caller's arrays, and makes the pass of them again: none
need be alive between forward and backward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bppsa_cupy.devices import Array
from bppsa_cupy.functional.layout import enter, is_by_time
from bppsa_cupy.functional.passes import Saved
from bppsa_cupy.layers import MatrixRecurrent
from bppsa_cupy.layers.matrix_context import MatrixContext
from bppsa_cupy.timescan import Stack


def keep(saved: Saved, out: Mapping[str, Array]) -> None:
    """Copy what the pass keeps into arrays of the layer's `kept_shapes`."""
    ctx = saved.context
    assert isinstance(ctx, MatrixContext) and isinstance(ctx.stack, Stack)
    for name, array in ctx.stack.kept().items():
        out[name][...] = array


def resume(saved: Saved, x: Array, lengths: Any, states: Any, kept: Mapping[str, Array]) -> None:
    """Make a pass that was begun with these what it is after a forward pass that kept these arrays, which
    are copied."""
    layer, ctx = saved.layer, saved.context
    assert isinstance(layer, MatrixRecurrent) and isinstance(ctx, MatrixContext)
    layer.resume(ctx, enter(layer, ctx, x, lengths, states, is_by_time(layer)), kept)
    saved.pool.measure(saved.slot)
