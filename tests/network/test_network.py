"""The network: shapes, passes, parameters, and what it refuses."""

import copy
import pickle

import numpy as np
import pytest
import torch
from network_cases import small

import bppsa_cupy as bp


def test_parameters_are_named_as_pytorchs():
    net = small()
    theirs = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8, 3)
    )
    assert list(net.parameters) == [name for name, _ in theirs.named_parameters()]
    net.load_state_dict(theirs.state_dict())
    x = np.random.default_rng(0).standard_normal((5, 1, 4, 4))
    expected = theirs.double()(torch.tensor(x)).detach()
    np.testing.assert_allclose(net.forward(x), expected, rtol=1e-12)
    for name, array in net.state_dict().items():
        np.testing.assert_array_equal(array, theirs.state_dict()[name])


def test_the_seed_decides_the_parameters():
    one, same, other = small(1), small(1), small(2)
    assert all(np.array_equal(one.parameters[name], same.parameters[name]) for name in one.parameters)
    assert not np.array_equal(one.parameters["0.weight"], other.parameters["0.weight"])
    as_float32 = small(1, "float32")
    assert np.array_equal(as_float32.parameters["0.weight"], one.parameters["0.weight"].astype("float32"))


def test_parameters_are_set_in_place():
    net = small()
    net.parameters["3.bias"][...] = [1, 2, 3]
    net.parameters["3.weight"][...] = 0
    assert np.array_equal(net.forward(np.zeros((1, 1, 4, 4)))[0], [1, 2, 3])


def test_several_passes_may_be_alive(rng):
    net = small()
    x, other = rng.standard_normal((2, 3, 1, 4, 4))
    y = net.forward(x)
    first = net.last_pass
    gradient = rng.standard_normal(y.shape)
    net.backward(gradient, method="bp")
    expected = net.gradients.to_host()
    kept = y.copy()
    net.forward(other)
    assert net.last_pass is not first and np.array_equal(y, kept)
    net.backward(gradient, method="bp", of=first)
    assert all(np.array_equal(net.gradients[name], expected[name]) for name in expected)


def test_a_pass_that_is_used_again_takes_no_memory(rng):
    net = small()
    y = net.forward(rng.standard_normal((3, 1, 4, 4)))
    allocated = net.device.allocated
    assert net.forward(rng.standard_normal((2, 1, 4, 4)), into=net.last_pass).base is not None
    assert net.device.allocated == allocated
    assert y.shape == (3, 3)


def test_gradients_are_overwritten(rng):
    net = small()
    gradient = np.ones_like(net.forward(rng.standard_normal((2, 1, 4, 4))))
    net.backward(gradient, method="bp")
    once = net.gradients.to_host()
    net.backward(gradient, method="bp")
    assert all(np.array_equal(net.gradients[name], once[name]) for name in once)


def test_inputs_come_from_dlpack(rng):
    net = small()
    x = rng.standard_normal((2, 1, 4, 4))
    assert np.array_equal(net.forward(torch.tensor(x)), net.forward(x))


def test_train_and_eval_set_the_mode():
    net = small()
    assert net.eval() is net and not net.training
    assert net.train().training


def test_plans_are_loaded_and_used(tmp_path, rng):
    net = small()
    net.plan(batch_size=2).save(tmp_path / "net.plan.h5")
    net.use(bp.Plan.load(tmp_path / "net.plan.h5"))
    gradient = np.ones_like(net.forward(rng.standard_normal((2, 1, 4, 4))))
    net.backward(gradient, method="blelloch")
    assert net.last_backward.method == "blelloch"


def test_a_plan_of_another_network_names_what_differs():
    plan = small().plan(batch_size=1)
    layers = [bp.Conv2d(1, 2, 3), bp.ReLU(), bp.Flatten(), bp.Linear(8, 4)]
    other = bp.Sequential(layers, (1, 4, 4), device="host")
    with pytest.raises(bp.PlanMismatchError, match=r"layer 3 Linear.*out_features.*3.*4"):
        other.use(plan)
    mask = np.ones((2, 1, 3, 3), bool)
    mask[0, 0, 0] = False
    masked = [bp.Conv2d(1, 2, 3, mask=mask), bp.ReLU(), bp.Flatten(), bp.Linear(8, 3)]
    with pytest.raises(bp.PlanMismatchError, match="mask"):
        bp.Sequential(masked, (1, 4, 4), device="host").use(plan)


def test_memory_is_refused_before_it_is_taken(rng, monkeypatch):
    net = small()
    with pytest.raises(bp.PlanError, match="memory limit"):
        net.plan(batch_size=64, schedules=["blelloch"], memory_limit=1000)
    net.use(net.plan(batch_size=64))
    gradient = np.ones_like(net.forward(rng.standard_normal((2, 1, 4, 4))))
    monkeypatch.setattr(net.device, "free_memory", lambda: 1000)
    allocated = net.device.allocated
    with pytest.raises(bp.DeviceError, match=r"takes \d+ bytes for a batch of 64, host has 1000 bytes free"):
        net.backward(gradient, method="blelloch")
    assert net.device.allocated == allocated


def refusals():
    x = np.zeros((2, 1, 4, 4))

    def backward(net, gradient, **options):
        net.forward(x)
        net.backward(gradient, **options)

    return [
        (lambda net: net.forward(np.zeros((2, 2, 4, 4))), bp.ShapeError,
         r"input of shape \(2, 2, 4, 4\): it takes"),
        (lambda net: net.forward(np.zeros((0, 1, 4, 4))), bp.ShapeError, "B of at least 1"),
        (lambda net: net.forward(np.zeros((1, 4, 4))), bp.ShapeError, "it takes"),
        (lambda net: net.forward(x * 1j), bp.ShapeError,
         "the network takes input of float64 and got complex128, of which float64 cannot hold"),
        (lambda net: net.backward(np.zeros((2, 3))), bp.PassError, "backward was called before forward"),
        (lambda net: net.transposed_jacobians(), bp.PassError, "called before forward"),
        (lambda net: backward(net, np.zeros((2, 4))), bp.ShapeError, r"shape \(2, 4\): the output is"),
        (lambda net: backward(net, np.zeros((2, 3), "float32")), bp.ShapeError, "gradient of float32"),
        (lambda net: backward(net, np.zeros((2, 3)), method="magic"), bp.PlanError,
         "the methods are auto, bp"),
        (lambda net: backward(net, np.zeros((2, 3)), method="linear"), bp.PlanError,
         "scans by a plan and none"),
        (lambda net: net.load_state_dict({}), bp.CheckpointError, "missing"),
        (lambda net: net.load_state_dict({**net.state_dict(), "0.bias": np.zeros(3)}), bp.ShapeError,
         r"0.bias has shape \(2,\), got \(3,\)"),
    ]  # fmt: skip


@pytest.mark.parametrize("call, error, message", refusals())
def test_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call(small())


def test_a_refused_state_dict_sets_nothing():
    net = small()
    before = net.state_dict()
    with pytest.raises(bp.ShapeError):
        net.load_state_dict({**{name: a + 1 for name, a in before.items()}, "3.bias": np.zeros(9)})
    assert all(np.array_equal(net.parameters[name], before[name]) for name in before)


def test_a_stale_pass_is_refused():
    net = small()
    y = net.forward(np.zeros((1, 1, 4, 4)))
    bp.SGD(net.parameters).step(net.gradients)
    with pytest.raises(
        bp.PassError, match="the pass used version 1 of the parameters, they are at version 2"
    ):
        net.backward(np.ones_like(y))


def test_a_changed_parameter_is_noticed_once_it_is_told():
    net = small()
    y = net.forward(np.zeros((1, 1, 4, 4)))
    net.parameters["3.bias"][...] = 1
    net.parameters.changed()
    with pytest.raises(bp.PassError, match="again before backward"):
        net.backward(np.ones_like(y))
    with pytest.raises(bp.PassError, match="again before transposed_jacobians"):
        net.transposed_jacobians()


def test_a_pass_of_another_network_is_refused():
    net, other = small(), small()
    y = other.forward(np.zeros((1, 1, 4, 4)))
    net.forward(np.zeros((1, 1, 4, 4)))
    for call in (
        lambda: net.backward(np.ones_like(y), of=other.last_pass),
        lambda: net.forward(np.zeros((1, 1, 4, 4)), into=other.last_pass),
        lambda: net.transposed_jacobians(of=other.last_pass),
    ):
        with pytest.raises(bp.PassError, match="belongs to another network"):
            call()


def test_masked_weights_cannot_be_set(rng):
    mask = rng.integers(0, 2, (3, 8)).astype(bool)
    layers = [bp.Flatten(), bp.Linear(8, 3, mask=mask)]
    net = bp.Sequential(layers, (2, 4), dtype="float64", device="host")
    net.use(net.plan(batch_size=2))
    net.parameters["1.weight"][...] = 1
    y = net.forward(np.ones((2, 2, 4)))
    np.testing.assert_array_equal(y - net.parameters["1.bias"], [mask.sum(1)] * 2)
    by_method = [
        net.backward(np.ones_like(y), method, input_gradient=True).copy() for method in ("bp", "linear")
    ]
    np.testing.assert_array_equal(*by_method)


def test_gradient_norms_belong_to_their_pass(rng):
    net = small()
    net.use(net.plan(batch_size=2))
    first_input, second_input = rng.standard_normal((2, 2, 1, 4, 4))
    y = net.forward(first_input)
    first = net.last_pass
    net.forward(second_input)
    net.backward(np.ones_like(y), method="blelloch", of=first)
    assert net.transposed_jacobians(of=first)[-1].gradient_norm == pytest.approx(np.sqrt(6))
    net.backward(np.full_like(y, 100), method="blelloch")
    assert net.transposed_jacobians(of=first)[-1].gradient_norm is None
    assert net.transposed_jacobians()[-1].gradient_norm == pytest.approx(100 * np.sqrt(6))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_copies_learn_on_their_own(duplicate, rng):
    net = small().eval()
    twin = duplicate(net)
    assert not twin.training and twin.fingerprint == net.fingerprint
    x = rng.standard_normal((2, 1, 4, 4))
    assert np.array_equal(twin.forward(x), net.forward(x))
    before = net.state_dict()
    twin.backward(np.ones((2, 3)), method="bp")
    bp.SGD(twin.parameters, lr=1).step(twin.gradients)
    assert not np.array_equal(twin.parameters["3.bias"], before["3.bias"])
    assert all(np.array_equal(net.parameters[name], before[name]) for name in before)


def test_layers_that_do_not_fit_are_named():
    with pytest.raises(bp.ShapeError, match=r"layer 1: Linear\(9, 2\) got input \(8,\)"):
        bp.Sequential([bp.Flatten(), bp.Linear(9, 2)], (2, 2, 2), device="host")
    with pytest.raises(bp.ShapeError, match="dtype 'float16' was asked for"):
        small(dtype="float16")
    with pytest.raises(bp.DeviceError, match="the devices are"):
        bp.Sequential([bp.ReLU()], (1,), device="tpu")


def test_the_jacobians_records_hold_the_gradient_by_finite_differences(rng):
    net = small()
    x = rng.standard_normal((2, 1, 4, 4))
    y = net.forward(x)
    records = net.transposed_jacobians()
    assert [(r.layer, r.name, r.gradient_norm) for r in records] == [
        (0, "Conv2d", None), (1, "ReLU", None), (3, "Linear", None),
    ]  # fmt: skip
    step = 1e-6
    for sample in range(2):
        product = np.eye(3)
        for record in reversed(records):
            product = record.to_scipy(sample) @ product
        for element in range(16):
            moved = x.copy()
            moved[sample].reshape(-1)[element] += step
            difference = (net.forward(moved)[sample] - y[sample]) / step
            np.testing.assert_allclose(product[element], difference, atol=1e-5)
    net.backward(np.ones_like(net.forward(x)), method="bp")
    assert net.transposed_jacobians()[-1].gradient_norm == pytest.approx(np.sqrt(6))


def test_a_network_is_called_as_a_function():
    net, x = small(), np.random.default_rng(0).standard_normal((2, 1, 4, 4))
    np.testing.assert_array_equal(net(x), small().forward(x))
    assert net.last_pass.batch == 2
