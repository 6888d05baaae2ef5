"""Step Jacobians of recurrent layers: against finite differences, and the generic scan over them against the
fused passes."""

import numpy as np
import pytest
from marks import some
from recurrent_reference import draw, ours
from tolerances import assert_close

import bppsa_cupy as bp

MAKE = {
    "tanh": bp.RNN,
    "relu": lambda *a, **k: bp.RNN(*a, nonlinearity="relu", **k),
    "GRU": bp.GRU,
    "LSTM": bp.LSTM,
}


@pytest.fixture(params=some("tanh", "GRU", "LSTM", long=["relu"]))
def name(request):
    return request.param


def network(name, steps=5, device="host", **options):
    return bp.Sequential([MAKE[name](3, 4, **options)], (steps, 3), dtype="float64", device=device, seed=3)


def test_against_finite_differences(name, device):
    """Also after a sample's end, where a step is the identity."""
    net = network(name, device=device)
    layer, lengths, epsilon = net.layers[0], np.array([3, 5]), 1e-6
    inputs = draw(layer, 2, 5, False, np.random.default_rng(0))
    net.forward(inputs.x, lengths, states={0: inputs.initial})
    records = net.transposed_jacobians()
    assert [record.step for record in records] == list(range(5))
    assert records[0].pattern.nnz == (2 * 4**2 + 2 * 4 if name == "LSTM" else 4**2)
    assert len({id(record.pattern) for record in records}) == 1
    host = network(name, steps=1)
    host.load_state_dict(net.state_dict())

    def step(t, before):
        parts = tuple(np.ascontiguousarray(part.T)[None] for part in np.split(before, layer.cell.states))
        host.forward(inputs.x[:, t : t + 1], states={0: parts})
        after = host.last_pass.states[0]
        states = after if isinstance(after, tuple) else (after,)
        return np.where(t < lengths, np.concatenate([part[0].T for part in states]), before)

    before = np.concatenate([part[0].T for part in inputs.initial])
    for t, record in enumerate(records):
        for row in range(len(before)):
            up, down = before.copy(), before.copy()
            up[row] += epsilon
            down[row] -= epsilon
            expected = (step(t, up) - step(t, down)) / (2 * epsilon)
            for sample in range(2):
                actual = record.on_host().to_scipy(sample).toarray()[row]
                np.testing.assert_allclose(actual, expected[:, sample], rtol=1e-6, atol=1e-8)
        before = step(t, before)


@pytest.mark.parametrize("method", ["linear", "blelloch"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("outputs", ["last", "all"])
def test_the_scan_gives_the_fused_gradients(name, method, direction, outputs):
    steps, batch = 9, 3
    net = network(name, steps, bidirectional=True, outputs=outputs)
    layer = net.layers[0]
    inputs = draw(layer, batch, steps, True, np.random.default_rng(1))
    place = 0 if direction == "forward" else 1
    expected = ours(net, inputs).by_initial
    records = [record for record in net.transposed_jacobians() if record.direction == direction]
    times = range(steps) if direction == "forward" else range(steps - 1, -1, -1)
    # The gradients by each state from outside, in the order of the walk; c has none but the last.
    by_state = np.zeros((steps, layer.cell.states * 4, batch))
    columns = slice(4 * place, 4 * place + 4)
    for step, t in enumerate(times):
        if outputs == "all":
            by_state[step, :4] = (inputs.by_output[:, t, columns] * (t < inputs.lengths)[:, None]).T
    if outputs == "last":
        by_state[-1, :4] = inputs.by_output[:, columns].T
    by_state[-1] += np.concatenate([part[place].T for part in inputs.by_final])
    jacobians = [records[t] for t in reversed(times)]
    injections = [*reversed(by_state[:-1]), None]
    result = bp.scan(by_state[-1], jacobians, method, injections=injections, device="host")[-1]
    assert_close(result, np.concatenate([part[place].T for part in expected]), 16 * steps)
