"""Modules inside of PyTorch's own CUDA graphs."""

from __future__ import annotations

import pytest
import torch

import bppsa_cupy.torch as bt


@pytest.mark.gpu
@pytest.mark.parametrize("module", ["RNN", "GRU", "LSTM", "MinGRU"])
@pytest.mark.parametrize("steps", [30, 1000])
def test_a_module_goes_into_a_graph(module: str, steps: int) -> None:
    """Forward and backward pass replayed on other values give what they give launch by launch."""
    torch.manual_seed(0)
    net = getattr(bt, module)(3, 20).cuda()
    x = torch.randn(steps, 4, 3, device="cuda")

    def run_step() -> list[torch.Tensor]:
        y = net(x)[0]
        return [y, *torch.autograd.grad(y.square().sum(), list(net.parameters()))]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run_step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run_step()
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        expected = [tensor.detach().clone() for tensor in run_step()]
        graph.replay()
        for ours, theirs in zip(captured, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


class Model(torch.nn.Module):
    """A recurrent layer between layers that PyTorch compiles."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.rnn, self.last = torch.nn.Linear(3, 5), bt.RNN(5, 20), torch.nn.Linear(20, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.rnn(self.first(x).relu())[0])


@pytest.mark.gpu
def test_a_module_goes_between_graphs_of_a_compiled_model() -> None:
    pytest.importorskip("triton")
    torch.manual_seed(0)
    model = Model().cuda()
    compiled = torch.compile(model, mode="reduce-overhead")
    for _ in range(5):
        x, results = torch.randn(30, 4, 3, device="cuda"), []
        for net in (compiled, model):
            y = net(x)
            gradients = torch.autograd.grad(y.square().sum(), list(model.parameters()))
            results.append([tensor.detach().clone() for tensor in (y, *gradients)])
        for ours, theirs in zip(*results, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
