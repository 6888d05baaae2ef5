"""Edits of bytes: where, how many bytes go, and what comes in their place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

#: An edit (start, length, new) puts `new` in the place of `length` bytes from `start` on.
Edit = tuple[int, int, bytes]
#: Numbers that sizes, addresses and counts break at.
NUMBERS = (
    0,
    1,
    2,
    127,
    128,
    255,
    256,
    2**15,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
)


def draw_edits(rng: np.random.Generator, content: bytes, first: int) -> list[Edit]:
    """One to eight random edits of `content` from byte `first` on."""
    return [_draw(rng, content, first) for _ in range(rng.choice([1, 1, 1, 2, 4, 8]))]


def _draw(rng: np.random.Generator, content: bytes, first: int) -> Edit:
    start = int(rng.integers(first, len(content)))
    kind = rng.integers(100)
    if kind < 30:  # a bit
        return start, 1, bytes([content[start] ^ 1 << int(rng.integers(8))])
    if kind < 55:  # a byte
        return start, 1, bytes([int(rng.choice([0, 1, 127, 128, 254, 255, rng.integers(256)]))])
    if kind < 80:  # a number, little- or big-endian
        width = int(rng.choice([2, 4, 8]))
        number = (
            int(NUMBERS[rng.integers(len(NUMBERS))]) if kind < 70 else int(rng.integers(len(content) + 1))
        )
        order = "little" if rng.integers(4) else "big"
        return start, width, (number % 256**width).to_bytes(width, order)
    length = int(rng.integers(1, 64))
    if kind < 90:  # a piece of another place
        other = int(rng.integers(first, len(content)))
        piece = content[other : other + length]
        return start, len(piece), piece
    if kind < 94:  # bytes go
        return start, length, b""
    if kind < 97:  # bytes come
        return start, 0, rng.bytes(length)
    return start, len(content), b""  # the end goes


def apply(content: bytes, edits: list[Edit]) -> bytes:
    """`content` with all edits, one after another."""
    array = bytearray(content)
    for start, length, new in edits:
        array[start : start + length] = new
    return bytes(array)


def fewest(edits: list, fails: Callable[[list], bool]) -> list:
    """Some of the edits that still fail, none of which can be left out."""
    position = 0
    while position < len(edits):
        fewer = edits[:position] + edits[position + 1 :]
        if fewer and fails(fewer):
            edits = fewer
        else:
            position += 1
    return edits
