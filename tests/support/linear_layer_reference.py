"""Linear recurrent layers step by step in PyTorch's operations, by the formulas of their papers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from bppsa_cupy.layers import RGLRU, SRU, LinearRecurrent

#: (gates, former state, input of the step) -> (new state, what is put out)
Step = Callable[[list[torch.Tensor], torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def _positive(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x >= 0, x + 0.5, torch.sigmoid(x))


def _candidate(layer: Any, x: torch.Tensor) -> torch.Tensor:
    return _positive(x) if layer.candidate == "positive" else x


def _mingru(layer: Any, gates: Any, h: Any, x: Any) -> Any:
    z = torch.sigmoid(gates[1])
    new = (1 - z) * h + z * _candidate(layer, gates[0])
    return new, new


def _minlstm(layer: Any, gates: Any, h: Any, x: Any) -> Any:
    f, i = torch.sigmoid(gates[0]), torch.sigmoid(gates[1])
    new = f / (f + i) * h + i / (f + i) * gates[2]
    return new, new


def _sru(layer: Any, gates: Any, c: Any, x: Any) -> Any:
    f, r = torch.sigmoid(gates[1]), torch.sigmoid(gates[2])
    new = f * c + (1 - f) * gates[0]
    return new, r * new + (1 - r) * (gates[3] if len(gates) == 4 else x)


def _qrnn(layer: Any, gates: Any, c: Any, x: Any) -> Any:
    f = torch.sigmoid(gates[1])
    new = f * c + (1 - f) * torch.tanh(gates[0])
    return new, torch.sigmoid(gates[2]) * new


class _BoundedRoot(torch.autograd.Function):
    """As `SqrtBoundDerivative` of Griffin's code."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.sqrt()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient / (4 * ctx.saved_tensors[0]).clamp(min=1e-6).sqrt()


def _rglru(layer: Any, gates: Any, h: Any, x: Any, parameters: Any) -> Any:
    log_a = -8 * torch.sigmoid(gates[0]) * torch.nn.functional.softplus(parameters["a_param_l0"])
    new = log_a.exp() * h + _BoundedRoot.apply(1 - (2 * log_a).exp()) * torch.sigmoid(gates[1]) * x
    return new, new


STEPS: dict[str, Any] = {"MinGRU": _mingru, "MinLSTM": _minlstm, "SRU": _sru, "QRNN": _qrnn}


def _state_space(layer: Any, parameters: Mapping[str, torch.Tensor], u: Any, state: Any) -> Any:
    """A step of LRU or DiagonalSSM."""
    weights = {key.removesuffix("_l0"): value for key, value in parameters.items()}
    inward, outward = weights["B_re"] + 1j * weights["B_im"], weights["C_re"] + 1j * weights["C_im"]
    if type(layer).__name__ == "LRU":
        factor = torch.exp(-torch.exp(weights["nu_log"]) + 1j * torch.exp(weights["theta_log"]))
        gain, scale = torch.exp(weights["gamma_log"]), 1
    else:
        continuous = weights["Lambda_re"] + 1j * weights["Lambda_im"]
        factor = torch.exp(continuous * torch.exp(weights["log_step"]))
        gain, scale = (factor - 1) / continuous, 2
    new = factor * state + gain * (u.to(inward.dtype) @ inward.T)
    skip = weights["D"]
    return new, scale * (new @ outward.T).real + (u * skip if skip.ndim == 1 else u @ skip.T)


def run_layer(
    layer: LinearRecurrent,
    parameters: Mapping[str, torch.Tensor],
    x: torch.Tensor,
    lengths: torch.Tensor,
    first: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The output for x (B, T, F), and the last state, (1, B, H), from the first one."""
    state, outputs = first[0], []
    for t in range(x.shape[1]):
        if isinstance(layer, RGLRU):
            new, y = _rglru(layer, _gates(layer, parameters, x[:, t]), state, x[:, t], parameters)
        elif not layer.paired:
            step = STEPS[type(layer).__name__]
            new, y = step(layer, _gates(layer, parameters, x[:, t]), state, x[:, t])
        else:
            new, y = _state_space(layer, parameters, x[:, t], state)
        live = (t < lengths)[:, None]
        state = torch.where(live, new, state)
        outputs.append(torch.where(live, y, 0.0))
    y = torch.stack(outputs, 1)
    return y[torch.arange(len(x)), lengths - 1] if layer.outputs == "last" else y, state[None]


def _gates(layer: LinearRecurrent, parameters: Mapping[str, torch.Tensor], x: Any) -> list[torch.Tensor]:
    """The gates of a step, before their functions."""
    weight = parameters["weight_ih_l0"]
    bias = torch.zeros(len(weight), dtype=weight.dtype)
    if layer.bias:
        values = parameters["bias_ih_l0"]
        start = layer.hidden_size if isinstance(layer, SRU) else 0  # of SRU f and r alone have one
        bias = torch.cat([bias[:start], values, bias[start + len(values) :]])
    return list((x @ weight.T + bias).split(layer.hidden_size, 1))
