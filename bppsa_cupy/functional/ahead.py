"""Passes of recurrent layers that run only to compile their kernels, here or in a process beside this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from bppsa_cupy.functional import passes
from bppsa_cupy.layers import GRU, LSTM, RNN


class PassKind(NamedTuple):
    """The properties that decide which kernels a pass of a recurrent layer calls.

    Attributes
    ----------
    mode : str
        "RNN_TANH", "RNN_RELU", "GRU" or "LSTM", as PyTorch names them.
    sizes : tuple of 3 int
        input_size, hidden_size, num_layers.
    bias, batch_first, bidirectional : bool
        Arguments of the layer.
    dtype : str
        "float32" or "float64".
    steps, batch : int
        The number of steps and of samples of the input.
    lengths : bool
        Whether sequences end at different steps.
    states : bool
        Whether first states are given.
    gradients : bool
        Whether a backward pass follows.
    """

    mode: str
    sizes: tuple[int, int, int]
    bias: bool
    batch_first: bool
    bidirectional: bool
    dtype: str
    steps: int
    batch: int
    lengths: bool
    states: bool
    gradients: bool


def layer_named(mode: str, *sizes: Any, **options: Any) -> RNN | GRU | LSTM:
    """The layer of a mode, as PyTorch names them; sizes and options are those of the layer."""
    if mode.startswith("RNN_"):
        options["nonlinearity"] = mode.removeprefix("RNN_").lower()
        return RNN(*sizes, **options)
    return GRU(*sizes, **options) if mode == "GRU" else LSTM(*sizes, **options)


def run_pass(kind: PassKind) -> None:
    """Run a pass of zeros, and its backward pass where gradients are needed."""
    layer = layer_named(
        kind.mode, *kind.sizes, bias=kind.bias, batch_first=kind.batch_first, bidirectional=kind.bidirectional
    )
    features, hidden, layers = kind.sizes
    shape = (kind.batch, kind.steps) if kind.batch_first else (kind.steps, kind.batch)
    parameters = {name: np.zeros(shape, kind.dtype) for name, shape in layer.parameter_shapes().items()}
    lengths = np.full(kind.batch, kind.steps) if kind.lengths else None
    state = np.zeros((layers * (1 + kind.bidirectional), kind.batch, hidden), kind.dtype)
    states = ((state, state) if kind.mode == "LSTM" else state) if kind.states else None
    x = np.zeros((*shape, features), kind.dtype)
    y, saved = passes.forward(layer, parameters, x, lengths=lengths, states=states, keep=kind.gradients)
    if kind.gradients:
        passes.vjp(saved, y)


def start_compiler(kinds: Sequence[PassKind]) -> subprocess.Popen[bytes]:
    """Start a process of low priority that runs these passes one after the other, so that the cache holds
    their kernels. Raises OSError where no process can start."""
    return subprocess.Popen(
        [sys.executable, "-c", "from bppsa_cupy.functional import ahead; ahead.serve()", json.dumps(kinds)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONSAFEPATH": "1"},  # modules of the working folder are not its own
    )


def serve() -> None:
    """Run the passes that the argument of the command names."""
    if hasattr(os, "nice"):
        os.nice(10)
    for kind in json.loads(sys.argv[1]):
        with suppress(Exception):  # the process that asked compiles by itself, and sees the error
            run_pass(PassKind(*kind))
