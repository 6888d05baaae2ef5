"""What a recurrent layer whose state goes through W_hh holds for one pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from bppsa_cupy.devices import Array
from bppsa_cupy.layers.recurrent_context import RecurrentContext
from bppsa_cupy.timescan import Stack, StackPasses

#: Batches and numbers of steps whose bound passes a context keeps, at most.
MOST_STACKS = 4


@dataclass
class MatrixContext(RecurrentContext):
    """Such a layer's part of a pass.

    make_stack      makes the passes over time, from the arguments of Stack
    stack           these, bound to buffers for the present batch and number of steps
    at_once         by both, how many steps a pass without a way back takes at a time
    stacks          those for the last few of both, by them, the one used last at the end: on the same
                    buffers, so that an epoch's last batch costs no binding of launches and no new graphs
    version         of the device's choices that they follow
    whole           of the lengths that are set, samples and steps where all are whole, else None
    """

    make_stack: Callable[..., StackPasses] = field(default=Stack, repr=False)
    stack: StackPasses | None = field(default=None, repr=False)
    at_once: dict[tuple[int, int], int] = field(default_factory=dict, repr=False)
    stacks: dict[tuple[int, int], StackPasses] = field(default_factory=dict, repr=False)
    whole: tuple[int, int] | None = field(default=None, repr=False)
    version: int = field(default=0, repr=False)

    @property
    def forward_ways(self) -> tuple[str, ...]:
        return self.stack.forward_ways if self.stack is not None else ()

    @property
    def backward_ways(self) -> tuple[str, ...]:
        return self.stack.backward_ways if self.stack is not None and self.went_back else ()

    def rebind(self, parameters: dict[str, Array]) -> None:
        """Take other parameters: the next pass binds its launches anew, on the same buffers."""
        super().rebind(parameters)
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

    def keep(self, key: tuple[int, int], stack: StackPasses) -> None:
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
