"""Optimizers: PyTorch's names, defaults and mathematics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from bppsa_cupy.arguments import as_flag, as_number
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.network.parameters import ParameterSet
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.kernel import Kernel
from bppsa_cupy.training.optimizer import Optimizer


class SGD(Optimizer):
    """Stochastic gradient descent with momentum, Nesterov momentum and weight decay. Momentum that is set
    between steps begins with a velocity of 0."""

    hyperparameters = ("lr", "momentum", "dampening", "weight_decay", "nesterov")

    def __init__(
        self,
        parameters: ParameterSet,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        groups: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.lr, self.momentum, self.dampening = lr, momentum, dampening
        self.weight_decay, self.nesterov = weight_decay, nesterov
        super().__init__(parameters, groups)
        self._none = parameters.device.empty((0,), parameters.dtype)

    def _arrays(self) -> tuple[str, ...]:
        return ("velocity",) if any(own["momentum"] for own in self._settings()) else ()

    def _check(self, **own: Any) -> None:
        nesterov = as_flag("SGD", "nesterov", own["nesterov"], error=BppsaError)
        _check_not_negative("SGD", **{name: value for name, value in own.items() if name != "nesterov"})
        if nesterov and (own["momentum"] <= 0 or own["dampening"] != 0):
            raise BppsaError(
                f"SGD got nesterov=True with momentum={own['momentum']} and dampening={own['dampening']}: "
                "Nesterov momentum needs a momentum above 0 and a dampening of 0"
            )

    def _kernel(self) -> tuple[Kernel, Sequence[Array], bool]:
        velocity = self._state.get("velocity", self._none)
        return KERNELS["sgd_step"], [velocity], bool(self._state)

    def _row(self, own: dict[str, Any]) -> tuple[float, ...]:
        return tuple(float(own[name]) for name in self.hyperparameters)


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015, algorithm 1); `weight_decay` is added to the gradient."""

    hyperparameters = ("lr", "betas", "eps", "weight_decay")
    #: Whether weight decay is apart from the gradient.
    decoupled: ClassVar[bool] = False

    def __init__(
        self,
        parameters: ParameterSet,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        groups: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.lr, self.betas, self.eps, self.weight_decay = lr, betas, eps, weight_decay
        super().__init__(parameters, groups)

    def _arrays(self) -> tuple[str, ...]:
        return "first", "second"

    def _check(self, **own: Any) -> None:
        name, betas, takes = type(self).__name__, own.pop("betas"), "two, both at least 0 and below 1"
        _check_not_negative(name, **own)
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:
            raise BppsaError(f"{name} got betas={betas!r}: it takes {takes}")
        for beta in betas:
            as_number(name, "betas", beta, lambda b: 0 <= b < 1, takes, error=BppsaError)

    def _kernel(self) -> tuple[Kernel, Sequence[Array], bool]:
        return KERNELS["adam_step"], (self._state["first"], self._state["second"]), self.decoupled

    def _row(self, own: dict[str, Any]) -> tuple[float, ...]:
        return tuple(map(float, (own["lr"], *own["betas"], own["eps"], own["weight_decay"])))


class AdamW(Adam):
    """Adam with weight decay apart from the gradient (Loshchilov and Hutter 2019): each step takes
    lr · weight_decay of every parameter."""

    decoupled = True

    def __init__(
        self,
        parameters: ParameterSet,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        groups: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(parameters, lr, betas, eps, weight_decay, groups)


def _check_not_negative(owner: str, **values: Any) -> None:
    for name, value in values.items():
        takes = "a finite number of at least 0"
        as_number(owner, name, value, lambda v: 0 <= v < math.inf, takes, error=BppsaError)
