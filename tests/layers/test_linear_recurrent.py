"""Linear recurrent layers against their papers' formulas in PyTorch, step by step, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from linear_layer_reference import run_layer
from marks import some

import bppsa_cupy as bp
from bppsa_cupy.devices import Device

LAYERS = {
    "MinGRU": (bp.MinGRU, {}),
    "MinGRU positive": (bp.MinGRU, {"candidate": "positive"}),
    "MinLSTM": (bp.MinLSTM, {}),
    "SRU": (bp.SRU, {}),
    "QRNN": (bp.QRNN, {}),
    "LRU": (bp.LRU, {}),
    "RGLRU": (bp.RGLRU, {}),
    "DiagonalSSM": (bp.DiagonalSSM, {}),
}
#: Those that every run compiles.
QUICK = ("MinGRU", "QRNN", "LRU", "RGLRU")


def small(kind: Any, **options: Any) -> Any:
    """A layer of 4 units on 3 features, or as few as it takes."""
    return kind(*((4,) if kind is bp.RGLRU else (3, 4)), **options)


def drawn(rng: np.random.Generator, layer: Any) -> dict[str, np.ndarray]:
    if layer.paired:
        return layer.initialize(rng)
    return {name: rng.standard_normal(shape) for name, shape in layer.parameter_shapes().items()}


def drawn_states(rng: np.random.Generator, layer: Any, batch: int) -> np.ndarray:
    shape = 1, batch, layer.hidden_size
    return (
        rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
        if layer.paired
        else rng.normal(size=shape)
    )


@pytest.mark.parametrize("name", some(*QUICK, long=[name for name in LAYERS if name not in QUICK]))
@settings(max_examples=12)
@given(st.data())
def test_passes_are_those_of_the_formulas(name: str, data: st.DataObject) -> None:
    kind, options = LAYERS[name]
    F, H, batch = (data.draw(st.integers(1, 6)) for _ in range(3))
    steps = data.draw(st.sampled_from([1, 2, 7, 17, 40]))
    if not kind.paired:
        options = {**options, "bias": data.draw(st.booleans())}
    sizes = (H,) if kind is bp.RGLRU else (data.draw(st.sampled_from([F, H])), H)
    layer = kind(
        *sizes,
        outputs=data.draw(st.sampled_from(["all", "last"])),
        forward_method=data.draw(st.sampled_from(kind.forward_methods)), **options,
    )  # fmt: skip
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    parameters, x = drawn(rng, layer), rng.standard_normal((batch, steps, layer.input_size))
    lengths = rng.integers(1, steps + 1, batch) if data.draw(st.booleans()) else None
    ends = torch.tensor(np.full(batch, steps) if lengths is None else lengths)
    if lengths is not None:  # what lies after an end has no part in anything
        x[np.arange(steps)[None, :] >= lengths[:, None]] = np.nan
    first = drawn_states(rng, layer, batch)

    y, saved = bp.functional.forward(layer, parameters, x, lengths=lengths, states=first)
    leaves = {name: torch.tensor(value, requires_grad=True) for name, value in parameters.items()}
    theirs = torch.tensor(np.nan_to_num(x), requires_grad=True), torch.tensor(first, requires_grad=True)
    wanted, after = run_layer(layer, leaves, theirs[0], ends, theirs[1])
    np.testing.assert_allclose(y, wanted.detach(), atol=1e-12, rtol=1e-11)
    np.testing.assert_allclose(saved.states, after.detach(), atol=1e-12, rtol=1e-11)

    by_y, by_after = rng.standard_normal(y.shape), drawn_states(rng, layer, batch)
    ((wanted * torch.tensor(by_y)).sum() + (after * torch.tensor(by_after).conj()).sum().real).backward()
    grads = bp.functional.vjp(
        saved, by_y, state_gradients=by_after, method=data.draw(st.sampled_from(["auto", "bp", "blelloch"]))
    )
    for name, leaf in leaves.items():
        np.testing.assert_allclose(grads.parameters[name], leaf.grad, atol=1e-10, rtol=1e-10, err_msg=name)
    np.testing.assert_allclose(grads.input, theirs[0].grad, atol=1e-11, rtol=1e-10)
    np.testing.assert_allclose(grads.states, theirs[1].grad, atol=1e-11, rtol=1e-10)


@pytest.mark.parametrize("name", some(*QUICK, long=[name for name in LAYERS if name not in QUICK]))
def test_ways_give_the_same_up_to_rounding_and_are_told(name: str) -> None:
    kind, options = LAYERS[name]
    results = {}
    for method in ("serial", "chunked"):
        layer = small(kind, forward_method=method, **options)
        parameters = drawn(np.random.default_rng(1), layer)
        x = np.random.default_rng(2).standard_normal((2, 101, layer.input_size))
        y, saved = bp.functional.forward(layer, parameters, x)
        gradients = bp.functional.vjp(saved, np.ones_like(y), method={"serial": "bp"}.get(method, "hybrid"))
        assert saved.context.forward_ways[0].startswith(f"l0: {method}")
        assert saved.context.backward_ways[0].startswith(f"l0: {method}")
        results[method] = [y, gradients.input, *gradients.parameters.values()]
    for serial, chunked in zip(*results.values(), strict=True):
        np.testing.assert_allclose(chunked, serial, atol=1e-12, rtol=1e-11)


@pytest.mark.long
def test_gates_far_below_zero_give_numbers() -> None:
    layer = bp.MinLSTM(1, 1, bias=False)
    weight = np.array([[-1e3], [-1e3], [1.0]])
    y, saved = bp.functional.forward(layer, {"weight_ih_l0": weight}, np.ones((1, 4, 1)))
    np.testing.assert_allclose(y.ravel(), 1 - 0.5 ** np.arange(1, 5), rtol=1e-6)
    gradients = bp.functional.vjp(saved, np.ones_like(y))
    assert np.isfinite(gradients.input).all() and np.isfinite(gradients.parameters["weight_ih_l0"]).all()


@pytest.mark.long
@pytest.mark.parametrize("gate", [-6.0, -9.0, 3.0])
def test_a_rglru_whose_factor_is_near_1_loses_no_places(device: Device, gate: float) -> None:
    """1 - a² in float32 keeps the precision of log a: Griffin's formula in float64 is the reference."""
    layer, rng = bp.RGLRU(8), np.random.default_rng(0)
    parameters = {name: value.astype(np.float32) for name, value in layer.initialize(rng).items()}
    parameters["weight_ih_l0"] *= 0.1
    parameters["bias_ih_l0"][:8] = gate
    x, weights = rng.standard_normal((2, 3, 5, 8)).astype(np.float32)
    tensors = {k: torch.tensor(v, dtype=torch.float64, requires_grad=True) for k, v in parameters.items()}
    inputs = torch.tensor(x, dtype=torch.float64)
    rows = inputs @ tensors["weight_ih_l0"].T + tensors["bias_ih_l0"]
    log_a = -8 * torch.sigmoid(rows[..., :8]) * torch.nn.functional.softplus(tensors["a_param_l0"])
    b = torch.sqrt(-torch.expm1(2 * log_a)) * torch.sigmoid(rows[..., 8:]) * inputs
    state, expected = torch.zeros(3, 8, dtype=torch.float64), []
    for t in range(5):
        state = log_a[:, t].exp() * state + b[:, t]
        expected.append(state)
    wanted = torch.stack(expected, 1)
    wanted.backward(torch.tensor(weights, dtype=torch.float64))
    actual, saved = bp.functional.forward(layer, parameters, x, device=device)
    by = bp.functional.vjp(saved, weights).parameters
    np.testing.assert_allclose(
        device.to_host(actual), wanted.detach(), rtol=2e-6, atol=3e-7 * float(wanted.detach().abs().max())
    )
    for name, tensor in tensors.items():
        scale = float(tensor.grad.abs().max())
        found = device.to_host(by[name])
        np.testing.assert_allclose(found, tensor.grad, rtol=1e-5, atol=2e-6 * scale, err_msg=name)


@pytest.mark.parametrize(
    "name",
    some(*(n for n in QUICK if n != "LRU"), long=[n for n in LAYERS if n not in (*QUICK, "DiagonalSSM")]),
)
def test_records_are_diagonal_and_are_the_derivatives_of_states(name: str) -> None:
    kind, options = LAYERS[name]
    layer = small(kind, **options)
    net = bp.Sequential([layer], input_shape=(5, layer.input_size), dtype="float64", device="host")
    rng = np.random.default_rng(0)
    x, first = rng.standard_normal((2, 5, layer.input_size)), rng.standard_normal((1, 2, 4))
    net.forward(x, states=first, lengths=np.array([5, 3]))
    records = list(net.transposed_jacobians())
    assert len(records) == 5 and all(record.pattern.nnz == 4 for record in records)
    # Their product is the derivative of the last state by the first one.
    moved = np.array(first)
    moved[:, :, 1] += 1e-6
    before = net.last_pass.states[0].copy()
    net.forward(x, states=moved, lengths=np.array([5, 3]))
    slope = (net.last_pass.states[0] - before)[:, :, 1] / 1e-6
    np.testing.assert_allclose(np.prod([r.data[1] for r in records], axis=0), slope[0], rtol=1e-6)


@pytest.mark.parametrize("kind", [bp.LRU, bp.DiagonalSSM])
def test_records_of_complex_units_are_blocks_of_their_factor(kind: Any) -> None:
    layer = kind(3, 4)
    net = bp.Sequential([layer], input_shape=(5, 3), dtype="float64", device="host")
    net.forward(np.ones((2, 5, 3)), lengths=np.array([5, 2]))
    parameters = {name: net.parameters[f"0.{name}_l0"] for name in layer.own_parameters}
    made = layer.discretised(np, parameters)
    records = list(net.transposed_jacobians())
    block = records[1].to_scipy(0).toarray()
    for unit, value in enumerate(made.factor):
        pair = slice(2 * unit, 2 * unit + 2)
        np.testing.assert_allclose(block[pair, pair].T, [[value.real, -value.imag], [value.imag, value.real]])
    np.testing.assert_array_equal(records[3].to_scipy(1).toarray(), np.eye(8))
    exponents = np.sort(bp.lyapunov_exponents(records[:2], count=8)[0])
    np.testing.assert_allclose(exponents, np.sort(np.repeat(np.log(np.abs(made.factor)), 2)), rtol=1e-9)
