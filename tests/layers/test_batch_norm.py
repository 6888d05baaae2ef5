"""Batch normalisation: PyTorch's outputs, gradients and buffers in both modes; what the scan sees of it."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tolerances import assert_close

import bppsa_cupy as bp

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
            with pytest.raises(bp.ShapeError, match="one value per channel"):
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
