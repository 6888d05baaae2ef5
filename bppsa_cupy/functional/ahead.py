"""Passes of recurrent layers that run only to compile their kernels, here or in a process beside this one."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
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
    options: dict[str, Any] = {
        "bias": kind.bias,
        "batch_first": kind.batch_first,
        "bidirectional": kind.bidirectional,
    }
    layer = layer_named(kind.mode, *kind.sizes, **options)
    features, hidden, layers = kind.sizes
    shape = (kind.batch, kind.steps) if kind.batch_first else (kind.steps, kind.batch)
    parameters = {name: np.zeros(shape, kind.dtype) for name, shape in layer.parameter_shapes().items()}
    lengths = np.full(kind.batch, kind.steps) if kind.lengths else None
    state = np.zeros((layers * (1 + kind.bidirectional), kind.batch, hidden), kind.dtype)
    states = ((state, state) if kind.mode == "LSTM" else state) if kind.states else None
    y, saved = passes.forward(
        layer,
        parameters,
        np.zeros((*shape, features), kind.dtype),
        lengths=lengths,
        states=states,
        keep=kind.gradients,
    )
    if kind.gradients:
        passes.vjp(saved, y)


class Compiler:
    """A process of low priority that runs passes one after the other, so that the cache holds their kernels.

    It ends with this process; what it has compiled by then stays in the cache.
    """

    def __init__(self) -> None:
        """Raises OSError where no process can start."""
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from bppsa_cupy.functional import ahead; ahead.serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONSAFEPATH": "1"},  # modules of the working folder are not its own
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._requests, self._answers = self.process.stdin, self.process.stdout
        os.set_blocking(self._answers.fileno(), False)
        self.asked = self.done = 0
        atexit.register(self.stop)

    def ask(self, kind: PassKind) -> int:
        """Ask for a pass; its number, from 1."""
        self.asked += 1
        with suppress(OSError):  # a process that has ended takes nothing
            self._requests.write(json.dumps(kind).encode() + b"\n")
            self._requests.flush()
        return self.asked

    def has_done(self, number: int) -> bool:
        """Whether this pass is over, or will never be run. It does not wait."""
        with suppress(OSError):
            self.done += (self._answers.read(4096) or b"").count(b"\n")
        return self.done >= number or self.process.poll() is not None

    def stop(self) -> None:
        """End the process."""
        atexit.unregister(self.stop)
        self.process.kill()
        self.process.wait()
        self._requests.close()
        self._answers.close()


def serve() -> None:
    """Run the passes that standard input names, a line each, and answer each with a line."""
    if hasattr(os, "nice"):
        os.nice(10)
    for line in sys.stdin:
        with suppress(Exception):  # the process that asked compiles by itself, and sees the error
            run_pass(PassKind(*json.loads(line)))
        print(flush=True)
