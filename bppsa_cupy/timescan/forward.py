"""How a walk goes forward in time: serially, or all chunks at once, of an affine cell exactly, of others by
Newton's iteration."""

from __future__ import annotations

from bppsa_cupy.devices import Device
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.processors.models import model_of
from bppsa_cupy.processors.sizes import StackSize, WalkSize
from bppsa_cupy.timescan import cost, serial
from bppsa_cupy.timescan.affine import AffineForward
from bppsa_cupy.timescan.newton import NewtonForward
from bppsa_cupy.timescan.walk import Walk

#: Iterations a contracting network takes, by which the cost of the way is predicted.
EXPECTED_ITERATIONS = 6


class TimeForward:
    """A forward pass of one walk, bound to its arrays: calling it fills `state`, `gates` and `final`.

    method, free  those of `choose_forward`
    """

    def __init__(self, device: Device, walk: Walk, method: str, free: int) -> None:
        chunk, self._reason = choose_forward(device, walk.size, method, free)
        self._chunked: NewtonForward | None = None
        if chunk and walk.size.cell.affine:
            self._chunked = AffineForward(device, walk, chunk)
        elif chunk:
            self._chunked = NewtonForward(device, walk, chunk, diagonal=method == "quasi-newton")
        self._call = self._chunked or serial.forward(device, walk)
        #: Bytes that it takes.
        self.nbytes = walk.size.newton_bytes(chunk) if chunk else 0

    def __call__(self) -> None:
        self._call()

    @property
    def iterates(self) -> bool:
        """Whether it goes by chunks, and the host waits for what that comes to."""
        return self._chunked is not None

    @property
    def description(self) -> str:
        """What the latest call ran, and why."""
        ran = f"serial{serial.told(self._call)}" if self._chunked is None else self._chunked.description
        return f"{ran} ({self._reason})"


def choose_forward(
    device: Device, size: WalkSize, method: str = "auto", free: int | None = None
) -> tuple[int, str]:
    """The chunk length of a forward pass by chunks, and why; 0 for the serial pass.

    method  "serial", "newton", "quasi-newton", of an affine cell "chunked", or "auto": whichever of "serial"
            and "newton", or "chunked", the cost model takes to be quicker
    free    bytes that going by chunks may take; by default all the device has

    The chunk length taken is the one predicted to be the quickest of those that fit into `free`. Raises
    DeviceError with the bytes needed and free where an iteration is asked for and no chunk length fits.
    """
    if method == "serial":
        return 0, "as asked for"
    model = model_of(device)
    choice = cost.choose(model, size, method="chunked", verb="forward")
    if choice.method == "serial":
        return 0, choice.reason
    free = device.free_memory() if free is None else free
    lengths = {c: size.newton_bytes(c) for c in {*size.chunk_lengths(), choice.chunk}}
    fitting = [c for c, needed in lengths.items() if needed <= free]
    seconds = {c: cost.chunked_seconds(model, size, c, "forward") for c in fitting or [choice.chunk]}
    chunk = min(seconds, key=lambda c: seconds[c])
    if size.cell.affine:
        expected, way = cost.affine_seconds(model, size, chunk) * 1e3, f"chunks of {chunk}"
    else:
        expected = cost.newton_seconds(model, size, chunk, EXPECTED_ITERATIONS) * 1e3
        way = "Newton's iteration"
    serially = choice.serial_seconds * 1e3
    if method == "auto" and expected >= serially:
        return 0, f"predicted {serially:.3g} ms, {expected:.3g} ms by {way} on {model.label}"
    if not fitting:
        least = min(lengths, key=lambda c: lengths[c])
        over = "a pass by" if size.cell.affine else "Newton's iteration over"
        lack = (
            f"{over} chunks of {chunk} takes {lengths[chunk]} bytes, {free} are free for it, and "
            f"chunks of {least}, which take the fewest, {lengths[least]}"
        )
        if method == "auto":
            return 0, lack
        raise DeviceError(f"{device.name}: {lack}: take forward_method='serial', or a smaller batch")
    if method != "auto":
        longer = "" if chunk == choice.chunk else f", by chunks longer than {choice.chunk} for want of memory"
        return chunk, f"as asked for{longer}"
    return chunk, f"predicted {expected:.3g} ms, {serially:.3g} ms serially on {model.label}"


def check_forward(device: Device, sizes: StackSize, method: str, taken: int) -> None:
    """Raise DeviceError, with the bytes needed and free, where a block takes more shared memory than there
    is, or the iterations that `method` asks for will not fit beside `taken` bytes that a stack has yet to
    take."""
    serial.check_shared(device, sizes.walk)
    if method not in ("serial", "auto"):
        free = (device.free_memory() - taken) // (sizes.layers * sizes.directions)
        choose_forward(device, sizes.walk, method, max(0, free))
