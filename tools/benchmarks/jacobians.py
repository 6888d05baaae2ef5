"""Values of CSR Jacobians against PyTorch's autograd, one column at a time (paper, table 1)."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from bppsa_cupy.csr import Pattern
from bppsa_cupy.layers import Layer
from bppsa_cupy.models import build_model
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.benchmarks.harness import (
    BenchmarkError,
    Row,
    Side,
    compared_row,
    measure,
    memory_row,
)
from bppsa_cupy.tools.benchmarks.rivals import (
    TorchWorkload,
    best,
    to_numpy,
    torch_network,
    torch_sides,
)
from bppsa_cupy.tools.benchmarks.workload import OVERALL, Lap, Workload
from bppsa_cupy.tools.machine import torch_device
from bppsa_cupy.tools.paper import CONVOLUTION_MIB, TABLE1

if TYPE_CHECKING:
    import torch

AGAINST = ("torch", "none")

NOTE = "columns sampled, times their number"
KERNEL_NOTE = "the operator's launches bound beforehand: no check of arguments"
EXPRESSION_NOTE = "theirs is the paper's expression, which leaves out what the padding cuts off"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--columns."""
    parser.add_argument(
        "--columns", type=cli.positive, default=200, help="columns that autograd makes (default 200)"
    )


def run(arguments: argparse.Namespace) -> list[Row]:
    """Sparsity, sizes and times of the first convolution, ReLU and max-pooling of VGG-11 at B = 1."""
    columns = 5 if arguments.quick else arguments.columns
    rows = []
    for index in TABLE1:
        rows += rows_of_layer(arguments, index, columns)
    return rows


def rows_of_layer(arguments: argparse.Namespace, index: int, columns: int) -> list[Row]:
    """Those of one layer, by its place in VGG-11."""
    network = build_model("vgg11", device="host")
    layers = network.layers[: index + 1]
    options = {"layers": layers, "device": arguments.device}
    sides = {
        "ours": Side(Fill, options, arguments.threads),
        "kernel": Side(BoundFill, options, arguments.threads),
    }
    if arguments.against == "torch":
        more = {**options, "columns": columns}
        sides |= torch_sides("PyTorch autograd", Columns, more, arguments.threads)
    measured = measure(sides, arguments.repeats, 0.0 if arguments.quick else 0.02)
    ours, kernel = measured.pop("ours"), measured.pop("kernel")
    pattern = network.jacobians[index].pattern
    for side in (ours, kernel):
        check_columns(pattern, side.result, [rival.result for rival in measured.values()])
    rival = best(measured)

    case = case_name(network, index)
    paper = TABLE1[index]
    columns_made = rival[1].result["columns"].size if rival else 1
    scales = 1.0, pattern.shape[1] / columns_made
    timed = [
        compared_row(case, quantity, side, rival, lap=OVERALL, scales=scales, paper=paper.speed_up,
                     note=note if rival else None)
        for quantity, side, note in (("fill", ours, NOTE), ("kernel", kernel, KERNEL_NOTE))
    ]  # fmt: skip
    return [
        *_sizes(network, index, case, pattern, paper.sparsity, ours.result.nbytes / 2**20),
        *timed,
        memory_row(case, arguments.device, ours, rival),
    ]


def _sizes(
    network: Sequential, index: int, case: str, pattern: Pattern, sparsity: float, mib: float
) -> list[Row]:
    return [
        Row(
            case,
            "guaranteed sparsity",
            pattern.sparsity,
            expression(network, index),
            "the paper's expression",
            "fraction",
            paper=sparsity,
            note=EXPRESSION_NOTE if network.layers[index].parameter_shapes() else None,
        ),
        Row(case, "nnz", pattern.nnz, math.prod(pattern.shape), "the full matrix", "entries"),
        Row(
            case,
            "values",
            mib,
            paper=None if index else CONVOLUTION_MIB,
            unit="MiB",
            note="float32, indices not counted",
        ),
    ]


def case_name(network: Sequential, index: int) -> str:
    """A layer and its shapes, e.g. "0 Conv2d 3x32x32 to 64x32x32, B=1"."""
    before, after = ("x".join(map(str, network.shapes[k])) for k in (index, index + 1))
    return f"{index} {type(network.layers[index]).__name__} {before} to {after}, B=1"


def expression(network: Sequential, index: int) -> float:
    """Table 1's expression of the guaranteed sparsity: one entry a row and column of a diagonal, a
    kernel's taps a column of a window's operator, of as many input channels as a window spans."""
    channels, height, width = network.shapes[index]
    layer = network.layers[index]
    if not hasattr(layer, "kernel_size"):
        return 1 - 1 / (channels * height * width)
    taps = math.prod(layer.kernel_size)
    return 1 - taps / ((1 if layer.parameter_shapes() else channels) * height * width)


def check_columns(pattern: Pattern, values: np.ndarray, rivals: list[dict[str, np.ndarray]]) -> None:
    """Raise BenchmarkError unless the CSR values give the columns that autograd made.

    rivals  "columns" (k,), and their entries that differ from 0: "row", "position" in columns, "value"
    """
    if not np.isfinite(values).all():
        raise BenchmarkError("a value of the Jacobian is not finite: the times are not reported")
    for rival in rivals:
        ours = pattern.to_scipy(values).tocsc()[:, rival["columns"]]
        entries = (rival["value"], (rival["row"], rival["position"]))
        theirs = scipy.sparse.csc_array(entries, shape=ours.shape)
        worst = abs(ours - theirs).max()
        if not worst <= 1e-6 * abs(theirs).max():
            raise BenchmarkError(
                f"a column of the Jacobian differs from autograd's by {worst:.3g}: the times are not reported"
            )


def forward_pass(layers: Sequence[Layer], device: str) -> Sequential:
    """A network of the first layers of VGG-11 with the forward pass of one image after it."""
    network = Sequential(layers, (3, 32, 32), device=device)
    network.forward(np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32))
    return network


class Fill(Workload):
    """Values of the last layer's Jacobian into an array that is there, through the operator's `fill`."""

    def __init__(self, layers: Sequence[Layer], device: str) -> None:
        network = forward_pass(layers, device)
        self.device, self.jacobian = network.device, network.jacobians[-1]
        assert network.last_pass is not None
        self.state = network.last_pass.layers[-1]
        nnz = self.jacobian.pattern.nnz
        self.values = self.device.empty((nnz,) if self.jacobian.shared else (nnz, 1), network.dtype)

    def run(self, lap: Lap) -> None:
        self.jacobian.fill(self.device, self.state.parameters, self.state.saved, self.values)

    def result(self) -> np.ndarray:
        return self.device.to_host(self.values).reshape(-1)


class BoundFill(Fill):
    """The bare launches of `fill`."""

    @cached_property
    def launches(self) -> list[Callable[[], None]]:
        """The launches that `fill` makes, bound."""
        bound: list[Callable[[], None]] = []
        device = self.device

        class Recorder:
            """The device, whose launches are bound and kept."""

            def __getattr__(self, name: str) -> Any:
                return getattr(device, name)

            def launch(self, *arguments: Any) -> None:
                bound.append(device.bind(*arguments))

        recorder: Any = Recorder()
        self.jacobian.fill(recorder, self.state.parameters, self.state.saved, self.values)
        return bound

    def run(self, lap: Lap) -> None:
        for launch in self.launches:
            launch()


class Columns(TorchWorkload):
    """Columns of the transposed Jacobian, each by one backward pass of PyTorch's autograd.

    The pass starts from a unit vector, which costs less than from an element of the output.
    """

    def __init__(self, layers: Sequence[Layer], device: str, columns: int) -> None:
        import torch

        network = forward_pass(layers, device)
        self.device = network.device
        assert network.last_pass is not None
        before = network.last_pass.input if len(layers) == 1 else network.last_pass.layers[-2].saved["output"]
        where, values = torch_device(self.device), self.device.to_host(before)
        self.input = torch.tensor(values, device=where, requires_grad=True)
        self.output = torch_network(network)[-1](self.input).reshape(-1)
        self.unit = torch.zeros_like(self.output)
        self.columns = np.unique(np.linspace(0, self.output.numel() - 1, columns).astype(np.int64))
        self.made: list[torch.Tensor] = []

    def run(self, lap: Lap) -> None:
        import torch

        self.made = []
        for column in self.columns.tolist():
            self.unit[column] = 1
            self.made += torch.autograd.grad(self.output, self.input, self.unit, retain_graph=True)
            self.unit[column] = 0

    def result(self) -> dict[str, np.ndarray]:
        matrix = np.stack([to_numpy(column).reshape(-1) for column in self.made], axis=1)
        row, position = np.nonzero(matrix)
        return {"columns": self.columns, "row": row, "position": position, "value": matrix[row, position]}
