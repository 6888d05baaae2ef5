"""How launches on streams become a graph while CUDA captures them."""

from __future__ import annotations

from typing import Any


class Capture:
    """A graph in the making, or made.

    nodes   what was launched, in that order
    before  of each node the earlier ones that it waits for: the graph's edges
    broken  whether it was asked for what no graph holds
    """

    def __init__(self) -> None:
        self.broken = False
        self.nodes: list[Any] = []
        self.before: list[tuple[int, ...]] = []
        self._streams: list[Capturing] = []

    @property
    def edges(self) -> list[tuple[int, int]]:
        """From which node to which, by their numbers."""
        return [(first, number) for number, all_before in enumerate(self.before) for first in all_before]

    def end(self) -> None:
        """Let the streams go. Raises AssertionError where one was not joined to the first, as CUDA would."""
        for stream in self._streams:
            stream.capture = None
        waited = set(self._streams[0].waits_for)
        for number in reversed(range(len(self.nodes))):
            assert number in waited, f"node {number} is on a stream that was not joined"
            waited.update(self.before[number])

    def join(self, stream: Capturing, nodes: frozenset[int]) -> None:
        """Let what comes on `stream`, which is captured from now on, wait for these nodes too."""
        if stream.capture is None:
            stream.capture, stream.waits_for = self, frozenset()
            self._streams.append(stream)
        assert stream.capture is self, "a stream of one capture waits for another's event"
        stream.waits_for |= nodes


class Capturing:
    """A stream in a capture: which, None while there is none, and the nodes that its next one waits for."""

    def __init__(self) -> None:
        self.capture: Capture | None = None
        self.waits_for: frozenset[int] = frozenset()

    def begin_capture(self) -> None:
        Capture().join(self, frozenset())

    def add(self, node: Any) -> None:
        """Launch `node` into the capture."""
        assert self.capture is not None
        self.capture.before.append(tuple(sorted(self.waits_for)))
        self.waits_for = frozenset({len(self.capture.nodes)})
        self.capture.nodes.append(node)

    def ended(self) -> Capture:
        """End the capture that began on this stream; the graph."""
        made = self.capture
        assert made is not None
        made.end()
        return made


class Mark:
    """What an event that is recorded on a stream in a capture stands for."""

    def __init__(self, stream: Capturing) -> None:
        self._capture, self._nodes = stream.capture, stream.waits_for

    def wait(self, stream: Capturing) -> bool:
        """Let a stream wait for it; whether it was recorded in a capture."""
        if self._capture is None:
            return False
        self._capture.join(stream, self._nodes)
        return True
