"""Streams and events of the stand-in for CuPy: what a stream does asynchronously is done late, and a graph's
nodes run in the order that differs most from that of their launches."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any
from weakref import WeakValueDictionary

from cupy_stub_memory import OF_RUNTIME, CUDARuntimeError, Memory
from graph_capture import Capture, Capturing, Mark


class Graph:
    """A captured graph."""

    #: Those of this session, in order.
    made: list[Graph] = []  # noqa: RUF012

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        Graph.made.append(self)

    def launch(self, stream: Stream) -> None:
        """Run the nodes, of those that may run the one that was launched last."""
        waiting = dict(enumerate(map(set, self.capture.before)))
        while waiting:
            number = max(number for number, before in waiting.items() if not before & waiting.keys())
            del waiting[number]
            self.capture.nodes[number]()


class Stream(Capturing):
    """A stream; while it captures, launches are kept and not run."""

    current: list[Stream] = []  # noqa: RUF012  the stack of entered streams

    made: WeakValueDictionary[int, Stream] = WeakValueDictionary()  # noqa: RUF012  by address

    def __init__(self, non_blocking: bool = False) -> None:
        super().__init__()
        Memory.allocate(OF_RUNTIME)
        self.synchronized = 0
        #: Asynchronous work in its order, each with a method `poll`: goes on, and tells whether it is done.
        self.work: deque[Any] = deque()
        self.done = 0
        self.ptr = id(self)
        Stream.made[self.ptr] = self

    def __enter__(self) -> Stream:
        Stream.current.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        Stream.current.pop()

    def is_capturing(self) -> bool:
        return self.capture is not None

    def record(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def end_capture(self) -> Graph:
        broken = self.capture.broken
        try:
            made = self.ended()
        except AssertionError as error:
            raise CUDARuntimeError("cudaErrorStreamCaptureUnjoined") from error
        if broken:
            raise CUDARuntimeError("cudaErrorStreamCaptureInvalidated")
        Memory.allocate(OF_RUNTIME)
        return Graph(made)

    def synchronize(self) -> None:
        self.refuse_in_capture("cudaStreamSynchronize")
        self.synchronized += 1
        while self.work:
            Stream.go_on()

    def refuse_in_capture(self, call: str) -> None:
        """Raise, and break the capture, as CUDA does where no graph can hold `call`."""
        if self.capture is not None:
            self.capture.broken = True
            raise CUDARuntimeError(f"cudaErrorStreamCaptureUnsupported: {call}")

    def wait_event(self, event: Event) -> None:
        """Work on the current stream runs when it is launched, so the wait is over before it goes on."""
        if event.mark.wait(self):
            return
        self.refuse_in_capture("a wait for an event outside of the capture (cudaErrorStreamCaptureIsolation)")
        if self is not Stream.current[-1]:
            self.work.append(SimpleNamespace(poll=event.is_done))
            return
        while not event.done:
            pass

    @staticmethod
    def go_on() -> None:
        """All streams do what they can."""
        for stream in list(Stream.made.values()):
            while stream.work and stream.work[0].poll():
                stream.work.popleft()
                stream.done += 1


Memory.refuse_in_capture = lambda call: Stream.current[-1].refuse_in_capture(call) if Stream.current else None


class ExternalStream(Stream):
    """A stream that another library has made, by its address; CuPy 14 warns of it (`StreamOf14`)."""

    def __init__(self, ptr: int) -> None:
        super().__init__()
        self.ptr = ptr


class StreamOf14(Stream):
    """A stream of CuPy 14 and newer."""

    @classmethod
    def from_external(cls, obj: Any) -> Stream:
        version, address = obj.__cuda_stream__()
        assert version == 0 and type(address) is int
        return ExternalStream(address)


class Event:
    """An event, timed by the order of records: one millisecond between two of them."""

    recorded = 0

    def __init__(self, disable_timing: bool = False) -> None:
        Memory.allocate(OF_RUNTIME)
        self.time = 0

    def record(self, stream: Stream | None = None) -> None:
        Event.recorded += 1
        self.time = Event.recorded
        self._stream = stream or Stream.current[-1]
        self.mark = Mark(self._stream)
        self._behind = self._stream.done + len(self._stream.work)

    def is_done(self) -> bool:
        assert self.time, "an event is asked about that was not recorded"
        assert self._stream.capture is None, "an event of a capture is never done"
        return self._stream.done >= self._behind

    @property
    def done(self) -> bool:
        if not self.is_done():
            Stream.go_on()
        return self.is_done()

    def synchronize(self) -> None:
        while not self.done:
            pass
