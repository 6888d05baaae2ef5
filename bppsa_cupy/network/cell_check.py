"""Proving a cell: its functions on numbers, and its kernels by every way over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from bppsa_cupy.arguments import as_instance
from bppsa_cupy.cells import Cell
from bppsa_cupy.cells.check import CellReport, Pair, check_functions, compare
from bppsa_cupy.devices import Device, get_device
from bppsa_cupy.layers import CellLayer
from bppsa_cupy.network.sequential import Sequential

Reals = NDArray[np.float64]

#: Steps, input features and units of the layer that is compared, and its batches: few samples and many are
#: walked by loops of their own on the host.
STEPS, FEATURES, HIDDEN, BATCHES = 11, 3, 5, (2, 19)
#: Bound of the differences of float64 sums in another order, over STEPS steps.
BOUND = 1e-9
#: The ways over time: forward_method of the layer, method of the backward pass.
SERIAL, SCANNED = ("serial", "bp"), ("newton", "blelloch")


def check_cell(cell: Cell, device: str | Device | None = None) -> CellReport:
    """Prove a cell's definition.

    Its functions are compared with its step, with finite differences in float64, and with one another, on
    numbers. Points within a step of a kink, where differences mean nothing, do not count.

    device  "host", "cuda", "auto" or a Device, on which the kernels made of the cell are compared, too, once
            they are compiled. They walk over a layer's steps in float64, for few samples and many, of
            several lengths, step after step and by scans (Newton's iteration forward, chunks back); outputs
            and all gradients are compared with the functions applied step by step. None compares functions
            alone.

    Gives the largest differences. Raises CellError, with what differs and where, if one passes its bound:
    1e-7 from finite differences, 1e-9 of kernels, 1e-12 else.
    """
    cell = as_instance("check_cell", "cell", cell, Cell, "a bp.Cell")
    report = check_functions(cell)
    if device is None:
        return report
    place = get_device(device)
    scanned_ways = ("chunked", "blelloch") if cell.form.affine else SCANNED
    serial, scanned = (
        max(_compare_layer(cell, place, batch, *ways) for batch in BATCHES) for ways in (SERIAL, scanned_ways)
    )
    return report._replace(serial=serial, scanned=scanned)


def _compare_layer(cell: Cell, device: Device, batch: int, forward: str, method: str) -> float:
    """The largest difference of a layer on the device, from the functions step by step."""
    layer = CellLayer(cell, FEATURES, HIDDEN, forward_method=forward)
    net = Sequential([layer], (STEPS, FEATURES), dtype="float64", device=device)
    random = np.random.default_rng(1)
    values = net.state_dict()
    for name in cell.parameters:
        values[f"0.{name}_l0"] = random.uniform(0.05, 0.95, HIDDEN)
    net.load_state_dict(values)
    x, gradient = (random.standard_normal((batch, STEPS, size)) for size in (FEATURES, HIDDEN))
    lengths = random.integers(1, STEPS + 1, batch)
    lengths[0] = STEPS
    output = net.device.to_host(net.forward(x, lengths=lengths)).copy()
    by_input = net.backward(gradient, method=method, input_gradient=True)
    found = {
        "output": output,
        "gradient by the input": net.device.to_host(by_input),
        **{f"gradient by {name}": values for name, values in net.gradients.to_host().items()},
    }
    expected = _by_functions(cell, values, x, lengths, gradient)
    pairs: list[Pair] = [(f"a layer's {what}", found[what], expected[what]) for what in expected]
    ours = f"on {device.name}, forward {forward} and back by {method}, the value"
    return compare(cell, ours, "the functions' step by step", pairs, BOUND)


def _by_functions(
    cell: Cell, values: Mapping[str, Reals], x: Reals, lengths: NDArray[np.int64], gradient: Reals
) -> dict[str, Reals]:
    """Outputs and gradients of a layer, from the cell's functions on NumPy's arrays (B, H)."""
    form, functions = cell.form, cell.form.functions
    own = {name.removeprefix("0.").removesuffix("_l0"): np.asarray(value) for name, value in values.items()}
    p = tuple(own[name] for name in cell.parameters)
    batch = len(x)

    def gates(weight: Reals, bias: Reals, vectors: Reals) -> tuple[Reals, ...]:
        count = max(1, len(bias) // HIDDEN)
        return tuple(np.split(vectors @ weight.T + bias, count, axis=1))

    def whole(parts: Iterable[Reals]) -> Reals:
        return np.concatenate([np.broadcast_to(part, (batch, HIDDEN)) for part in parts], axis=1)

    state = tuple(np.zeros((batch, HIDDEN)) for _ in range(form.states))
    steps, output = [], np.zeros((batch, STEPS, HIDDEN))
    for t in range(STEPS):
        inside = (t < lengths)[:, None]
        sums = (
            gates(own["weight_ih"], own["bias_ih"], x[:, t]),
            gates(own["weight_hh"], own["bias_hh"], state[0]) if form.sums else (),
        )
        after, kept = functions.forward(*sums, state, p)
        steps.append((state, after, kept))
        state = tuple(np.where(inside, new, old) for new, old in zip(after, state, strict=True))
        output[:, t] = np.where(inside, state[0], 0.0)

    by = {name: np.zeros_like(value) for name, value in own.items()}
    by_input, g = np.zeros_like(x), tuple(np.zeros((batch, HIDDEN)) for _ in range(form.states))
    for t in reversed(range(STEPS)):
        inside = (t < lengths)[:, None]
        before, after, kept = steps[t]
        taken = tuple(np.where(inside, one + gradient[:, t] * (row == 0), 0.0) for row, one in enumerate(g))
        by_x, by_u, by_before, by_p = functions.backward(taken, kept, after, before, p)
        separate = dict(zip(form.separate, by_u, strict=True))
        of_x = whole(by_x)
        of_u = [separate.get(gate, by_x[gate]) for gate in form.recurrent_gates]
        by["weight_ih"] += of_x.T @ x[:, t]
        by["bias_ih"] += of_x.sum(0)
        for name, one in zip(cell.parameters, by_p, strict=True):
            by[name] += whole([one]).sum(0)
        by_input[:, t] = of_x @ own["weight_ih"]
        through = np.zeros((batch, HIDDEN))
        if form.sums:
            by["weight_hh"] += whole(of_u).T @ before[0]
            by["bias_hh"] += whole(of_u).sum(0)
            through = whole(of_u) @ own["weight_hh"]
        g = tuple(
            np.where(inside, one + through * (row == 0), old)
            for row, (one, old) in enumerate(zip(by_before, g, strict=True))
        )
    gradients = {f"gradient by 0.{name}_l0": value for name, value in by.items()}
    return {"output": output, "gradient by the input": by_input, **gradients}
