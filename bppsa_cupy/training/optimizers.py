"""Optimizers, and clipping: PyTorch's names, defaults and mathematics; a step is one kernel over all
parameters."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_flag, as_number
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import BppsaError, CheckpointError
from bppsa_cupy.network.parameters import ParameterSet
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.kernel import Kernel


def clip_grad_norm(gradients: ParameterSet, max_norm: float) -> Array:
    """Scale all gradients (net.gradients) in place so that their common 2-norm is at most `max_norm`.

    As PyTorch's clip_grad_norm_: the factor is min(1, max_norm / (norm + 1e-6)). Returns the norm before, an
    array of no dimensions, float64, on the device; nothing waits for it. The squares cannot overflow. A NaN
    or an infinity makes all gradients NaN, so that the optimizer applies none. Raises BppsaError unless
    `max_norm` is above 0.
    """
    max_norm = check_max_norm(max_norm)
    flat, xp = gradients.flat, gradients.device.xp
    with np.errstate(invalid="ignore"):
        own = xp.abs(flat).max() if flat.size else xp.zeros((), flat.dtype)
        largest = gradients.of_all_ranks(own).max()
        scale = largest + (largest == 0)
        squares = gradients.of_all_ranks(xp.square(flat / scale).sum(dtype=np.float64)).sum()
        norm = xp.sqrt(squares) * scale.astype(np.float64)
        flat *= xp.minimum(max_norm / (norm + 1e-6), 1.0).astype(flat.dtype)
    return norm


def check_max_norm(max_norm: Any) -> float:
    """`max_norm` as a float. Raises BppsaError unless it is a number above 0."""
    takes = "a number above 0"
    return as_number("clip_grad_norm", "max_norm", max_norm, lambda norm: norm > 0, takes, error=BppsaError)


class Optimizer(abc.ABC):
    """Updates a network's parameters in place.

    A step whose gradients hold NaN or infinity changes nothing: a flag on the device sees to it without
    a wait, and `blocked` tells of it. What the parameters' masks hold at 0 stays 0: state that is
    older than the masks, such as momentum, is masked before the first step with them.
    """

    hyperparameters: tuple[str, ...]
    arrays: tuple[str, ...]

    def __init__(self, parameters: ParameterSet) -> None:
        if not isinstance(parameters, ParameterSet):
            raise BppsaError(
                f"{type(self).__name__} got {type(parameters).__name__}: it takes a network's parameters, "
                "net.parameters"
            )
        self.parameters = parameters
        self._flag = parameters.device.zeros((1,), np.int32)
        self._steps = parameters.device.zeros((1,), np.int64)
        self._state = {
            name: parameters.device.zeros(parameters.flat.shape, parameters.flat.dtype)
            for name in self.arrays
        }
        self._masks: Mapping[str, Array] | None = parameters.masks

    def step(self, gradients: ParameterSet) -> None:
        """Apply one update from `gradients` (net.gradients), of the same names and shapes."""
        if not isinstance(gradients, ParameterSet) or gradients.flat.shape != self.parameters.flat.shape:
            held = gradients.flat.size if isinstance(gradients, ParameterSet) else type(gradients).__name__
            raise BppsaError(
                f"the gradients are {held}, the parameters hold {self.parameters.flat.size} values: pass "
                "net.gradients of the same network"
            )
        if self._masks is not self.parameters.masks:
            for array in self._state.values():
                self.parameters.apply_masks(array)
            self._masks = self.parameters.masks
        self._flag[...] = 0
        device = self.parameters.device
        device.launch(KERNELS["finite_check"], gradients.flat, self._flag, gradients.flat.size)
        self.parameters.set_where_any(self._flag)
        device.launch(KERNELS["step_count"], self._flag, self._steps)
        kernel, arrays, hyperparameters = self._kernel()
        flat, size = self.parameters.flat, gradients.flat.size
        device.launch(kernel, self._flag, self._steps, gradients.flat, flat, *arrays, size, *hyperparameters)
        self.parameters.changed()

    @property
    def blocked(self) -> bool:
        """Whether the last step was not applied because a gradient was not finite; waits for it."""
        return bool(self.fetch_blocked()()[0])

    def fetch_blocked(self) -> Callable[[], np.ndarray]:
        """Start copying the last step's flag to the host; the call that is returned waits for it, (1,)."""
        return self.parameters.device.fetch(self._flag)

    @property
    def steps(self) -> int:
        """The number of steps that were applied; waits for them."""
        return int(self.parameters.device.to_host(self._steps)[0])

    @abc.abstractmethod
    def _kernel(self) -> tuple[Kernel, Sequence[Array], Sequence[float]]:
        """The step's kernel, the state arrays and the hyper-parameters that it takes."""

    def state_dict(self) -> dict[str, Any]:
        """Name, hyper-parameters, steps and state arrays (host copies) for a checkpoint."""
        return {
            "name": type(self).__name__,
            "hyperparameters": {name: getattr(self, name) for name in self.hyperparameters},
            "steps": self.steps,
            "arrays": {name: self.parameters.gathered(array) for name, array in self._state.items()},
        }

    def check_state_dict(self, state: dict[str, Any]) -> None:
        """Raise CheckpointError, naming what differs, unless `load_state_dict` takes `state`."""
        missing = [name for name in ("name", "hyperparameters", "steps", "arrays") if name not in state]
        if missing:
            raise CheckpointError(
                f"the checkpoint lacks its optimizer's {', '.join(missing)}: give one that training wrote"
            )
        own = type(self).__name__
        if state["name"] != own:
            raise CheckpointError(
                f"the checkpoint's optimizer is {state['name']}, this one is {own}: make a {state['name']}"
            )
        if set(state["hyperparameters"]) != set(self.hyperparameters):
            raise CheckpointError(
                f"the checkpoint's {own} has {', '.join(state['hyperparameters'])}, this one has "
                f"{', '.join(self.hyperparameters)}: give a checkpoint that this version wrote"
            )
        if set(state["arrays"]) != set(self.arrays):
            differing = self.differing_hyperparameters(state)
            raise CheckpointError(
                f"the checkpoint's {own} keeps {', '.join(state['arrays']) or 'no array'}, this one "
                f"{', '.join(self.arrays) or 'no array'}: "
                + "; ".join(f"give {name} {theirs}, not {ours}" for name, (theirs, ours) in differing.items())
            )
        for name, array in state["arrays"].items():
            if self.parameters.part(array).shape != self._state[name].shape:
                raise CheckpointError(
                    f"the checkpoint's {name} holds {array.size} values, the network {self._state[name].size}"
                )

    def differing_hyperparameters(self, state: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
        """By name the hyper-parameters that `state` would change: its value and this optimizer's."""
        pairs = {name: (value, getattr(self, name)) for name, value in state["hyperparameters"].items()}
        return {name: pair for name, pair in pairs.items() if not np.array_equal(*pair)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()`, with its hyper-parameters. Raises CheckpointError, and sets nothing
        then, where it is another optimizer's."""
        self.check_state_dict(state)
        for name, array in state["arrays"].items():
            own = self.parameters.part(array)
            self._state[name][...] = self.parameters.device.asarray(own, self.parameters.flat.dtype)
        self._masks = None
        for name, value in state["hyperparameters"].items():
            setattr(self, name, value)
        self._steps[...] = int(state["steps"])


class SGD(Optimizer):
    """Stochastic gradient descent with momentum, Nesterov momentum and weight decay."""

    hyperparameters = ("lr", "momentum", "dampening", "weight_decay", "nesterov")

    def __init__(
        self,
        parameters: ParameterSet,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        self.lr, self.momentum = _not_negative("SGD", lr=lr, momentum=momentum)
        self.dampening, self.weight_decay = _not_negative(
            "SGD", dampening=dampening, weight_decay=weight_decay
        )
        self.nesterov = as_flag("SGD", "nesterov", nesterov, error=BppsaError)
        if self.nesterov and (momentum <= 0 or dampening != 0):
            raise BppsaError(
                f"SGD got nesterov=True with momentum={momentum} and dampening={dampening}: Nesterov "
                "momentum needs a momentum above 0 and a dampening of 0"
            )
        self.arrays = ("velocity",) if momentum else ()
        super().__init__(parameters)
        self._none = parameters.device.empty((0,), parameters.flat.dtype)

    def _kernel(self) -> tuple[Kernel, Sequence[Array], Sequence[float]]:
        velocity = self._state.get("velocity", self._none)
        hyperparameters = self.lr, self.momentum, self.dampening, self.weight_decay, self.nesterov
        return KERNELS["sgd_step"], [velocity], hyperparameters


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015, algorithm 1); `weight_decay` is added to the gradient."""

    hyperparameters = ("lr", "betas", "eps", "weight_decay")
    arrays = ("first", "second")

    def __init__(
        self,
        parameters: ParameterSet,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        self.lr, self.eps, self.weight_decay = _not_negative(
            "Adam", lr=lr, eps=eps, weight_decay=weight_decay
        )
        takes = "two, both at least 0 and below 1"
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:
            raise BppsaError(f"Adam got betas={betas!r}: it takes {takes}")
        first, second = (
            as_number("Adam", "betas", beta, lambda b: 0 <= b < 1, takes, error=BppsaError) for beta in betas
        )
        self.betas = first, second
        super().__init__(parameters)

    def _kernel(self) -> tuple[Kernel, Sequence[Array], Sequence[float]]:
        moments = self._state["first"], self._state["second"]
        return KERNELS["adam_step"], moments, (self.lr, *self.betas, self.eps, self.weight_decay)


def _not_negative(owner: str, **values: Any) -> list[float]:
    takes = "a finite number of at least 0"
    return [
        as_number(owner, name, value, lambda v: 0 <= v < math.inf, takes, error=BppsaError)
        for name, value in values.items()
    ]
