"""How a linear scan is to be run, serially or by chunks of which length, by what either costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bppsa_cupy.processors.models import GpuModel, Processor
from bppsa_cupy.raw_kernels.twins.scans.linear_rows import LEAST_SHARED
from bppsa_cupy.timescan.cost import Choice

#: Of a thread of the host: bytes a second that it streams, seconds of a step of one group of lanes at least,
#: and bytes of a group. Of a GPU: seconds of a step of a thread, whose reads are under way for several steps.
STREAMED, HOST_STEP, GROUP_BYTES = 2e10, 2.5e-9, 64
GPU_STEP = 1e-7
#: Threads of a multiprocessor that have what they wait for under way.
RESIDENT = 1024


@dataclass(frozen=True)
class ScanSize:
    """A linear scan: samples, steps, and reals of a step; `bytes_read` and `bytes_written` a real and step,
    as of float32 forward 8 and 4."""

    batch: int
    steps: int
    width: int
    itemsize: int
    bytes_read: int
    bytes_written: int

    @property
    def elements(self) -> int:
        """Reals of the states."""
        return self.batch * self.steps * self.width

    def chunks(self, chunk: int) -> int:
        """How many chunks of so many steps there are, at least one."""
        return max(1, -(-self.steps // chunk))

    def chunk_lengths(self) -> Iterator[int]:
        """Lengths worth a trial."""
        length = 16
        while length < self.steps:
            yield length
            length *= 2


def walk_seconds(model: Processor, size: ScanSize, chunk: int, moved: int) -> float:
    """All chunks at once, `moved` bytes a real and step."""
    chunks = size.chunks(chunk)
    if isinstance(model, GpuModel):
        rounds = -(-chunks * size.batch * size.width // (model.workers * RESIDENT))
        traffic = size.batch * size.steps * size.width * moved / model.memory
        return max(traffic, min(chunk, size.steps) * GPU_STEP * rounds) + model.launch
    walks, groups = chunks * size.batch, max(1, -(-size.width * size.itemsize // GROUP_BYTES))
    cuts = max(1, min(groups, -(-model.workers // max(1, walks))))
    rounds = -(-walks * cuts // model.workers)
    step = max(HOST_STEP, size.width / cuts * moved / STREAMED)
    return min(chunk, size.steps) * step * rounds + model.launch


def chunked_seconds(model: Processor, size: ScanSize, chunk: int) -> float:
    """Reduce, carry, look at the boundaries, walk; after it comes the launch of a walk that as a rule is not
    wanted."""
    chunks = size.chunks(chunk)
    carry = chunks * size.batch * size.width * (1e-9 if not isinstance(model, GpuModel) else 0.0)
    return (
        walk_seconds(model, size, chunk, 2 * size.itemsize)
        + carry
        + (chunks * 2e-8 if isinstance(model, GpuModel) else 0.0)
        + walk_seconds(model, size, chunk, size.bytes_read + size.bytes_written)
        + 4 * model.launch
    )


def choose(model: Processor, size: ScanSize, *, method: str = "auto", chunk: int | None = None) -> Choice:
    """The way a linear scan is run: "auto" takes what is predicted to be quicker, "serial" and "chunked" are
    taken as they are, but for sequences of one chunk; `chunk` is its length, else the quickest."""
    moved = size.bytes_read + size.bytes_written
    serial = walk_seconds(model, size, max(1, size.steps), moved)

    def serially(reason: str) -> Choice:
        return Choice("serial", max(1, size.steps), 1, serial, serial, reason)

    if method == "serial":
        return serially("as asked for")
    if method == "auto" and not isinstance(model, GpuModel) and size.elements < LEAST_SHARED:
        return serially("few numbers are one thread's")
    groups = -(-size.width * size.itemsize // GROUP_BYTES)
    if method == "auto" and not isinstance(model, GpuModel) and size.batch * groups >= model.workers:
        return serially("every thread has samples or columns of its own")
    lengths = [chunk] if chunk is not None else list(size.chunk_lengths())
    lengths = [length for length in lengths if length < size.steps]
    if not lengths:
        return serially("one chunk")
    times = {length: chunked_seconds(model, size, length) for length in lengths}
    best = min(times, key=lambda length: times[length])
    if method == "auto" and times[best] >= serial:
        by_chunks = f"{times[best] * 1e3:.3g} ms by chunks of {best}"
        return serially(f"predicted {serial * 1e3:.3g} ms, {by_chunks} on {model.label}")
    reason = "as asked for" if method == "chunked" else f"the quickest predicted on {model.label}"
    return Choice("chunked", best, size.chunks(best), times[best], serial, reason)
