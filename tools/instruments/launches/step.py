"""A training step on a GPU on paper, phase by phase."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from bppsa_cupy.models import build_model
from bppsa_cupy.network.prune import prune
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.tools.instruments.launches.capture import Capture
from bppsa_cupy.tools.instruments.launches.paper import Log, Operation, PaperGpu
from bppsa_cupy.training.losses import cross_entropy
from bppsa_cupy.training.optimizers import SGD

PHASES = ("forward", "loss", "backward", "optimizer", "step")


def make_network(model: str, prune_fraction: float | None, dtype: str) -> Sequential:
    """The network on paper, with the masks of its weights on the host: on paper they have no values."""
    network = build_model(model, dtype=dtype, device=PaperGpu())
    if prune_fraction is not None:
        network.set_masks(prune(build_model(model, dtype=dtype, device="host"), prune_fraction))
    return network


def step_rows(network: Sequential, method: str, batch: int) -> list[dict[str, Any]]:
    """What a training step launches once graphs are made, a row a phase, the whole step last.

    method   of the backward pass; the plan that it needs is in use
    A row has `launches` from the host (kernels, copies, graphs), `kernels` and copies that the GPU runs,
    those of graphs among them, the bytes that are `read` and `written`, each array of each of them once,
    `by_name` how often which, and the `graphs`; the step's has how often the host `waits`.
    """
    device = network.device
    assert isinstance(device, PaperGpu)
    inputs = np.zeros((batch, *network.input_shape), network.dtype)
    labels = np.zeros((batch, *network.output_shape[:-1]), np.int64)
    optimizer = SGD(network.parameters, lr=0.01, momentum=0.9)
    # The first step runs what the second captures.
    for _ in range(3):
        device.log.taken()
        device.log.waits = 0
        phases = _step(network, optimizer, method, inputs, labels, device.log)
    whole = [operation for phase in phases for operation in phase]
    rows = [_row(phase, done) for phase, done in zip(PHASES, (*phases, whole), strict=True)]
    rows[-1]["waits"] = device.log.waits
    return rows


def _step(
    network: Sequential, optimizer: SGD, method: str, inputs: np.ndarray, labels: np.ndarray, log: Log
) -> list[list[Operation]]:
    scores = network.forward(inputs, into=network.last_pass)
    phases = [log.taken()]
    loss, gradient = cross_entropy(scores, labels, device=network.device)
    network.device.fetch(loss)
    phases.append(log.taken())
    network.backward(gradient, method=method)
    phases.append(log.taken())
    optimizer.step(network.gradients)
    optimizer.fetch_blocked()
    phases.append(log.taken())
    return phases


def _row(phase: str, done: list[Operation]) -> dict[str, Any]:
    graphs = [operation.graph for operation in done if operation.graph is not None]
    kernels = [k for o in done for k in (o.graph.nodes if o.graph is not None else [o])]
    return {
        "phase": phase,
        "launches": len(done),
        "kernels": len(kernels),
        "read": sum(one.read for one in kernels),
        "written": sum(one.written for one in kernels),
        "by_name": _counted(kernels),
        "graphs": [_graph(graph) for graph in graphs],
    }


def _counted(kernels: Iterable[Operation]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for one in kernels:
        row = found.setdefault(one.name, {"kernels": 0, "read": 0, "written": 0})
        row["kernels"] += 1
        row["read"] += one.read
        row["written"] += one.written
    return dict(sorted(found.items()))


def _graph(graph: Capture) -> dict[str, Any]:
    return {
        "nodes": [node.name for node in graph.nodes],
        "edges": graph.edges,
        "longest": graph.longest,
    }
