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
    """Stochastic gradient descent with momentum, Nesterov momentum and weight decay.

    Parameters
    ----------
    parameters : ParameterSet
        net.parameters.
    lr : float, default: 0.001
        Learning rate.
    momentum, dampening, weight_decay : float, default: 0.0
        As in PyTorch.
    nesterov : bool, default: False
        Whether to use Nesterov momentum.
    groups : sequence of dict, default: ()
        Parameters with hyper-parameters of their own, such as {"params": ["4", "6.bias"], "lr": 0.1}. A layer
        index stands for all parameters of that layer.

    Raises
    ------
    BppsaError
        If a value is out of range, or a group names an unknown parameter.

    Notes
    -----
    Names, defaults and updates are those of PyTorch. A step with NaN or infinite gradients changes nothing:
    see `blocked`. Momentum that is switched on between steps begins at 0.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> net = bp.Sequential([bp.Linear(2, 1, bias=False)], input_shape=(2,), device="host")
    >>> net.parameters["0.weight"] = np.array([[1.0, 2.0]])
    >>> net.gradients["0.weight"] = np.array([[1.0, 0.0]])
    >>> bp.SGD(net.parameters, lr=0.5).step(net.gradients)
    >>> net.parameters["0.weight"].tolist()
    [[0.5, 2.0]]
    """

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
    """Adam (Kingma and Ba 2015, algorithm 1), with weight decay added to the gradient.

    Parameters
    ----------
    parameters : ParameterSet
        net.parameters.
    lr : float, default: 0.001
        Learning rate.
    betas : tuple of float, default: (0.9, 0.999)
        Decay rates of the two moments.
    eps : float, default: 1e-8
        Added to the denominator.
    weight_decay : float, default: 0.0
        Factor of the parameters that is added to the gradient.
    groups : sequence of dict, default: ()
        Parameters with hyper-parameters of their own: see `SGD`.

    Raises
    ------
    BppsaError
        If a value is out of range, or a group names an unknown parameter.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> net = bp.Sequential([bp.Linear(4, 3)], input_shape=(4,), device="host")
    >>> optimizer = bp.Adam(net.parameters, lr=0.01, groups=[{"params": ["0.bias"], "lr": 0.1}])
    >>> loss, gradient = bp.cross_entropy(net.forward(np.ones((2, 4), np.float32)), [0, 1])
    >>> net.backward(gradient)
    >>> optimizer.step(net.gradients)
    >>> optimizer.steps
    1
    """

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
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019).

    Each step subtracts lr weight_decay times the parameters.

    Parameters
    ----------
    parameters : ParameterSet
        net.parameters.
    lr, betas, eps, groups
        As in `Adam`.
    weight_decay : float, default: 0.01
        Factor of the decay.

    Raises
    ------
    BppsaError
        If a value is out of range, or a group names an unknown parameter.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> net = bp.Sequential([bp.Linear(4, 3)], input_shape=(4,), device="host")
    >>> bp.AdamW(net.parameters, lr=0.01).weight_decay
    0.01
    """

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
