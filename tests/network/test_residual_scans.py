"""Scans inside of residual blocks: which runs there are, by what plan, and what they compute."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import bppsa_cupy as bp

METHODS = ("linear", "blelloch", "hybrid")


def nested(kernel_size=3, inner_activation=bp.Tanh):
    """A block whose body holds a block, with layers of no element and without parameters among them."""
    size = {"kernel_size": kernel_size, "padding": kernel_size // 2}
    inner = bp.Residual([bp.Conv2d(2, 2, **size), inner_activation(), bp.Conv2d(2, 2, 1)], [bp.ReLU()])
    body = [
        bp.Conv2d(2, 2, 3, padding=1),
        bp.BatchNorm2d(2),
        bp.ReLU(),
        inner,
        bp.Sigmoid(),
        bp.Conv2d(2, 2, 1),
    ]
    return [
        bp.Conv2d(1, 2, 1), bp.Tanh(), bp.Residual(body, [bp.Conv2d(2, 2, 1), bp.BatchNorm2d(2)]), bp.ReLU(),
        bp.Flatten(), bp.Residual([bp.Linear(24, 24), bp.Tanh()]), bp.Linear(24, 3),
    ]  # fmt: skip


def network(device="host", **options):
    return bp.Sequential(nested(**options), (1, 4, 3), dtype="float64", device=device)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("batch", [1, 3])
def test_every_method_gives_the_vjps_gradients(training, batch, rng):
    net = network()
    net.forward(rng.standard_normal((4, 1, 4, 3)))
    net.training = training
    net.use(net.plan(batch_size=3))
    x, gradient = rng.standard_normal((batch, 1, 4, 3)), rng.standard_normal((batch, 3))
    net.forward(x)
    by_input = net.backward(gradient, "bp", input_gradient=True).copy()
    expected, norms = net.gradients.to_host(), told(net)
    for method in METHODS:
        for wanted in (True, False):
            net.gradients.flat[...] = np.nan
            got = net.backward(gradient, method, input_gradient=wanted)
            assert (got is not None) == wanted
            if wanted:
                assert_allclose(got, by_input, rtol=1e-11, atol=1e-14)
            assert len(net.last_backward.schedules) == len(net.architecture.runs)
            for name, array in net.gradients.items():
                assert_allclose(array, expected[name], rtol=1e-11, atol=1e-14, err_msg=f"{method} {name}")
        again = told(net)
        assert list(again) == list(norms)
        assert_allclose(list(again.values()), list(norms.values()), rtol=1e-11)


@pytest.mark.parametrize("method", METHODS)
def test_every_device(device, method, rng):
    twin, net = network().eval(), network(device).eval()
    x, gradient = rng.standard_normal((2, 1, 4, 3)), rng.standard_normal((2, 3))
    twin.forward(x)
    by_input = twin.backward(gradient, "bp", input_gradient=True)
    net.use(net.plan(levels=1, batch_size=2))
    net.forward(device.asarray(x))
    got = device.to_host(net.backward(device.asarray(gradient), method, input_gradient=True))
    assert_allclose(got, by_input, rtol=1e-11, atol=1e-14)
    for name, array in net.gradients.to_host().items():
        assert_allclose(array, twin.gradients[name], rtol=1e-11, atol=1e-14, err_msg=name)


def told(net):
    """The norms of gradients by output that records tell, by label."""
    return {record.label: record.gradient_norm for record in net.transposed_jacobians()}


@pytest.mark.parametrize("method", METHODS)
def test_single_elements_inside_need_no_plan(method, rng):
    layers = [bp.Residual([bp.Conv2d(1, 1, 3, padding=1), bp.BatchNorm2d(1)], [bp.Tanh()]), bp.BatchNorm2d(1)]
    net = bp.Sequential(layers, (1, 3, 3), dtype="float64", device="host")
    assert not net.needs_plan
    y = net.forward(rng.standard_normal((2, 1, 3, 3)))
    gradient = rng.standard_normal(y.shape)
    net.backward(gradient, method)
    got = net.gradients.to_host()
    net.backward(gradient, "bp")
    assert all(np.array_equal(array, net.gradients[name]) for name, array in got.items())
    net.eval().forward(rng.standard_normal((2, 1, 3, 3)))
    assert net.needs_plan
    with pytest.raises(bp.PlanError, match="scans by a plan and none is in use"):
        net.backward(gradient, method)
