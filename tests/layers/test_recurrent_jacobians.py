"""Step Jacobians of recurrent layers: against finite differences, and the generic scan over them against the
fused passes."""

import numpy as np
import pytest
from recurrent_reference import draw, ours
from tolerances import assert_close

import bppsa_cupy as bp
from bppsa_cupy.scan.primitive import make_chain, plan_scan

MAKE = {
    "tanh": lambda *a, **k: bp.RNN(*a, **k),
    "relu": lambda *a, **k: bp.RNN(*a, nonlinearity="relu", **k),
    "GRU": bp.GRU,
    "LSTM": bp.LSTM,
}


@pytest.fixture(params=MAKE)
def name(request):
    return request.param


def network(name, steps=5, device="host", **options):
    return bp.Sequential([MAKE[name](3, 4, **options)], (steps, 3), dtype="float64", device=device, seed=3)


def flat(states):
    """(S, B) of one inner layer's state h, or (h, c), each (1, B, H)."""
    return np.concatenate([part[0].T for part in states])


def test_against_finite_differences(name, device):
    net = network(name, device=device)
    layer, (batch, steps) = net.layers[0], (2, 5)
    given = draw(layer, batch, steps, False, np.random.default_rng(0))
    net.forward(given.x, states={0: given.initial})
    records = net.transposed_jacobians()
    assert [record.step for record in records] == list(range(steps))
    host = bp.Sequential(net.layers, net.input_shape, dtype="float64", device="host")
    host.load_state_dict(net.state_dict())
    state, size = given.initial, layer.cell.states * layer.hidden_size

    def step(t, before):
        parts = tuple(np.ascontiguousarray(part.T)[None] for part in np.split(before, layer.cell.states))
        after = host[0](given.x[:, t : t + 1], parts)[1]
        return flat(after if isinstance(after, tuple) else (after,))

    before, epsilon = flat(state), 1e-6
    for t, record in enumerate(records):
        for row in range(size):
            up, down = before.copy(), before.copy()
            up[row] += epsilon
            down[row] -= epsilon
            expected = (step(t, up) - step(t, down)) / (2 * epsilon)
            for sample in range(batch):
                actual = record.on_host().to_scipy(sample).toarray()[row]
                np.testing.assert_allclose(actual, expected[:, sample], rtol=1e-6, atol=1e-8)
        before = step(t, before)


def test_pattern(name):
    net = network(name)
    net.forward(np.zeros((2, 5, 3)))
    records = net.transposed_jacobians()
    hidden = 4
    assert len({id(record.pattern) for record in records}) == 1
    assert records[0].pattern.nnz == (2 * hidden**2 + 2 * hidden if name == "LSTM" else hidden**2)
    assert {(record.layer, record.direction) for record in records} == {(0, "forward")}


def test_steps_behind_the_end_are_the_identity(name):
    net = network(name)
    net.forward(np.ones((2, 5, 3)), lengths=[2, 5])
    for record in net.transposed_jacobians()[2:]:
        size = record.pattern.shape[0]
        np.testing.assert_array_equal(record.to_scipy(0).toarray(), np.eye(size))
        assert np.abs(record.to_scipy(1).toarray() - np.eye(size)).max() > 0.1


@pytest.mark.parametrize("method", ["linear", "blelloch"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("outputs", ["last", "all"])
def test_the_scan_gives_the_fused_gradients(name, method, direction, outputs):
    steps, batch = 9, 3
    net = network(name, steps, bidirectional=True, outputs=outputs)
    layer = net.layers[0]
    given = draw(layer, batch, steps, True, np.random.default_rng(1))
    place = 0 if direction == "forward" else 1
    expected = ours(net, given).by_initial
    records = [record for record in net.transposed_jacobians() if record.direction == direction]
    times = range(steps) if direction == "forward" else range(steps - 1, -1, -1)
    # The gradients by each state from outside, in the order of the walk; c has none but the last.
    by_state = np.zeros((steps, layer.cell.states * 4, batch))
    columns = slice(4 * place, 4 * place + 4)
    for step, t in enumerate(times):
        if outputs == "all":
            by_state[step, :4] = (given.by_output[:, t, columns] * (t < given.lengths)[:, None]).T
    if outputs == "last":
        by_state[-1, :4] = given.by_output[:, columns].T
    by_state[-1] += np.concatenate([part[place].T for part in given.by_final])
    jacobians = [records[t] for t in reversed(times)]
    injections = [*reversed(by_state[:-1]), None]
    result = bp.scan(by_state[-1], jacobians, method, injections=injections, device="host")[-1]
    assert_close(result, np.concatenate([part[place].T for part in expected]), 16 * steps)


def test_a_plan_of_many_steps_is_small(name, tmp_path):
    net = network(name, 300)
    net.forward(np.zeros((1, 300, 3)))
    records = net.transposed_jacobians()
    plan = plan_scan(make_chain([(record.pattern, False) for record in records]), device="host")
    plan.save(tmp_path / "plan.h5")
    assert (tmp_path / "plan.h5").stat().st_size < 1_000_000


def test_records_name_inner_layers_and_round_trip(name, tmp_path):
    net = network(name, 3, num_layers=2, bidirectional=True)
    net.forward(np.random.default_rng(0).standard_normal((2, 3, 3)))
    records = net.transposed_jacobians()
    kind = type(net.layers[0]).__name__
    assert [(r.name, r.direction, r.step) for r in records] == [
        (f"{kind} l{layer}", direction, step)
        for layer in (0, 1)
        for direction in ("forward", "backward")
        for step in range(3)
    ]
    bp.save_jacobians(tmp_path / "j.h5", net)
    for one, other in zip(records, bp.load_jacobians(tmp_path / "j.h5"), strict=True):
        assert one.label == other.label and one.pattern == other.pattern
        np.testing.assert_array_equal(one.data, other.data)
