"""MNIST's IDX layout: a big-endian header, then bytes; plain or gzipped.

Source: LeCun, Cortes and Burges, The MNIST database of handwritten digits.
"""

from __future__ import annotations

import gzip
import math
import re
import struct
import zlib
from pathlib import Path

import numpy as np

from bppsa_cupy.data.dataset import Raw
from bppsa_cupy.errors import DataError, reason_of

_IMAGES = re.compile(r"(.*)images([-.])idx3-ubyte(\.gz)?$")


def find(folder: Path, split: str) -> Path | None:
    """The file of images of `split` ("train" or "t10k") in `folder`; None where there is none."""
    found = (file for file in sorted(folder.glob(f"{split}-images*")) if _IMAGES.match(file.name))
    return next(found, None)


def is_images(file: Path) -> bool:
    """Whether the file's name is one of a file of images."""
    return _IMAGES.match(file.name) is not None


def read_pair(images: Path) -> Raw:
    """The images of one file, (N, 1, H, W) uint8, with the labels of the file that belongs to it."""
    match = _IMAGES.match(images.name)
    assert match is not None, images
    stem = f"{match[1]}labels{match[2]}idx1-ubyte"
    candidates = [images.with_name(stem + end) for end in (match[3] or "", "", ".gz")]
    labels = next((file for file in candidates if file.exists()), None)
    if labels is None:
        raise DataError(f"{images} has no labels beside it: {candidates[0]} must be there")
    pixels = read(images, axes=3)
    return Raw(pixels[:, None], read(labels, axes=1), str(images))


def read(file: Path, axes: int) -> np.ndarray:
    """The bytes of an IDX file of `axes` axes, uint8. Raises DataError where header or size are wrong."""
    try:
        opened = gzip.open(file, "rb") if file.suffix == ".gz" else open(file, "rb")
        with opened as stream:
            content = stream.read()
    except (OSError, EOFError, zlib.error) as cause:
        raise DataError(f"{file} cannot be read ({reason_of(cause)}): fetch it again") from cause
    header = 4 + 4 * axes
    magic = 0x800 + axes
    if len(content) < header or struct.unpack(">I", content[:4])[0] != magic:
        raise DataError(
            f"{file} begins with {content[:4].hex() or 'nothing'}: an IDX file of bytes with {axes} axes "
            f"begins with {magic:08x}"
        )
    shape = struct.unpack(f">{axes}I", content[4:header])
    if len(content) != header + math.prod(shape):
        raise DataError(
            f"{file} has {len(content)} bytes: a header for {' × '.join(map(str, shape))} values takes "
            f"{header + math.prod(shape)}"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)
