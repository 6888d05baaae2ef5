"""Values of CSR Jacobians against PyTorch's autograd, one column at a time (paper, table 1)."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from bppsa_cupy.models import build_model
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.tools.benchmarks.harness import OVERALL, Case, Row, Step, torch_rival
from bppsa_cupy.tools.paper import TABLE1


def cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """The first convolution, ReLU and max-pooling of VGG-11 at B = 1."""
    columns = 5 if arguments.quick else arguments.autograd_columns
    network = build_model("vgg11", device="host")
    for index in TABLE1:
        options = {"index": index, "device": arguments.device, "columns": columns}
        rivals = {}
        if "torch" in arguments.against:
            rivals["PyTorch autograd"] = torch_rival(partial(columns_step, **options))
        yield Case(
            case_name(network, index), partial(fill_step, **options), rivals, tolerance=1e-5,
            quantities={OVERALL: "fill"}, paper={OVERALL: TABLE1[index].speed_up}, memory=True,
            note="columns sampled, times their number" if rivals else "",
        )  # fmt: skip


def sizes() -> list[Row]:
    """Guaranteed sparsity beside the paper's expression, and the entries, of each layer."""
    network, rows = build_model("vgg11", device="host"), []
    for index, paper in TABLE1.items():
        pattern, case = network.architecture.jacobians[index].pattern, case_name(network, index)
        rows += [
            Row(case, "guaranteed sparsity", pattern.sparsity, expression(network, index),
                "the paper's expression", "fraction", paper=paper.sparsity),
            Row(case, "nnz", pattern.nnz, math.prod(pattern.shape), "the full matrix", "entries"),
        ]  # fmt: skip
    return rows


def case_name(network: Sequential, index: int) -> str:
    """A layer and its shapes, e.g. "0 Conv2d 3x32x32 to 64x32x32, B=1"."""
    before, after = ("x".join(map(str, network.shapes[k])) for k in (index, index + 1))
    return f"{index} {type(network.layers[index]).__name__} {before} to {after}, B=1"


def expression(network: Sequential, index: int) -> float:
    """Table 1's expression of the guaranteed sparsity: one entry per row and column of a diagonal, a kernel's
    taps per column of a window's operator, of as many input channels as a window spans."""
    channels, height, width = network.shapes[index]
    layer = network.layers[index]
    if not hasattr(layer, "kernel_size"):
        return 1 - 1 / (channels * height * width)
    taps = math.prod(layer.kernel_size)
    return 1 - taps / ((1 if layer.parameter_shapes() else channels) * height * width)


def sampled_columns(width: int, count: int) -> np.ndarray:
    """Columns spread over the matrix."""
    return np.unique(np.linspace(0, width - 1, count).astype(np.int64))


def forward_pass(index: int, device: str) -> Sequential:
    """A network of the first layers of VGG-11 after the forward pass of one image."""
    layers = build_model("vgg11", device="host").layers[: index + 1]
    network = Sequential(layers, (3, 32, 32), device=device)
    network.forward(np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32))
    return network


def fill_step(index: int, device: str, columns: int) -> Step:
    """Values of the last layer's Jacobian into an array that is there, by the operator's `fill`."""
    network = forward_pass(index, device)
    where, jacobian = network.device, network.architecture.jacobians[-1]
    assert network.last_pass is not None
    state, pattern = network.last_pass.layers[-1], jacobian.pattern
    values = where.empty((pattern.nnz,) if jacobian.shared else (pattern.nnz, 1), network.dtype)

    def result() -> dict[str, np.ndarray]:
        matrix = pattern.to_scipy(where.to_host(values).reshape(-1))
        return {"columns": matrix.tocsc()[:, sampled_columns(pattern.shape[1], columns)].toarray()}

    fill = partial(jacobian.fill, where, state.parameters, state.saved, values)
    return Step({OVERALL: fill}, result, where)


def columns_step(index: int, device: str, columns: int) -> Step:
    """Columns of the transposed Jacobian, each by one backward pass of PyTorch's autograd. The pass starts
    from a unit vector, which costs less than from an element of the output."""
    import torch

    from bppsa_cupy.tools.machine import torch_device
    from bppsa_cupy.tools.torch_modules import to_numpy, torch_network

    network = forward_pass(index, device)
    assert network.last_pass is not None
    before = network.last_pass.layers[index - 1].saved["output"] if index else network.last_pass.input
    where, values = torch_device(network.device), network.device.to_host(before)
    x = torch.tensor(values, device=where, requires_grad=True)
    output = torch_network(network)[-1](x).reshape(-1)
    unit, places = torch.zeros_like(output), sampled_columns(output.numel(), columns)
    made: list[Any] = []

    def compute_columns() -> None:
        made.clear()
        for column in places.tolist():
            unit[column] = 1
            made.extend(torch.autograd.grad(output, x, unit, retain_graph=True))
            unit[column] = 0

    def result() -> dict[str, np.ndarray]:
        return {"columns": np.stack([to_numpy(column).reshape(-1) for column in made], axis=1)}

    return Step({OVERALL: compute_columns}, result, network.device, per=len(places) / output.numel())
