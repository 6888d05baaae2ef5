"""Public callables with arguments that they take: what `arguments` changes one or some of."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import bppsa_cupy as bp
from bppsa_cupy.data import load
from bppsa_cupy.scan.primitive import make_chain, plan_scan


@dataclass(frozen=True)
class Call:
    """A callable and arguments that it takes, by name; `make` gives both, with new objects each time."""

    name: str
    make: Callable[[], tuple[Callable[..., Any], dict[str, Any]]]

    def parameters(self) -> list[str]:
        """The names it can be given: of its signature, and of what it passes on."""
        function, given = self.make()
        kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        named = [p.name for p in inspect.signature(function).parameters.values() if p.kind not in kinds]
        return list(dict.fromkeys([*named, *given]))


#: Layers, with arguments that each takes.
LAYERS: dict[str, dict[str, Any]] = {
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
    **{name: {} for name in ("ReLU", "Tanh", "Sigmoid", "SiLU", "GELU", "ELU", "LeakyReLU", "Softplus")},
    "Flatten": {},
    **{
        name: {"input_size": 2, "hidden_size": 3}
        for name in ("RNN", "GRU", "LSTM", "CTRNN", "UGRNN", "MGU", "PeepholeLSTM")
    },
}


def images() -> np.ndarray:
    return np.linspace(-1, 1, 2 * 2 * 4 * 4, dtype=np.float32).reshape(2, 2, 4, 4)


def network() -> bp.Sequential:
    """Convolution, pooling and a linear layer, on images (2, 4, 4)."""
    layers = [bp.Conv2d(2, 2, 3, padding=1), bp.ReLU(), bp.MaxPool2d(2), bp.Flatten(), bp.Linear(8, 3)]
    return bp.Sequential(layers, (2, 4, 4), device="host")


def _passed() -> bp.Sequential:
    net = network()
    net.forward(images())
    return net


def _of_network(name: str, **given: Any) -> Call:
    def make() -> tuple[Callable[..., Any], dict[str, Any]]:
        net = _passed()
        if name in ("backward", "use"):
            net.use(net.plan(batch_size=2))
        return getattr(net, name), {
            key: value(net) if callable(value) else value for key, value in given.items()
        }

    return Call(f"Sequential.{name}", make)


def _plain(name: str, function: Callable[..., Any], given: Callable[[], dict[str, Any]]) -> Call:
    return Call(name, lambda: (function, given()))


def _scan(**more: Any) -> dict[str, Any]:
    pattern = bp.Pattern.dense(3, 3)
    record = bp.JacobianRecord(0, "Linear", pattern, np.arange(9, dtype="float32"))
    return {"gradient": np.ones((3, 2), "float32"), "jacobians": [record, record], **more}


def calls(folder: Path) -> list[Call]:
    """All callables; `folder` holds the files that readers are given."""
    network().plan(batch_size=2).save(folder / "plan.h5")
    bp.save_jacobians(folder / "jacobians.h5", _passed())
    layers = [_plain(name, getattr(bp, name), partial(dict, given)) for name, given in LAYERS.items()]
    scores, labels = np.ones((2, 3), "float32"), np.array([0, 2])

    def parameters() -> Any:
        return network().parameters

    return [
        *layers,
        _plain("Sequential", bp.Sequential, lambda: {
            "layers": [bp.Linear(3, 2)], "input_shape": (3,), "device": "host"}),
        _plain("Residual", bp.Residual, lambda: {"body": [bp.Linear(3, 3)]}),
        _plain("Pattern", bp.Pattern, lambda: {
            "shape": (2, 3), "indptr": np.array([0, 1, 2]), "indices": np.array([0, 2])}),
        _plain("Pattern.dense", bp.Pattern.dense, lambda: {"rows": 2, "columns": 3}),
        _plain("Pattern.diagonal", bp.Pattern.diagonal, lambda: {"size": 3}),
        _plain("JacobianRecord", bp.JacobianRecord, lambda: {
            "layer": 0, "name": "ReLU", "pattern": bp.Pattern.diagonal(3), "data": np.ones(3, "float32")}),
        _plain("Partition", bp.Partition, lambda: {"bounds": (0, 2, 5)}),
        _plain("Partition.equal", bp.Partition.equal, lambda: {"items": 5, "ranks": 2}),
        _plain("Partition.balanced", bp.Partition.balanced, lambda: {"weights": [1.0, 2.0], "ranks": 2}),
        _plain("cross_entropy", bp.cross_entropy, lambda: {"scores": scores, "labels": labels}),
        _plain("mse_loss", bp.mse_loss, lambda: {"output": scores, "target": scores}),
        _plain("clip_grad_norm", bp.clip_grad_norm, lambda: {"gradients": parameters(), "max_norm": 1.0}),
        _plain("SGD", bp.SGD, lambda: {"parameters": parameters(), "lr": 0.1, "momentum": 0.9}),
        _plain("Adam", bp.Adam, lambda: {"parameters": parameters(), "lr": 0.1}),
        _plain("AdamW", bp.AdamW, lambda: {"parameters": parameters(), "lr": 0.1}),
        _plain("prune", bp.prune, lambda: {"network": network(), "fraction": 0.5}),
        _plain("fold_batch_norm", bp.fold_batch_norm, lambda: {"network": network()}),
        _plain("scan", bp.scan, lambda: _scan(method="linear")),
        _plain("scan by a plan", bp.scan, lambda: _scan(method="blelloch")),
        _plain("plan_scan", plan_scan, lambda: {"chain": make_chain([(bp.Pattern.dense(3, 3), True)])}),
        _plain("functional.forward", bp.functional.forward, lambda: {
            "layer": bp.Linear(3, 2), "x": scores,
            "parameters": {"weight": np.ones((2, 3), "float32"), "bias": np.ones(2, "float32")}}),
        _plain("balanced_ppv", bp.balanced_ppv, lambda: {"net": network(), "cuts": 1}),
        _plain("Placement", bp.Placement, lambda: {"net": network(), "ppv": (2,)}),
        _plain("load", load, lambda: {"source": "nowhere"}),
        _plain("load_jacobians", bp.load_jacobians, lambda: {"path": folder / "jacobians.h5"}),
        _plain("save_jacobians", bp.save_jacobians, lambda: {"path": folder / "s.h5", "source": _passed()}),
        _plain("Plan.load", bp.Plan.load, lambda: {"path": folder / "plan.h5"}),
        _plain("Plan.outline", bp.Plan.outline, lambda: {"path": folder / "plan.h5"}),
        _of_network("forward", x=lambda net: images()),
        _of_network("backward", gradient=lambda net: np.ones((2, 3), "float32"), method="blelloch"),
        _of_network("plan", batch_size=2),
        _of_network("use", plan=lambda net: net.plan(batch_size=2)),
        _of_network("set_masks", masks=lambda net: {"4.weight": np.ones((3, 8))}),
        _of_network("load_state_dict", arrays=lambda net: net.state_dict()),
        _of_network("transposed_jacobians"),
    ]  # fmt: skip
