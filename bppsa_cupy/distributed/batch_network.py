"""A network whose batches are worked on in micro-batches, by one process or by ranks that share them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np

from bppsa_cupy.arguments import as_integer
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.distributed.group import BLOCK, Group
from bppsa_cupy.distributed.shared import SharedSequential
from bppsa_cupy.errors import DistributedError, PassError
from bppsa_cupy.network.passes import BackwardReport, Pass, begin, checked_gradient, current_pass, own_pass
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.records.records import JacobianRecords

#: Gives a micro-batch's part of a batch's loss, an array of no dimensions, and the gradient by its scores.
PartOfLoss = Callable[[Array, slice], tuple[Array, Array]]


@dataclass
class BatchPass(Pass):
    """A pass of a BatchSequential. `parts` are the passes of the micro-batches of this process, in order, or
    empty if they were not stored."""

    parts: list[Pass] = field(default_factory=list)

    def ways(self, name: str) -> tuple[str, ...]:
        return self.parts[0].ways(name) if self.parts else ()


@dataclass(frozen=True)
class Cut:
    """The micro-batches of a batch.

    Attributes
    ----------
    samples : list of slice
        The samples of each micro-batch.
    numbers : range
        The micro-batches of this process.
    read : slice
        The samples of this process.
    counts : list of int
        The number of samples of each rank.
    """

    samples: list[slice]
    numbers: range
    read: slice
    counts: list[int]


def accumulate(network: Sequential, micro_batch: int) -> BatchSequential:
    """Split batches into micro-batches and add up their gradients (gradient accumulation).

    Parameters
    ----------
    network : Sequential
        The network. The result shares its parameters, gradients and buffers.
    micro_batch : int
        The number of samples per micro-batch.

    Returns
    -------
    BatchSequential
        A network to train like `network`. Its passes need memory for the activations of one micro-batch.

    Notes
    -----
    Training steps are bit-identical to those on any number of ranks with ``bp.distribute(…, over="batch")``
    and the same `micro_batch`.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> net = bp.Sequential([bp.Linear(3, 2)], input_shape=(3,), device="host")
    >>> bp.accumulate(net, 4).forward(np.ones((8, 3), np.float32)).shape
    (8, 2)
    """
    return BatchSequential(network, None, micro_batch)


class BatchSequential(SharedSequential):
    """A network that splits batches into micro-batches, with the interface of Sequential.

    Created by `distribute` or `accumulate`. Every rank gets all samples of a batch and reads only its samples
    (`own_samples`). `forward` returns the output for all samples, so losses are means over the batch. Every
    rank holds all parameters and, after `backward`, all gradients. The gradients of the micro-batches are
    summed in a binary tree over their indices (`TreeSum`). The bits of the sum therefore depend on batch and
    micro-batch size, not on the number of ranks.

    Dropout uses the index of a sample in the batch. Batch normalisation uses the statistics of a micro-batch.
    The running statistics change once per batch, by the mean of the changes of the micro-batches, weighted by
    samples.

    Parameters
    ----------
    network : Sequential
        The network that the micro-batches go through. A plan's `batch_size` is that of a micro-batch.
    group : Group or None
        The ranks that share batches. None for one process.
    micro_batch : int or None
        The number of samples per micro-batch, except the last one of a batch. None for ceil(B / ranks).
    """

    def __init__(self, network: Sequential, group: Group | None, micro_batch: int | None = None) -> None:
        if micro_batch is not None or group is None:
            micro_batch = as_integer("a batch", "micro_batch", micro_batch, 1, error=DistributedError)
        super().__init__(network, group, over="batch", micro_batch=micro_batch)
        self.micro_batch = micro_batch
        self._ranks, self._rank = (1, 0) if group is None else (group.size, group.rank)
        self._sums: dict[tuple[str, int], TreeSum] = {}

    def cut(self, batch: int) -> Cut:
        """How a batch is shared."""
        micro = self.micro_batch or -(-batch // self._ranks)
        samples = [slice(start, min(start + micro, batch)) for start in range(0, batch, micro)]
        parts = shares(len(samples), self._ranks)
        bounds = [min(part.start * micro, batch) for part in parts] + [batch]
        read = slice(bounds[self._rank], bounds[self._rank + 1])
        return Cut(samples, parts[self._rank], read, np.diff(bounds).tolist())

    def own_samples(self, batch: int) -> slice:
        return self.cut(batch).read

    def transposed_jacobians(self, *, of: Pass | None = None) -> JacobianRecords:
        raise DistributedError(
            "transposed_jacobians is not available for networks with micro-batches: load state_dict() into "
            "a Sequential, run net.forward(x), and call transposed_jacobians there"
        )

    # ---- passes ----

    def forward(
        self,
        x: Any,
        lengths: Any = None,
        states: Any = None,
        *,
        resets: Any = None,
        into: Pass | None = None,
        keep: bool = True,
    ) -> Array:
        """`Sequential.forward`, collective. Raises DistributedError for initial states and resets."""
        if states is not None or resets is not None:
            raise DistributedError(
                "a network with micro-batches accepts no initial states or resets: omit them"
            )
        with self.device.naming_memory:
            current, inputs, cut = self._begun(x, into)
            current.keeps = keep
            outputs = [part.output for _, part in self._through_all(current, inputs, lengths, cut)]
            current.output = self._gathered(outputs, current.shape_at(len(self)), cut)
        self.last_pass = current
        return current.output

    def backward(
        self,
        gradient: Any,
        method: str = "auto",
        input_gradient: bool = False,
        *,
        of: Pass | None = None,
        state_gradients: Any = None,
    ) -> Array | None:
        """`Sequential.backward`, collective. Raises DistributedError for gradients with respect to final
        states."""
        if state_gradients is not None:
            raise DistributedError(
                "a network with micro-batches accepts no gradients with respect to final states: omit them"
            )
        stored = self.last_pass if of is None else of
        current, wanted = current_pass(stored, self.parameters, "backward"), input_gradient
        assert isinstance(current, BatchPass)
        cut = self.cut(current.batch)
        if len(current.parts) < len(cut.numbers):
            raise PassError(
                "the pass stored only one of its micro-batches: run net.forward(x) before backward"
            )
        with self.device.naming_memory:
            by_output, by_input = checked_gradient(current, gradient), []
            sums = self._sum("gradients", self.gradients.flat.size)
            for part, number in zip(current.parts, cut.numbers, strict=False):
                result = self._run_backward(part, by_output[cut.samples[number]], method, wanted, None)
                if wanted:
                    by_input.append(result)
                sums.add(number, self.gradients.flat)
            self.gradients.flat[...] = sums.finish(len(cut.samples))
            if not cut.numbers:  # fewer micro-batches than ranks
                self.last_backward = BackwardReport("bp")
            return self._gathered(by_input, current.shape_at(0), cut) if wanted else None

    def gradients_of(
        self, x: Any, loss: PartOfLoss, lengths: Any = None, *, method: str = "auto", into: Pass | None = None
    ) -> Array:
        """Fill `gradients` and return the loss: forward pass, loss and backward pass of one micro-batch after
        another, so that only the activations of one micro-batch are in memory. Collective.

        `loss` is called with the scores of a micro-batch and its samples. It returns the part of the loss and
        the gradient with respect to the scores.

        Law: gradients are those of `forward` and `backward`, to the bit. Raises as they do.
        """
        with self.device.naming_memory:
            current, inputs, cut = self._begun(x, into)
            sums, losses = self._sum("gradients", self.gradients.flat.size), self._sum("loss", 1)
            for number, part in self._through_all(current, inputs, lengths, cut, together=False):
                value, gradient = loss(part.output, cut.samples[number])
                self._run_backward(part, checked_gradient(part, gradient), method, False, None)
                sums.add(number, self.gradients.flat)
                losses.add(number, value.reshape(1))
            self.gradients.flat[...] = sums.finish(len(cut.samples))
            result = losses.finish(len(cut.samples)).copy()[0]
            if not cut.numbers:  # fewer micro-batches than ranks
                self.last_backward = BackwardReport("bp")
        self.last_pass = current
        return result

    def _begun(self, x: Any, into: Pass | None) -> tuple[BatchPass, Array, Cut]:
        """A pass that begins, the input of all samples, and the micro-batches."""
        inputs = x
        if not isinstance(x, (np.ndarray, type(self.parameters.flat))):
            inputs = self.device.asarray(x, self.dtype if isinstance(x, (list, tuple)) else None)
        architecture = self.architecture
        architecture.check_input(inputs.shape)
        current = (
            BatchPass(self.parameters, architecture, []) if into is None else own_pass(into, self.parameters)
        )
        if not isinstance(current, BatchPass):
            raise PassError("the pass belongs to a network without micro-batches: use a pass of this network")
        if current.architecture is not architecture:  # the pass is older than the masks, or the mode
            current.architecture, current.parts = architecture, []
        current.output, current.input = None, inputs
        current.version = self.parameters.version
        return current, inputs, self.cut(len(inputs))

    def _through_all(
        self, current: BatchPass, inputs: Array, lengths: Any, cut: Cut, *, together: bool = True
    ) -> Iterator[tuple[int, Pass]]:
        """Run the forward pass of every micro-batch of this process, and yield its number and pass. Each
        micro-batch has a separate pass if `together`, else all use one pass."""
        if self.group is not None:
            self.group.share_choices()
        count = len(cut.samples)
        moves = self.training and bool(self.buffers)
        alone = count == 1 and self.group is None
        starts = [array.copy() for array in self.buffers.values()] if moves else []
        for place, number in enumerate(cut.numbers):
            index, samples = place if together else 0, cut.samples[number]
            if index == len(current.parts):
                current.parts.append(Pass(self.parameters, self.architecture, self._contexts()))
            part = current.parts[index]
            if place:
                for array, start in zip(self.buffers.values(), starts, strict=False):
                    array[...] = start
            own_lengths = None if lengths is None else np.asarray(self.device.to_host(lengths))[samples]
            taken = begin(part, inputs[samples], own_lengths, None, current.keeps)
            for ctx in part.layers:
                ctx.first_sample = samples.start
            part.output = self._through(part, taken)
            if moves and not alone:
                # Add the move of the running statistics, weighted by samples. Of a single micro-batch, add
                # the statistics themselves.
                share = self.dtype.type((samples.stop - samples.start) / sum(cut.counts))
                moved = [
                    array.reshape(-1) if count == 1 else (array - start).reshape(-1) * share
                    for array, start in zip(self.buffers.values(), starts, strict=True)
                    if array.dtype == self.dtype
                ]
                self._buffer_sum().add(number, self.device.xp.concatenate(moved))
            yield number, part
        if moves and not alone:
            # Every rank gets the running statistics of all micro-batches.
            total, first = self._buffer_sum().finish(count), 0
            for array, start in zip(self.buffers.values(), starts, strict=True):
                if array.dtype != self.dtype:  # the number of batches
                    array[...] = start + 1
                    continue
                move = total[first : first + array.size].reshape(array.shape)
                array[...] = move if count == 1 else start + move
                first += array.size
        del current.parts[len(cut.numbers) if together else 1 :]
        if not together:
            current.output = current.parts[0].output if current.parts else None
        self.random_state["passes"] += self.training

    # ---- what is agreed ----

    def _buffer_sum(self) -> TreeSum:
        return self._sum("buffers", sum(a.size for a in self.buffers.values() if a.dtype == self.dtype))

    def _sum(self, name: str, size: int) -> TreeSum:
        """The sums of this name, of `size` values."""
        if (name, size) not in self._sums:
            self._sums[name, size] = TreeSum(self.group, self.device, self.dtype, size)
        return self._sums[name, size]

    def _gathered(self, outputs: list[Array], shape: tuple[int, ...], cut: Cut) -> Array:
        """The rows of all micro-batches, on every rank."""
        if len(cut.samples) == len(outputs) == 1 and self.group is None:
            return outputs[0]
        start = cut.read.start
        rows = self.device.empty((cut.read.stop - start, *shape[1:]), self.dtype)
        for array, number in zip(outputs, cut.numbers, strict=True):
            rows[cut.samples[number].start - start : cut.samples[number].stop - start] = array
        if self.group is None:
            return rows
        result = self.device.empty(shape, self.dtype)
        self.group.allgather(rows, result, cut.counts)
        return result


# ---- sums of numbered terms by a binary tree: their bits do not depend on which rank holds which terms ----


class Node(NamedTuple):
    """The sum of terms `start` to `start + length - 1`; `length` is a power of two, and divides `start`."""

    start: int
    length: int

    def joins(self, after: Node) -> bool:
        """Whether this node and the one after it make a larger node."""
        return self.length == after.length and self.start % (2 * self.length) == 0


def nodes_of(terms: range) -> list[Node]:
    """The largest nodes that consecutive terms consist of."""
    nodes, start = [], terms.start
    while start < terms.stop:
        length = start & -start or 1 << terms.stop.bit_length()
        while start + length > terms.stop:
            length //= 2
        nodes.append(Node(start, length))
        start += length
    return nodes


def shares(count: int, ranks: int) -> list[range]:
    """Split `count` items over ranks, in order: sizes differ by one at most, and the first is the largest."""
    return [range(start, stop) for start, stop in pairwise(-(-count * r // ranks) for r in range(ranks + 1))]


class TreeSum:
    """Sums of numbered terms, arrays of `size` values, over this process or all ranks of a group.

    Terms are joined by a binary tree over their numbers: two nodes of 2^k terms whose first number is a
    multiple of 2^(k + 1) make a node of 2^(k + 1) terms, and the remaining nodes are added from the right.
    Law: the bits of the sum do not depend on which rank holds which term.

    Every rank gathers the nodes of all ranks, about `BLOCK` bytes of each at a time, and adds them.
    """

    def __init__(self, group: Group | None, device: Device, dtype: np.dtype, size: int) -> None:
        self._group, self._device, self._dtype, self.size = group, device, dtype, size
        self._spare: list[Array] = []
        self._stack: list[tuple[Node, Array]] = []

    def add(self, number: int, term: Array) -> None:
        """Add a term of this rank, (size,). The numbers of terms rise from call to call."""
        node, sums = Node(number, 1), term
        while self._stack and self._stack[-1][0].joins(node):
            before, left = self._stack.pop()
            left += sums
            if sums is not term:
                self._spare.append(sums)
            node, sums = Node(before.start, 2 * before.length), left
        if sums is term:
            sums = self._spare.pop() if self._spare else self._device.empty((self.size,), self._dtype)
            sums[...] = term
        self._stack.append((node, sums))

    def finish(self, terms: int) -> Array:
        """(size,) the sum of terms 0 to `terms` - 1, on every rank, up to the next `add`; collective."""
        nodes, self._stack = self._stack, []
        self._spare.extend(array for _, array in nodes)
        if self._group is None:
            return _join(nodes)
        if not self._spare:
            self._spare.append(self._device.empty((self.size,), self._dtype))
        of_ranks = [nodes_of(part) for part in shares(terms, self._group.size)]
        result, length = self._spare[-1], BLOCK // self._dtype.itemsize
        for start in range(0, self.size, length):
            span = slice(start, min(start + length, self.size))
            rows = self._device.empty((len(nodes), span.stop - start), self._dtype)
            for row, (_, array) in zip(rows, nodes, strict=True):
                row[...] = array[span]
            every = self._device.empty((sum(map(len, of_ranks)), span.stop - start), self._dtype)
            self._group.allgather(rows, every, list(map(len, of_ranks)))
            result[span] = _join(list(zip(chain.from_iterable(of_ranks), every, strict=True)))
        return result


def _join(nodes: list[tuple[Node, Array]]) -> Array:
    """The sum of consecutive nodes from term 0 on, in the array of the first node."""
    stack: list[tuple[Node, Array]] = []
    for node, array in nodes:
        while stack and stack[-1][0].joins(node):
            before, sums = stack.pop()
            sums += array
            node, array = Node(before.start, 2 * before.length), sums
        stack.append((node, array))
    while len(stack) > 1:
        _, last = stack.pop()
        stack[-1][1][...] += last
    return stack[0][1]
