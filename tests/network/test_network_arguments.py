"""Arguments of a network that are of another kind are refused by name."""

import numpy as np
import pytest
import torch
from network_cases import run, small

import bppsa_cupy as bp


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: bp.Sequential([bp.ReLU], (1,)), "layer 0: <class"),
        (lambda: bp.Sequential([bp.ReLU()], 3), "input_shape is 3"),
        (lambda: bp.Sequential([bp.ReLU()], (3, -1)), r"input_shape is \(3, -1\)"),
        (lambda: bp.Sequential([bp.ReLU()], (1,), dtype="foo"), "dtype 'foo' was asked for"),
        (lambda: bp.Sequential([bp.ReLU()], (True, 3)), r"input_shape is \(True, 3\)"),
        (lambda: bp.Sequential(bp.ReLU(), (1,)), "got layers of ReLU: it takes a list of layers"),
        (lambda: small(seed=-1), "Sequential got seed=-1: it takes an integer of at least 0"),
        (lambda: small(seed=1.5), "seed=1.5: it takes an integer"),
        (lambda: small(seed="3"), "seed='3': it takes an integer"),
        (lambda: small(seed=None), "seed=None: it takes an integer"),
        (lambda: run().backward(np.zeros((2, 3)), input_gradient="no"), "input_gradient='no': it"),
        (lambda: bp.Linear(2.7, 3), "in_features=2.7: it takes an integer of at least 1"),
        (lambda: bp.Linear("a", 3), "in_features='a'"),
        (lambda: bp.Conv2d(1.5, 2, 3), "in_channels=1.5"),
        (lambda: small().forward(np.ma.masked_array(np.ones((2, 1, 4, 4)), False)), "as a masked array"),
        (
            lambda: small().load_state_dict({n: a.astype(str) for n, a in small().state_dict().items()}),
            "got an array of <U32: it takes numbers",
        ),
        (lambda: small().load_state_dict(None), "the parameters got a NoneType: they take arrays by name"),
        (lambda: small().forward(np.zeros((1, 1, 4, 4)), into=3), "a int was given for a pass"),
        (lambda: run().backward(np.zeros((2, 3)), of="last"), "a str was given for a pass"),
        (lambda: small().use("p.h5"), "use got a str: it takes a Plan"),
        (lambda: small().forward([[1, 2], [3]]), "a list cannot be read as an array"),
        (lambda: small().forward(torch.zeros(1, 1, 4, 4, dtype=torch.bfloat16)), r"of PyTorch, of float32"),
        (
            lambda: small().load_state_dict({n: a * 1j for n, a in small().state_dict().items()}),
            "the real part",
        ),
    ],
)
def test_arguments_of_another_kind_are_refused(build, message):
    with pytest.raises(bp.BppsaError, match=message):
        build()


@pytest.mark.parametrize(
    "given, words",
    [
        (
            (bp.ReLU(), bp.Tanh()),
            r"one by one: .* Sequential\(\[ReLU\(\), Tanh\(\)\], input_shape=",
        ),
        (([bp.ReLU()],), "got no input_shape: it takes the shape of one sample"),
    ],
)
def test_habits_of_torch_nn_sequential(given, words):
    with pytest.raises(bp.ShapeError, match=words):
        bp.Sequential(*given)
