"""Linear recurrent modules for PyTorch: the engine's numbers, and PyTorch's habits."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from marks import some

import bppsa_cupy as bp
import bppsa_cupy.torch as bt

MODULES = {
    "MinGRU": {},
    "MinLSTM": {},
    "SRU": {},
    "QRNN": {},
    "LRU": {},
    "RGLRU": {},
    "DiagonalSSM": {},
}
EACH = some("MinGRU", "QRNN", "LRU", "RGLRU", long=["MinLSTM", "SRU", "DiagonalSSM"])


@pytest.mark.parametrize("outputs", ["all", "last"])
@pytest.mark.parametrize("name", EACH)
def test_passes_are_the_engines(name: str, outputs: str) -> None:
    rng, options = np.random.default_rng(0), {"outputs": outputs, **MODULES[name]}
    sizes = (4,) if name == "RGLRU" else (3, 4)
    layer = getattr(bp, name)(*sizes, **options)
    parameters, x = layer.initialize(rng), rng.standard_normal((2, 9, layer.input_size))
    state = rng.standard_normal((1, 2, 4)).astype(layer.state_dtype(np.dtype("float64")))
    y, saved = bp.functional.forward(layer, parameters, x, states=state)
    weights = rng.standard_normal(y.shape)
    wanted = bp.functional.vjp(saved, weights)

    module = getattr(bt, name)(*sizes, dtype=torch.float64, **options)
    module.load_state_dict({key: torch.tensor(value) for key, value in parameters.items()})
    inputs = torch.tensor(x, requires_grad=True)
    output, after = module(inputs, torch.tensor(state))
    output.backward(torch.tensor(weights))
    np.testing.assert_allclose(output.detach(), y, atol=1e-12)
    np.testing.assert_allclose(after.detach(), saved.states, atol=1e-12)
    np.testing.assert_allclose(inputs.grad, wanted.input, atol=1e-11)
    for key, gradient in wanted.parameters.items():
        np.testing.assert_allclose(getattr(module, key).grad, gradient, atol=1e-10, err_msg=key)


@pytest.mark.parametrize("name", EACH)
def test_habits(name: str) -> None:
    sizes = (4,) if name == "RGLRU" else (3, 4)
    torch.manual_seed(0)
    module = getattr(bt, name)(*sizes, dtype=torch.float64, **MODULES[name])
    torch.manual_seed(0)
    again = getattr(bt, name)(*sizes, dtype=torch.float64, **MODULES[name])
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), again.parameters(), strict=True))
    x = torch.randn(3, 6, sizes[0], dtype=torch.float64)
    y = module(x)[0]
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(other(x)[0], y)
    torch.testing.assert_close(module(x[0])[0], y[0])
    by_time = getattr(bt, name)(*sizes, batch_first=False, dtype=torch.float64, **MODULES[name])
    by_time.load_state_dict(module.state_dict())
    torch.testing.assert_close(by_time(x.transpose(0, 1))[0].transpose(0, 1), y)
    lengths = torch.tensor([4, 6, 2])
    pack = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    packed, last = module(pack)
    padded, _ = torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    for sample, length in enumerate(lengths):
        alone, end = module(x[sample : sample + 1, :length])
        torch.testing.assert_close(padded[sample, :length], alone[0])
        torch.testing.assert_close(last[:, sample], end[:, 0])
    assert torch.autograd.gradgradcheck(lambda x: module(x)[0], x[:1, :3].clone().requires_grad_())


@pytest.mark.long
def test_compiled_modules_give_the_same() -> None:
    module = bt.MinGRU(3, 4).double()
    x = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    compiled = torch.compile(module, backend="aot_eager")
    torch.testing.assert_close(compiled(x)[0], module(x)[0])
    by_compiled = torch.autograd.grad(compiled(x)[0].sum(), x)
    torch.testing.assert_close(by_compiled, torch.autograd.grad(module(x)[0].sum(), x))


@pytest.mark.parametrize("name", EACH)
def test_transforms_of_torch_func(name: str) -> None:
    """Gradients of samples and of ensembles, against autograd's entry by entry."""
    torch.manual_seed(0)
    sizes = (4,) if name == "RGLRU" else (4, 4)
    module = getattr(bt, name)(*sizes, dtype=torch.float64, **MODULES[name])
    xs = torch.randn(3, 2, 5, 4, dtype=torch.float64)
    weights = {key: torch.stack([p, 1.1 * p, p - 0.1]).detach() for key, p in module.named_parameters()}

    def loss(values: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(module, values, (x,))[0].square().sum()

    by_weights, by_x = torch.vmap(torch.func.grad(loss, argnums=(0, 1)))(weights, xs)
    for entry in range(3):
        values = {key: w[entry].clone().requires_grad_() for key, w in weights.items()}
        x = xs[entry].clone().requires_grad_()
        expected = torch.autograd.grad(loss(values, x), [*values.values(), x])
        for got, wanted in zip([*by_weights.values(), by_x], expected, strict=True):
            torch.testing.assert_close(got[entry], wanted)


@pytest.mark.long
def test_weights_of_a_min_gru_that_scans_logarithms() -> None:
    """By the formulas of Feng et al. 2024, appendix B.3."""
    weight = torch.randn(8, 3, dtype=torch.float64)
    module = bt.MinGRU(3, 4, bias=False, candidate="positive", dtype=torch.float64)
    module.weight_ih_l0.data.copy_(weight)
    x = torch.randn(2, 20, 3, dtype=torch.float64)
    hidden, gate = (x @ weight.T).chunk(2, -1)
    log_g = torch.where(hidden >= 0, (hidden.relu() + 0.5).log(), -torch.nn.functional.softplus(-hidden))
    log_values = -torch.nn.functional.softplus(-gate) + log_g
    summed = -torch.nn.functional.softplus(gate).cumsum(1)
    wanted = (summed + (log_values - summed).logcumsumexp(1)).exp()
    torch.testing.assert_close(module(x)[0], wanted)
