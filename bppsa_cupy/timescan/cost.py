"""How a pass back over time is to be run, serially or by chunks of which length, by what either costs."""

from __future__ import annotations

from dataclasses import dataclass

from bppsa_cupy.processors.models import Processor
from bppsa_cupy.processors.sizes import WalkSize
from bppsa_cupy.raw_kernels.twins.scans.reduce import MAXIMAL_STATE


@dataclass(frozen=True)
class Choice:
    """How a pass over time is run.

    method   "serial" or "chunked"
    chunk    steps a chunk; T for the serial pass
    chunks   how many
    seconds  predicted; `serial_seconds` of the serial pass
    reason   why
    """

    method: str
    chunk: int
    chunks: int
    seconds: float
    serial_seconds: float
    reason: str

    def __str__(self) -> str:
        if self.method == "serial":
            return f"serial ({self.reason})"
        return (
            f"chunked, {self.chunks} chunks of {self.chunk} (predicted {self.seconds * 1e3:.3g} ms, "
            f"{self.serial_seconds * 1e3:.3g} ms serially; {self.reason})"
        )


def chunked_seconds(model: Processor, size: WalkSize, chunk: int, verb: str = "backward") -> float:
    """Reduce, scan, look at the boundaries, expand: a pass back, or an iteration of Newton's "forward". The
    host waits for what the latter finds; after a pass back comes the launch of a walk that as a rule is not
    wanted."""
    chunks = size.chunks(chunk)
    return (
        model.reduce_seconds(size, chunk)
        + model.scan_seconds(size, chunks)
        + model.walk_seconds(size, verb, chunks)
        + 3 * model.launch
        + (model.launch if verb == "backward" else model.check)
    )


#: Walks in which boundaries settle after Newton's last iteration where the dynamics contract, and launches
#: of each of them; launches at the two ends of the pass.
SETTLING_WALKS, SETTLING_LAUNCHES, LAUNCHES_AT_ENDS = 2, 6, 12


def newton_seconds(model: Processor, size: WalkSize, chunk: int, iterations: int) -> float:
    """A forward pass by so many of Newton's iterations: these, the copies into chunks and back, and the walks
    in which boundaries settle, after each of which the host looks at them."""
    settling = (
        model.walk_seconds(size, "forward", size.chunks(chunk))
        + SETTLING_LAUNCHES * model.launch
        + model.check
    )
    return (
        iterations * chunked_seconds(model, size, chunk, "forward")
        + model.copy_seconds(size.newton_copied)
        + SETTLING_WALKS * settling
        + LAUNCHES_AT_ENDS * model.launch
    )


def affine_seconds(model: Processor, size: WalkSize, chunk: int) -> float:
    """A forward pass of an affine cell by chunks: reduce and scan between two walks, and the copies into
    chunks and back."""
    again = model.walk_seconds(size, "forward", size.chunks(chunk))
    copied = model.copy_seconds(size.newton_copied)
    return chunked_seconds(model, size, chunk, "forward") + again + copied + LAUNCHES_AT_ENDS * model.launch


def choose(
    model: Processor,
    size: WalkSize,
    *,
    method: str = "auto",
    chunk: int | None = None,
    free: int | None = None,
    verb: str = "backward",
) -> Choice:
    """The way a backward pass is run, or an iteration of a "forward" one.

    method  "auto" takes what is predicted to be quicker, "serial" and "chunked" are taken as they are,
            but for states above MAXIMAL_STATE, sequences of one step, and what a block's shared memory
            does not hold, which go serially
    chunk   its length, else the one predicted to be the quickest
    free    bytes the pass may take; chunk lengths that need more are left out where there are others
    """
    serial = model.walk_seconds(size, verb, 1)

    def serially(reason: str) -> Choice:
        return Choice("serial", size.steps, 1, serial, serial, reason)

    if method == "serial":
        return serially("as asked for")
    if size.state > MAXIMAL_STATE:
        return serially(f"maps of {size.state} x {size.state} are beyond the kernels' {MAXIMAL_STATE}")
    if size.steps < 2 or (chunk is not None and chunk >= size.steps):
        return serially("one chunk")
    lengths = [chunk] if chunk is not None else list(size.chunk_lengths())
    lacks = {c: model.lack(size, verb, c) for c in lengths}
    lengths = [c for c, lack in lacks.items() if lack is None]
    if not lengths:
        return serially(str(next(iter(lacks.values()))))
    if free is not None:
        lengths = [c for c in lengths if size.chunk_bytes(c) <= free] or lengths[-1:]
    times = {c: chunked_seconds(model, size, c, verb) for c in lengths}
    best = min(times, key=lambda c: times[c])
    if method == "auto" and times[best] >= serial:
        by_chunks = f"{times[best] * 1e3:.3g} ms by chunks of {best}"
        return serially(f"predicted {serial * 1e3:.3g} ms, {by_chunks} on {model.label}")
    reason = "as asked for" if method == "chunked" else f"the quickest predicted on {model.label}"
    return Choice("chunked", best, size.chunks(best), times[best], serial, reason)
