"""Optimizers with PyTorch's names, defaults and mathematics, whose update is one kernel; and clipping."""

from __future__ import annotations

import abc
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bppsa_cupy.arguments import as_number
from bppsa_cupy.devices import Array, Launch
from bppsa_cupy.errors import ArgumentError, CheckpointError
from bppsa_cupy.network.parameters import ALIGNMENT, ParameterSet
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.kernel import Kernel

#: A power of two that float32 has, as has what the least factor is in parts of it.
TINY = 2.0**-64


class Progress(NamedTuple):
    """The state of updates on the device.

    Attributes
    ----------
    flag : array of int32, (1,)
        Whether the last update was skipped because a gradient was not finite.
    steps : array of int64, (1,)
        The number of updates.
    """

    flag: Array
    steps: Array


class Optimizer(abc.ABC):
    """Base class of optimizers, which update a network's parameters in place.

    Parameters
    ----------
    parameters : ParameterSet
        net.parameters.
    **settings
        The hyper-parameters by name.

    Attributes
    ----------
    numbers : list of float
        The hyper-parameters, then `lr_factor`. Every change makes a new list.
    table : array
        The numbers on the device, which the kernel reads.
    arrays : dict of str to array
        The optimizer's state by name, in the layout of the parameters. A new array makes a new dict.
    lr_factor : float
        Factor of every learning rate, set by schedules; not in `state_dict`.

    Raises
    ------
    ArgumentError
        If a value is out of range, here or when an attribute is set. The optimizer is unchanged.

    Notes
    -----
    A step with NaN or infinite gradients changes nothing: a flag on the device skips it without a wait.
    Masked weights stay 0. Hyper-parameters and `lr_factor` are attributes that may be set between steps.
    """

    hyperparameters: tuple[str, ...]
    lr: float
    lr_factor: float
    numbers: list[float]
    arrays: dict[str, Array]

    def __init__(self, parameters: ParameterSet, **settings: Any) -> None:
        if not isinstance(parameters, ParameterSet):
            raise ArgumentError(f"{type(self).__name__} got {type(parameters).__name__}: pass net.parameters")
        device = parameters.device
        self.parameters, self._layout = parameters, parameters.layout
        self._masks = parameters.masks
        self._whole = Progress(*(device.zeros((1,), kind) for kind in (np.int32, np.int64)))
        self._parts: dict[tuple[int, int], Progress] = {}
        self.arrays = {}
        vars(self).update(settings, lr_factor=1.0)
        self._set(settings)
        self.table = device.asarray(np.array(self.numbers))
        self._written = self.numbers
        #: The launches of all parameters, and the arrays that they are bound to.
        self._bound: tuple[tuple[Array, ...], tuple[Launch, ...]] = (), ()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.hyperparameters:
            self._set({name: value})
        elif name == "lr_factor":
            _check_not_negative(type(self).__name__, lr_factor=value)
            self.numbers = [*self.numbers[:-1], float(value)]
        super().__setattr__(name, value)

    def _set(self, changes: Mapping[str, Any]) -> None:
        """Check hyper-parameters together and set them. State arrays that they add begin with zeros."""
        settings = {**self._settings(), **changes}
        self._check(**settings)
        values = [*(value for setting in settings.values() for value in np.ravel(setting)), self.lr_factor]
        added = [name for name in self._arrays(settings) if name not in self.arrays]
        if added:
            self.fit()
            flat, device = self.parameters.flat, self.parameters.device
            with device.naming_memory:
                zeros = {name: device.zeros(flat.shape, flat.dtype) for name in added}
            self.arrays = {**self.arrays, **zeros}
        self.numbers = [float(value) for value in values]
        vars(self).update(settings)

    def _settings(self) -> dict[str, Any]:
        """The hyper-parameters by name."""
        return {name: vars(self)[name] for name in self.hyperparameters}

    def fit(self) -> None:
        """Bring the state into the layout of the parameters, with zeros for weights that are pruned now."""
        old, new, masks = self._layout, self.parameters.layout, self.parameters.masks
        if masks is self._masks:
            return
        if new is not old:
            self.arrays = {name: new.compress(old.expand(array)) for name, array in self.arrays.items()}
            self._layout = new
        for array in self.arrays.values():
            self.parameters.apply_masks(array)
        self._masks = masks

    def step(self, gradients: ParameterSet, part: slice | None = None) -> None:
        """Update the parameters once.

        Parameters
        ----------
        gradients : ParameterSet
            net.gradients.
        part : slice, optional
            The part of `flat` to update, from the start of one array to the start of another. Pipelines use
            it, since their stages are at different steps. `settle` ends such updates.

        Raises
        ------
        DeviceError
            If the device has too little memory.
        """
        if self._written is not self.numbers:
            self.table[...] = self.parameters.device.asarray(np.array(self.numbers))
            self._written = self.numbers
        self.launch(gradients, part)

    def launch(self, gradients: ParameterSet, part: slice | None = None) -> None:
        """Launch a step with `gradients` and the numbers in `table`, which graphs write.

        `part` is the part of the flat parameter array to update. None updates all parameters.
        """
        parameters, progress = self.parameters, self._progress(part)
        with parameters.device.naming_memory:
            self.fit()
            check, count, update = self._launches(gradients, progress, part)
            progress.flag[...] = 0
            check()
            count()
            update()
        parameters.changed()

    def _launches(
        self, gradients: ParameterSet, progress: Progress, part: slice | None
    ) -> tuple[Launch, ...]:
        """The check for NaN, the count of the step and the update. Those of all parameters are bound once."""
        device, parameters, (kernel, state, flag) = self.parameters.device, self.parameters, self._kernel()
        fixed = getattr(gradients, "flat", None), parameters.flat, *state
        if part is None and self._bound[0] and all(map(operator.is_, fixed, self._bound[0])):
            return self._bound[1]
        if not isinstance(gradients, ParameterSet) or not parameters.layout.is_equal(gradients.layout):
            held = gradients if isinstance(gradients, ParameterSet) else type(gradients).__name__
            raise ArgumentError(
                f"{type(self).__name__} got gradients of {held}, but parameters of {parameters}: pass "
                "net.gradients of the same network"
            )
        values, updated, *state = (array if part is None else array[part] for array in fixed)
        launches = (
            device.bind(KERNELS["finite_check"], values, progress.flag, values.size),
            device.bind(KERNELS["step_count"], progress.flag, progress.steps),
            device.bind(
                kernel, progress.flag, progress.steps, values, updated, *state, self.table, values.size, flag
            ),
        )
        if part is None:
            self._bound = fixed, launches
        return launches

    def _progress(self, part: slice | None) -> Progress:
        """Of the whole, or of a part, which begins where the whole is."""
        if part is None:
            return self._whole
        key = part.start, part.stop
        if key not in self._parts:
            self._parts[key] = Progress(self._whole.flag.copy(), self._whole.steps.copy())
        return self._parts[key]

    def settle(self) -> None:
        """End updates by parts, after all parts have made the same steps."""
        for part in self._parts.values():
            self._whole.steps[...] = part.steps
        self._parts.clear()

    @property
    def flag(self) -> Array:
        """(1,) int32 on the device: whether the last step was skipped."""
        return self._whole.flag

    @property
    def blocked(self) -> bool:
        """Whether the last step was skipped because a gradient was not finite; reading it waits."""
        return bool(self.fetch_blocked()()[0])

    def fetch_blocked(self, part: slice | None = None) -> Callable[[], np.ndarray]:
        """Start to copy the flag of the last step to the host, and return a function that waits for the flag.

        `part` is the part that `launch` updated.
        """
        return self.parameters.device.fetch(self._progress(part).flag)

    @property
    def steps(self) -> int:
        """The number of updates. Reading it waits for them."""
        return int(self.parameters.device.to_host(self._whole.steps)[0])

    @abc.abstractmethod
    def _kernel(self) -> tuple[Kernel, Sequence[Array], bool]:
        """The step's kernel, the state arrays and the flag that it takes."""

    @abc.abstractmethod
    def _arrays(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """The names of the state arrays that these hyper-parameters need."""

    @abc.abstractmethod
    def _check(self, **settings: Any) -> None:
        """Raise ArgumentError unless these hyper-parameters fit."""

    def state_dict(self) -> dict[str, Any]:
        """Return name, hyper-parameters, steps and state arrays (host copies)."""
        self.fit()
        to_host = self.parameters.device.to_host
        return {
            "name": type(self).__name__,
            "hyperparameters": self._settings(),
            "steps": self.steps,
            "arrays": {
                name: self._layout.expand(np.array(to_host(array))) for name, array in self.arrays.items()
            },
        }

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raise CheckpointError, naming what differs, unless `load_state_dict` accepts `state`."""
        expected, name = type(self).__name__, state.get("name")
        values, arrays = state.get("hyperparameters", {}), state.get("arrays", {})
        if name != expected or set(values) != set(self.hyperparameters):
            raise CheckpointError(
                f"the checkpoint's optimizer is {name} with {', '.join(map(str, values))}, but this one is "
                f"{expected} with {', '.join(self.hyperparameters)}: create the same optimizer"
            )
        self._check(**values)
        if set(arrays) != set(self.arrays):
            raise CheckpointError(
                f"the {expected} of the checkpoint stores {', '.join(map(str, arrays)) or 'no array'}, but "
                f"this one stores {', '.join(self.arrays) or 'no array'}: use the same hyper-parameters"
            )
        for name, value in arrays.items():
            shape, flat = np.shape(value), self.arrays[name]
            if self._stored(np.asarray(value)).shape != flat.shape:
                raise CheckpointError(
                    f"the checkpoint's {name} has shape {shape}, but the network needs shape {flat.shape}: "
                    "pass a checkpoint of this network"
                )

    def _stored(self, array: np.ndarray) -> np.ndarray:
        """An array of a state dict in the layout of the parameters; the array itself if its size differs."""
        layout = self.parameters.layout
        return layout.compress(array) if array.shape == (layout.dense_size,) else array

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set the state and hyper-parameters from `state_dict()`.

        Parameters
        ----------
        state : dict
            The `state_dict()` of an optimizer of the same class and network.

        Raises
        ------
        CheckpointError
            If the state belongs to another optimizer. This optimizer is unchanged.
        DeviceError
            If the device has too little memory. This optimizer is unchanged.
        """
        self.fit()
        self.check_state_dict(state)
        device, dtype = self.parameters.device, self.parameters.dtype
        arrays = {
            name: device.asarray(self._stored(np.asarray(array)), dtype)
            for name, array in state["arrays"].items()
        }
        for name, array in arrays.items():
            self.arrays[name][...] = array
            self.parameters.apply_masks(self.arrays[name])
        self._set(state["hyperparameters"])
        self._parts.clear()
        self._whole.steps[...] = int(state["steps"])


class SGD(Optimizer):
    """Stochastic gradient descent with momentum, Nesterov momentum and weight decay.

    Parameters
    ----------
    parameters : ParameterSet
        net.parameters.
    lr : float, default: 0.001
        Learning rate.
    momentum, dampening, weight_decay : float, default: 0.0
        Momentum factor, dampening of the momentum, and L2 penalty, as in torch.optim.SGD.
    nesterov : bool, default: False
        Whether to use Nesterov momentum.

    Raises
    ------
    ArgumentError
        If a value is out of range.

    Notes
    -----
    Argument names, defaults and update rules are those of PyTorch. If a gradient is NaN or infinite, a step
    changes nothing, and `blocked` is True. If momentum is set after some steps, its buffer starts at 0.

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
    ) -> None:
        super().__init__(
            parameters, lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay,
            nesterov=nesterov,
        )  # fmt: skip
        self._none = parameters.device.empty((0,), parameters.dtype)

    def _arrays(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        return ("velocity",) if settings["momentum"] else ()

    def _check(self, **settings: Any) -> None:
        nesterov = settings.pop("nesterov")
        _check_not_negative("SGD", **settings)
        if nesterov and (settings["momentum"] <= 0 or settings["dampening"] != 0):
            raise ArgumentError(
                f"SGD got nesterov=True with momentum={settings['momentum']} and dampening="
                f"{settings['dampening']}: pass a momentum above 0 and a dampening of 0"
            )

    def _kernel(self) -> tuple[Kernel, Sequence[Array], bool]:
        velocity = self.arrays.get("velocity", self._none)
        return KERNELS["sgd_step"], [velocity], bool(self.arrays)


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
        Value that is added to the denominator.
    weight_decay : float, default: 0.0
        weight_decay times the parameters is added to the gradient.

    Raises
    ------
    ArgumentError
        If a value is out of range.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> net = bp.Sequential([bp.Linear(4, 3)], input_shape=(4,), device="host")
    >>> optimizer = bp.Adam(net.parameters, lr=0.01)
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
    ) -> None:
        super().__init__(parameters, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def _arrays(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        return "first", "second"

    def _check(self, **settings: Any) -> None:
        name, betas = type(self).__name__, settings.pop("betas")
        takes = "two numbers of at least 0 and below 1"
        _check_not_negative(name, **settings)
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:
            raise ArgumentError(f"{name} got betas={betas!r}: pass {takes}")
        for beta in betas:
            as_number(name, "betas", beta, lambda b: 0 <= b < 1, takes, error=ArgumentError)

    def _kernel(self) -> tuple[Kernel, Sequence[Array], bool]:
        return KERNELS["adam_step"], (self.arrays["first"], self.arrays["second"]), self.decoupled


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019).

    Each step also subtracts lr times weight_decay times the parameters.

    Parameters
    ----------
    parameters : ParameterSet
        net.parameters.
    lr, betas, eps
        Learning rate, decay rates and denominator term, with the defaults of `Adam`.
    weight_decay : float, default: 0.01
        Coefficient of the weight decay.

    Raises
    ------
    ArgumentError
        If a value is out of range.

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
    ) -> None:
        super().__init__(parameters, lr, betas, eps, weight_decay)


def _check_not_negative(owner: str, **values: Any) -> None:
    for name, value in values.items():
        takes = "a finite number of at least 0"
        as_number(owner, name, value, lambda v: 0 <= v < math.inf, takes, error=ArgumentError)


def clip_grad_norm(gradients: ParameterSet, max_norm: float) -> Array:
    """Scale all gradients in place so that their joint 2-norm is at most `max_norm`.

    Parameters
    ----------
    gradients : ParameterSet
        net.gradients.
    max_norm : float
        Largest norm, above 0.

    Returns
    -------
    array, ()
        The norm before clipping, as a float64 scalar on the device.

    Raises
    ------
    ArgumentError
        If `max_norm` is not above 0.
    DeviceError
        If the device has too little memory. Nothing is scaled.

    Notes
    -----
    The factor is min(1, max_norm / (norm + 1e-6)), as in PyTorch. If a gradient is NaN or infinite, all
    gradients become NaN, so that the optimizer skips the step. The result is bit-identical on any number of
    ranks.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> net = bp.Sequential([bp.Linear(2, 1, bias=False)], (2,), dtype="float64", device="host")
    >>> net.gradients["0.weight"] = np.array([[3.0, 4.0]])
    >>> float(bp.clip_grad_norm(net.gradients, 1.0))
    5.0
    >>> net.gradients["0.weight"].round(4).tolist()
    [[0.6, 0.8]]
    """
    max_norm = check_max_norm(max_norm)
    flat, device = gradients.flat, gradients.device
    xp = device.xp
    with np.errstate(invalid="ignore"), device.naming_memory:
        largest = xp.abs(flat).max() if flat.size else xp.zeros((), flat.dtype)
        scale = largest + (largest == 0)
        # By unit and then over units, which rounds less than one sum.
        sums = xp.square(flat / scale).astype(np.float64)
        for _ in range((ALIGNMENT // flat.itemsize).bit_length() - 1):
            sums = sums[::2] + sums[1::2]
        norm = xp.sqrt(sums.sum()) * scale.astype(np.float64)
        factor = xp.minimum(max_norm / (norm + 1e-6), 1.0)
        if xp is not np:
            # CuPy takes a denormal factor for 0: a power of two, which rounds nothing, goes first.
            power = xp.where(factor < TINY, TINY, 1.0)
            flat *= power.astype(flat.dtype)
            factor = factor / power
        flat *= factor.astype(flat.dtype)
    return norm


def check_max_norm(max_norm: Any) -> float:
    """Return `max_norm` as a float. Raises ArgumentError unless it is above 0."""
    takes = "a number above 0"
    return as_number(
        "clip_grad_norm", "max_norm", max_norm, lambda norm: norm > 0, takes, error=ArgumentError
    )
