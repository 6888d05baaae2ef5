"""Records together: choosing by layer, direction and step, dense arrays, lengths, and what is refused."""

import numpy as np
import pytest
from chain_cases import network_records, records_of
from refusals import assert_refused

import bppsa_cupy as bp
from bppsa_cupy.csr import Pattern

LOOKS = {
    "dense": lambda records: bp.JacobianRecords(records).dense(),
    "lengths": lambda records: bp.JacobianRecords(records).lengths(),
    "lyapunov_exponents": bp.lyapunov_exponents,
    "singular_values": bp.singular_values,
    "log_gradient_norms": bp.log_gradient_norms,
}


@pytest.fixture(scope="module")
def network():
    """Records of a network of several recurrent layers and others, and their file's."""
    layers = [bp.GRU(2, 4, num_layers=2, bidirectional=True), bp.LSTM(8, 3), bp.Linear(3, 2)]
    net = bp.Sequential(layers, (5, 2), dtype="float64", device="host")
    net.forward(np.random.default_rng(0).standard_normal((3, 5, 2)))
    return net.transposed_jacobians()


@pytest.fixture(params=LOOKS)
def look(request):
    return LOOKS[request.param]


# ---- choosing ----


def test_records_are_a_sequence(network):
    assert len(network) == 5 * 5 + 1 and list(network)[-1] is network[-1]
    assert isinstance(network[3:5], bp.JacobianRecords) and len(network[3:5]) == 2
    assert repr(network) == (
        "JacobianRecords(0 GRU l0 × 5, 0 GRU l0 backward × 5, 0 GRU l1 × 5, 0 GRU l1 backward × 5, "
        "1 LSTM l0 × 5, 2 Linear)"
    )


@pytest.mark.parametrize("choice", [
    {"layer": 1}, {"inner": 1}, {"direction": "backward"}, {"layer": 0, "inner": 1, "direction": "forward"},
])  # fmt: skip
def test_all_that_is_given_holds(network, choice):
    expected = [r for r in network if all(getattr(r, name) == value for name, value in choice.items())]
    assert list(network.where(**choice)) == expected and expected


@pytest.mark.parametrize(
    ("steps", "expected"),
    [(2, [2]), (slice(1, 3), [1, 2]), (slice(3, None), [3, 4]), (range(0, 5, 2), [0, 2, 4]), ([4, 1], [1, 4]),
     (slice(2, 99), [2, 3, 4]), (np.array([3]), [3]), (np.int64(0), [0])],
)  # fmt: skip
def test_steps_are_chosen_by_number(network, steps, expected):
    part = network.where(layer=1)[1:]  # without step 0: numbers, and not places
    present = [step for step in expected if step]
    if present:
        assert [record.step for record in part.where(steps=steps)] == present
    assert [record.step for record in network.where(layer=1, steps=steps)] == expected


def test_chains_are_those_of_recurrent_layers(network):
    chains = network.chains()
    assert [(chain[0].label, len(chain)) for chain in chains] == [
        ("0 GRU l0", 5), ("0 GRU l0 backward", 5), ("0 GRU l1", 5), ("0 GRU l1 backward", 5),
        ("1 LSTM l0", 5),
    ]  # fmt: skip


@pytest.mark.parametrize("choice, there", [
    ({"layer": 3}, "0, 1, 2"), ({"layer": 1, "inner": 1}, "0"), ({"layer": 2, "inner": 0}, "none"),
    ({"layer": 1, "direction": "backward"}, "'forward'"), ({"steps": 9}, "0 to 4"),
    ({"steps": -1}, "0 to 4"), ({"steps": "1"}, "0 to 4"),
])  # fmt: skip
def test_what_is_not_there_is_refused(network, choice, there):
    assert_refused(
        lambda: network.where(**choice),
        (bp.ArgumentError, bp.ShapeError),
        *map(str, list(choice)[-1:]),
        there,
    )


def test_one_sample(network):
    chain = network.where(layer=1)
    alone = chain.sample(2)
    assert {record.sample for record in alone} == {2} and alone.dense().shape == (5, 1, 6, 6)
    np.testing.assert_array_equal(alone.dense()[:, 0], chain.dense()[:, 2])
    with pytest.raises(bp.ShapeError, match="no sample 3: pass samples 0 to 2"):
        chain.sample(3)


# ---- dense ----


@pytest.mark.parametrize(
    ("layer", "direction"),
    [(bp.GRU(2, 3, bidirectional=True), "backward"), (bp.LSTM(2, 4), "forward")],
)
def test_dense_are_the_matrices_by_time(layer, direction, monkeypatch):
    _, records = network_records(layer, 4, 2)
    chain = records.where(direction=direction)
    dense = chain.dense()
    size = layer.cell.states * layer.hidden_size
    assert dense.shape == (4, 2, size, size) and dense.dtype == np.float64
    for record in chain:
        for sample in range(2):
            np.testing.assert_array_equal(dense[record.step, sample], record.to_scipy(sample).toarray())
    np.testing.assert_array_equal(bp.JacobianRecords(list(chain)[::-1]).dense(), dense)


# ---- lengths ----


def test_lengths_are_those_of_the_pass(tmp_path):
    lengths = np.array([6, 1, 4, 5])
    for layer in (bp.LSTM(2, 3, bidirectional=True), bp.GRU(2, 1, 2), bp.MinGRU(2, 3), bp.LRU(2, 3)):
        net, records = network_records(layer, 6, 4, lengths=lengths)
        bp.save_jacobians(tmp_path / "j.h5", net)
        for source in (records, bp.load_jacobians(tmp_path / "j.h5")):
            for chain in source.chains():
                np.testing.assert_array_equal(chain.lengths(), lengths)
                np.testing.assert_array_equal(chain.where(steps=slice(4, 6)).lengths(), [2, 0, 0, 1])
                np.testing.assert_array_equal(chain.sample(2).lengths(), [4])
    net = bp.Sequential([bp.Residual([bp.MinGRU(2, 2)])], (6, 2), dtype="float64", device="host")
    net.forward(np.ones((4, 6, 2)), lengths=lengths)
    lengths[:] = 3
    np.testing.assert_array_equal(net.transposed_jacobians().chains()[0].lengths(), [6, 1, 4, 5])


# ---- refused ----


def test_what_is_no_chain_is_refused(network, look):
    records, ends = (
        records_of(np.ones((4, 1, 2, 2))),
        records_of(np.ones((3, 1, 2, 2)), lengths=np.array([3])),
    )
    wider = bp.JacobianRecord(0, "RNN l0", Pattern.dense(2, 2), np.ones((4, 3)), 4)
    tall = bp.JacobianRecord(0, "RNN l0", Pattern.dense(3, 2), np.ones((6, 1)))
    for value, *named in (
        (network.where(layer=2), "2 Linear", "recurrent"), (network[:-1], "5 chains", "'0 GRU l0 backward'"),
        (records.where(steps=[0, 1, 3]), "step 1", "step 3"), ([*records, records[3]], "step 3"),
        ([], "no records"), ([*records, wider], "(4, 1)", "(4, 3)"), ([*records[:2], ends[2]], "None", "[3]"),
        ([tall], "(3, 2)", "square"),
    ):  # fmt: skip
        assert_refused(lambda value=value: look(value), (bp.ArgumentError, bp.ShapeError), *named)
