"""The step of a function of bppsa_cupy.jax beside the same cell by jax.lax.scan, and our own network's."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bppsa_cupy.devices import get_device
from bppsa_cupy.tools.benchmarks.harness import Row, Side, compared_row, measure, require_equal
from bppsa_cupy.tools.benchmarks.torch import (
    LAYERS,
    SIZES,
    TOLERANCE,
    NetworkStep,
    make_arrays,
    make_network,
)
from bppsa_cupy.tools.benchmarks.workload import OVERALL, Lap, Workload

AGAINST = ("jax", "none")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--cell."""
    parser.add_argument("--cell", choices=LAYERS, default="gru")


def run(arguments: argparse.Namespace) -> Iterator[list[Row]]:
    """A step, forward and back to every parameter, of all sizes; with --quick of a small one."""
    for steps, hidden, batch in [(12, 4, 2)] if arguments.quick else SIZES:
        yield _rows(arguments, steps, hidden, batch)


def _rows(arguments: argparse.Namespace, steps: int, hidden: int, batch: int) -> list[Row]:
    options = {
        "cell": arguments.cell,
        "device": arguments.device,
        "steps": steps,
        "hidden": hidden,
        "batch": batch,
    }
    threads = arguments.threads
    variables = {"NPROC": str(threads)}  # by which XLA sizes its pool of threads
    sides = {"function": Side(FunctionStep, options, threads, ("jax",), variables)}
    sides["our network"] = Side(NetworkStep, options, threads)
    if arguments.against == "jax":
        sides["jax.lax.scan"] = Side(ScanStep, options, threads, ("jax",), variables)
    measured = measure(sides, arguments.repeats, 0.0 if arguments.quick else 0.02)
    case = f"{arguments.cell.upper()}: T={steps} H={hidden} B={batch}"
    ours = measured.pop("function")
    for side, other in measured.items():
        require_equal(f"{case}, {side}", ours.result, other.result, TOLERANCE)
    return [compared_row(case, "step", ours, rival, lap=OVERALL) for rival in measured.items()]


class FunctionStep(Workload):
    """That of a function of bppsa_cupy.jax, compiled by jax.jit."""

    def __init__(self, cell: str, device: str, steps: int, hidden: int, batch: int) -> None:
        import jax

        self.device = get_device(device)
        where = jax.devices("gpu" if device == "cuda" else "cpu")[0]
        state = make_network(cell, "host", steps, hidden).state_dict()
        params = {name[2:]: array for name, array in state.items()}
        self.given = jax.device_put((params, *make_arrays(steps, hidden, batch)), where)
        over_time = self.function(cell, hidden)

        def step(params: Any, x: Any, gradient: Any) -> Any:
            _, go_back = jax.vjp(lambda own: over_time(own, x), params)
            return go_back(gradient)[0]

        self.step, self.found = jax.jit(step), dict[str, Any]()
        self.wait = jax.block_until_ready

    def function(self, cell: str, hidden: int) -> Callable[[Any, Any], Any]:
        """The output of parameters and sequences (B, T, F)."""
        import bppsa_cupy.jax

        layer = getattr(bppsa_cupy.jax, cell.upper())(hidden, hidden)
        return lambda params, x: layer(params, x)[0]

    def run(self, lap: Lap) -> None:
        self.found = self.wait(self.step(*self.given))

    def result(self) -> dict[str, np.ndarray]:
        return {name: np.asarray(array) for name, array in self.found.items()}


class ScanStep(FunctionStep):
    """That of the cell written with jax.lax.scan, all steps' input projected at once before."""

    def function(self, cell: str, hidden: int) -> Callable[[Any, Any], Any]:
        return scan_of(cell, hidden)


def scan_of(cell: str, hidden: int, prefix: str = "", last: bool = False) -> Callable[[Any, Any], Any]:
    """The cell by jax.lax.scan: all steps' states (B, T, H), or the last one's (B, H), of parameters, whose
    names begin with `prefix`, and sequences (B, T, F)."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_default_matmul_precision", "highest")  # on a GPU without TF32

    def gru(x: Any, u: Any, states: Any) -> Any:
        (r, z, n), (a, b, c), (h,) = jnp.split(x, 3, -1), jnp.split(u, 3, -1), states
        z = jax.nn.sigmoid(z + b)
        return ((1 - z) * jnp.tanh(n + jax.nn.sigmoid(r + a) * c) + z * h,)

    def lstm(x: Any, u: Any, states: Any) -> Any:
        i, f, g, o = jnp.split(x + u, 4, -1)
        c = jax.nn.sigmoid(f) * states[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c), c

    def rnn(x: Any, u: Any, states: Any) -> Any:
        return (jnp.tanh(x + u),)

    step = {"gru": gru, "lstm": lstm, "rnn": rnn}[cell]

    def over_time(params: Any, x: Any) -> Any:
        def body(states: Any, row: Any) -> Any:
            u = states[0] @ params[f"{prefix}weight_hh_l0"].T + params[f"{prefix}bias_hh_l0"]
            states = step(row, u, states)
            return states, None if last else states[0]

        weight, bias = params[f"{prefix}weight_ih_l0"], params[f"{prefix}bias_ih_l0"]
        projected = x.swapaxes(0, 1) @ weight.T + bias
        zeros = jnp.zeros((x.shape[0], hidden), x.dtype)
        states, y = jax.lax.scan(body, (zeros,) * (2 if cell == "lstm" else 1), projected)
        return states[0] if last else y.swapaxes(0, 1)

    return over_time
