"""What a recurrent layer holds for one pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bppsa_cupy.devices import Array
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.layers.base import Context, Shape
from bppsa_cupy.timescan import Stack

#: Batches and numbers of steps whose bound passes a context keeps, at most.
MOST_STACKS = 4


@dataclass
class RecurrentContext(Context):
    """A recurrent layer's part of a pass.

    initial         the state before the first step, in PyTorch's shape: (h,) or (h, c), or None
    final_gradient  the gradient by the final state, likewise
    want_states     whether the way back gives the gradients by the initial state
    went_back       whether it went back since its forward pass
    make_stack      makes the passes over time, from the arguments of Stack
    stack           these, bound to buffers for the present batch and number of steps
    stacks          those for the last few of both, by them, the one used last at the end: on the same
                    buffers, so that an epoch's last batch costs no binding of launches and no new graphs
    """

    initial: tuple[Array, ...] | None = None
    final_gradient: tuple[Array, ...] | None = None
    want_states: bool = True
    went_back: bool = False
    make_stack: Callable[..., Stack] = field(default=Stack, repr=False)
    stack: Stack | None = field(default=None, repr=False)
    stacks: dict[tuple[int, int], Stack] = field(default_factory=dict, repr=False)

    @property
    def forward_ways(self) -> tuple[str, ...]:
        """How the pass went over time, and why: a line an inner layer and direction."""
        return self.stack.forward_ways if self.stack is not None else ()

    @property
    def backward_ways(self) -> tuple[str, ...]:
        """How it went back, likewise."""
        return self.stack.backward_ways if self.stack is not None and self.went_back else ()

    def let_go(self) -> None:
        super().let_go()
        self.initial = self.final_gradient = self.lengths = None

    def rebind(self, parameters: dict[str, Array]) -> None:
        """Take other parameters: the next pass binds its launches anew, on the same buffers."""
        self.parameters = parameters
        self.unbind()

    def unbind(self) -> None:
        """Let the passes over time go, and the memory that is theirs alone; the buffers stay."""
        self.stack = None
        self.stacks.clear()

    def recall(self, key: tuple[int, int]) -> bool:
        """Make the stack of this batch and number of steps the present one, if it is kept."""
        self.stack = self.stacks.pop(key, None)
        if self.stack is None:
            return False
        self.stacks[key] = self.stack
        return True

    def keep(self, key: tuple[int, int], stack: Stack) -> None:
        """Take a stack as the present one."""
        self.stack = self.stacks[key] = stack
        self.make_room()

    def make_room(self) -> None:
        """Drop stacks beyond MOST_STACKS, and others than the present one whose own memory is more than that
        of the buffers: those first that were not used for longest."""
        if len(self.stacks) == 1:
            return
        buffers = sum(array.nbytes for array in self._buffers.values())
        while len(self.stacks) > 1:
            first, *_, present = self.stacks
            own = sum(stack.own_bytes for key, stack in self.stacks.items() if key != present)
            if len(self.stacks) <= MOST_STACKS and own <= buffers:
                break
            del self.stacks[first]

    def drop_others(self) -> bool:
        """Drop all stacks but the present one; whether there were others."""
        others = [key for key, stack in self.stacks.items() if stack is not self.stack]
        for key in others:
            del self.stacks[key]
        return bool(others)

    def missing_bytes(self, shapes: Mapping[str, Shape]) -> int:
        """Bytes that a `reserve` of these would take from the device."""
        return self.dtype.itemsize * sum(
            math.prod(shape)
            for name, shape in shapes.items()
            if name not in self._buffers or self._buffers[name].size < math.prod(shape)
        )

    def reserve(self, shapes: Mapping[str, Shape]) -> dict[str, Array]:
        """A `buffer` for each name and shape.

        Raises DeviceError with the bytes needed and free, before anything is allocated.
        """
        needed = self.missing_bytes(shapes)
        if needed and needed > (free := self.device.free_memory()):
            raise DeviceError(
                f"{self.device.name}: a pass takes {needed} more bytes, {free} are free: use a smaller "
                "batch, or shorter sequences"
            )
        return {name: self.buffer(name, shape) for name, shape in shapes.items()}
