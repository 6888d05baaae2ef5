"""What every network over ranks is: made of a network that all ranks have."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

import numpy as np

from bppsa_cupy.distributed.group import Group
from bppsa_cupy.errors import DistributedError
from bppsa_cupy.network.parameters import BufferSet, ParameterSet
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.network.state import load_state


def agree_on(network: Sequential, group: Group, **agreed: object) -> None:
    """Raise DistributedError where the ranks' networks or versions differ, or what is `agreed`, or the group
    has another device than the network; collective."""
    if network.device is not group.device:
        raise DistributedError(
            f"the network is on {network.device!r}, but the group is on {group.device!r}: create the network "
            "with device=group.device"
        )
    group.agree(
        network=network.describe(),
        dtype=network.dtype.name,
        random_state=network.random_state,
        versions=(version("bppsa-cupy"), np.__version__),
        **agreed,
    )


class SharedChoices:
    """Choices of ways (`devices.autotune`) that rank 0 makes for all ranks of a group.

    Only rank 0 measures. The others take the fixed table until they hear of its choices: at the beginning of
    passes 1, 2, 4, 8, … of a group.
    """

    def __init__(self, group: Group) -> None:
        self._group, self._passes = group, 0
        choices = group.device.choices
        choices.leads = choices.leads and group.rank == 0

    def begin_pass(self) -> None:
        """Collective, on a device that measures."""
        group, choices = self._group, self._group.device.choices
        self._passes += 1
        if group.size == 1 or not group.device.tunes or self._passes & (self._passes - 1):
            return
        text = np.frombuffer(json.dumps(choices.used).encode(), np.uint8).copy()
        size = np.array([text.size])
        group.broadcast(size)
        if group.rank:
            text = np.empty(int(size[0]), np.uint8)
        group.broadcast(text)
        if group.rank:
            choices.adopt(json.loads(text.tobytes()))


class SharedSequential(Sequential):
    """A network that ranks share; each calls the same methods with the same arguments, in the same order.

    parameters, gradients, buffers  this rank's, to be filled from the network's
    agreed  what must be equal on every rank, beside the network itself

    Raises DistributedError where what the ranks have differs, or the group has another device.
    """

    _stores_kept = False

    def __init__(
        self,
        network: Sequential,
        group: Group,
        parameters: ParameterSet,
        gradients: ParameterSet,
        buffers: BufferSet,
        **agreed: object,
    ) -> None:
        agree_on(network, group, **agreed)
        self.group, self.buffers = group, buffers
        self._architecture = network.architecture
        self.dtype, self.device = network.dtype, network.device
        self.training, self.random_state = network.training, dict(network.random_state)
        self.last_pass, self.last_backward = None, None
        self.parameters, self.gradients = parameters, gradients
        self.parameters.set_masks(self.architecture.masks, {})
        load_state(parameters, buffers, network.state_dict())

    @property
    def writes(self) -> bool:
        return self.group.rank == 0

    def on_any_rank(self, flag: bool) -> bool:
        return self.group.any(flag)

    def __reduce__(self) -> tuple[Any, ...]:
        raise DistributedError(
            "a distributed network cannot be copied or pickled: load its state_dict() into a Sequential"
        )
