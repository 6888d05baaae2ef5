"""Derivatives of any order through `bppsa_cupy.torch`, alone and batched."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import sympy
import torch
from cell_cases import probe_points
from marks import some
from torch.autograd import functional, gradcheck, gradgradcheck
from torch.func import functional_call, grad, jacrev
from torch.nn.utils.rnn import pack_padded_sequence
from torch_cases import assert_same, flat, pair

import bppsa_cupy as bp
import bppsa_cupy.torch as ours
from bppsa_cupy.cells.cell import BUILT_IN
from bppsa_cupy.torch.cells import step_of

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # PyTorch's own
X = torch.linspace(-1, 1, 3 * 2 * 3, dtype=torch.float64).reshape(3, 2, 3)


def bent(x, u, s, p):
    """Infinite derivatives on the sides that are not taken."""
    a = x.h + u.h
    upper = sympy.Piecewise((sympy.sqrt(a), a > 0.1), (sympy.Max(a, -0.5) * sympy.exp(a) / 2, True))
    return {"h": s.h + p.rate * (upper - s.h)}


BENT = bp.Cell("bent", gates=["h"], states=["h"], parameters=["rate"], step=bent)
#: num_layers, bias, batch_first, bidirectional, form of the input, and what is frozen; None: no states.
SETTINGS = [
    (1, True, False, False, "padded", ()),
    (2, True, True, True, "packed", ("states",)),
    (1, False, True, False, "unbatched", ("parameters",)),
    (2, False, False, False, "packed", None),
    (1, True, True, False, "padded", ("x",)),
]
GROUPS = "x", "states", "parameters"


def called(module: Any, names: list[str], count: int, form: str) -> Callable[..., list[torch.Tensor]]:
    """A module as a function of x, `count` states and parameters."""

    def call(x: torch.Tensor, *rest: torch.Tensor) -> list[torch.Tensor]:
        hx = None if not count else rest[0] if count == 1 else rest[:count]
        if form == "packed":
            x = pack_padded_sequence(x, [2, 3], module.batch_first, enforce_sorted=False)
        values = dict(zip(names, rest[count:], strict=True))
        return flat(functional_call(module, values, (x, hx)))

    return call


def check_derivatives(make, layers, bias, batch_first, both, form, frozen) -> None:
    """gradcheck and gradgradcheck of a module; `frozen` names groups, None is of a module without states."""
    torch.manual_seed(0)
    options = {"num_layers": layers, "bias": bias, "batch_first": batch_first, "bidirectional": both}
    module = make(2, 3, **options).double()
    batch, count = () if form == "unbatched" else (2,), 0 if frozen is None else module._components
    x = torch.randn(3, *batch, 2, dtype=torch.float64)
    x = x.transpose(0, 1).contiguous() if batch and batch_first else x
    states = [torch.randn(layers * (1 + both), *batch, 3, dtype=torch.float64) for _ in range(count)]
    parameters = [parameter.detach().clone() for parameter in module.parameters()]
    for group, tensors in {"x": [x], "states": states, "parameters": parameters}.items():
        for tensor in tensors:
            tensor.requires_grad_(group not in (frozen or ()))
    call = called(module, [name for name, _ in module.named_parameters()], count, form)
    for check in (gradcheck, gradgradcheck):
        batched = check is gradcheck
        assert check(call, (x, *states, *parameters), fast_mode=True, check_batched_grad=batched)


@pytest.mark.parametrize("kind", some("GRU", long=("RNN", "LSTM")))
def test_gradcheck_and_gradgradcheck(kind: str) -> None:
    """The first also of batched gradients, both of some that are not defined."""
    for setting in SETTINGS:
        check_derivatives(getattr(ours, kind), *setting)


@pytest.mark.long
@pytest.mark.parametrize(
    "frozen", [*combinations(GROUPS, 0), *combinations(GROUPS, 1), *combinations(GROUPS, 2)]
)
@pytest.mark.parametrize("name", [*BUILT_IN, "bent"])
def test_every_cell_with_each_group_frozen_or_not(name: str, frozen: tuple[str, ...]) -> None:
    cell = BENT if name == "bent" else bp.Cell.built_in(name)
    check_derivatives(partial(ours.CellLayer, cell), 1, True, True, False, "padded", frozen)


@pytest.mark.parametrize("cell", [*map(bp.Cell.built_in, BUILT_IN), BENT], ids=lambda cell: cell.name)
def test_steps_are_the_cells_with_their_slopes_at_kinks(cell: bp.Cell) -> None:
    points = probe_points(cell.form, at_rest=8)
    for group in (points.x, points.u):
        for numbers in group:
            numbers[:4] = 0
    groups = [[torch.tensor(numbers, requires_grad=True) for numbers in group] for group in points]
    after = step_of(cell.form)(*groups)
    with np.errstate(all="ignore"):
        expected, saved = cell.form.functions.forward(*points)
    assert_same([state.detach() for state in after], list(map(torch.tensor, expected)))
    x, _, before, p = groups
    sums = [torch.randn_like(state) for state in after]
    gradients = torch.autograd.grad(after, [*x, *before, *p], sums, create_graph=True, materialize_grads=True)
    weights = tuple(weight.numpy() for weight in sums)
    with np.errstate(all="ignore"):
        by = cell.form.functions.backward(weights, saved, expected, points.before, points.p)
    slopes = (torch.tensor(numbers).expand(64) for numbers in (*by[0], *by[2], *by[3]))
    assert_same([slope.detach() for slope in gradients], list(slopes))
    total = sum((slope.square() + x[0]).sum() for slope in gradients)
    second = torch.autograd.grad(total, [*x, *before], materialize_grads=True)
    assert all(tensor.isfinite().all() for tensor in second)


def penalised(module: torch.nn.Module, layer: torch.nn.Module) -> list[torch.Tensor]:
    """The gradients of a penalty on gradients through a frozen module in training, by the layer before it."""
    torch.manual_seed(1)
    x = X.clone().requires_grad_()
    y, _ = module.requires_grad_(False)(layer(x))
    (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return list(torch.autograd.grad((gradient.norm() - 1) ** 2, [x, *layer.parameters()]))


def third(module: torch.nn.Module) -> torch.Tensor:
    x = X.clone().requires_grad_()
    value = module(x)[0].sum()
    for _ in range(2):
        value = torch.autograd.grad(value, x, create_graph=True)[0].square().sum()
    return torch.autograd.grad(value, x)[0]


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_of_losses_that_do_not_bend_themselves(kind: str) -> None:
    torch.manual_seed(0)
    hx = torch.randn(6, 2, 4, dtype=torch.float64)
    dropping = pair(kind, 3, 4, 3, dropout=0.4, bidirectional=True)
    layer = torch.nn.Linear(3, 3).double()
    v = torch.randn_like(X)
    results = []
    for module in dropping:
        penalty = penalised(module, layer)
        module.eval().requires_grad_(True)

        def by_x(x: torch.Tensor, module: Any = module) -> torch.Tensor:
            return module(x)[0].sum()

        def by_h(h: torch.Tensor, module: Any = module) -> torch.Tensor:
            return module(X, (h, h.sin()) if kind == "LSTM" else h)[0].sum()

        functions = [functional.hvp, functional.vhp]
        results.append([
            *penalty, third(module), functional.vhp(by_h, hx, hx.cos())[1],
            *(f(by_x, X, v)[1] for f in functions),
            functional.hessian(by_x, X), functional.hessian(by_x, X, vectorize=True), jacrev(grad(by_x))(X),
        ])  # fmt: skip
    assert_same(*results)
    assert all(tensor.abs().max() > 1e-6 for tensor in results[1])


def test_batched_by_torch_func() -> None:
    """Against PyTorch's module, entry by entry where it has no rules itself."""
    torch.manual_seed(0)
    theirs, module = pair("GRU", 3, 4, 2, bidirectional=True)
    xs, hx = torch.stack([X, X.sin(), -X]), torch.randn(4, 2, 4, dtype=torch.float64)
    weights = {name: torch.stack([p, 2 * p, -p]).detach() for name, p in module.named_parameters()}

    def functions_of(module: torch.nn.Module) -> list[Callable[..., Any]]:
        def call(x: Any, h: Any, w: Any) -> torch.Tensor:
            return functional_call(module, w, (x, h))[0]

        def loss(x: Any, h: Any, w: Any) -> torch.Tensor:
            return call(x, h, w).square().sum()

        return [
            call,
            grad(loss),
            grad(loss, 1),
            jacrev(call),
            lambda *all_of: grad(loss, 2)(*all_of)["bias_hh_l0"],
        ]

    single = {name: values[0] for name, values in weights.items()}
    for function, other in zip(functions_of(module), functions_of(theirs), strict=True):
        for dims in ((0, None, None), (0, None, 0), (None, None, 0)):
            inputs = [every if dim == 0 else first for every, first, dim in
                     zip((xs, hx, weights), (X, hx, single), dims, strict=True)]  # fmt: skip
            got = torch.vmap(function, in_dims=dims)(*inputs)
            expected = [other(xs[i] if dims[0] == 0 else X, hx,
                              {n: w[i] for n, w in weights.items()} if dims[2] == 0 else single)
                        for i in range(3)]  # fmt: skip
            assert_same([got], [torch.stack(expected)])
    nested = torch.vmap(torch.vmap(lambda x: module(x, hx)[0]), in_dims=1, out_dims=1)(xs[:, None])
    assert_same([nested[:, 0]], [torch.stack([theirs(x, hx)[0] for x in xs])])
    by_states = torch.vmap(lambda h: module(X, h)[1], in_dims=2, out_dims=2)(torch.stack([hx, -hx], 2))
    assert_same([by_states], [torch.stack([theirs(X, h)[1] for h in (hx, -hx)], 2)])
