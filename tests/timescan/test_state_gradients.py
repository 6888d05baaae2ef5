"""`gradient_norm` of recurrent records: the gradients by every state, against PyTorch's, step by step."""

import numpy as np
import pytest
import torch
from recurrent_reference import draw, leaf, ours, walk

import bppsa_cupy as bp
from bppsa_cupy.cells import Cell


def theirs(net, given):
    """{(inner layer, direction): (T,) norms}, from cells called step by step, each state's gradient kept."""
    layer, batch, steps = net.layers[0], *given.x.shape[:2]
    values = {name.removeprefix("0."): torch.tensor(array) for name, array in net.state_dict().items()}
    lengths = torch.tensor(np.full(batch, steps) if given.lengths is None else given.lengths)
    below, states, finals = torch.tensor(given.x), {}, []
    for inner in range(layer.num_layers):
        outputs = []
        for direction, end in enumerate(("", "_reverse")[: layer.directions]):
            kept = states[inner, direction] = {}
            first = [leaf(part[inner * layer.directions + direction]) for part in given.initial]
            place = f"_l{inner}{end}", below, lengths, first, 1, bool(direction)
            y, final = walk(Cell.built_in(layer.cell.name), values, *place, kept)
            outputs.append(y)
            finals.append(final)
        below = torch.cat(outputs, dim=2)
    if layer.outputs == "last":
        below = torch.cat([state[0] for state in finals[-layer.directions :]], dim=1)
    loss = (below * torch.tensor(given.by_output)).sum()
    for number, state in enumerate(finals):
        for part, gradient in zip(state, given.by_final, strict=True):
            loss = loss + (part * torch.tensor(gradient[number])).sum()
    loss.backward()
    return {
        place: [np.sqrt(sum((part.grad.numpy() ** 2).sum() for part in kept[t])) for t in range(steps)]
        for place, kept in states.items()
    }


@pytest.mark.parametrize("make", [bp.RNN, bp.GRU, bp.LSTM])
@pytest.mark.parametrize(
    ("options", "ragged", "method"),
    [
        ({}, False, "bp"),
        ({"num_layers": 3}, False, "bp"),
        ({"outputs": "last", "num_layers": 2}, True, "bp"),
        ({"num_layers": 2, "bidirectional": True}, True, "blelloch"),
    ],
)
def test_they_are_pytorchs(make, options, ragged, method):
    steps, batch = 7, 3
    net = bp.Sequential([make(2, 4, **options)], (steps, 2), dtype="float64", device="host", seed=2)
    given = draw(net.layers[0], batch, steps, ragged, np.random.default_rng(4))
    expected = theirs(net, given)
    ours(net, given)
    if method != "bp":
        net.backward(given.by_output, method=method, state_gradients={0: given.by_final})
    records = net.transposed_jacobians()
    assert len(records) == steps * len(expected)
    for (inner, direction), norms in expected.items():
        chain = records.where(inner=inner, direction="backward" if direction else "forward")
        np.testing.assert_allclose([record.gradient_norm for record in chain], norms, rtol=1e-12)


def test_on_every_device(device):
    norms = []
    for one in ("host", device):
        net = bp.Sequential([bp.LSTM(2, 3, num_layers=2)], (4, 2), dtype="float64", device=one, seed=1)
        given = draw(net.layers[0], 2, 4, True, np.random.default_rng(0))
        ours(net, given)
        norms.append([record.gradient_norm for record in net.transposed_jacobians()])
    np.testing.assert_allclose(norms[1], norms[0], rtol=1e-12)
