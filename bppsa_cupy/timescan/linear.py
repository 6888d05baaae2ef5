"""The passes of a linear scan on a device's arrays: serially, or by reduce, carry and walk over chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array, Device, rules
from bppsa_cupy.devices.autotune import rounded
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.timescan.ways import Choice

#: Chunks of a scan that a caller asks for, and the fewest steps of a chunk.
MOST_CHUNKED = 16


@lru_cache(maxsize=16)
def nothing(device: Device, dtype: Any, steps: int | None = None) -> Array:
    """An array without elements, (0,) or (0, T)."""
    return device.empty(0 if steps is None else (0, steps), dtype)


@lru_cache(maxsize=16)
def no_state(device: Device, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Zeros, which nothing writes to."""
    return device.zeros(shape, dtype)


@dataclass
class Known:
    """The choices that a device remembers for scans of one kind.

    They are the methods of "forward" and "backward", and the launches of walks, by name and scalars.
    """

    choices: dict[str, Choice] = field(default_factory=dict)
    launches: dict[tuple[str, tuple[int, ...]], Callable[..., None]] = field(default_factory=dict)


@dataclass(slots=True)
class LinearScan:
    """h_t = a_t h_{t-1} + b_t of arrays of real numbers, of which complex ones are pairs.

    a        (B or 1, T or 1, W)
    batch, steps, width  those of b, W reals a step
    lengths  (B,) int64, where each sample ends
    resets   (B or 1, T) uint8, where a is 0; (0, T) where it never is
    paired   whether numbers are complex
    reverse  whether the scan goes from the last step to the first
    method, chunk  "auto", "serial" or "chunked", and the steps of a chunk, by default that of the rules
    known    what the device remembers of such scans

    Law: every method and chunk length gives the same values up to rounding. Where what comes to a chunk is
    not finite, as where a product left the range and the state might not have, the scan is run again
    serially; a flag on the device decides that, and the host waits for nothing.
    """

    device: Device
    a: Array
    batch: int
    steps: int
    width: int
    lengths: Array
    resets: Array
    paired: bool
    reverse: bool
    method: str = "auto"
    chunk: int | None = None
    known: Known = field(init=False)

    def __post_init__(self) -> None:
        device = self.device
        key = (
            LinearScan, self.a.dtype, self.a.shape, self.batch, self.steps, self.width, self.resets.shape[0],
            self.paired, self.reverse, self.method, self.chunk, device.workers,
            device.choices.version,
        )  # fmt: skip
        self.known = device.remember(key, Known)

    @property
    def read(self) -> tuple[Array, ...]:
        """The arrays that every pass reads."""
        return self.a, self.lengths, self.resets

    def forward(self, b: Array, initial: Array, h: Array, *, transposed: bool = False) -> None:
        """Fill h with the states (B, T, W) from `initial` (B, W) on; where `transposed`, with those of the
        transpose, which goes the other way: g_t = b_t + a_{t+1} g_{t+1}."""
        descending = self.reverse != transposed
        choice = self.forward_choice

        def walk(start: Array, chunk: int, chunks: int, wanted: Array | None) -> Callable[[], None]:
            arrays = self.a, b, start, self.lengths, self.resets, self._or_none(wanted), h
            scalars = (
                *self._sizes(chunk, chunks), self.paired, False, descending, transposed, wanted is not None,
            )  # fmt: skip
            return self._bound("linear_scan_forward", arrays, scalars)

        self._run(choice, b, initial, transposed, False, walk)

    def _reduce(self, b: Array, out: Sequence[Array], chunk: int, transposed: bool, conjugate: bool) -> None:
        """Fill the products of the factors of each chunk and its ends from a state of 0, (chunks, B, W)
        each."""
        sizes, descending = self._sizes(chunk, len(out[0])), self.reverse != transposed
        self.device.launch(
            KERNELS["linear_scan_reduce"], self.a, b, self.lengths, self.resets, *out, *sizes, self.paired,
            conjugate, descending, transposed,
        )  # fmt: skip

    def _carry(self, product: Array, end: Array, first: Array, start: Array, transposed: bool) -> None:
        """Fill `start` (chunks, B, W), what comes to each chunk, from their products and ends, and what comes
        to the first of them in the scan's direction."""
        self.device.launch(
            KERNELS["linear_scan_carry"], product, end, first, start, len(product), first.size, self.paired,
            self.reverse != transposed,
        )  # fmt: skip

    def over_ranges(
        self,
        b: Array,
        first: Array,
        own: Sequence[Array],
        every: Sequence[Array],
        gather: Callable[[Array, Array], None],
        *,
        transposed: bool = False,
    ) -> Array:
        """What comes to each of the ranges of steps of which one is here, (ranges, B, W), from what comes to
        the first of them in the scan's direction.

        own     for the product and the end of this range, (1, B, W) each
        every   for the products and ends of all ranges, and the result, (ranges, B, W) each
        gather  fills an array of all ranges from that of the one here
        """
        self._reduce(b, own, max(1, self.steps), transposed, transposed)
        product, end, start = every
        for one, all_of in zip(own, (product, end), strict=True):
            gather(one, all_of)
        self._carry(product, end, first, start, transposed)
        return start

    def backward(
        self,
        h: Array,
        initial: Array,
        gradient: Array,
        by_a_out: Array,
        by_b: Array,
        by_initial: Array,
        incoming: Array | None = None,
    ) -> None:
        """Fill the gradients with respect to a (of a's shape), b (B, T, W) and the first state (B, W), from
        that with respect to h, and from what is `incoming` behind the last step, (B, W), zeros without it."""
        device, each, descending = self.device, self.a.shape[1] == self.steps, not self.reverse
        whole = each and self.a.shape[0] == self.batch
        choice = self.backward_choice
        by_a: list[Array] = []

        def walk(start: Array, chunk: int, chunks: int, wanted: Array | None) -> Callable[[], None]:
            if not by_a:
                rows = self.steps if each else chunks
                by_a.append(by_a_out if whole else device.empty((self.batch, rows, self.width), h.dtype))
            if wanted is not None and not each:
                # A walk of one chunk leaves the sums of all in its place.
                by_a.append(device.zeros((self.batch, 1, self.width), h.dtype))
            arrays = (
                self.a, h, initial, gradient, start, self.lengths, self.resets, self._or_none(wanted), by_b,
                by_a[-1], by_initial,
            )  # fmt: skip
            scalars = (
                *self._sizes(chunk, chunks), self.paired, True, descending, each, wanted is not None,
            )  # fmt: skip
            return self._bound("linear_scan_backward", arrays, scalars)

        last = no_state(device, initial.shape, h.dtype) if incoming is None else incoming
        flag = self._run(choice, gradient, last, True, True, walk)
        if whole:
            return
        found = by_a[0]
        if not each:
            found = found.sum(axis=1, keepdims=True)
            if len(by_a) > 1:
                assert flag is not None
                found = device.xp.where(flag != 0, by_a[1], found)
        by_a_out[...] = found.sum(axis=0, keepdims=True) if self.a.shape[0] != self.batch else found

    @property
    def forward_choice(self) -> Choice:
        """How `forward` goes, and why."""
        return self._choice("forward")

    @property
    def backward_choice(self) -> Choice:
        """How `backward` goes, and why."""
        return self._choice("backward")

    def _choice(self, verb: str) -> Choice:
        choices = self.known.choices
        if verb not in choices:
            choices[verb] = self._choose(verb)
        return choices[verb]

    def _choose(self, verb: str) -> Choice:
        """Serially or by chunks: as asked for, by the rules, or on a GPU as measured."""
        device, steps, itemsize = self.device, max(1, self.steps), self.a.dtype.itemsize
        on_host = device.shared_bytes is None
        rule = rules.scan_chunk(on_host, device.workers, self.batch, steps, self.width, itemsize)
        length = self.chunk or rule or max(MOST_CHUNKED, -(-steps // MOST_CHUNKED))
        if self.method == "serial":
            return Choice("serial", steps, 1, "as asked for")
        if length >= steps:
            return Choice("serial", steps, 1, "one chunk")
        if self.method == "chunked":
            return Choice("chunked", length, -(-steps // length), "as asked for")
        if self.chunk is not None:
            rule = self.chunk
        tried = {"serial": 0, **{f"chunks of {one}": one for one in (length // 4, length, 4 * length)}}
        tried = {name: one for name, one in tried.items() if not one or MOST_CHUNKED <= one <= steps // 2}
        ways = {name: partial(self._scratch, verb, one) for name, one in tried.items()}
        key = (
            f"linear scan {verb} B{rounded(self.batch)} T{rounded(steps)} W{self.width} "
            f"a{self.a.shape[1] > 1} f{8 * itemsize} pairs{self.paired} resets{self.resets.shape[0] > 0}"
        )
        way = device.choices.choose(key, ways, "serial" if rule is None else f"chunks of {rule}")
        why = f"measured on {device.name}" if device.tunes else f"the rule for {device.name}"
        chunk = tried.get(way, rule) or steps
        return Choice("chunked" if chunk < steps else "serial", chunk, -(-steps // chunk), why)

    def _scratch(self, verb: str, chunk: int) -> Callable[[], None]:
        """A scan of these sizes over arrays of its own."""
        device, dtype, shape = self.device, self.a.dtype, (self.batch, self.steps, self.width)
        a, x, y = device.zeros(self.a.shape, dtype), device.zeros(shape, dtype), device.empty(shape, dtype)
        first, last = (device.zeros((self.batch, self.width), dtype) for _ in range(2))
        lengths = device.asarray(np.full(self.batch, self.steps, np.int64))
        resets = device.zeros(self.resets.shape, np.uint8)
        scan = LinearScan(
            device, a, self.batch, self.steps, self.width, lengths, resets, self.paired, self.reverse,
            "chunked" if chunk else "serial", chunk or None,
        )  # fmt: skip
        if verb == "forward":
            return lambda: scan.forward(x, first, y)
        by_a = device.empty(self.a.shape, dtype)
        return lambda: scan.backward(x, first, x, by_a, y, last)

    def _bound(self, name: str, arrays: tuple[Array, ...], scalars: tuple[int, ...]) -> Callable[[], None]:
        """The launch of a kernel on arrays, checked where one of such scalars and numbers has not been."""
        launches, key = self.known.launches, (name, scalars)
        launch = launches.get(key)
        if launch is None:
            kernel = KERNELS[name]
            names = [parameter.name for parameter in kernel.parameters if parameter.is_array]
            launch = launches[key] = self.device.bind_open(kernel, names, *arrays, *scalars)
        return partial(launch, *arrays)

    def _sizes(self, chunk: int, chunks: int) -> tuple[int, ...]:
        return (
            self.batch, self.steps, self.width, *self.a.shape[:2], self.resets.shape[0], chunk, chunks,
        )  # fmt: skip

    def _or_none(self, wanted: Array | None) -> Array:
        return nothing(self.device, np.int32) if wanted is None else wanted

    def _run(
        self,
        choice: Choice,
        b: Array,
        initial: Array,
        transposed: bool,
        conjugate: bool,
        walk: Callable[[Array, int, int, Array | None], Callable[[], None]],
    ) -> Array | None:
        """Walk as was chosen; gives the flag that tells whether it was done again serially, if any."""
        device, chunk, chunks = self.device, choice.chunk, choice.chunks
        if choice.method == "serial":
            walk(initial, chunk, 1, None)()
            return None
        shape = chunks, *initial.shape
        product, end, start = (device.empty(shape, b.dtype) for _ in range(3))
        flag = device.zeros(1, np.int32)
        self._reduce(b, (product, end), chunk, transposed, conjugate)
        self._carry(product, end, initial, start, transposed)
        device.launch(KERNELS["finite_check"], start, flag, start.size)
        walk(start, chunk, chunks, None)()
        walk(initial, max(1, self.steps), 1, flag)()
        return flag
