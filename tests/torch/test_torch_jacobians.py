"""`bppsa_cupy.torch.jacobians` against torch.autograd's own Jacobians."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import bppsa_cupy as bp
import bppsa_cupy.torch as ours

F64 = torch.float64


def dense(record: bp.JacobianRecord, batch: int) -> np.ndarray:
    """(B, elements of y, elements of x)."""
    return np.stack([record.to_scipy(sample).toarray().T for sample in range(batch)])


def by_autograd(function, x):
    """(B, elements of y, elements of x) of a function of one sample with a batch axis."""
    return np.stack(
        [
            torch.autograd.functional.jacobian(lambda x: function(x.clone()), sample[None])
            .detach()
            .reshape(-1, sample.numel())
            .numpy()
            for sample in x
        ]
    )


def images() -> nn.Sequential:
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(2)
    norm.running_var.fill_(2.0)
    return nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1, bias=False), norm, nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Dropout(),
        nn.AvgPool2d(2, 1), nn.ReflectionPad2d((0, 1, 1, 0)), nn.Sequential(nn.Identity(), nn.GELU("tanh")),
        nn.Flatten(), nn.LayerNorm(18), nn.Linear(18, 3), nn.Softmax(-1),
    ).to(F64).eval()  # fmt: skip


def test_layers_of_a_sequential() -> None:
    model, x = images(), torch.randn(2, 1, 6, 6, dtype=F64)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    records = ours.jacobians(model, x)
    assert [(r.layer, r.path, r.name) for r in records] == [
        (0, "", "Conv2d"), (1, "", "BatchNorm2d"), (2, "", "ReLU"), (3, "", "MaxPool2d"), (4, "", "Dropout"),
        (5, "", "AvgPool2d"), (6, "", "Pad2d"), (7, "1", "GELU"), (9, "", "LayerNorm"), (10, "", "Linear"),
        (11, "", "Softmax"),
    ]  # fmt: skip
    for record in records:
        inputs = model[: record.layer](x).detach()
        np.testing.assert_allclose(
            dense(record, 2), by_autograd(model[record.layer], inputs), atol=1e-12, err_msg=record.label
        )
    assert records[0].pattern.nnz < records[0].pattern.shape[0] * records[0].pattern.shape[1] / 2
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_pruned_layers_pattern_is_its_mask_and_a_parametrized_one_is_told() -> None:
    pruned, normed = nn.Linear(6, 4).to(F64), nn.Linear(4, 3).to(F64)
    prune.l1_unstructured(pruned, "weight", amount=0.75)
    nn.utils.parametrizations.weight_norm(normed)
    first, second = ours.jacobians(nn.Sequential(pruned, normed), torch.randn(2, 6, dtype=F64))
    assert (first.pattern.nnz, second.name) == (6, "Linear")
    np.testing.assert_array_equal(first.to_scipy().toarray().T, pruned.weight.detach())
    np.testing.assert_array_equal(second.to_scipy().toarray().T, normed.weight.detach())


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.act = nn.Embedding(5, 3), nn.Tanh()
        self.rnn, self.out = nn.GRU(3, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.act(self.out(self.act(self.rnn(self.words(words))[0][:, -1])))


@pytest.mark.parametrize("convert", [False, True])
def test_a_model_of_ones_own(convert: bool) -> None:
    model = Tagger().double()
    model = ours.convert(model) if convert else model
    records = ours.jacobians(model, torch.arange(10).reshape(2, 5) % 5)
    assert repr(records) == "JacobianRecords(2.rnn GRU l0 × 5, 1.act Tanh, 3.out Linear, 1.act.1 Tanh)"
    assert bp.lyapunov_exponents(records.where(path="rnn")).shape == (2, 4)


def states_of(module: nn.Module, x: torch.Tensor, first: torch.Tensor, t: int):
    """What the state after step t is as a function of the one before, one sample, from PyTorch's passes."""
    hidden = module.hidden_size
    before = module(x[:t], first)[1] if t else first

    def split(s):
        parts = s.reshape(-1, 1, 1, hidden)
        return tuple(parts) if len(parts) > 1 else parts[0]

    def after(s):
        result = module(x[t : t + 1], split(s))[1]
        return torch.cat([p.reshape(-1) for p in (result if isinstance(result, tuple) else (result,))])

    flat = torch.cat([p.reshape(-1) for p in (before if isinstance(before, tuple) else (before,))])
    return after, flat.detach()


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("door", [nn, ours])
def test_steps_of_a_recurrent_module(kind, door) -> None:
    torch.manual_seed(1)
    module, x = getattr(door, kind)(2, 3).to(F64), torch.randn(4, 2, 2, dtype=F64)
    first = torch.randn(2, 1, 2, 3, dtype=F64)
    h0 = tuple(first) if kind == "LSTM" else first[0]
    chain = ours.jacobians(module, x, h0)
    dense = chain.dense()
    for sample in range(2):
        state = tuple(p[:, [sample]] for p in h0) if kind == "LSTM" else h0[:, [sample]]
        for t in range(4):
            after, before = states_of(module, x[:, [sample]], state, t)
            expected = torch.autograd.functional.jacobian(after, before)
            np.testing.assert_allclose(dense[t, sample], expected.T, atol=1e-12)
    alone = ours.jacobians(module, x[:, 0], tuple(p[:, 0] for p in h0) if kind == "LSTM" else h0[:, 0])
    np.testing.assert_allclose(alone.dense()[:, 0], dense[:, 0], atol=1e-14)


def test_packs_and_both_directions() -> None:
    module, x = nn.LSTM(2, 3, 2, bidirectional=True).to(F64), torch.randn(5, 3, 2, dtype=F64)
    lengths = torch.tensor([2, 5, 3])
    pack = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
    records = ours.jacobians(module, pack)
    assert len(records.chains()) == 4
    chain = records.where(inner=0, direction="forward")
    np.testing.assert_array_equal(chain.lengths(), lengths)
    full = ours.jacobians(module, x).where(inner=0, direction="forward")
    np.testing.assert_allclose(chain.dense()[:2, 0], full.dense()[:2, 0], atol=1e-14)


def test_last_steps_that_are_the_identity_count() -> None:
    x = torch.cat([torch.full((50, 1), 0.5), torch.ones(50, 1)])
    product = ours.jacobians(lambda x, h: x * h, x, torch.ones(1))
    np.testing.assert_allclose(bp.lyapunov_exponents(product), [[math.log(0.5) / 2]], rtol=1e-12)
    torch.manual_seed(0)
    gru = nn.GRU(1, 1).to(F64)
    with torch.no_grad():
        gru.weight_ih_l0[1] = 1
    x = torch.cat([torch.zeros(50, 1), torch.full((50, 1), 99.0)]).to(F64)  # then z is 1, and so is ∂h/∂h
    records = ours.jacobians(gru, x)
    assert records.lengths() == [100] and (records.dense()[50:] == 1).all()
    jacobian = torch.autograd.functional.jacobian(lambda h: gru(x, h)[1], torch.zeros(1, 1).to(F64))
    expected = math.log(abs(float(jacobian))) / 100
    np.testing.assert_allclose(bp.lyapunov_exponents(records), [[expected]], rtol=1e-5)


def leaky(x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    weight = torch.linspace(-1, 1, 9, dtype=h.dtype).reshape(3, 3).sin()
    return 0.8 * h + 0.2 * torch.tanh(torch.cat([x, h], -1)[..., 2:] @ weight.T)


@pytest.mark.parametrize("batch", [None, 1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_a_step_of_ones_own(batch, dtype) -> None:
    torch.manual_seed(0)
    axes = () if batch is None else (batch,)
    x, h0 = torch.randn(4, *axes, 2, dtype=dtype), torch.randn(*axes, 3, dtype=dtype, requires_grad=True)
    records = ours.jacobians(leaky, x, h0)
    assert repr(records) == "JacobianRecords(0 leaky l0 × 4)" and h0.grad is None
    assert records[0].data.shape == (9, batch or 1) and str(records[0].data.dtype) in str(dtype)
    h = h0.detach().reshape(-1, 3)
    for t, x_t in enumerate(x.reshape(4, -1, 2)):
        for sample, row in enumerate(x_t):
            expected = torch.autograd.functional.jacobian(lambda s, row=row: leaky(row, s), h[sample])
            np.testing.assert_allclose(records.dense()[t, sample], expected.T, atol=1e-6)
        h = leaky(x_t, h)
    alone, twice = (lambda h: leaky(x[0], h)), ours.jacobians(leaky, x[[0, 0]], h0).dense()
    np.testing.assert_array_equal(ours.jacobians(alone, None, h0, steps=2).dense(), twice)


def test_states_that_are_tuples_and_cells_of_pytorch() -> None:
    cell, x = nn.LSTMCell(2, 3).to(F64), torch.randn(3, 5, 2, dtype=F64)
    module = nn.LSTM(2, 3, batch_first=True).to(F64)
    module.load_state_dict({f"{name}_l0": value for name, value in cell.state_dict().items()})
    first = torch.zeros(3, 3, dtype=F64)
    records = ours.jacobians(cell, x, (first, first), batch_first=True)
    assert records[0].name == "LSTMCell l0"
    np.testing.assert_allclose(records.dense(), ours.jacobians(module, x).dense(), atol=1e-13)


def by_lstm(x, states):
    _, (h, c) = by_lstm.module(x[None], tuple(state[None] for state in states))
    return h[0], c[0]


def in_place(x, h):
    h.mul_(0.5)
    h[:, 0] = x[:, 0] + h[:, 1]
    return torch.tanh(h.flip(1))


def counting(x, h):
    counting.seen.add_(1)
    return torch.tanh(h * counting.seen + x[:, :1])


def summing(x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    return torch.tanh(0.9 * h + x.sum(-1, keepdim=True))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("converted", [False, True])
def test_steps_as_programs_write_them(converted) -> None:
    torch.manual_seed(0)
    by_lstm.module = nn.LSTM(2, 3).to(F64)
    if converted:
        ours.convert(by_lstm.module)
    x, states = torch.randn(4, 2, 2, dtype=F64), list(torch.randn(2, 2, 3, dtype=F64))
    copies = [x.clone(), *(state.clone() for state in states)]
    for step in (by_lstm, in_place, counting, torch.jit.script(summing)):
        count = 2 if step is by_lstm else 1
        before = states[:count]
        counting.seen = torch.zeros((), dtype=F64)
        dense = ours.jacobians(step, x, tuple(before) if count > 1 else before[0]).dense()
        assert step is not counting or counting.seen == 4
        for t, x_t in enumerate(x):

            def call(*h, step=step, x_t=x_t, t=t):
                counting.seen = torch.full((), t, dtype=F64)
                after = step(x_t.clone(), h if len(h) > 1 else h[0].clone())
                return torch.cat(after if isinstance(after, tuple) else (after,), -1)

            jacobian = torch.autograd.functional.jacobian(call, tuple(before))
            for sample in range(2):
                expected = torch.cat([part[sample, :, sample] for part in jacobian], -1)
                np.testing.assert_allclose(dense[t, sample], expected.T, atol=1e-14)
            before = list(call(*before).detach().split(3, -1))
    assert all(map(torch.equal, copies, [x, *states]))


class Attention(nn.Module):
    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.mha, self.batch_first = nn.MultiheadAttention(4, 2, batch_first=batch_first), batch_first
        self.mask = nn.Transformer.generate_square_subsequent_mask(3, dtype=F64)
        self.out = nn.Linear(4, 2)

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        x = x if self.batch_first else x.swapaxes(0, 1)
        y = self.mha(x, x, value=x, attn_mask=self.mask, need_weights=False)[0]
        return y if self.batch_first else y.swapaxes(0, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.attend(x))


@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_has_a_dense_record(batch_first) -> None:
    model, x = Attention(batch_first).to(F64), torch.randn(2, 3, 4, dtype=F64)
    attention, linear = ours.jacobians(model, x)
    assert (attention.label, linear.label) == ("0.mha MultiheadAttention", "1.out Linear")
    np.testing.assert_allclose(dense(attention, 2), by_autograd(model.attend, x), atol=1e-12)


class Tied(nn.Module):
    """Computes with its layer's weight, and does not call the layer."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return nn.functional.linear(x, self.layer.weight.T)


DENSE = {
    "circular padding": (nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"), (1, 4, 4)),
    "transposed convolution": (nn.ConvTranspose1d(2, 3, 2), (2, 4)),
    "indices": (nn.MaxPool2d(2, ceil_mode=True, dilation=(1, 2)), (1, 5, 6)),
    "weight_norm": (nn.utils.parametrizations.weight_norm(nn.Conv1d(2, 3, 2)), (2, 4)),
    "projections": (nn.LSTM(3, 4, 2, proj_size=2, batch_first=True, bidirectional=True), (5, 3)),
    "a subclass": (type("Own", (nn.GRU,), {})(3, 4, batch_first=True), (5, 3)),
    "a layer that is not called": (Tied(nn.Linear(4, 3)), (3,)),
}


@pytest.mark.parametrize("dtype", [F64, torch.float16])
@pytest.mark.parametrize("module, shape", DENSE.values(), ids=DENSE)
def test_what_the_engine_does_not_cover_has_a_dense_record(module, shape, dtype) -> None:
    x = torch.randn(2, *shape, dtype=dtype)
    (record,) = ours.jacobians(nn.Sequential(module.to(dtype)), x)

    def first(x):
        y = module(x)
        return y[0] if isinstance(y, tuple) else y

    assert record.layer == 0 and record.data.dtype == (np.float64 if dtype == F64 else np.float32)
    np.testing.assert_allclose(dense(record, 2), by_autograd(first, x), atol=1e-12 if dtype == F64 else 1e-2)


class WithoutDerivative(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("not implemented")


def test_what_has_no_derivative_is_named() -> None:
    class Layer(nn.Module):
        def forward(self, x):
            return WithoutDerivative.apply(x)

    with pytest.raises(bp.PassError, match=r"1 \(Layer\)"):
        ours.jacobians(nn.Sequential(nn.Linear(3, 3), Layer()), torch.ones(1, 3))
    with pytest.raises(bp.PassError, match="not implemented"):
        ours.jacobians(lambda x, h: WithoutDerivative.apply(x + h), torch.ones(2, 1, 3), torch.ones(1, 3))


def test_a_converted_layer_of_kept_weights() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 30)).to(F64)
    prune.l1_unstructured(model[0], "weight", amount=0.9)
    expected = model[0].weight.detach().clone()
    (record,) = ours.jacobians(ours.convert(model, sparse=0.5), torch.randn(2, 40, dtype=F64))
    assert (record.name, record.pattern.nnz) == ("Linear", 120)
    np.testing.assert_array_equal(record.to_scipy().toarray().T, expected)
