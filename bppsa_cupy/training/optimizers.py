"""Optimizers: PyTorch's names, defaults and mathematics; a step is one kernel over all parameters,
whatever their groups."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from bppsa_cupy.arguments import as_flag, as_number
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import BppsaError, CheckpointError
from bppsa_cupy.network.parameters import ParameterSet
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.kernel import Kernel
from bppsa_cupy.training.groups import Group, group_of_units, read_groups


class Optimizer(abc.ABC):
    """Updates a network's parameters in place.

    A step whose gradients hold NaN or infinity changes nothing: a flag on the device sees to it without
    a wait, and `blocked` tells of it. What the parameters' masks hold at 0 stays 0: state that is
    older than the masks, such as momentum, is masked before the first step with them.

    groups     parameters with hyper-parameters of their own, as PyTorch's param_groups: dicts of "params"
               (names of parameters or layers: `read_groups`) and what differs, as {"params": ["4", "6.bias"],
               "lr": 0.1}; the optimizer's own hyper-parameters serve what is in none
    lr_factor  what every learning rate is multiplied by, 1 unless a schedule sets it; not in `state_dict`

    A subclass has its hyper-parameters as attributes, which may be set between steps, before it calls this
    `__init__`. Raises BppsaError where a value or a group does not fit.
    """

    hyperparameters: tuple[str, ...]
    lr: float

    def __init__(self, parameters: ParameterSet, groups: Sequence[Mapping[str, Any]] = ()) -> None:
        if not isinstance(parameters, ParameterSet):
            raise BppsaError(
                f"{type(self).__name__} got {type(parameters).__name__}: it takes a network's parameters, "
                "net.parameters"
            )
        self.parameters, self.lr_factor = parameters, 1.0
        self._table: Array = None
        self._rows: list[tuple[float, ...]] = []
        self._set_groups(groups)
        self._flag = parameters.device.zeros((1,), np.int32)
        self._steps = parameters.device.zeros((1,), np.int64)
        self._state = {
            name: parameters.device.zeros(parameters.flat.shape, parameters.flat.dtype)
            for name in self._arrays()
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
        kernel, arrays, flag = self._kernel()
        rows = [self._row(own) for own in self._settings()]
        if rows != self._rows:
            self._table, self._rows = device.asarray(np.array(rows, np.float64).reshape(-1)), rows
        device.launch(
            kernel, self._flag, self._steps, gradients.flat, self.parameters.flat, *arrays, self._units,
            self._table, gradients.flat.size, self._unit, len(rows), self.lr_factor, flag,
        )  # fmt: skip
        self.parameters.changed()

    def _set_groups(self, groups: Sequence[Mapping[str, Any]]) -> None:
        """Take these groups in place of all there are."""
        read = read_groups(self.parameters, groups, self.hyperparameters)
        self.groups: list[Group] = read
        for own in self._settings():
            self._check(**own)
        units, self._unit = group_of_units(self.parameters, read)
        self._units = self.parameters.device.asarray(units)

    def _settings(self) -> list[dict[str, Any]]:
        """All hyper-parameters of what is in no group, and of each group."""
        common = {name: getattr(self, name) for name in self.hyperparameters}
        return [{name: group.get(name, common[name]) for name in common} for group in ({}, *self.groups)]

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
    def _kernel(self) -> tuple[Kernel, Sequence[Array], bool]:
        """The step's kernel, the state arrays and the flag that it takes."""

    @abc.abstractmethod
    def _arrays(self) -> tuple[str, ...]:
        """The names of the state arrays that it begins with."""

    @abc.abstractmethod
    def _check(self, **own: Any) -> None:
        """Raise BppsaError unless these hyper-parameters fit."""

    @abc.abstractmethod
    def _row(self, own: dict[str, Any]) -> tuple[float, ...]:
        """These hyper-parameters as the kernel takes them."""

    def state_dict(self) -> dict[str, Any]:
        """Name, hyper-parameters, groups, steps and state arrays (host copies) for a checkpoint."""
        return {
            "name": type(self).__name__,
            "hyperparameters": {name: getattr(self, name) for name in self.hyperparameters},
            "groups": [dict(group) for group in self.groups],
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
        if set(state["arrays"]) != set(self._state):
            differing = self.differing_hyperparameters(state)
            raise CheckpointError(
                f"the checkpoint's {own} keeps {', '.join(state['arrays']) or 'no array'}, this one "
                f"{', '.join(self._state) or 'no array'}: "
                + "; ".join(f"give {name} {theirs}, not {ours}" for name, (theirs, ours) in differing.items())
            )
        for name, array in state["arrays"].items():
            if self.parameters.part(array).shape != self._state[name].shape:
                raise CheckpointError(
                    f"the checkpoint's {name} holds {array.size} values, the network {self._state[name].size}"
                )

    def differing_hyperparameters(self, state: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
        """By name the hyper-parameters that `state` would change, and "groups" where these are others: its
        value and this optimizer's."""
        pairs = {name: (value, getattr(self, name)) for name, value in state["hyperparameters"].items()}
        differing = {name: pair for name, pair in pairs.items() if not np.array_equal(*pair)}
        theirs = state.get("groups", [])
        return differing if theirs == self.groups else {**differing, "groups": (theirs, self.groups)}

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
        self._set_groups(state.get("groups", []))
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
        groups: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.lr, self.momentum, self.dampening = lr, momentum, dampening
        self.weight_decay, self.nesterov = weight_decay, nesterov
        super().__init__(parameters, groups)
        self._none = parameters.device.empty((0,), parameters.flat.dtype)

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
