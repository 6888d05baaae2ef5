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

    def run() -> list[torch.Tensor]:
        y = net(x)[0]
        return [y, *torch.autograd.grad(y.square().sum(), list(net.parameters()))]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        expected = [tensor.detach().clone() for tensor in run()]
        graph.replay()
        for ours, theirs in zip(captured, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
