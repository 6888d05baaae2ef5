"""WAV files: a header that is checked against the bytes there are, and samples by soundfile.

The library reads a truncated file without a word, so the chunks are walked here first.
"""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np

from bppsa_cupy.errors import DataError, reason_of

_MAXIMAL = 0xFFFFFFFF
_REMEDY = "remove it, or fetch it again"


def decode(content: bytes, source: str) -> tuple[np.ndarray, int]:
    """Samples (frames, channels) float32, 1 being full scale, and the rate in Hz.

    content  the bytes of a WAV file, of any encoding that soundfile reads
    source   names the file in errors
    Raises DataError where it is no WAV, holds no samples, is truncated or damaged, holds NaN or infinity,
    or where soundfile is missing.
    """
    content = check(content, source)
    soundfile = import_audio("soundfile")
    try:
        samples, rate = soundfile.read(io.BytesIO(content), dtype="float32", always_2d=True)
    except (RuntimeError, ValueError, TypeError) as cause:
        raise DataError(f"{source} cannot be decoded ({reason_of(cause)}): {_REMEDY}") from cause
    if not np.isfinite(samples).all():
        raise DataError(f"{source} holds NaN or infinite samples: {_REMEDY}")
    return samples, int(rate)


def check(content: bytes, source: str) -> bytes:
    """Return a RIFF WAVE file whose header states the bytes of its samples.

    Programs that write into a pipe cannot know this size. Their samples end with the file.
    Raises DataError if a sample is missing, or if there are none.
    """
    if not content:
        raise DataError(f"{source} is empty, 0 bytes: {_REMEDY}")
    if len(content) < 12 or content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        raise DataError(
            f"{source} begins with {content[:12]!r}: a WAV file begins with RIFF, a size, and WAVE"
        )
    offset, block = 12, 0
    while offset + 8 <= len(content):
        name, size = struct.unpack_from("<4sI", content, offset)
        offset += 8
        if name == b"fmt " and offset + 16 <= len(content):
            (block,) = struct.unpack_from("<H", content, offset + 12)
        if name == b"data":
            if block and _is_placeholder(content, offset, size):
                size = (len(content) - offset) // block * block
                sizes = struct.pack("<I", offset + size - 8), struct.pack("<I", size)
                content = b"RIFF" + sizes[0] + content[8 : offset - 4] + sizes[1] + content[offset:]
            if size == 0 or size < block:
                raise DataError(f"{source} is empty, a WAV file without samples: {_REMEDY}")
            if offset + size > len(content):
                raise DataError(
                    f"{source} is truncated: its header promises {size} bytes of samples and "
                    f"{len(content) - offset} are there; {_REMEDY}"
                )
            if block:
                return content
            break
        offset += size + size % 2
    raise DataError(f"{source} is truncated or damaged: it lacks the chunk 'fmt ' or 'data'; {_REMEDY}")


def _is_placeholder(content: bytes, offset: int, size: int) -> bool:
    """Whether the size of the samples from `offset` on was unknown when the header was written.

    Then ffmpeg writes 2**32 - 1, SoX and arecord some 2**31, others the 0 of an empty file.
    """
    if size == 0:
        (riff,) = struct.unpack_from("<I", content, 4)
        return riff + 8 <= offset or riff == _MAXIMAL
    return offset + size > len(content) and (size == _MAXIMAL or 0x7FFF0000 <= size <= 0x80000000)


def import_audio(name: str) -> Any:
    """The module `name` of the extra audio. Raises DataError naming the extra where it is missing."""
    import importlib

    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as cause:
        raise DataError(
            f"reading audio takes {name}, which cannot be imported ({cause}): install the extra audio"
        ) from cause
