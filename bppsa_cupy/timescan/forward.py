"""How a walk goes forward in time: serially, or all chunks at once, of an affine cell exactly, of others by
Newton's iteration."""

from __future__ import annotations

from bppsa_cupy.devices import Device, Launch
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.timescan import serial
from bppsa_cupy.timescan.affine import AffineForward
from bppsa_cupy.timescan.choice import choose_walk
from bppsa_cupy.timescan.newton import NewtonForward
from bppsa_cupy.timescan.sizes import StackSize, WalkSize
from bppsa_cupy.timescan.walk import Walk


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

    method  "serial", "newton", "quasi-newton", of an affine cell "chunked", or "auto": serial on the host;
            on a GPU the quickest of the serial pass and "newton", or "chunked", as measured
    free    bytes that going by chunks may take; by default all the device has

    Raises DeviceError with the bytes needed and free where no chunk length of a named method fits.
    """

    def scratch(walk: Walk, length: int) -> Launch:
        if not length:
            return serial.forward(device, walk)
        return (AffineForward if size.cell.affine else NewtonForward)(device, walk, length)

    free = device.free_memory() if free is None else free
    way = method if method in ("auto", "serial") else "chunked"
    choice = choose_walk(device, size, "forward", way, free=free, needed=size.newton_bytes, make=scratch)
    if choice.method == "serial":
        return 0, choice.reason
    if size.newton_bytes(choice.chunk) > free:
        over = "a pass by" if size.cell.affine else "Newton's iteration over"
        raise DeviceError(
            f"{device.name}: {over} chunks of {choice.chunk} takes {size.newton_bytes(choice.chunk)} bytes, "
            f"{free} are free for it: take forward_method='serial', or a smaller batch"
        )
    return choice.chunk, choice.reason


def check_forward(device: Device, sizes: StackSize, method: str, taken: int) -> None:
    """Raise DeviceError, with the bytes needed and free, where a block takes more shared memory than there
    is, or the iterations that `method` asks for will not fit beside `taken` bytes that a stack has yet to
    take."""
    serial.check_shared(device, sizes.walk)
    if method not in ("serial", "auto"):
        free = (device.free_memory() - taken) // (sizes.layers * sizes.directions)
        choose_forward(device, sizes.walk, method, max(0, free))
