"""Models of ours that PyTorch records: by jit.trace, export, ONNX, fx, dispatch modes and torch.compile."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from marks import some
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils import prune
from torch_cases import assert_same

import bppsa_cupy as bp
import bppsa_cupy.torch as ours

pytestmark = pytest.mark.filterwarnings(  # all of them PyTorch's own
    "ignore::DeprecationWarning",
    "ignore::torch.jit.TracerWarning",
    "ignore:.*were assigned during export",
    "ignore:Exporting a model to ONNX with a batch_size other than 1",
    "ignore:The .grad attribute of a Tensor that is not a leaf",
    "ignore:While compiling, we found certain side effects",
)
X, OTHER = torch.randn(2, 5, 4, dtype=torch.float64), torch.randn(2, 7, 4, dtype=torch.float64)


class Model(torch.nn.Module):
    def __init__(self, rnn: torch.nn.Module) -> None:
        super().__init__()
        self.rnn, self.out = rnn, torch.nn.Linear(4, 4)
        prune.l1_unstructured(self.out, "weight", 0.75)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, _ = self.rnn(x)
        return self.out(y)


def model_of(name: str) -> torch.nn.Module:
    if name in ("RNN", "GRU", "LSTM"):
        rnn = getattr(torch.nn, name)(4, 4, 2, batch_first=True)
    elif name == "CellLayer":
        rnn = ours.CellLayer(bp.Cell.built_in("gru"), 4, 4, batch_first=True)
    else:
        rnn = getattr(ours, name)(4, 4)
    return ours.convert(Model(rnn).double(), sparse=0.7)


def traced(model: torch.nn.Module) -> Any:
    with torch.no_grad():
        return torch.jit.trace(model, X)


def traced_and_loaded(model: torch.nn.Module) -> Any:
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(model, X), file)
    file.seek(0)
    return torch.jit.load(file)


RECORDERS: dict[str, Callable[[torch.nn.Module], Any]] = {
    "trace": traced,
    "loaded trace": traced_and_loaded,
    "export": lambda model: torch.export.export(model, (X,), strict=False).module(),
    "strict export": lambda model: torch.export.export(model, (X,), strict=True).module(),
}


@pytest.mark.parametrize("recorder", RECORDERS)
@pytest.mark.parametrize("name", some("GRU", "MinGRU", long=["RNN", "LSTM", "CellLayer"]))
def test_what_is_recorded_computes_the_same(name: str, recorder: str) -> None:
    model = model_of(name)
    graph = RECORDERS[recorder](model)
    for x in (-X, OTHER) if recorder in ("trace", "loaded trace") else (-X,):
        assert_same([graph(x)], [model(x)])
        gradients = []
        for each in (graph, model):
            leaf = x.clone().requires_grad_()
            parameters = [leaf, *(p for _, p in sorted(each.named_parameters()))]
            gradients.append(torch.autograd.grad(each(leaf).square().sum(), parameters))
        assert_same(*map(list, gradients))


@pytest.mark.parametrize("name", ["RNN", "CellLayer", "MinGRU"])
def test_dispatch_modes_see_the_pass(name: str) -> None:
    model = model_of(name)
    assert_same([make_fx(model)(X)(-X)], [model(-X)])


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_exporters_get_pytorchs_operators(name: str) -> None:
    """Both exporters of ONNX start from one of these graphs."""
    model = model_of(name)
    graphs = torch.jit.trace(model, X).inlined_graph, torch.export.export(model, (X,)).graph
    for text in map(str, graphs):
        assert re.search(rf"aten(::|\.){name.lower()}", text) and "over_time" not in text


@pytest.mark.long
@pytest.mark.parametrize("allowed", [False, True])
def test_compiled_models(allowed: bool) -> None:
    with torch._dynamo.config.patch(allow_rnn=allowed):
        check_compiled(model_of("GRU"), allowed)


def check_compiled(model: Any, allowed: bool) -> None:
    """Dynamo refuses instances of torch.nn.RNN, GRU and LSTM in one graph, unless allow_rnn is set."""
    for module, pick in ((model, lambda y: y), (model.rnn, lambda y: y[0])):
        for fullgraph in (False, True):
            torch.compiler.reset()
            compiled = torch.compile(module, fullgraph=fullgraph, backend="aot_eager")
            if fullgraph and not allowed:
                with pytest.raises(torch._dynamo.exc.Unsupported, match="allow_rnn"):
                    compiled(X)
                continue
            results = []
            for each in (module, compiled):
                y = pick(each(X))
                results.append([y, *torch.autograd.grad(y.square().sum(), list(model.rnn.parameters()))])
            assert_same(*results)
            with torch.no_grad():
                assert_same([pick(compiled(OTHER))], [pick(module(OTHER))])


@pytest.mark.skipif(not hasattr(torch.Tag, "cudagraph_unsafe"), reason="the tag is from PyTorch 2.9 on")
def test_cuda_graphs_of_a_compiled_model_leave_operators_out() -> None:
    names = ("over_time", "back_through_time", "linear_scan", "linear_scan_backward")
    for name in names:
        assert torch.Tag.cudagraph_unsafe in getattr(torch.ops.bppsa_cupy, name).default.tags
