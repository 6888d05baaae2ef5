"""What PyTorch's recurrent layers take on a GPU by published numbers, and what ours should take beside them.

`CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H` is what PyTorch takes of float32 and half input without packing and
projections up to some widths, and cuDNN's standard algorithm beyond. Its microseconds a step were published
with PyTorch's pull request 62143 (2021, landed again as 73211), which does not name the GPU: of V100's or
A100's time, so an H100 is taken to be 1.0 to 1.4 times as quick.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from bppsa_cupy.processors.models import H200
from bppsa_cupy.processors.sizes import SequenceProductSize, WalkSize
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.kernels import SPREAD
from bppsa_cupy.timescan import cost
from bppsa_cupy.timescan.forward import EXPECTED_ITERATIONS

#: By how much an H100 may be quicker than the GPU of the published numbers, at most.
QUICKER = 1.4
#: The widest layers that the persistent algorithm takes, forward and back.
WIDEST = {"rnn_tanh": (384, 256), "gru": (192, 128), "lstm": (192, 128)}
#: Microseconds a step of the persistent algorithm to these widths, least and most, forward and back. Those
#: that are not PUBLISHED lie between an RNN's and an LSTM's, or follow from them by the width.
PERSISTENT: dict[str, dict[int, tuple[float, float, float, float]]] = {
    "rnn_tanh": {80: (0.36, 0.44, 0.94, 1.1), 384: (0.5, 1.5, 1.3, 2.5)},
    "gru": {40: (0.45, 0.6, 1.0, 1.6), 128: (1.2, 2.3, 2.0, 3.6), 192: (2.0, 4.0, 3.0, 6.0)},
    "lstm": {40: (0.6, 0.6, 1.14, 1.64), 80: (1.0, 2.0, 1.8, 3.0), 128: (2.6, 2.6, 4.1, 4.1),
             192: (3.0, 5.0, 5.0, 8.0)},
}  # fmt: skip
PUBLISHED = {("rnn_tanh", 80), ("lstm", 40), ("lstm", 128)}
#: Those of the standard algorithm.
STANDARD = (7.0, 10.0, 9.0, 19.0)
#: Multiply-adds a second of our products over sequences, most and least: what the instructions of their loops
#: leave of the peak.
PRODUCTS = (4.5e12, 2.2e12)
#: How much longer than predicted cuBLAS may take for one.
BY_CUBLAS = 2.0
#: How much longer than counted a walk takes where four share a multiprocessor's shared memory, at most.
SHARED = 2.0

#: T, B and H of tables 4 to 6 of the paper, and of a grid.
CASES = [
    *(("rnn_tanh", T, 16, 20) for T in (10, 100, 1000, 10000, 30000)),
    *(("rnn_tanh", 1000, B, 20) for B in (4, 64, 256)),
    *(("gru", T, 16, 20) for T in (250, 510, 1034)),
    *((cell, 1000, B, H) for cell in PERSISTENT for H in (64, 128, 256, 512) for B in (1, 16, 64)),
]  # fmt: skip


class Range(NamedTuple):
    """Seconds, at least and at most."""

    least: float
    most: float

    def __add__(self, other: tuple[float, ...]) -> Range:  # type: ignore[override]
        return Range(self.least + other[0], self.most + other[1])


def theirs(cell: str, steps: int, hidden: int) -> tuple[Range, Range, bool]:
    """Forward and back by cuDNN, and whether both are published."""
    found, published = [], True
    for way, widest in enumerate(WIDEST[cell]):
        if hidden > widest:
            least, most = STANDARD[2 * way : 2 * way + 2]
        else:
            width = min(w for w in PERSISTENT[cell] if w >= hidden)
            least, most = PERSISTENT[cell][width][2 * way : 2 * way + 2]
            published = published and (cell, width) in PUBLISHED
        found.append(Range(least / QUICKER * steps * 1e-6, most * steps * 1e-6))
    return found[0], found[1], published


def ours(cell: str, steps: int, batch: int, hidden: int) -> tuple[Range, Range]:
    """Forward, with the input's projection, and back, with the gradients of weights: as `auto` chooses."""
    size = WalkSize(FORMS[cell], steps, batch, hidden, 4)
    inputs = hidden if hidden > 20 else 1
    rows = size.cell.gates * hidden
    back = cost.choose(H200, size)
    shares = [
        SHARED if walks > SPREAD and not H200.goes_by_steps(size, "forward") else 1.0
        for walks in (size.walks, size.walks * back.chunks)
    ]
    serial = H200.walk_seconds(size, "forward", 1)
    choice = cost.choose(H200, size, method="chunked", verb="forward")
    newton = (
        cost.newton_seconds(H200, size, choice.chunk, EXPECTED_ITERATIONS)
        if choice.method == "chunked"
        else serial
    )
    forward = min(serial, newton)
    project = _product("project", SequenceProductSize(steps, batch, rows, inputs))
    by_input, by_state = (
        _product("weight", SequenceProductSize(steps, batch, rows, one)) for one in (inputs, hidden)
    )
    return (
        Range(forward, shares[0] * forward) + project,
        Range(back.seconds, shares[1] * back.seconds) + by_input + by_state,
    )


def _product(work: str, size: SequenceProductSize) -> Range:
    """A product over a sequence, by the way that is predicted to be quicker."""
    if H200.prefers_matmul(size, work):
        seconds = H200.matmul_seconds(size, work)
        return Range(seconds, BY_CUBLAS * seconds)
    terms = size.steps * size.batch * size.rows * size.columns
    return Range(*(terms / rate + H200.launch for rate in PRODUCTS))


def lines() -> Iterator[tuple[str, ...]]:
    """Cell, T, B, H, milliseconds of theirs and ours forward and back, and the ratio of the whole; an
    asterisk where a number of theirs is an estimate."""
    for cell, steps, batch, hidden in CASES:
        forward, back, published = theirs(cell, steps, hidden)
        own = ours(cell, steps, batch, hidden)
        whole, own_whole = forward + back, own[0] + own[1]
        ratio = f"{whole.least / own_whole.most:.2g} to {whole.most / own_whole.least:.2g}"
        times = (_told(forward), _told(own[0]), _told(back), _told(own[1]))
        name = cell.partition("_")[0].upper() + ("" if published else " *")
        yield name, str(steps), str(batch), str(hidden), *times, ratio


def _told(seconds: Range) -> str:
    return f"{seconds.least * 1e3:.2g} to {seconds.most * 1e3:.2g}"
