"""Arguments that networks, pruning and steps refuse: the error's class, and the two sides that it names."""

import numpy as np
import pytest
import torch
from network_cases import run_network, small
from refusals import assert_refused

import bppsa_cupy as bp

X = np.zeros((2, 1, 4, 4))


def state(**arrays):
    return {**small().state_dict(), **arrays}


def back(gradient, **options):
    run_network().backward(gradient, **options)


def regrow(gradients, fraction=0.3):
    net = bp.Sequential([bp.Linear(6, 1)], (6,), device="host")
    bp.prune(net, 0.5)
    bp.regrow(net, gradients, fraction)


def with_infinity():
    net = small()
    net.parameters["3.weight"][0, 0] = np.inf
    bp.prune(net, 0.5)


REFUSED = [
    (lambda: bp.Sequential([bp.ReLU()], 3), bp.ShapeError, "input_shape", "3"),
    (lambda: bp.Sequential([bp.ReLU()], (3, -1)), bp.ShapeError, "input_shape", "(3, -1)"),
    (lambda: bp.Sequential(bp.ReLU(), bp.Tanh()), bp.ArgumentError, "ReLU()", "[ReLU(), Tanh()]"),
    (lambda: bp.Sequential([bp.ReLU()]), bp.ShapeError, "input_shape", "one sample"),
    (lambda: small(seed=-1), bp.ArgumentError, "seed=-1", "at least 0"),
    (lambda: small().forward(np.zeros((2, 2, 4, 4))), bp.ShapeError, "(2, 2, 4, 4)", "(B, 1, 4, 4)"),
    (lambda: small().forward(np.zeros((0, 1, 4, 4))), bp.ShapeError, "(0, 1, 4, 4)", "at least 1"),
    (lambda: small().forward(X * 1j), bp.ShapeError, "complex128", "float64"),
    (lambda: small().forward(np.ma.masked_array(X, False)), bp.ShapeError, "masked", "array"),
    (lambda: small().forward(torch.tensor(X, dtype=torch.bfloat16)), bp.ShapeError, "PyTorch", "float32"),
    (lambda: small().backward(np.zeros((2, 3))), bp.PassError, "backward", "net.forward(x)"),
    (lambda: small().transposed_jacobians(), bp.PassError, "transposed_jacobians", "net.forward(x)"),
    (lambda: back(np.zeros((2, 4))), bp.ShapeError, "(2, 4)", "(2, 3)"),
    (lambda: back(np.zeros((2, 3)), method="magic"), bp.ArgumentError, "'magic'", "'auto', 'bp'"),
    (lambda: back(np.zeros((2, 3)), method="linear"), bp.PlanError, "'linear'", "net.plan()"),
    (lambda: small().plan(schedules=["blelloch"], memory_limit=9), bp.PlanError, "blelloch", "memory"),
    (lambda: small().load_state_dict({}), bp.CheckpointError, "missing", "0.weight"),
    (lambda: small().load_state_dict(state(x=X)), bp.CheckpointError, "unknown", "x"),
    (lambda: small().load_state_dict(state(**{"0.bias": np.zeros(3)})), bp.ShapeError, "(2,)", "(3,)"),
    (lambda: small().set_masks({"0.bias": np.ones(2)}), bp.ArgumentError, "'0.bias'", "0.weight, 3.weight"),
    (lambda: bp.prune(small(), 1.1), bp.PruneError, "1.1", "from 0 to 1"),
    (lambda: bp.prune(small(), np.nan), bp.PruneError, "nan", "from 0 to 1"),
    (lambda: bp.prune(bp.Sequential([bp.ReLU()], (3,)), 0.5), bp.PruneError, "Conv2d", "Linear"),
    (with_infinity, bp.PruneError, "3.weight", "infinity"),
    (lambda: regrow({}), bp.PruneError, "0.weight", "net.set_masks({})"),
    (lambda: regrow({"0.weight": np.full((1, 6), np.nan)}), bp.PruneError, "0.weight", "NaN"),
]  # fmt: skip


@pytest.mark.parametrize("call, error, value, fix", REFUSED)
def test_refused_arguments(call, error, value, fix):
    assert_refused(call, error, value, fix)


@pytest.mark.parametrize("arrays", [{"3.bias": np.zeros(9)}, {"0.bias": np.ones(2, complex)}])
def test_a_refused_state_dict_sets_nothing(arrays):
    net = small()
    before = net.state_dict()
    with pytest.raises(bp.BppsaError):
        net.load_state_dict({**{name: array + 1 for name, array in before.items()}, **arrays})
    assert all(np.array_equal(net.parameters[name], before[name]) for name in before)
