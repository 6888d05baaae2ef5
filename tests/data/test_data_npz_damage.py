"""Damaged .npz files: each is refused by name, whatever NumPy and zipfile raise."""

import io
import struct
import zipfile

import numpy as np
import pytest

from bppsa_cupy.data import load
from bppsa_cupy.errors import DataError


def archive(compression=zipfile.ZIP_DEFLATED) -> bytes:
    """x (4, 1, 2, 2) and y (4,)."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as file:
        for name, array in {"x": np.zeros((4, 1, 2, 2), np.float32), "y": np.arange(4)}.items():
            member = io.BytesIO()
            np.save(member, array)
            file.writestr(f"{name}.npy", member.getvalue())
    return stream.getvalue()


def with_header(text: bytes) -> bytes:
    """An archive whose x has this header."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text)
        file.writestr("y.npy", b"")
    return stream.getvalue()


def changed(content: bytes, offset: int, value: bytes) -> bytes:
    """`content` with the field at `offset` of every local and central header of the zip set to `value`."""
    array = bytearray(content)
    for mark, shift in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
        at = array.find(mark)
        while at >= 0:
            array[at + offset + shift : at + offset + shift + len(value)] = value
            at = array.find(mark, at + 4)
    return bytes(array)


def changed_entry(name: str) -> bytes:
    """An archive of which this entry does not begin as NumPy's arrays do."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive())) as source, zipfile.ZipFile(stream, "w") as file:
        for entry in source.namelist():
            content = source.read(entry)
            file.writestr(entry, b"\x92" + content[1:] if entry == f"{name}.npy" else content)
    return stream.getvalue()


DAMAGED = {
    "compression method 99": changed(archive(), 8, struct.pack("<H", 99)),
    "encrypted": changed(archive(), 6, struct.pack("<H", 1)),
    "LZMA, damaged": changed(archive(zipfile.ZIP_LZMA), 30 + 5, b"\xff" * 12),
    "LZMA by name alone": changed(archive(), 8, struct.pack("<H", 14)),
    "bzip2 by name alone": changed(archive(), 8, struct.pack("<H", 12)),
    "absurd size": with_header(
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (2305843009213693951,), }\n"
    ),
    "size beyond int64": with_header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }\n" % 2**80),
    "header that stops": with_header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (("),
    "header of brackets": with_header(b"(" * 5000),
    "an entry that is no array": changed_entry("x"),
    "labels that are no array": changed_entry("y"),
    "cut": archive()[:-30],
    "empty": b"",
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_damaged_archives_are_refused_by_name(tmp_path, content):
    path = tmp_path / "damaged.npz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"damaged\.npz"):
        load(str(path))
