"""Products over whole sequences: partial sums of weights' gradients, and matmul in place of kernels."""

import numpy as np
import pytest
from cupy_fixtures import no_device_is_kept, stub  # noqa: F401  fixtures
from timescan_cases import placed

import bppsa_cupy as bp
from bppsa_cupy.devices import get_device, rules
from bppsa_cupy.timescan import products

HOST = get_device("host")


@pytest.mark.parametrize(
    "steps, batch, rows, columns, sums",
    [(5, 2, 3, 4, 1), (1024, 4, 64, 64, 2), (4096, 2, 1, 512, 2), (2048, 4, 64, 64, 4)],
)
@pytest.mark.parametrize("initial, reverse", [(False, False), (True, False), (True, True)])
def test_a_weights_gradient_is_the_sum_over_steps_and_samples(
    steps, batch, rows, columns, sums, initial, reverse, rng
):
    """Against einsum; with an initial state a step's value is that of the step before it."""
    assert products.partial_sums(HOST, steps, batch, rows, columns) == sums
    delta, values = (
        rng.standard_normal((steps, rows + 2, batch)),
        rng.standard_normal((steps, columns, batch)),
    )
    first = rng.standard_normal((columns, batch)) if initial else None
    weight, bias = np.zeros((rows, columns)), np.zeros(rows)
    space = np.zeros(products.workspace_size(HOST, steps, batch, rows, columns))
    products.weight_gradient(HOST, delta, 1, values, space, weight, bias, first, reverse)()
    if initial:
        values = np.concatenate([values[1:], [first]] if reverse else [[first], values[:-1]])
    own = delta[:, 1 : rows + 1]
    scale = np.sqrt(steps * batch)
    np.testing.assert_allclose(weight, np.tensordot(own, values, ((0, 2), (0, 2))), atol=1e-13 * scale)
    np.testing.assert_allclose(bias, own.sum((0, 2)), atol=1e-13 * scale)


# ---- on a GPU ----


@pytest.fixture
def by_matmul(monkeypatch):
    """Every product on a GPU goes by matmul."""
    monkeypatch.setattr(rules, "GPU_PRODUCT", {"project": 0, "weight": 0})


@pytest.mark.usefixtures("by_matmul")
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
def test_wide_projections_are_matmuls(batch, biased, transposed, stub, rng):
    values, bias = rng.standard_normal((4, 6, batch)), rng.standard_normal(7)
    weight = rng.standard_normal((7, 5))
    out = stub.empty_walk((4, 7, batch), np.float64)
    given = stub.asarray(np.ascontiguousarray(weight.T) if transposed else weight)
    own = stub.asarray(bias) if biased else None
    products.project(stub, placed(stub, values), given, own, out, transposed=transposed)()
    expected = np.einsum("oi,tib->tob", weight, values[:, :5]) + (bias[:, None] if biased else 0)
    np.testing.assert_allclose(stub.to_host(out), expected, atol=1e-13)
    assert not stub.launched


@pytest.mark.usefixtures("by_matmul")
@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("initial, reverse", [(False, False), (True, False), (True, True)])
def test_gradients_of_wide_weights_are_matmuls(steps, initial, reverse, stub, rng):
    delta, values = rng.standard_normal((steps, 9, 3)), rng.standard_normal((steps, 6, 3))
    first = rng.standard_normal((6, 3)) if initial else None
    weight, bias = stub.zeros((7, 5), np.float64), stub.zeros(7, np.float64)
    space = stub.zeros(products.workspace_size(stub, steps, 3, 7, 5), np.float64)
    products.weight_gradient(
        stub, placed(stub, delta), 1, placed(stub, values), space, weight, bias,
        None if first is None else placed(stub, first), reverse,
    )()  # fmt: skip
    if initial:
        values = np.concatenate([values[1:], [first]] if reverse else [[first], values[:-1]])
    own = delta[:, 1:8]
    np.testing.assert_allclose(
        stub.to_host(weight), np.tensordot(own, values[:, :5], ((0, 2), (0, 2))), atol=1e-13
    )
    np.testing.assert_allclose(stub.to_host(bias), own.sum((0, 2)), atol=1e-13)
    assert not stub.launched


@pytest.mark.usefixtures("by_matmul")
@pytest.mark.parametrize("kind", [bp.RNN, bp.GRU, bp.LSTM])
def test_a_layer_by_matmuls_is_that_of_the_host(kind, stub, rng):
    layer = kind(3, 5, 2, bidirectional=True)
    parameters = {name: array for name, array in layer.initialize(rng).items()}
    x, lengths = rng.standard_normal((3, 7, 3)), [7, 2, 4]
    weights = rng.standard_normal((3, 7, 10))
    found = []
    for device in (HOST, stub):
        own = {name: device.asarray(array) for name, array in parameters.items()}
        y, saved = bp.functional.forward(layer, own, device.asarray(x), lengths=lengths, device=device)
        gradients = bp.functional.vjp(saved, device.asarray(weights))
        arrays = {"y": y, "input": gradients.input, **gradients.parameters}
        found.append({name: device.to_host(array) for name, array in arrays.items()})
    for name, array in found[0].items():
        np.testing.assert_allclose(found[1][name], array, atol=1e-12, err_msg=name)
    assert not {"sequence_project", "sequence_weight_gradient"} & stub.launched.keys()
