"""Residual blocks: PyTorch's nested modules, drawn at random; names, places and what is refused."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import assert_close
from torch import nn

import bppsa_cupy as bp
from bppsa_cupy.tools.reproduction.figure10 import flops
from bppsa_cupy.tools.torch_modules import Residual as Block

CHANNELS = 2

#: Layers that keep the shape, by name: ours, PyTorch's.
LAYERS = {
    "conv": lambda: (
        bp.Conv2d(CHANNELS, CHANNELS, 3, padding=1),
        nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1),
    ),
    "norm": lambda: (bp.BatchNorm2d(CHANNELS), nn.BatchNorm2d(CHANNELS)),
    "relu": lambda: (bp.ReLU(), nn.ReLU()),
    "tanh": lambda: (bp.Tanh(), nn.Tanh()),
}
NAMES = st.sampled_from(sorted(LAYERS))
#: A list of names, in which a pair of lists is a block: its body and its shortcut.
BODIES = st.recursive(
    st.lists(NAMES, max_size=3),
    lambda inner: st.lists(st.one_of(NAMES, st.tuples(inner, inner)), min_size=1, max_size=3),
    max_leaves=5,
)


def made(steps):
    """Ours and PyTorch's layers."""
    pairs = []
    for step in steps:
        if isinstance(step, str):
            pairs.append(LAYERS[step]())
        else:
            (body, their_body), (shortcut, their_shortcut) = map(made, step)
            pairs.append((bp.Residual(body, shortcut), Block(their_body, their_shortcut)))
    return [ours for ours, _ in pairs], [theirs for _, theirs in pairs]


@settings(max_examples=30)
@given(BODIES, BODIES, st.booleans(), st.integers(0, 2**20))
def test_nested_blocks_are_pytorchs(body, shortcut, training, seed):
    torch.manual_seed(seed)
    ours, theirs = made(["conv", (body, shortcut), "relu"])
    reference = nn.Sequential(*theirs).double()
    net = bp.Sequential(ours, (CHANNELS, 3, 4), dtype="float64", device="host")
    assert list(net.state_dict()) == list(reference.state_dict())
    assert list(net.parameters) == [name for name, _ in reference.named_parameters()]
    net.load_state_dict(reference.state_dict())
    rng = np.random.default_rng(seed)
    reference(torch.tensor(rng.standard_normal((3, CHANNELS, 3, 4))))
    net.load_state_dict(reference.state_dict())
    (net.train if training else net.eval)()
    reference.train(training)
    x, gradient = rng.standard_normal((2, 3, CHANNELS, 3, 4))
    theirs_x = torch.tensor(x, requires_grad=True)
    reference_y = reference(theirs_x)
    reference_y.backward(torch.tensor(gradient))
    assert_close(net.forward(x), reference_y.detach().numpy(), 1000)
    net.use(net.plan(batch_size=3))
    for method in ("bp", "linear", "blelloch", "hybrid", "auto"):
        by_input = net.backward(gradient, method=method, input_gradient=True)
        if method not in ("bp", "auto"):
            assert len(net.last_backward.schedules) == len(net.architecture.runs)
        assert_close(by_input, theirs_x.grad.numpy(), 10000, scale=1 + np.abs(theirs_x.grad.numpy()).max())
        for name, parameter in reference.named_parameters():
            expected = parameter.grad.numpy()
            assert_close(net.gradients[name], expected, 10000, scale=1 + np.abs(expected).max(), what=name)
    for name, array in reference.state_dict().items():
        assert_close(net.state_dict()[name], array.numpy(), 1000, scale=1.0, what=name)


def block(**options):
    body = [bp.Conv2d(2, 4, 3, 2, 1, **options), bp.BatchNorm2d(4), bp.ReLU(), bp.Conv2d(4, 4, 3, padding=1)]
    return bp.Residual(body, [bp.PadShortcut(4, 2)])


def network(seed=0, **options):
    layers = [bp.Conv2d(1, 2, 3, padding=1), block(**options), bp.ReLU(), bp.Flatten(), bp.Linear(24, 3)]
    return bp.Sequential(layers, (1, 5, 4), seed=seed, dtype="float64", device="host")


def test_records_lie_inside_with_their_paths(rng, tmp_path):
    net = network().eval()
    x = rng.standard_normal((2, 1, 5, 4))
    net.backward(np.ones_like(net.forward(x)), method="bp")
    bp.save_jacobians(tmp_path / "j.h5", net)
    records = bp.load_jacobians(tmp_path / "j.h5")
    assert [record.label for record in records] == [
        "0 Conv2d", "1.body.0 Conv2d", "1.body.1 BatchNorm2d", "1.body.2 ReLU", "1.body.3 Conv2d",
        "1.shortcut.0 PadShortcut", "2 ReLU", "4 Linear",
    ]  # fmt: skip
    assert all(record.gradient_norm is not None for record in records)
    first, *body, shortcut, relu, last = (record.to_scipy(1).toarray() for record in records)
    through = body[0] @ body[1] @ body[2] @ body[3] + shortcut
    whole, step = first @ through @ relu @ last, 1e-6
    differences = []
    for index in np.ndindex(1, 5, 4):
        ends = []
        for sign in (1, -1):
            moved = x[1:].copy()
            moved[(0, *index)] += sign * step
            ends.append(net.forward(moved)[0].copy())
        differences.append((ends[0] - ends[1]) / (2 * step))
    np.testing.assert_allclose(whole, differences, atol=1e-8)
    net.train().forward(x)
    assert "1.body.1 BatchNorm2d" not in [record.label for record in net.transposed_jacobians()]


def test_dropouts_inside_draw_numbers_of_their_own():
    dropouts = bp.Residual([bp.Dropout(), bp.Residual([bp.Dropout()], [bp.Dropout()])], [bp.Dropout()])
    net = bp.Sequential([bp.Dropout(), dropouts, bp.Dropout()], (4096,), device="host")
    net.forward(np.ones((1, 4096), "float32"))
    outer, block_ctx, last = net.last_pass.layers
    inner = block_ctx.inner["body"][1].inner
    contexts = [
        outer, block_ctx.inner["body"][0], inner["body"][0], inner["shortcut"][0],
        block_ctx.inner["shortcut"][0], last,
    ]  # fmt: skip
    kept = {ctx.saved["kept"].tobytes() for ctx in contexts}
    assert len(kept) == 6


def test_weights_inside_are_pruned(rng):
    net = network()
    masks = bp.prune(net, 0.5)
    assert "1.body.0.weight" in masks and masks["1.body.3.weight"].mean() == 0.5
    net.backward(np.ones_like(net.forward(rng.standard_normal((2, 1, 5, 4)))), method="bp")
    assert not net.gradients["1.body.0.weight"][~masks["1.body.0.weight"]].any()
    record = next(r for r in net.transposed_jacobians() if r.label == "1.body.3 Conv2d")
    dense = next(r for r in dense_records(rng) if r.label == "1.body.3 Conv2d")
    assert record.pattern.nnz < 0.6 * dense.pattern.nnz
    with pytest.raises(
        bp.ShapeError, match=r"mask of '1.body.1.weight': it takes masks of 0.weight, 1.body.0"
    ):
        net.set_masks({"1.body.1.weight": np.ones(4)})


def dense_records(rng):
    net = network()
    net.forward(rng.standard_normal((2, 1, 5, 4)))
    return net.transposed_jacobians()


def test_a_plan_of_another_body_names_the_place():
    plan = network().plan(batch_size=1)
    with pytest.raises(bp.PlanMismatchError, match=r"layer 1.body.0 Conv2d: bias True in the plan, False"):
        network(bias=False).use(plan)
    net = network()
    bp.prune(net, 0.5)
    with pytest.raises(bp.PlanMismatchError, match=r"layer 1.body.0 Conv2d: weight_mask"):
        net.use(plan)
    assert flops(net.plan(batch_size=1))["networks"][1]["network"] == "full"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: [bp.Residual([bp.Conv2d(2, 3, 3)])],
            r"layer 0: Residual .* body gives \(3, 4, 4\) and its sho",
        ),
        (
            lambda: [bp.Residual([bp.ReLU(), bp.Conv2d(3, 3, 3)])],
            r"layer 0.body.1: Conv2d\(3, 3, 3\) got input",
        ),
        (
            lambda: [bp.ReLU(), bp.Residual([bp.Residual([], [bp.BatchNorm2d(5)])])],
            r"layer 1.body.0.shortcut.0: BatchNorm2d\(5\) got",
        ),
        (lambda: [bp.Residual([bp.ReLU(), 3])], "layer 0.body.1: 3 is no layer"),
        (lambda: [bp.PadShortcut(1)], "2 channels, it pads to 1"),
    ],
)
def test_layers_that_do_not_fit_are_refused_with_their_place(make, message):
    with pytest.raises(bp.ShapeError, match=message):
        bp.Sequential(make(), (2, 6, 6), device="host")


def test_an_error_inside_of_a_pass_names_the_place():
    net = bp.Sequential([bp.Residual([bp.ReLU(), bp.BatchNorm2d(2)])], (2, 1, 1), device="host")
    with pytest.raises(bp.ShapeError, match=r"layer 0.body.1: BatchNorm2d\(2\) got .* one value a channel"):
        net.forward(np.ones((1, 2, 1, 1), "float32"))
