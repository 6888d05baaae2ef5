"""One stage of a pipeline at work: forward and backward passes through its items, several alive at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from zlib import crc32

from bppsa_cupy.devices import Array, Launch
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import Context
from bppsa_cupy.layers.stack import LayerStack, backward_input_first, forward_through, inner_draw
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.pipeline.placement import Item, Placement

#: What passes a boundary: an activation, or a gradient, and one a residual block that is cut there.
Parcel = tuple[Array, ...]
#: Called with the gradients by the stage's input.
Send = Callable[[Parcel], None]


@dataclass
class StagePass:
    """A stage's part of one forward pass.

    Attributes
    ----------
    contexts : list of list of Context
        The contexts of each item: one of its layer, or at the end of a block an extra one and those of the
        shortcut.
    gradient : array or None
        The gradient with respect to the output of the last stage, from the loss.
    batch : int
        Samples.
    received : dict of int to array
        The arrays that the stage's input is received into.
    """

    contexts: list[list[Context]]
    gradient: Array | None = None
    batch: int = 0
    received: dict[int, Array] = field(default_factory=dict)


class Stage:
    """One stage of a network on a device, and what it stores from one run of a schedule to the next.

    `forward` and `backward` give the bits of `Sequential` by back-propagation.

    Attributes
    ----------
    part : slice
        The parameters and gradients of the stage in the `flat` arrays of the network.
    free : list of StagePass
        Passes that are not in use.
    gradient_sum : array or None
        The sum of the gradients of the micro-batches of a batch, None before the first one.
    received : dict of int to array
        The arrays that gradients are received into.
    """

    def __init__(self, placement: Placement, number: int, network: Sequential) -> None:
        self.number, self.network, self.items = number, network, placement.stages[number]
        self.part = network.parameters.layout.part_of(placement.parameter_names[number])
        trained = [bool(item.names(item.layer.parameter_shapes())) for item in self.items]
        # Whether the gradient by an item's input is needed: by another stage, or for parameters before it.
        self._wanted = [number > 0 or any(trained[:index]) for index in range(len(self.items))]
        self._any = number > 0 or any(trained)
        # Buffers of the backward passes, by item.
        self._scratch: list[dict[int, dict[str, Array]]] = [{} for _ in self.items]
        self.free: list[StagePass] = []
        self.gradient_sum: Array | None = None
        self.received: dict[int, Array] = {}
        self._stashed: dict[int, Array | None] | None = None
        self._unused: list[Array] = []

    def begin_run(self, stashes: bool) -> None:
        """Prepare a run. `stashes` makes `backward` use the parameters of the forward pass."""
        self.gradient_sum, self._stashed = None, {} if stashes else None

    def new_pass(self) -> StagePass:
        """A pass that holds nothing yet."""
        return StagePass([self._contexts(item) for item in self.items])

    def _contexts(self, item: Item) -> list[Context]:
        net = self.network
        parameters = net.parameters
        device, dtype = net.device, net.dtype
        arrays = device, dtype, parameters.arrays, net.gradients.arrays, net.buffers
        if item.kind == "layer":
            return [item.stack.new_context(item.index, *arrays, prefix=item.path)]
        contexts = [Context(device, dtype, {}, {}, item.input_shape)]
        if item.kind == "close":
            prefix, shortcut = f"{item.place}.shortcut.", item.shortcut
            contexts += [
                shortcut.new_context(index, *arrays, prefix=prefix) for index in range(len(shortcut.layers))
            ]
        return contexts

    # ---- forward ----

    def forward(
        self,
        current: StagePass,
        parcel: Parcel,
        draw: tuple[int, int, int],
        lengths: Any,
        method: str,
    ) -> Parcel:
        """Return the output of the stage for its input, and fill the pass.

        Raises ShapeError with the place of a layer that does not take its input.

        Parameters
        ----------
        draw : tuple of 3 int
            The seed of random numbers: the key of the network, the number of the training pass, and the
            number of the micro-batch.
        lengths : object
            Lengths of sequences, as recurrent layers take them.
        method : str
            Method of the network's backward pass, which recurrent layers are told.
        """
        x, *carried = parcel
        current.batch = len(x)
        for item, contexts in zip(self.items, current.contexts, strict=True):
            ctx = contexts[0]
            if item.kind == "open":
                carried.append(x)
            elif item.kind == "close":
                draws = partial(inner_draw, _draw(item, draw), "shortcut")
                for inner in contexts[1:]:
                    inner.lengths, inner.method = lengths, method
                try:
                    aside = item.shortcut.forward(contexts[1:], carried.pop(), True, draws)
                except ShapeError as error:
                    raise error.at(f"{item.place}.shortcut") from error
                y = ctx.buffer("output", x.shape)
                x = self.network.device.xp.add(x, aside, out=y)
            else:
                ctx.lengths, ctx.method = lengths, method
                x = forward_through(item.layer, ctx, x, True, _draw(item, draw), item.place)
        return (x, *carried)

    # ---- back ----

    def backward(self, current: StagePass, parcel: Parcel, send: Send) -> None:
        """Write the stage's gradients from those with respect to its output.

        Parameters have their present values.

        Parameters
        ----------
        send : Send
            Takes the gradients with respect to the stage's input, of all stages but the first, as soon as
            they are there.
        """
        for contexts, scratch in zip(current.contexts, self._scratch, strict=True):
            for index, ctx in enumerate(contexts):
                ctx.lend(scratch.setdefault(index, {}))
        gradient, *carried = parcel
        result: Array | None = gradient if self._any else None
        later: list[Launch] = []
        for position in reversed(range(len(self.items))):
            if result is None:
                break
            item, contexts = self.items[position], current.contexts[position]
            ctx, wanted = contexts[0], self._wanted[position]
            if item.kind == "open":
                total = ctx.buffer("input_gradient", result.shape)
                result = self.network.device.xp.add(result, carried.pop(), out=total)
            elif item.kind == "close":
                carried.append(_through_shortcut(item.shortcut, contexts[1:], result, later))
            else:
                result = backward_input_first(item.layer, ctx, result, wanted, later)
        if self.number > 0:
            assert result is not None
            send((result, *carried))
        for write in later:
            write()
        for contexts in current.contexts:
            for ctx in contexts:
                ctx.lend(None)

    # ---- parameters and gradients ----

    def note_forward(self, batch: int) -> None:
        """Note that a batch goes forward with the present parameters."""
        if self._stashed is not None:
            self._stashed[batch] = None

    @contextmanager
    def forward_values(self, batch: int) -> Iterator[None]:
        """Give the parameters the values that they had when a batch went forward, inside the block."""
        stashed = self._stashed.pop(batch) if self._stashed is not None else None
        if stashed is None:
            yield
            return
        values = self.network.parameters.flat[self.part]
        present = self._copy(values)
        values[...] = stashed
        yield
        values[...] = present
        self._unused.append(present)
        if self._stashed is not None and not any(stashed is other for other in self._stashed.values()):
            self._unused.append(stashed)

    def begin_update(self) -> None:
        """Copy the present parameters if a pass in use went forward with them."""
        current = [batch for batch, copy in (self._stashed or {}).items() if copy is None]
        if current and self._stashed is not None:
            copy = self._copy(self.network.parameters.flat[self.part])
            self._stashed.update(dict.fromkeys(current, copy))

    def _copy(self, values: Array) -> Array:
        copy = self._unused.pop() if self._unused else values.copy()
        copy[...] = values
        return copy

    def add_gradients(self) -> None:
        """Add the gradients of a micro-batch to the sum."""
        gradients = self.network.gradients.flat[self.part]
        if self.gradient_sum is None:
            self.gradient_sum = gradients.copy()
        else:
            self.gradient_sum += gradients


def _through_shortcut(
    shortcut: LayerStack, contexts: Sequence[Context], gradient: Array, later: list[Launch]
) -> Array:
    """The gradient with respect to the input of a block's shortcut."""
    for layer, ctx in zip(reversed(shortcut.layers), reversed(contexts), strict=True):
        by_input = backward_input_first(layer, ctx, gradient, True, later)
        assert by_input is not None
        gradient = by_input
    return gradient


def _draw(item: Item, draw: tuple[int, int, int]) -> tuple[int, int, int]:
    """What the random numbers of an item's layer follow from: of the first micro-batch, as those of the whole
    network's pass do."""
    key, passes, micro = draw
    first, *inside = item.place.split(".")
    number = int(first) if micro == 0 else crc32(f"{first}.micro.{micro}".encode())
    result = key, number, passes
    for branch, index in zip(inside[::2], inside[1::2], strict=True):
        result = inner_draw(result, branch, int(index))
    return result
