"""A callable with arguments that it takes, and the network that most are given."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import bppsa_cupy as bp


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


def plain(name: str, function: Callable[..., Any], given: Callable[[], dict[str, Any]]) -> Call:
    """A function; `given` makes its arguments."""
    return Call(name, lambda: (function, given()))


def of_method(make: Callable[[], Any], name: str, **given: Any) -> Call:
    """A method of what `make` makes; of an argument that is a function, its value for that object counts."""

    def both() -> tuple[Callable[..., Any], dict[str, Any]]:
        owner = make()
        arguments = {key: value(owner) if callable(value) else value for key, value in given.items()}
        return getattr(owner, name), arguments

    return Call(f"{type(make()).__name__}.{name}", both)


def images() -> np.ndarray:
    return np.linspace(-1, 1, 2 * 2 * 4 * 4, dtype=np.float32).reshape(2, 2, 4, 4)


def network() -> bp.Sequential:
    """Convolution, pooling and a linear layer, on images (2, 4, 4)."""
    layers = [bp.Conv2d(2, 2, 3, padding=1), bp.ReLU(), bp.MaxPool2d(2), bp.Flatten(), bp.Linear(8, 3)]
    return bp.Sequential(layers, (2, 4, 4), device="host")


def passed() -> bp.Sequential:
    """The network after a forward pass."""
    net = network()
    net.forward(images())
    return net


def passed_by_a_plan() -> bp.Sequential:
    """The network after a forward pass, with a plan for its way back."""
    net = passed()
    net.use(net.plan(batch_size=2))
    return net
