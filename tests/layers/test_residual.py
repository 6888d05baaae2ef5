"""Residual blocks: PyTorch's nested modules, drawn at random; names and places."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import assert_close
from torch import nn

import bppsa_cupy as bp
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
            assert_close(net.gradients[name], expected, 10000, scale=1 + np.abs(expected).max(), label=name)
    for name, array in reference.state_dict().items():
        assert_close(net.state_dict()[name], array.numpy(), 1000, scale=1.0, label=name)


def block(**options):
    body = [bp.Conv2d(2, 4, 3, 2, 1, **options), bp.BatchNorm2d(4), bp.ReLU(), bp.Conv2d(4, 4, 3, padding=1)]
    return bp.Residual(body, [bp.PadShortcut(4, 2)])


def network(seed=0, **options):
    layers = [bp.Conv2d(1, 2, 3, padding=1), block(**options), bp.ReLU(), bp.Flatten(), bp.Linear(24, 3)]
    return bp.Sequential(layers, (1, 5, 4), seed=seed, dtype="float64", device="host")


def test_records_lie_inside_with_their_paths(rng):
    net = network().eval()
    x = rng.standard_normal((2, 1, 5, 4))
    net.backward(np.ones_like(net.forward(x)), method="bp")
    records = net.transposed_jacobians()
    assert [record.label for record in records] == [
        "0 Conv2d", "1.body.0 Conv2d", "1.body.1 BatchNorm2d", "1.body.2 ReLU", "1.body.3 Conv2d",
        "1.shortcut.0 PadShortcut", "2 ReLU", "4 Linear",
    ]  # fmt: skip
    assert all(record.gradient_norm is not None for record in records)
    first, *body, shortcut, relu, last = (record.to_scipy(1).toarray() for record in records)
    through = body[0] @ body[1] @ body[2] @ body[3] + shortcut
    product, step = first @ through @ relu @ last, 1e-6
    differences = []
    for index in np.ndindex(1, 5, 4):
        ends = []
        for sign in (1, -1):
            moved = x[1:].copy()
            moved[(0, *index)] += sign * step
            ends.append(net.forward(moved)[0].copy())
        differences.append((ends[0] - ends[1]) / (2 * step))
    np.testing.assert_allclose(product, differences, atol=1e-8)
    net.train().forward(x)
    assert "1.body.1 BatchNorm2d" not in [record.label for record in net.transposed_jacobians()]


def test_dropouts_inside_draw_numbers_of_their_own():
    dropouts = bp.Residual([bp.Dropout(), bp.Residual([bp.Dropout()], [bp.Dropout()])], [bp.Dropout()])
    net = bp.Sequential([bp.Dropout(), dropouts, bp.Dropout()], (4096,), dtype="float64", device="host")
    net.forward(np.ones((1, 4096)))
    outer, block_ctx, last = net.last_pass.layers
    inner = block_ctx.inner["body"][1].inner
    contexts = [
        outer, block_ctx.inner["body"][0], inner["body"][0], inner["shortcut"][0],
        block_ctx.inner["shortcut"][0], last,
    ]  # fmt: skip
    masks = {ctx.saved["kept"].tobytes() for ctx in contexts}
    assert len(masks) == 6


def test_an_error_inside_of_a_pass_names_the_place():
    block = bp.Residual([bp.ReLU(), bp.BatchNorm2d(2)])
    net = bp.Sequential([block], (2, 1, 1), dtype="float64", device="host")
    with pytest.raises(bp.ShapeError, match=r"layer 0.body.1: BatchNorm2d"):
        net.forward(np.ones((1, 2, 1, 1)))


# ---- recurrent layers inside ----


def walked(layer, x, lengths):
    pack = nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths), True, False)
    return nn.utils.rnn.pad_packed_sequence(layer(pack)[0], True, total_length=x.shape[1])[0]


@pytest.mark.parametrize("method", ["bp", "linear", "blelloch", "auto"])
def test_recurrent_layers_inside_are_pytorchs_by_every_method(method, device, rng):
    nested = bp.Residual([bp.Linear(3, 3), bp.Residual([bp.LSTM(3, 3)]), bp.Tanh()], [bp.GRU(3, 3)])
    net = bp.Sequential([nested, bp.Linear(3, 2)], (None, 3), seed=4, dtype="float64", device=device)
    linear, lstm, gru, last = theirs = nn.ModuleList(
        [nn.Linear(3, 3), nn.LSTM(3, 3, batch_first=True), nn.GRU(3, 3, batch_first=True), nn.Linear(3, 2)]
    ).double()
    names = dict(zip(theirs.state_dict(), net.state_dict(), strict=True))
    theirs.load_state_dict({name: torch.tensor(net.state_dict()[key]) for name, key in names.items()})
    x, lengths = rng.standard_normal((4, 7, 3)), np.array([7, 3, 1, 5])
    given_x = torch.tensor(x, requires_grad=True)
    inner = linear(given_x)
    expected = last(torch.tanh(inner + walked(lstm, inner, lengths)) + walked(gru, given_x, lengths))
    y = net.forward(x, lengths=lengths)
    np.testing.assert_allclose(device.to_host(y), expected.detach().numpy(), rtol=1e-11, atol=1e-12)
    gradient = rng.standard_normal(y.shape)
    if method != "bp":
        net.use(net.plan(batch_size=4))
    by_input = net.backward(gradient, method, input_gradient=True)
    expected.backward(torch.tensor(gradient))
    np.testing.assert_allclose(device.to_host(by_input), given_x.grad.numpy(), rtol=1e-9, atol=1e-11)
    for name, parameter in theirs.named_parameters():
        ours = device.to_host(net.gradients[names[name]])
        np.testing.assert_allclose(ours, parameter.grad.numpy(), rtol=1e-9, atol=1e-11, err_msg=name)
    ways = net.last_backward.backward_ways
    assert [way.split(":")[0] for way in ways] == ["0.body.1.body.0 LSTM l0", "0.shortcut.0 GRU l0"]
    records = [record for record in net.transposed_jacobians() if record.direction]
    assert {(record.path, record.name) for record in records} == {
        ("body.1.body.0", "LSTM l0"),
        ("shortcut.0", "GRU l0"),
    }
