"""`recurrence`: a step of PyTorch over a whole sequence gives the values and gradients of the loop."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from marks import some, some_rows
from torch.nn.functional import dropout, layer_norm, linear
from torch.nn.utils import parametrizations
from torch_cases import assert_same

import bppsa_cupy as bp
import bppsa_cupy.torch as ours
from bppsa_cupy.devices import Device
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers.cell_layers import ProjectedCellLayer
from bppsa_cupy.torch.step_graph import StepGraph

T, B, F, H = 9, 4, 3, 5


class Step(torch.nn.Module):
    """A step with weights of the input, W_in (F, k H), and of the state, W (H, k H)."""

    def __init__(self, formula: Callable[..., Any], gates: int = 1) -> None:
        super().__init__()
        self.formula = formula
        self.W_in = torch.nn.Parameter(torch.randn(F, gates * H))
        self.W = torch.nn.Parameter(torch.randn(H, gates * H) / 3)
        self.b = torch.nn.Parameter(torch.randn(gates * H))
        self.p = torch.nn.Parameter(torch.randn(3, H))
        self.register_buffer("sign", torch.tensor([1.0, 1, 1, -1, -1]))

    def forward(self, x: torch.Tensor, *states: torch.Tensor) -> Any:
        return self.formula(self, x, *states)


def leaky(m: Any, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    return 0.8 * h + 0.2 * torch.relu(h @ m.W + x @ m.W_in + m.b)


def noisy(m: Any, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """A CTRNN whose noise enters the rate and the input."""
    rate = torch.tanh(h @ m.W + (x + 0.1 * torch.randn_like(x)) @ m.W_in + m.b)
    return h + 0.3 * (rate - h) + 0.05 * torch.randn_like(h)


def dale(m: Any, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    return 0.8 * h + 0.2 * torch.relu(h @ (m.W.abs() * m.sign[:, None]) + x @ m.W_in)


def antisymmetric(m: Any, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    weight = m.W - m.W.T - 0.1 * torch.eye(H, dtype=m.W.dtype)
    return h + 0.1 * torch.tanh(linear(h, weight, m.b) + x @ m.W_in)


def peephole(m: Any, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> Any:
    i, f, g, o = (torch.cat([x, h], -1) @ torch.cat([m.W_in, m.W]) + m.b).chunk(4, -1)
    c = torch.sigmoid(f + m.p[1] * c) * c + torch.sigmoid(i + m.p[0] * c) * torch.tanh(g)
    return torch.sigmoid(o + m.p[2] * c) * torch.tanh(c), c


def with_extra(m: Any, x: torch.Tensor, h: torch.Tensor, drive: torch.Tensor) -> torch.Tensor:
    return torch.tanh(h @ m.W + x @ m.W_in) * torch.sigmoid(drive) + h.clamp(-1, 1) / 2


def rate(m: Any, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """A rate network with noise, whose weight multiplies a function of the state."""
    drive = torch.tanh(m.p[0] * h) @ m.W + x @ m.W_in + m.b
    return h + 0.3 * (drive - h) + 0.05 * torch.randn_like(h)


def adapting(m: Any, x: torch.Tensor, h: torch.Tensor, a: torch.Tensor) -> Any:
    """A rate network with adaptation: two products of a function of both states."""
    rates = torch.relu(h - 0.5 * a)
    gate = torch.sigmoid(rates @ m.W.T + m.b)
    return h + 0.3 * (rates @ m.W - gate * h + x @ m.W_in), a + 0.2 * (h - a)


def second_state(m: Any, x: torch.Tensor, h: torch.Tensor, r: torch.Tensor) -> Any:
    h = 0.8 * h + 0.2 * (torch.cat([x, r], -1) @ torch.cat([m.W_in, m.W]))
    return h, torch.tanh(h)


def dropped(m: Any, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    return dropout(torch.tanh(h @ m.W + x @ m.W_in), 0.5, m.training)


def weight_norm() -> torch.nn.Module:
    return parametrizations.weight_norm(torch.nn.RNNCell(F, H), "weight_hh")


KERNELS: dict[str, tuple[Callable[[], torch.nn.Module], int]] = {
    "RNNCell": (lambda: torch.nn.RNNCell(F, H), 1),
    "GRUCell": (lambda: torch.nn.GRUCell(F, H), 1),
    "LSTMCell": (lambda: torch.nn.LSTMCell(F, H, bias=False), 2),
    "weight norm": (weight_norm, 1),
    "leaky": (lambda: Step(leaky), 1),
    "CTRNN with noise": (lambda: Step(noisy), 1),
    "Dale's law": (lambda: Step(dale), 1),
    "antisymmetric": (lambda: Step(antisymmetric), 1),
    "peephole": (lambda: Step(peephole, 4), 2),
    "extra": (lambda: Step(with_extra), 1),
    "rate": (lambda: Step(rate), 1),
    "adapting": (lambda: Step(adapting), 2),
    "second state": (lambda: Step(second_state), 2),
    "dropout": (lambda: Step(dropped), 1),
}
#: Those that every run compiles, beside cells of PyTorch.
QUICK = ("RNNCell", "GRUCell", "LSTMCell", "weight norm", "peephole", "rate")


def reset_before(m: Any, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    z = torch.sigmoid((h @ m.W + x @ m.W_in)[:, :H])
    return (1 - z) * h + z * torch.tanh((z * h) @ m.W[:, H:] + (x @ m.W_in)[:, H:])


def normalised(m: Any, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    return layer_norm(torch.tanh(h @ m.W + x @ m.W_in), [H])


def two_products(m: Any, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
    """coRNN: both states are multiplied."""
    z = z + 0.1 * (torch.tanh(y @ m.W + z @ m.W.T + x @ m.W_in) - y - z)
    return y + 0.1 * z, z


class Spike(torch.autograd.Function):
    """A step function with a gradient of another one."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient / (1 + ctx.saved_tensors[0].abs()) ** 2


def spiking(m: Any, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    return 0.9 * h + x @ m.W_in - Spike.apply(h @ m.W)


LOOPS: dict[str, tuple[Callable[[], torch.nn.Module], int]] = {
    "GRU with the reset before the product": (lambda: Step(reset_before, 2), 1),
    "layer norm": (lambda: Step(normalised), 1),
    "coRNN": (lambda: Step(two_products), 2),
    "surrogate gradient": (lambda: Step(spiking), 1),
}


def compared(step: torch.nn.Module, count: int, *extras: torch.Tensor) -> ours.Recurrence:
    """The module of a step, whose values and gradients are those of the loop."""
    step = step.double()
    module = ours.recurrence(step, batch_first=True)
    x, *extras = (torch.randn(B, T, width, dtype=torch.float64) for width in (F, *(H for _ in extras)))
    states = [torch.randn(B, H, dtype=torch.float64) for _ in range(count)]
    leaves = [tensor.requires_grad_() for tensor in (x, *states, *extras)]
    torch.manual_seed(3)
    y, after = module(x, *states, *extras)
    torch.manual_seed(3)
    expected, state = [], tuple(states)
    for t in range(T):
        hidden = (state,) if isinstance(step, torch.nn.LSTMCell) else state
        state = step(x[:, t], *hidden, *(extra[:, t] for extra in extras))
        state = state if isinstance(state, tuple) else (state,)
        expected.append(state[0])
    pairs = [y, *(after if isinstance(after, tuple) else (after,))], [torch.stack(expected, 1), *state]
    assert_same(*pairs)
    gradients = []
    for outputs in pairs:
        loss = sum((tensor * torch.cos(tensor + place)).sum() for place, tensor in enumerate(outputs))
        leaves_and_weights = [*leaves, *step.parameters()]
        by = torch.autograd.grad(loss, leaves_and_weights, allow_unused=True, materialize_grads=True)
        gradients.append(list(by))
    assert_same(*gradients)
    return module


@pytest.mark.parametrize("name", some(*QUICK, long=[name for name in KERNELS if name not in QUICK]))
def test_steps_with_a_kernel(name: str) -> None:
    make, count = KERNELS[name]
    module = compared(make(), count, *([torch.zeros(0)] if name == "extra" else []))
    assert module.reason == ""
    if name == "dropout":
        y = module.eval()(torch.ones(B, T, F, dtype=torch.float64), torch.zeros(B, H, dtype=torch.float64))
        assert module.reason == "" and torch.equal(
            *(result[0] for result in (y, module(torch.ones(B, T, F).double(), torch.zeros(B, H).double())))
        )


@pytest.mark.parametrize("name", LOOPS)
def test_steps_without_one_go_by_the_loop(name: str) -> None:
    make, count = LOOPS[name]
    module = compared(make(), count)
    assert module.reason
    (row,) = (row for row in ours.report(torch.nn.Sequential(module)) if row.kind == "Recurrence")
    assert not row.converted and row.reason == module.reason


def test_a_step_that_counts_its_calls_is_noticed() -> None:
    calls = []

    def step(x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return torch.tanh(h @ torch.eye(H).double() + x[:, :1] + len(calls))

    module = ours.recurrence(step)
    with pytest.warns(UserWarning, match="loop"):
        module(torch.ones(T, B, F).double(), torch.zeros(B, H).double())
    assert module.reason


@pytest.mark.parametrize("name", some("peephole", long=["adapting"]))
def test_derivatives_of_derivatives(name: str) -> None:
    step = KERNELS[name][0]().double()
    x, h, c = (torch.randn(*shape, H, dtype=torch.float64) for shape in ((2, B), (B,), (B,)))
    x = x[..., :F].clone().requires_grad_()
    gradients = []
    for module in (ours.recurrence(step), step):
        y = module(x, h, c)[0][-1] if module is not step else step(x[1], *step(x[0], h, c))[0]
        (by_x,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        gradients.append(list(torch.autograd.grad(by_x.square().sum(), [x, step.W, step.b])))
    assert_same(*gradients)


@pytest.mark.parametrize(("steps", "batch"), some_rows((1, 3), long=[(1, 1), (4, 1)]))
def test_small_passes_and_gradients_with_other_strides(steps: int, batch: int) -> None:
    module = ours.recurrence(Step(rate).double())
    x, h = (torch.randn(*shape, dtype=torch.float64) for shape in ((steps, batch, F), (batch, H)))
    h.requires_grad_()
    gradient = torch.randn(1, batch, H, dtype=torch.float64).expand(steps, batch, H)
    results = []
    for call in (module, lambda x, h: module._loop(x, [h], [])):
        outputs = []
        for is_recorded in (False, True):
            torch.manual_seed(3)
            with torch.set_grad_enabled(is_recorded):
                outputs.append(call(x, h)[0])
        results.append([*outputs, *torch.autograd.grad(outputs[1], h, gradient)])
    assert module.reason == ""
    assert_same(*results)


def test_a_call_without_states_is_refused() -> None:
    for formula in (rate, reset_before):
        module = ours.recurrence(Step(formula, 1 + (formula is reset_before)).double())
        x = torch.ones(T, B, F, dtype=torch.float64)
        for _ in range(2):
            with pytest.raises(ShapeError):
                module(x)
            module(x, x.new_zeros(B, H))


def test_cells_of_pytorch_begin_with_zeros() -> None:
    cell, x = torch.nn.LSTMCell(F, H).double(), torch.randn(T, B, F, dtype=torch.float64)
    module = ours.recurrence(cell)
    y, after = module(x)
    state = (x.new_zeros(B, H), x.new_zeros(B, H))
    for t in range(T):
        state = cell(x[t], state)
    assert module.reason == ""
    assert_same([y[-1], *after], [state[0], *state])


@pytest.mark.parametrize(("steps", "batch"), some_rows((9, 3), long=[(1, 2)]))
def test_every_device_returns_another_state_than_the_multiplied_one(
    steps: int, batch: int, device: Device
) -> None:
    x, h, W, b = (
        torch.randn(*shape, dtype=torch.float64, requires_grad=True)
        for shape in ((steps, batch, H), (batch, H), (H, H), (H,))
    )
    step = lambda x, h: 0.7 * h + 0.3 * (linear(torch.tanh(h), W, b) + x)  # noqa: E731
    cell = StepGraph(lambda _, *rest: (step(*rest),), {}, x[0], [h], 1).cell
    layer = ProjectedCellLayer(cell, H, batch_first=False)
    parameters = {"weight_hh_l0": W.detach().numpy(), "bias_hh_l0": b.detach().numpy()}
    first = torch.tanh(h), h
    y, saved = bp.functional.forward(
        layer, {name: device.asarray(array) for name, array in parameters.items()},
        device.asarray(x.detach().numpy()), device=device,
        states=tuple(device.asarray(state[None].detach().numpy()) for state in first),
    )  # fmt: skip
    weights = np.random.default_rng(0).standard_normal((steps, batch, H))
    gradients = bp.functional.vjp(saved, device.asarray(weights))
    expected, state = [], h
    for t in range(steps):
        state = step(x[t], state)
        expected.append(state)
    by = torch.autograd.grad((torch.stack(expected) * torch.from_numpy(weights)).sum(), [x, h, W, b])
    by_r, by_h = (torch.from_numpy(device.to_host(array))[0] for array in gradients.states)
    names = ("weight_hh_l0", "bias_hh_l0")
    actual = [y, gradients.input, *(gradients.parameters[name] for name in names)]
    y, by_x, *by_weights = (torch.from_numpy(device.to_host(array)) for array in actual)
    by_first = by_h + by_r * (1 - torch.tanh(h) ** 2)
    assert_same([y, by_x, by_first, *by_weights], [torch.stack(expected), *by])


@pytest.mark.parametrize("dtypes", some((torch.float64,), long=[(torch.float32, torch.float64)]), ids=len)
def test_each_shape_mode_and_dtype_is_traced(dtypes: tuple[torch.dtype, ...]) -> None:
    module = ours.recurrence(torch.nn.GRUCell(F, H))
    for dtype in dtypes:
        module.to(dtype)
        for steps, batch in ((3, 2), (7, 1)):
            x = torch.randn(steps, batch, F, dtype=dtype)
            y, state = module(x)
            expected = x.new_zeros(batch, H)
            for t in range(steps):
                expected = module.step(x[t], expected)
            assert_same([state], [expected])
    copied = copy.deepcopy(module)
    assert torch.equal(copied(x)[0], y)
