"""What every optimizer does: an update is one kernel over all parameters, or a part, whatever the groups."""

from __future__ import annotations

import abc
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from bppsa_cupy.arguments import as_instance, as_integer, as_list, as_number, as_plain_array
from bppsa_cupy.devices import Array, Launch
from bppsa_cupy.errors import BppsaError, CheckpointError
from bppsa_cupy.network.layout import ALIGNMENT, Layout
from bppsa_cupy.network.parameters import ParameterSet
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.kernel import Kernel

#: One group: its parameters' names under "params", and the hyper-parameters that differ from the optimizer's.
Group = dict[str, Any]
#: A group's number is a byte, and 0 is of the parameters in no group.
MOST_GROUPS = 255


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
    groups : sequence of dict, default: ()
        Parameters with hyper-parameters of their own: see `SGD`.

    Attributes
    ----------
    table : array
        The numbers that the kernel reads on the device: settings of every group, then `lr_factor`.
    numbers : list of float
        The values of `table`.
    lr_factor : float
        Factor of every learning rate, set by schedules; not in `state_dict`.

    Raises
    ------
    BppsaError
        If a value is out of range, or a group names an unknown parameter.

    Notes
    -----
    A step with NaN or infinite gradients changes nothing: a flag on the device skips it without a wait.
    Masked weights stay 0. A subclass sets its hyper-parameters as attributes before it calls this `__init__`.
    Attributes may change between steps.
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
        self.table: Array = None
        self.numbers: list[float] = []
        self._common = operator.attrgetter(*self.hyperparameters)
        #: Hyper-parameters that passed the check, and their numbers.
        self._checked: tuple[Any, list[float]] = (None, [])
        self._bound: tuple[tuple[Any, ...], tuple[Launch, ...]] | None = None
        self.groups, self._units = self._grouped(groups)
        for own in self._settings():
            self._check(**own)
        self._whole = Progress(*(parameters.device.zeros((1,), kind) for kind in (np.int32, np.int64)))
        self._parts: dict[tuple[int, int], Progress] = {}
        self._state: dict[str, Array] = {}
        self._layout = parameters.layout
        self._add_arrays()
        self._masks: Mapping[str, Array] | None = parameters.masks
        #: Gradients that passed the check, and their layout then.
        self._fitting: tuple[ParameterSet, Layout] | None = None

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
        parameters = self.parameters
        fitting = self._fitting
        if fitting is None or fitting[0] is not gradients or fitting[1] is not gradients.layout:
            self._check_gradients(gradients)
        numbers = self.checked_numbers()
        with parameters.device.naming_memory:
            self._fit_layout()
            self._add_arrays()
            progress, ranks = self._progress(part), parameters.ranks
            self.set_numbers(numbers)
            check, count, update = self._launches(gradients, progress, part)
            self._mask_state()
            progress.flag[...] = 0
            check()
            if ranks is not None and part is None:
                ranks.set_where_any(progress.flag)
            count()
            update()
        parameters.changed()

    def set_numbers(self, numbers: list[float]) -> None:
        """Write these numbers, of `checked_numbers`, to the table on the device."""
        if numbers == self.numbers:
            return
        with self.parameters.device.naming_memory:
            table = self.parameters.device.asarray(np.array(numbers))
            if self.table is None or self.table.size != table.size:
                self.table = table
            else:
                self.table[...] = table
        self.numbers = numbers

    def _launches(
        self, gradients: ParameterSet, progress: Progress, part: slice | None
    ) -> tuple[Launch, ...]:
        """The check for NaN, the count of the step and the update. Those of the whole are bound once."""
        device, parameters = self.parameters.device, self.parameters
        kernel, arrays, flag = self._kernel()
        fixed: tuple[Any, ...] = ()
        if part is None:
            fixed = gradients.flat, parameters.flat, self._units, self.table, kernel, flag, *arrays
            if self._bound is not None and len(fixed) == len(self._bound[0]):
                if all(map(operator.is_, fixed, self._bound[0])):
                    return self._bound[1]
        own = slice(0, parameters.layout.size) if part is None else part
        values, updated = gradients.flat[own], parameters.flat[own]
        if part is not None:
            arrays = [array[part] for array in arrays]
        units = self._units[own.start // self._unit :]
        groups = len(self._settings())
        launches = (
            device.bind(KERNELS["finite_check"], values, progress.flag, values.size),
            device.bind(KERNELS["step_count"], progress.flag, progress.steps),
            device.bind(
                kernel, progress.flag, progress.steps, values, updated, *arrays, units, self.table,
                values.size, self._unit, groups, flag,
            ),
        )  # fmt: skip
        if fixed:
            self._bound = fixed, launches
        return launches

    def _check_gradients(self, gradients: Any) -> None:
        own, name = self.parameters, type(self).__name__
        if not isinstance(gradients, ParameterSet) or not own.layout.is_equal(gradients.layout):
            held = gradients if isinstance(gradients, ParameterSet) else type(gradients).__name__
            raise BppsaError(
                f"{name} got gradients of {held}: it takes those of its parameters, {own}, by the same names "
                "and shapes: pass net.gradients of the same network"
            )
        self._fitting = gradients, gradients.layout

    def checked_numbers(self) -> list[float]:
        """Return the settings of every group, then `lr_factor`. Settings that changed are checked."""
        common, (checked, numbers), factor = self._common(self), self._checked, self.lr_factor
        if not self.groups and common == checked and type(factor) is float and 0 <= factor < math.inf:
            return [*numbers[:-1], factor]
        every, takes = self._settings(), "a finite number of at least 0"
        made: list[float] | None = None
        with suppress(OverflowError, TypeError, ValueError):
            made = [*(number for own in every for number in self._row(own)), float(factor)]
        if made != self.numbers:
            for own in every:
                self._check(**own)
            owner = type(self).__name__
            as_number(owner, "lr_factor", factor, lambda v: 0 <= v < math.inf, takes, error=BppsaError)
        assert made is not None, "settings without numbers do not pass the check"
        self._checked = common, made
        return made

    def _mask_state(self) -> None:
        """Set the state to 0 where masks that are newer prune the parameters."""
        if self._masks is not self.parameters.masks:
            for array in self._state.values():
                self.parameters.apply_masks(array)
            self._masks = self.parameters.masks

    def _fit_layout(self) -> None:
        """Lay the state out as the parameters are now, which follows from the masks."""
        old, new = self._layout, self.parameters.layout
        if new is old:
            return
        self._fitting = None
        self._state = {name: new.compress(old.expand(array)) for name, array in self._state.items()}
        self._layout = new
        self.groups, self._units = self._grouped(self.groups)

    def _grouped(self, groups: Sequence[Mapping[str, Any]]) -> tuple[list[Group], Array]:
        """These groups as they are kept, and on the device the group of each unit of `flat`, uint8: 0 without
        a group, k + 1 in groups[k]. Arrays begin at whole units, so that a unit is in one group."""
        parameters, read = self.parameters, self._read_groups(groups)
        self._unit = ALIGNMENT // parameters.dtype.itemsize
        numbers = np.zeros(parameters.layout.size, np.uint8)
        for number, group in enumerate(read, 1):
            for name in group["params"]:
                if name in parameters:
                    parameters.layout.view(numbers, name)[...] = number
        return read, parameters.device.asarray(np.ascontiguousarray(numbers[:: self._unit]))

    def _read_groups(self, groups: Sequence[Mapping[str, Any]]) -> list[Group]:
        """`groups` with "params" as lists of whole names in the parameters' order, values as JSON holds them.
        Raises BppsaError naming the group for a place that does not exist or is in two groups, and for an
        unknown hyper-parameter."""
        groups = as_list("an optimizer", "groups", groups, "a list of dicts with 'params'", error=BppsaError)
        if len(groups) > MOST_GROUPS:
            raise BppsaError(
                f"{len(groups)} groups of parameters were given: at most {MOST_GROUPS} are taken"
            )
        ranks = self.parameters.ranks
        names = list(self.parameters if ranks is None else ranks.names)
        owner: dict[str, int] = {}
        result: list[Group] = []
        for index, group in enumerate(groups):
            if not isinstance(group, Mapping) or "params" not in group:
                raise BppsaError(
                    f"group {index} is {group!r}: it must be a dict with 'params', as PyTorch's are"
                )
            if unknown := [name for name in group if name not in ("params", *self.hyperparameters)]:
                raise BppsaError(
                    f"group {index} gives {unknown[0]!r}: the optimizer has {', '.join(self.hyperparameters)}"
                )
            places = [group["params"]] if isinstance(group["params"], (str, int)) else group["params"]
            takes = "a name, or a list of them, of parameters or layers"
            for place in map(str, as_list(f"group {index}", "params", places, takes, error=BppsaError)):
                found = [name for name in names if name == place or name.startswith(f"{place}.")]
                if not found:
                    known = ", ".join(names) or "none"
                    raise BppsaError(f"group {index} has the parameters {place!r}: the network has {known}")
                for name in found:
                    if owner.setdefault(name, index) != index:
                        raise BppsaError(
                            f"{name} is in groups {owner[name]} and {index}: put it in one of them"
                        )
            values = {name: np.asarray(value).tolist() for name, value in group.items() if name != "params"}
            result.append({"params": [name for name in names if owner.get(name) == index], **values})
        return result

    def _add_arrays(self) -> None:
        """Begin with zeros what state arrays the hyper-parameters ask for and there are none of yet."""
        for name in self._arrays():
            if name not in self._state:
                flat = self.parameters.flat
                self._state[name] = self.parameters.device.zeros(flat.shape, flat.dtype)

    def bound_arrays(self) -> tuple[Array, ...]:
        """The arrays that a step uses besides parameters and gradients."""
        self._fit_layout()
        self._add_arrays()
        return self._units, self.table, *self._state.values()

    def _settings(self) -> list[dict[str, Any]]:
        """All hyper-parameters of what is in no group, and of each group."""
        common = {name: getattr(self, name) for name in self.hyperparameters}
        return [{name: group.get(name, common[name]) for name in common} for group in ({}, *self.groups)]

    def _progress(self, part: slice | None) -> Progress:
        """Of the whole, or of a part, which begins where the whole is."""
        if part is None:
            return self._whole
        who = type(self).__name__
        as_instance(who, "part", part, slice, "a slice of `flat`, or None", error=BppsaError)
        key = part.start, part.stop
        if part.step is not None or not self.parameters.layout.ends_arrays(*key):
            raise BppsaError(
                f"{who} got part={part!r}: it takes a slice from the start of one array in "
                "net.parameters.flat to the start of another, or its end"
            )
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
        """Start copying the flag of the last step to the host; the returned function waits for it."""
        return self.parameters.device.fetch(self._progress(part).flag)

    @property
    def steps(self) -> int:
        """The number of updates. Reading it waits for them."""
        return int(self.parameters.device.to_host(self._whole.steps)[0])

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The optimizer's state by name, in the layout of the parameters."""
        return self._state

    @abc.abstractmethod
    def _kernel(self) -> tuple[Kernel, Sequence[Array], bool]:
        """The step's kernel, the state arrays and the flag that it takes."""

    @abc.abstractmethod
    def _arrays(self) -> tuple[str, ...]:
        """The names of the state arrays that the present hyper-parameters take; they begin with zeros."""

    @abc.abstractmethod
    def _check(self, **own: Any) -> None:
        """Raise BppsaError unless these hyper-parameters fit."""

    @abc.abstractmethod
    def _row(self, own: dict[str, Any]) -> tuple[float, ...]:
        """These hyper-parameters as the kernel takes them."""

    def state_dict(self) -> dict[str, Any]:
        """Return name, hyper-parameters, groups, steps and state arrays (host copies)."""
        self._fit_layout()
        device, ranks = self.parameters.device, self.parameters.ranks
        arrays = {
            name: np.array(device.to_host(array)) if ranks is None else ranks.gathered(array)
            for name, array in self._state.items()
        }
        return {
            "name": type(self).__name__,
            "hyperparameters": {name: getattr(self, name) for name in self.hyperparameters},
            "groups": [dict(group) for group in self.groups],
            "steps": self.steps,
            "arrays": {name: self._layout.expand(array) for name, array in arrays.items()},
        }

    def check_state_dict(self, state: Any) -> None:
        """Raise CheckpointError, naming what differs, unless `load_state_dict` accepts `state`."""
        own, given = type(self).__name__, state if isinstance(state, Mapping) else {}
        kinds = {"name": str, "hyperparameters": Mapping, "steps": int, "arrays": Mapping}
        if missing := [name for name, kind in kinds.items() if not isinstance(given.get(name), kind)]:
            raise CheckpointError(
                f"the checkpoint lacks its optimizer's {', '.join(missing)}: give one that training wrote"
            )
        as_integer("the checkpoint", "steps", state["steps"], 0, error=CheckpointError)
        values, arrays = state["hyperparameters"], state["arrays"]
        if state["name"] != own or set(values) != set(self.hyperparameters):
            raise CheckpointError(
                f"the checkpoint's optimizer is {state['name']} with {', '.join(map(str, values))}, this one "
                f"is {own} with {', '.join(self.hyperparameters)}: make the same one"
            )
        try:
            for group in ({}, *self._read_groups(state.get("groups", []))):
                self._check(**{name: group.get(name, value) for name, value in values.items()})
        except BppsaError as error:
            raise CheckpointError(f"the checkpoint's optimizer cannot be continued: {error}") from error
        if set(arrays) != set(self._state):
            raise CheckpointError(
                f"the checkpoint's {own} keeps {', '.join(map(str, arrays)) or 'no array'}, this one "
                f"{', '.join(self._state) or 'no array'}: give it the same hyper-parameters"
            )
        for name, value in arrays.items():
            array, flat = (
                as_plain_array("the checkpoint", name, value, error=CheckpointError),
                self._state[name],
            )
            if self._stored(array).shape != flat.shape or array.dtype.kind == "c":
                raise CheckpointError(
                    f"the checkpoint's {name} holds {array.dtype} of shape {array.shape}, the network "
                    f"{flat.dtype} of shape {flat.shape}"
                )

    def _stored(self, array: np.ndarray) -> np.ndarray:
        """What this process holds of an array of a state dict; the array itself where its size is another."""
        ranks, layout = self.parameters.ranks, self.parameters.layout
        if layout.kept and array.shape == (layout.dense_size,):
            array = layout.compress(array)
        return array if ranks is None else ranks.own_part(array)

    def differing_hyperparameters(self, state: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Return the hyper-parameters that `state` would change, with both values."""
        pairs = {name: (value, getattr(self, name)) for name, value in state["hyperparameters"].items()}
        differing = {name: pair for name, pair in pairs.items() if not np.array_equal(*pair)}
        theirs = state.get("groups", [])
        return differing if theirs == self.groups else {**differing, "groups": (theirs, self.groups)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set the state and hyper-parameters from `state_dict()`.

        Parameters
        ----------
        state : dict
            From `state_dict()` of an optimizer of the same class and network.

        Raises
        ------
        CheckpointError
            If the state belongs to another optimizer. Nothing is set.
        DeviceError
            If the device has too little memory. Nothing is set.
        """
        self._fit_layout()
        self.check_state_dict(state)
        device, dtype = self.parameters.device, self.parameters.dtype
        arrays = {
            name: device.asarray(self._stored(np.asarray(array)), dtype)
            for name, array in state["arrays"].items()
        }
        self.groups, self._units = self._grouped(state.get("groups", []))
        for name, array in arrays.items():
            self._state[name][...] = array
        self._masks = None
        for name, value in state["hyperparameters"].items():
            setattr(self, name, value)
        self._parts.clear()
        self._whole.steps[...] = int(state["steps"])
