"""Whether a pass over time goes serially or by chunks, and of which length."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from bppsa_cupy.devices import Device, rules
from bppsa_cupy.devices.autotune import rounded
from bppsa_cupy.raw_kernels.twins.scans.reduce import MAXIMAL_STATE
from bppsa_cupy.timescan.sizes import WalkSize
from bppsa_cupy.timescan.walk import Walk
from bppsa_cupy.timescan.ways import key_of, scratch_walk, shared_lack

#: Numbers of chunks that are tried on a GPU; the fewest steps of a walk that is tried by chunks, and by
#: Newton's iteration, for which the host waits; and the largest states, since products take H times a walk.
TRIED_CHUNKS = (25, 50, 100, rules.GPU_CHUNKS, 400, 800)
TRIED_STEPS, ITERATED_STEPS, TRIED_STATE, TRIED_ELEMENTS = 100, 5000, 256, 1 << 14


@dataclass(frozen=True)
class Choice:
    """How a pass over time is run.

    method   "serial" or "chunked"
    chunk    steps per chunk; T for the serial pass
    chunks   how many
    reason   why
    """

    method: str
    chunk: int
    chunks: int
    reason: str

    def __str__(self) -> str:
        if self.method == "serial":
            return f"serial ({self.reason})"
        return f"chunked, {self.chunks} chunks of {self.chunk} ({self.reason})"


def choose_walk(
    device: Device,
    size: WalkSize,
    verb: str,
    method: str,
    *,
    chunk: int | None = None,
    free: int | None = None,
    needed: Callable[[int], int],
    make: Callable[[Walk, int], Callable[[], None]],
    by_rule: bool = False,
) -> Choice:
    """The way a walk "forward" or "backward" is run.

    method  "serial" and "chunked" are taken as they are; "auto" is measured on a GPU, and follows the rules
            elsewhere. States above MAXIMAL_STATE, sequences of one step, and blocks that exceed the shared
            memory go serially
    chunk   its length, by default that of the rules
    free    bytes the pass may take; longer chunks are taken where they need fewer
    needed  bytes that a pass by chunks of a length takes
    make    binds the pass over a scratch walk by a chunk length, 0 for the serial pass
    by_rule  whether the rules take chunks for "auto"
    """

    def serially(reason: str) -> Choice:
        return Choice("serial", size.steps, 1, reason)

    if method == "serial":
        return serially("as asked for")
    if size.state > MAXIMAL_STATE:
        return serially(f"maps of {size.state} x {size.state} are beyond the kernels' {MAXIMAL_STATE}")
    if size.steps < 2 or (chunk is not None and chunk >= size.steps):
        return serially("one chunk")
    on_host = device.shared_bytes is None
    if method == "auto" and on_host:
        return serially(f"the rule for {device.name}")
    length = chunk
    if length is None:
        length = rules.chunk_length(on_host, size.steps)
        length = length if free is None else fitting(size, length, free, needed)
    if lack := shared_lack(device, size, verb, length):
        return serially(lack)
    if method != "auto":
        return Choice("chunked", length, size.chunks(length), "as asked for")
    lengths = {f"{chunks} chunks": -(-size.steps // chunks) for chunks in TRIED_CHUNKS}
    if chunk is not None:
        lengths = {f"chunks of {chunk}": chunk}
    tried = {"serial": 0}
    least = TRIED_STEPS if verb == "backward" or size.cell.affine else ITERATED_STEPS
    small = size.state <= TRIED_STATE and size.walks * size.state <= TRIED_ELEMENTS
    for name, one in lengths.items():
        fits = one < size.steps and (free is None or needed(one) <= free)
        if fits and small and size.steps >= least:
            tried[name] = one
    default = next((name for name in tried if name.startswith(f"{rules.GPU_CHUNKS} ")), "serial")
    ways = {name: partial(_bind, device, size, make, one) for name, one in tried.items()}
    key = key_of(f"{verb} over time", size, f"T{rounded(size.steps)}")
    way = device.choices.choose(key, ways, default if by_rule else "serial")
    why = f"measured on {device.name}" if device.tunes else f"the rule for {device.name}"
    if way == "serial":
        return serially(why)
    return Choice("chunked", tried[way], size.chunks(tried[way]), why)


def _bind(
    device: Device, size: WalkSize, make: Callable[[Walk, int], Callable[[], None]], chunk: int
) -> Callable[[], None]:
    return make(scratch_walk(device, size), chunk)


def fitting(size: WalkSize, length: int, free: int, needed: Callable[[int], int]) -> int:
    """The first of so many steps per chunk, twice, four times as many, … whose pass fits; the length where
    none does."""
    lengths: Iterable[int] = (length << k for k in range(size.steps.bit_length()))
    return next((one for one in lengths if one < size.steps and needed(one) <= free), length)
