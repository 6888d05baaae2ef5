"""What people do with modules of PyTorch, done with those of `bppsa_cupy.torch`."""

from __future__ import annotations

import copy
import io
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import sympy
import torch
import torch_ddp
from numba import threading_layer
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset
from torch_cases import assert_same, flat, gradients, pair

import bppsa_cupy as bp
import bppsa_cupy.torch as ours
from bppsa_cupy.torch.engine import engine_layer_of

X = torch.linspace(-1, 1, 5 * 2 * 3, dtype=torch.float64).reshape(5, 2, 3)


def bytes_in_use(module: torch.nn.Module) -> int:
    arguments = module._arguments(module.batch_first, module.input_size, module.num_layers)
    return engine_layer_of(*arguments).pool._used_bytes


def leaky(x, u, s, p):
    return {"h": s.h + p.rate * (sympy.tanh(x.h + u.h) - s.h)}


LEAKY = bp.Cell("leaky_units", gates=["h"], states=["h"], parameters=["rate"], step=leaky)


def test_two_passes_alive_and_one_gone_through_twice() -> None:
    modules = pair("GRU", 3, 4)
    gradients = []
    for module in modules:
        first, second = module(X)[0], module(-2 * X)[0]
        loss = (first * second.roll(1, 0)).sum()
        once = torch.autograd.grad(loss, list(module.parameters()), retain_graph=True)
        again = torch.autograd.grad(loss, list(module.parameters()))
        assert all(map(torch.equal, once, again))
        gradients.append(list(once))
    assert_same(*gradients)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def test_results_and_gradients_are_the_callers() -> None:
    module = ours.GRU(3, 4).double()
    y, h = module(X)
    y.sum().backward()
    tensors = [y, h, *(parameter.grad for parameter in module.parameters())]
    copies = [tensor.detach().clone() for tensor in tensors]
    module.zero_grad()
    module(3 * X)[0].sum().backward()
    assert all(map(torch.equal, tensors, copies))


def test_a_parameter_changed_before_the_way_back_is_noticed() -> None:
    module = ours.GRU(3, 4).double()
    y, _ = module(X)
    with torch.no_grad():
        module.weight_hh_l0.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def changed(kind: str, which: str) -> list[torch.Tensor]:
    """Gradients of both modules where one of x, hx, output and last state was doubled in place."""
    gradients = []
    for module in pair(kind, 3, 4, 2):
        x = X.clone().requires_grad_()
        state = torch.ones(2, 2, 4, dtype=torch.float64, requires_grad=True)
        inner, hx = x * 1, state * 1
        y, h = flat(module(inner, (hx, hx * 1) if kind == "LSTM" else hx))[:2]
        with torch.no_grad():
            {"x": inner, "hx": hx, "y": y, "h": h}[which].mul_(2)
        gradients.append(torch.autograd.grad(y.sum() + h.sum(), [x, state, *module.parameters()]))
    return gradients


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_what_is_changed_in_place_before_the_way_back(kind: str) -> None:
    torch.manual_seed(0)
    for which in ("y", "h"):
        expected, actual = changed(kind, which)
        assert_same(list(actual), list(expected))
    module = pair(kind, 3, 4, 2)[1]
    for place in (0, 1):
        x, hx = X.clone(), torch.ones(2, 2, 4, dtype=torch.float64)
        y, _ = module(x, (hx, hx.clone()) if kind == "LSTM" else hx)
        (x, hx)[place].mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def cells() -> torch.nn.Module:
    return ours.CellLayer(bp.Cell.built_in("gru"), 3, 4, 2)


@pytest.mark.parametrize("make", [lambda: ours.LSTM(3, 4, 2), cells])
def test_copies_pickles_and_files(make) -> None:
    module, x = make().double(), X
    expected = module(x)[0]
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)),
                  torch.load(file, weights_only=False)):  # fmt: skip
        assert torch.equal(other(x)[0], expected)
        with torch.no_grad():
            next(other.parameters()).add_(1)
        assert torch.equal(module(x)[0], expected) and not torch.equal(other(x)[0], expected)
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(x)[0], expected)


def test_a_module_of_ones_own_cell_is_copied_and_pickled() -> None:
    module = ours.CellLayer(LEAKY, 3, 4)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert other.cell.form == LEAKY.form and other.mode == module.mode
        assert_same(list(other.parameters()), list(module.parameters()))
    layer = bp.CellLayer(bp.Cell.built_in("gru"), 3, 4)
    assert pickle.loads(pickle.dumps(layer)).cell == layer.cell


def test_frozen_parameters_and_inputs_without_gradients() -> None:
    theirs, module = pair("GRU", 3, 4, 2)
    x = X.clone().requires_grad_()
    for each in (theirs, module):
        each.requires_grad_(False)
        each.weight_ih_l1.requires_grad_(True)
    results = [flat(each(x)) for each in (theirs, module)]
    assert_same(*([*torch.autograd.grad(r[0].sum(), [x, each.weight_ih_l1])]
                  for r, each in zip(results, (theirs, module), strict=True)))  # fmt: skip
    module.requires_grad_(False)
    assert not module(X)[0].requires_grad


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_frees_the_pass_and_runs_it_again(reentrant: bool) -> None:
    module = ours.GRU(3, 4, 2).double()
    x = X.clone().requires_grad_()
    expected = gradients(module, [module(x)[0]], x)
    before = bytes_in_use(module)
    y = checkpoint(lambda x: module(x)[0], x, use_reentrant=reentrant)
    assert bytes_in_use(module) == before
    (y * torch.cos(y)).sum().backward()
    assert_same([x.grad, *(parameter.grad for parameter in module.parameters())], expected)


def test_a_pass_ends_with_its_graph() -> None:
    module = ours.GRU(3, 4).double()
    y, _ = module(X)
    used = bytes_in_use(module)
    assert used > 0
    y.sum().backward()
    assert bytes_in_use(module) == 0
    with torch.no_grad():
        module(X)
    assert bytes_in_use(module) == 0
    passes = [module(X), module(X)]
    assert bytes_in_use(module) == 2 * used
    del passes
    assert bytes_in_use(module) == 0


@pytest.mark.long
@pytest.mark.parametrize(
    "call",
    [
        "bppsa_cupy.torch.GRU(2, 3).double()(torch.ones(4, 1, 2).double())",
        "bppsa_cupy.Sequential([bppsa_cupy.GRU(3, 32)], (60, 3), device='host')(torch.ones(64, 60, 3))",
    ],
)
def test_a_first_pass_leaves_pytorchs_threads(call) -> None:
    program = "import torch; torch.set_num_threads(1); torch.get_num_threads(); import bppsa_cupy.torch"
    program += f"\n{call}\nprint(torch.get_num_threads())"
    environment = {**os.environ, "NUMBA_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout == "1\n"


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # of forks, from Python 3.12 on
def test_workers_of_a_data_loader() -> None:
    module = ours.GRU(3, 4, batch_first=True).double()
    data = TensorDataset(X, X.sum((1, 2)))
    for x, target in DataLoader(data, batch_size=2, num_workers=2):
        (module(x)[0].sum((1, 2)) - target).square().sum().backward()
    child = os.fork()
    if not child:
        try:
            module(X)
        except bp.DeviceError as error:
            os._exit(7 if "forked after its parent" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (7 if threading_layer() == "omp" else 9)


@pytest.mark.long
def test_ranks_of_distributed_data_parallel(tmp_path: Path) -> None:
    command = [sys.executable, torch_ddp.__file__, str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    ranks = [subprocess.Popen([*command, str(rank)], env=environment) for rank in range(2)]
    assert [rank.wait(120) for rank in ranks] == [0, 0]
    (first, states), (second, others) = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    torch.manual_seed(0)
    module = torch.nn.GRU(3, 4, 2).double()
    y, _ = module(torch.cat([X, -X], 1))
    (y.square().sum() / 2).backward()
    expected = [parameter.grad for parameter in module.parameters()]
    assert_same(first, expected)
    assert all(map(torch.equal, first, second))
    net = torch_ddp.pruned_net()
    torch_ddp.train(net, net, torch.cat([torch_ddp.inputs_of(0), torch_ddp.inputs_of(1)], 1))
    for state in (*states, *others):  # dense and compact layers, of both ranks
        for name, value in net.state_dict().items():
            torch.testing.assert_close(state[name], value, rtol=1e-10, atol=1e-10)
