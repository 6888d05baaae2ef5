"""Batch normalisation: PyTorch's outputs, gradients and buffers in both modes; what the scan sees of it."""

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tolerances import assert_close

import bppsa_cupy as bp
from bppsa_cupy.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint

SHAPES = st.one_of(
    st.tuples(st.integers(1, 5)),
    st.tuples(st.integers(1, 4), st.integers(1, 40)),
    st.tuples(st.integers(1, 4), st.integers(1, 6), st.integers(1, 7)),
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "eps": st.sampled_from([1e-5, 1e-2]),
        "momentum": st.sampled_from([None, 0.0, 0.3, 1.0]),
        "affine": st.booleans(),
        "track_running_stats": st.booleans(),
    },
)
MODES = st.lists(st.booleans(), min_size=1, max_size=3)


def pair(shape, options, seed=0):
    """A network of one layer in float64 and PyTorch's, with the same random parameters."""
    name = "BatchNorm2d" if len(shape) == 3 else "BatchNorm1d"
    net = bp.Sequential([getattr(bp, name)(shape[0], **options)], shape, dtype="float64", device="host")
    reference = torch.nn.Sequential(getattr(torch.nn, name)(shape[0], **options)).double()
    rng = np.random.default_rng(seed)
    state = {name: rng.standard_normal(array.shape) for name, array in net.parameters.items()}
    reference.load_state_dict(
        {**reference.state_dict(), **{name: torch.tensor(value) for name, value in state.items()}}
    )
    net.load_state_dict(reference.state_dict())
    return net, reference, rng


@settings(max_examples=60)
@given(SHAPES, OPTIONS, MODES, st.integers(1, 4), st.integers(0, 2**20))
@example((2,), {}, [True, False, True], 2, 0)
@example((1, 17), {"momentum": None}, [True, True, False], 3, 1)
def test_agrees_with_pytorch_over_passes_of_both_modes(shape, options, modes, batch, seed):
    net, reference, rng = pair(shape, options, seed)
    for training in modes:
        (net.train if training else net.eval)()
        reference.train(training)
        x = 3 + 2 * rng.standard_normal((batch, *shape))
        theirs_x = torch.tensor(x, requires_grad=True)
        try:
            theirs = reference(theirs_x)
        except ValueError:
            with pytest.raises(bp.ShapeError, match="one value a channel"):
                net.forward(x)
            return
        ours = net.forward(x)
        gradient = rng.standard_normal(x.shape)
        reference.zero_grad()
        theirs.backward(torch.tensor(gradient))
        length, scale = 100 * x.size, np.sqrt(1 / net.layers[0].eps)
        assert_close(ours, theirs.detach().numpy(), length)
        by_input = net.backward(gradient, method="bp", input_gradient=True)
        assert_close(by_input, theirs_x.grad.numpy(), length, scale=scale)
        for name, parameter in reference.named_parameters():
            assert_close(net.gradients[name], parameter.grad.numpy(), length, scale=scale)
    for name, array in net.state_dict().items():
        assert_close(array, reference.state_dict()[name].numpy(), 100)


def test_a_large_mean_costs_no_digits(rng):
    net, reference, rng = pair((3, 4, 5), {})
    x = 1e6 + rng.standard_normal((6, 3, 4, 5))
    assert_close(net.forward(x), reference(torch.tensor(x)).detach().numpy(), 1, scale=1e7)


def small(seed=0, **options):
    layers = [
        bp.Conv2d(2, 3, 3), bp.BatchNorm2d(3, **options), bp.ReLU(), bp.Flatten(), bp.Linear(12, 5),
        bp.BatchNorm1d(5, **options), bp.Tanh(), bp.Linear(5, 3),
    ]  # fmt: skip
    return bp.Sequential(layers, (2, 4, 4), seed=seed, dtype="float64", device="host")


def trained(rng, **options):
    """`small` after two passes in training mode."""
    net = small(**options)
    for _ in range(2):
        net.forward(1 + rng.standard_normal((4, 2, 4, 4)))
    return net


def test_in_training_it_is_a_barrier_and_in_evaluation_an_element():
    net = small()
    assert [run.elements for run in net.architecture.runs] == [(0,), (4, 2), (7, 6)]
    training = net.architecture
    assert [run.elements for run in net.eval().architecture.runs] == [(7, 6, 5, 4, 2, 1, 0)]
    assert net.architecture is not training and net.train().architecture is training
    untracked = small(track_running_stats=False)
    assert untracked.architecture is untracked.eval().architecture
    assert len(untracked.architecture.runs) == 3


@pytest.mark.parametrize("training", [True, False])
def test_every_method_gives_the_gradients_of_back_propagation(training, rng):
    net = trained(rng)
    (net.train if training else net.eval)()
    net.use(net.plan(batch_size=4))
    x, gradient = rng.standard_normal((4, 2, 4, 4)), rng.standard_normal((4, 3))
    results = {}
    for method in ("bp", "linear", "blelloch", "hybrid"):
        net.forward(x)
        by_input = net.backward(gradient, method=method, input_gradient=True).copy()
        results[method] = {"input": by_input, **net.gradients.to_host()}
    for method, arrays in results.items():
        for name, array in arrays.items():
            np.testing.assert_allclose(array, results["bp"][name], atol=1e-12, err_msg=f"{method} {name}")


def test_a_plan_is_of_one_mode(rng, tmp_path):
    net = trained(rng)
    net.plan(batch_size=2).save(tmp_path / "training.h5")
    plan = bp.Plan.load(tmp_path / "training.h5")
    net.use(plan)
    with pytest.raises(bp.PlanMismatchError, match="mode training in the plan, evaluation in the network"):
        net.eval().use(plan)
    y = net.forward(rng.standard_normal((2, 2, 4, 4)))
    with pytest.raises(bp.PlanMismatchError, match="mode training in the plan"):
        net.backward(np.ones_like(y), method="linear")
    plan_of_evaluation = net.plan(batch_size=2)
    net.use(plan_of_evaluation)
    net.backward(np.ones_like(y), method="linear")
    with pytest.raises(bp.PlanMismatchError, match="mode evaluation in the plan, training in the network"):
        net.train().use(plan_of_evaluation)


def test_jacobians_of_evaluation_are_diagonal(rng):
    net = trained(rng).eval()
    net.forward(rng.standard_normal((2, 2, 4, 4)))
    record = net.transposed_jacobians()[1]
    assert record.label == "1 BatchNorm2d" and record.shared
    scale = net.parameters["1.weight"] / np.sqrt(net.buffers["1.running_var"] + 1e-5)
    np.testing.assert_allclose(record.to_scipy().toarray(), np.diag(np.repeat(scale, 4)))
    names = [record.name for record in net.train().transposed_jacobians(of=net.last_pass)]
    assert "BatchNorm2d" in names  # of the pass, whatever the mode is now
    net.forward(rng.standard_normal((2, 2, 4, 4)))
    assert "BatchNorm2d" not in [record.name for record in net.transposed_jacobians()]


def test_an_evaluation_pass_keeps_its_statistics(rng):
    net = trained(rng).eval()
    gradient = np.ones_like(net.forward(rng.standard_normal((2, 2, 4, 4))))
    first = net.last_pass
    net.backward(gradient, method="bp")
    expected = net.gradients.to_host()
    net.train().forward(rng.standard_normal((2, 2, 4, 4)))
    net.backward(gradient, method="bp", of=first)
    assert all(np.array_equal(net.gradients[name], expected[name]) for name in expected)


def test_state_dicts_hold_buffers_in_pytorchs_order(rng, tmp_path):
    net = trained(rng)
    reference = torch.nn.Sequential(
        torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(12, 5), torch.nn.BatchNorm1d(5), torch.nn.Tanh(), torch.nn.Linear(5, 3),
    ).double()  # fmt: skip
    state = net.state_dict()
    assert list(state) == list(reference.state_dict())
    reference.load_state_dict({name: torch.tensor(array) for name, array in state.items()})
    assert state["5.num_batches_tracked"] == 2 and state["5.num_batches_tracked"].dtype == np.int64
    save_checkpoint(tmp_path / "c.h5", Checkpoint(net.describe(), "float64", state))
    restored = load_checkpoint(tmp_path / "c.h5").parameters
    for others in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        again = others.state_dict()
        assert all(np.array_equal(state[name], again[name]) for name in state)
    other = small(seed=3)
    other.load_state_dict(restored)
    assert all(np.array_equal(state[name], array) for name, array in other.state_dict().items())
    assert list(restored) == list(state) and restored["1.num_batches_tracked"].shape == ()


def test_a_state_dict_without_buffers_is_refused_whole(rng):
    net = trained(rng)
    before = net.state_dict()
    lacking = {name: array + 1 for name, array in before.items() if name != "1.running_var"}
    with pytest.raises(bp.CheckpointError, match=r"missing \['1.running_var'\]"):
        net.load_state_dict(lacking)
    with pytest.raises(bp.ShapeError, match=r"1.running_var has shape \(3,\), got \(4,\)"):
        net.load_state_dict({**lacking, "1.running_var": np.ones(4)})
    with pytest.raises(bp.ShapeError, match=r"7.weight has shape"):
        net.load_state_dict({**before, "1.running_var": np.ones(3), "7.weight": np.ones(3)})
    assert all(np.array_equal(before[name], array) for name, array in net.state_dict().items())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_features": 0}, "num_features=0"),
        ({"num_features": 2, "eps": 0.0}, "a number above 0"),
        ({"num_features": 2, "momentum": 1.5}, "from 0 to 1"),
        ({"num_features": 2, "affine": "no"}, "True or False"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(bp.ShapeError, match=message):
        bp.BatchNorm2d(**arguments)


def test_inputs_that_do_not_fit_are_refused():
    with pytest.raises(bp.ShapeError, match=r"layer 0: BatchNorm2d\(3\).*2 channels, it takes 3"):
        bp.Sequential([bp.BatchNorm2d(3)], (2, 4, 4), device="host")
    with pytest.raises(bp.ShapeError, match=r"BatchNorm1d\(3\) got input \(3, 4, 4\)"):
        bp.Sequential([bp.BatchNorm1d(3)], (3, 4, 4), device="host")
