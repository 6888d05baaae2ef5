"""Public callables with arguments that they take: what `arguments` changes one or some of."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import bppsa_cupy as bp
from bppsa_cupy.scan.primitive import make_chain, plan_scan
from fuzzing import calls_data, calls_training
from fuzzing.call import Call, images, network, of_method, passed, passed_by_a_plan, plain

#: Layers, with arguments that each takes.
#: Arguments of recurrent layers, and of those whose arguments are others than theirs or none.
SEQUENCES = {"input_size": 2, "hidden_size": 3}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "Conv2d": {"in_channels": 2, "out_channels": 3, "kernel_size": 3},
    "Linear": {"in_features": 4, "out_features": 3},
    "MaxPool2d": {"kernel_size": 2},
    "AvgPool2d": {"kernel_size": 2},
    "AdaptiveAvgPool2d": {"output_size": 2},
    "BatchNorm1d": {"num_features": 3},
    "BatchNorm2d": {"num_features": 3},
    "FrozenBatchNorm2d": {"num_features": 3},
    "Dropout": {"p": 0.5},
    "PadShortcut": {"channels": 4},
    "RGLRU": {"input_size": 4, "heads": 2},
    "CausalConv1d": {"channels": 3, "kernel_size": 2},
    "RMSNorm": {"normalized_shape": 4},
    "Embedding": {"num_embeddings": 5, "embedding_dim": 3},
}
#: Layers by name, but for those that take layers or a cell, which have calls of their own or none.
LAYERS = {
    name: ARGUMENTS.get(name, SEQUENCES if issubclass(kind, bp.layers.Recurrent) else {})
    for name, kind in bp.layers.LAYERS.items()
    if name not in ("CellLayer", "LinearCellLayer", "Residual")
}


def _scan(**more: Any) -> dict[str, Any]:
    pattern = bp.Pattern.dense(3, 3)
    record = bp.JacobianRecord(0, "Linear", pattern, np.arange(9, dtype="float32"))
    return {"gradient": np.ones((3, 2), "float32"), "jacobians": [record, record], **more}


def _of_sequences() -> dict[str, Any]:
    states = np.zeros((1, 3, 3), "float32")
    own = {"x": np.ones((3, 4, 2), "float32"), "lengths": np.array([4, 1, 2]), "states": {0: states}}
    return {**own, "gradient": np.ones((3, 2), "float32"), "state_gradients": {0: states}, "method": "bp"}


def _sequences(x: Any, lengths: Any, states: Any, gradient: Any, **how: Any) -> Any:
    """The way through a recurrent network and back."""
    net = bp.Sequential([bp.GRU(2, 3, outputs="last"), bp.Linear(3, 2)], (None, 2), device="host")
    y = net.forward(x, lengths, states)
    return y, net.backward(gradient, input_gradient=True, **how), dict(net.gradients)


def _back(gradient: Any, **wanted: Any) -> Any:
    """The way back through a layer."""
    arrays = {"weight": np.ones((2, 3), "float32"), "bias": np.ones(2, "float32")}
    _, saved = bp.functional.forward(bp.Linear(3, 2), arrays, np.ones((2, 3), "float32"))
    found = bp.functional.vjp(saved, gradient, **wanted)
    return dict(found.parameters), found.input


def calls(folder: Path) -> list[Call]:
    """All callables; `folder` holds the files that readers are given."""
    network().plan(batch_size=2).save(folder / "plan.h5")
    bp.save_jacobians(folder / "jacobians.h5", passed())
    layers = [plain(name, getattr(bp, name), partial(dict, given)) for name, given in LAYERS.items()]
    scores, labels = np.ones((2, 3), "float32"), np.array([0, 2])
    halves = np.full((2, 4, 3), 0.5, "float32")

    def parameters() -> Any:
        return network().parameters

    return [
        *layers,
        plain("Sequential", bp.Sequential, lambda: {
            "layers": [bp.Linear(3, 2)], "input_shape": (3,), "device": "host"}),
        plain("Residual", bp.Residual, lambda: {"body": [bp.Linear(3, 3)]}),
        plain("Pattern", bp.Pattern, lambda: {
            "shape": (2, 3), "indptr": np.array([0, 1, 2]), "indices": np.array([0, 2])}),
        plain("Pattern.dense", bp.Pattern.dense, lambda: {"rows": 2, "columns": 3}),
        plain("Pattern.diagonal", bp.Pattern.diagonal, lambda: {"size": 3}),
        plain("JacobianRecord", bp.JacobianRecord, lambda: {
            "layer": 0, "name": "ReLU", "pattern": bp.Pattern.diagonal(3), "data": np.ones(3, "float32")}),
        plain("Partition", bp.Partition, lambda: {"bounds": (0, 2, 5)}),
        plain("Partition.equal", bp.Partition.equal, lambda: {"items": 5, "ranks": 2}),
        plain("Partition.balanced", bp.Partition.balanced, lambda: {"weights": [1.0, 2.0], "ranks": 2}),
        plain("cross_entropy", bp.cross_entropy, lambda: {"scores": scores, "labels": labels}),
        plain("mse_loss", bp.mse_loss, lambda: {"output": scores, "target": scores}),
        plain("clip_grad_norm", bp.clip_grad_norm, lambda: {"gradients": parameters(), "max_norm": 1.0}),
        plain("SGD", bp.SGD, lambda: {"parameters": parameters(), "lr": 0.1, "momentum": 0.9}),
        plain("Adam", bp.Adam, lambda: {"parameters": parameters(), "lr": 0.1}),
        plain("AdamW", bp.AdamW, lambda: {"parameters": parameters(), "lr": 0.1}),
        plain("prune", bp.prune, lambda: {"network": network(), "fraction": 0.5}),
        plain("fold_batch_norm", bp.fold_batch_norm, lambda: {"network": network()}),
        plain("scan", bp.scan, lambda: _scan(method="linear")),
        plain("scan by a plan", bp.scan, lambda: _scan(method="blelloch")),
        plain("linear_scan", bp.linear_scan, lambda: {
            "a": halves, "b": halves, "h0": halves[:, 0], "lengths": np.array([4, 1])}),
        plain("linear_scan_backward", bp.linear_scan_backward, lambda: {
            "a": halves, "h": halves, "gradient": halves, "h0": halves[:, 0]}),
        plain("plan_scan", plan_scan, lambda: {"chain": make_chain([(bp.Pattern.dense(3, 3), True)])}),
        plain("functional.forward", bp.functional.forward, lambda: {
            "layer": bp.Linear(3, 2), "x": scores,
            "parameters": {"weight": np.ones((2, 3), "float32"), "bias": np.ones(2, "float32")}}),
        plain("balanced_ppv", bp.balanced_ppv, lambda: {"net": network(), "cuts": 1}),
        plain("Placement", bp.Placement, lambda: {"net": network(), "ppv": (1,)}),
        plain("load_jacobians", bp.load_jacobians, lambda: {"path": folder / "jacobians.h5"}),
        plain("save_jacobians", bp.save_jacobians, lambda: {"path": folder / "s.h5", "source": passed()}),
        plain("Plan.load", bp.Plan.load, lambda: {"path": folder / "plan.h5"}),
        plain("Plan.outline", bp.Plan.outline, lambda: {"path": folder / "plan.h5"}),
        of_method(passed_by_a_plan, "forward", x=lambda net: images()),
        of_method(passed_by_a_plan, "backward", gradient=lambda net: scores, method="blelloch"),
        of_method(passed_by_a_plan, "plan", batch_size=2),
        of_method(passed_by_a_plan, "use", plan=lambda net: net.plan(batch_size=2)),
        of_method(passed_by_a_plan, "set_masks", masks=lambda net: {"4.weight": np.ones((3, 8))}),
        of_method(passed_by_a_plan, "load_state_dict", arrays=lambda net: net.state_dict()),
        of_method(passed_by_a_plan, "transposed_jacobians"),
        plain("a recurrent network", _sequences, _of_sequences),
        plain("functional.vjp", _back, lambda: {
            "gradient": np.ones((2, 2), "float32"), "parameter_gradients": True, "input_gradient": True}),
        plain("Cell", bp.Cell, lambda: {
            "name": "leaky", "gates": ["h"], "states": ["h"], "parameters": ["a"],
            "step": lambda x, u, s, p: {"h": s.h + p.a * x.h * u.h}}),
        *calls_data.calls(folder),
        *calls_training.calls(folder),
    ]  # fmt: skip
