"""What a backward pass over time costs, serially and by chunks, and the chunk length to take."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bppsa_cupy.devices import Device
from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.frames.kernels import REDUCTION_WIDTH
from bppsa_cupy.raw_kernels.twins.reduce import MAXIMAL_STATE
from bppsa_cupy.timescan.sizes import WalkSize


@dataclass(frozen=True)
class TimeModel:
    """A processor in the numbers that a scan over time depends on.

    workers             multiprocessors, or threads
    serial_step         seconds of a step of a serial pass whatever its size: barriers, latencies
    serial_rate         multiply-adds a second of one worker's serial pass, each of `lanes` samples at once
    lanes               samples that one walk takes along
    reduce_rate         multiply-adds a second of one worker's reduction, of states beyond registers where
                        `issue_rate` is given
    issue_rate          instructions a second that each of a worker's 4 schedulers issues; 0: no such count
    latency             seconds of a reduction's step that one warp a scheduler does not hide
    scan_step, scan_rate  seconds of a chunk in the scan over boundaries, and its multiply-adds a second
    launch              seconds of a launch
    check               seconds until the host knows whether all boundaries are finite
    """

    name: str
    workers: int
    serial_step: float
    serial_rate: float
    lanes: int
    reduce_rate: float
    issue_rate: float
    latency: float
    scan_step: float
    scan_rate: float
    launch: float
    check: float


#: Instructions a warp issues in a serial step at H = 20, less 20: so many, and so many a gate. A unit of H
#: is one more.
WALKED, WALKED_GATE = 30, 50
#: Threads a worker runs at once where each of its 4 schedulers has one warp.
ONE_WARP_EACH = 128


def issued(cell: CellForm) -> float:
    """Instructions a warp issues in a reduction's step back of the columns its threads hold: multiply-adds of
    every column, and what a gate adds to every entry. (Compiled for sm_90 in float32: 2290 for an RNN, 4660
    for a GRU, 5650 for an LSTM; this is within 4 % of them.)"""
    return REDUCTION_WIDTH**2 * (cell.columns * cell.states + 2.65 * cell.gates) - 300


#: `cuda`: an H200 at 1.7 GHz; a block of the serial pass does a step in two barriers and one dot product.
#: `host`: a core at some 4 GHz with registers of 16 float32.
MODELS = {
    "cuda": TimeModel(
        name="cuda",
        workers=132,
        serial_step=8e-8,
        serial_rate=2e10,
        lanes=1,
        reduce_rate=4e10,
        issue_rate=1.7e9,
        latency=4.5e-7,
        scan_step=1.2e-7,
        scan_rate=1e10,
        launch=5e-6,
        check=2e-5,
    ),
    "host": TimeModel(
        name="host",
        workers=2,
        serial_step=1e-8,
        serial_rate=3.8e9,
        lanes=16,
        reduce_rate=8e9,
        issue_rate=0.0,
        latency=0.0,
        scan_step=0.0,
        scan_rate=1.5e9,
        launch=5e-6,
        check=0.0,
    ),
}


def model_of(device: Device) -> TimeModel:
    """The model of `device`, with its own number of workers; one without its own is taken for the host."""
    base = MODELS.get(device.name, MODELS["host"])
    return replace(base, workers=device.workers)


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


def serial_seconds(model: TimeModel, size: WalkSize, chunks: int = 1) -> float:
    """The serial pass, or with `chunks` the expansion of that many chunks at once."""
    cell, hidden = size.cell, size.units
    work = cell.gates * hidden * hidden
    walks = -(-chunks * size.heads * -(-size.batch // model.lanes) // model.workers)
    step = model.serial_step + work / model.serial_rate
    if model.issue_rate:
        warps = walks * -(-cell.gates * hidden // 32)
        step = max(step, warps * (WALKED + WALKED_GATE * cell.gates + hidden) / (4 * model.issue_rate))
    else:
        step *= walks
    return size.chunks(chunks) * step + model.launch


def reduce_seconds(model: TimeModel, size: WalkSize, chunk: int) -> float:
    """The products of the Jacobians of every chunk but the first."""
    cell, hidden, maps = size.cell, size.units, (size.chunks(chunk) - 1) * size.walks
    if model.issue_rate and hidden <= REDUCTION_WIDTH:
        threads = maps * -(-size.state // cell.columns)
        warps = -(-threads // (model.workers * ONE_WARP_EACH))
        issue = issued(cell) / model.issue_rate
        return chunk * max(issue + model.latency, warps * issue)
    # Blocks of a GPU go through W_hh for every column; the host's twins form a step's Jacobian first.
    work = size.state * hidden * (cell.gates * hidden if model.issue_rate else hidden + 16)
    return chunk * max(hidden * model.latency / 10, -(-maps // model.workers) * work / model.reduce_rate)


def scan_seconds(model: TimeModel, size: WalkSize, chunks: int) -> float:
    """The gradients at the boundaries of chunks."""
    rounds = -(-size.walks // (8 * model.workers))
    return (chunks - 1) * (model.scan_step + size.state * size.state / model.scan_rate) * rounds


def chunked_seconds(model: TimeModel, size: WalkSize, chunk: int) -> float:
    """Reduce, scan, look at the boundaries, expand."""
    chunks = size.chunks(chunk)
    return (
        reduce_seconds(model, size, chunk)
        + scan_seconds(model, size, chunks)
        + serial_seconds(model, size, chunks)
        + 3 * model.launch
        + model.check
    )


def choose(
    model: TimeModel,
    size: WalkSize,
    *,
    method: str = "auto",
    chunk: int | None = None,
    free: int | None = None,
) -> Choice:
    """The way a backward pass is run.

    method  "auto" takes what is predicted to be quicker, "serial" and "chunked" are taken as they are,
            but for states above MAXIMAL_STATE and sequences of one step, which go serially
    chunk   its length, else the one predicted to be the quickest
    free    bytes the pass may take; chunk lengths that need more are left out where there are others
    """
    serial = serial_seconds(model, size)

    def serially(reason: str) -> Choice:
        return Choice("serial", size.steps, 1, serial, serial, reason)

    if method == "serial":
        return serially("as asked for")
    if size.state > MAXIMAL_STATE:
        return serially(f"maps of {size.state} x {size.state} are beyond the kernels' {MAXIMAL_STATE}")
    if size.steps < 2 or (chunk is not None and chunk >= size.steps):
        return serially("one chunk")
    lengths = [chunk] if chunk is not None else list(size.chunk_lengths())
    if free is not None:
        lengths = [c for c in lengths if size.chunk_bytes(c) <= free] or lengths[-1:]
    times = {c: chunked_seconds(model, size, c) for c in lengths}
    best = min(times, key=lambda c: times[c])
    if method == "auto" and times[best] >= serial:
        return serially(
            f"predicted {serial * 1e3:.3g} ms, {times[best] * 1e3:.3g} ms by chunks of {best} on {model.name}"
        )
    reason = "as asked for" if method == "chunked" else f"the quickest predicted on {model.name}"
    return Choice("chunked", best, size.chunks(best), times[best], serial, reason)
