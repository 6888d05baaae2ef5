"""The one door to HDF5: whole files or none, checked before anything is read from them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import h5py
import numpy as np

from bppsa_cupy.errors import BppsaError, reason_of
from bppsa_cupy.system.files import whole_file
from bppsa_cupy.system.memory import LARGE, free_host_memory

#: A sealed file ends with this text, the hexadecimal SHA-256 of all bytes before the text, and a line feed.
MAGIC = b"bppsa-seal 2 sha256 "
SEAL_BYTES = len(MAGIC) + 65
#: Version 1 of the seal is the first block of a file. HDF5 skips the block, other readers do not.
_BLOCK_MAGIC, _BLOCK_BYTES = b"bppsa-seal 1 sha256 ", 512
_CHUNK_BYTES = 1 << 20
_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_KINDS = {"b": "booleans", "i": "signed integers", "u": "unsigned integers", "f": "real numbers"}


@contextmanager
def create(path: str | os.PathLike[str], *, error: type[BppsaError] = BppsaError) -> Iterator[h5py.File]:
    """A new HDF5 file that appears at `path`, sealed and whole, when the block ends without an exception.

    The file is built in memory, and its SHA-256 follows the content on disk. Raises `error` where the file
    cannot be written.
    """
    with whole_file(path, error=error) as temporary:
        with h5py.File(temporary, "w", driver="core", backing_store=False) as file:
            yield file
            file.flush()
            content = file.id.get_file_image()
        with open(temporary, "wb") as raw:
            raw.write(content)
            raw.write(MAGIC + hashlib.sha256(content).hexdigest().encode() + b"\n")


@contextmanager
def open_file(
    path: str | os.PathLike[str],
    *,
    sealed: bool = True,
    verify: bool = True,
    error: type[BppsaError] = BppsaError,
    unsealed: str = "write it again",
) -> Iterator[h5py.File]:
    """Open the HDF5 file at `path` for reading.

    Parameters
    ----------
    sealed : bool
        Whether `create` wrote the file. Its seal is then checked before the HDF5 library reads the file.
    verify : bool
        Whether to check the SHA-256 too (2 GB/s).
    unsealed : str
        The remedy that the error names for a file without a seal.

    Raises
    ------
    error
        If the file is missing, not HDF5, truncated or damaged, or if h5py fails inside the block. The message
        names the path and the cause.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise error(f"{path!r} is not a valid path: pass the name of a file")
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise error(f"{path} is not a regular file: pass the name of a regular file")
    try:
        with open(path, "rb") as raw:
            _check(raw, sealed, verify, error, unsealed)
            with h5py.File(path, "r") as file:
                yield file
    except error:
        raise
    except FileNotFoundError as cause:
        raise error(f"{path} does not exist: pass the path of an existing file") from cause
    except (OSError, LookupError, RuntimeError, ValueError, TypeError, ArithmeticError, MemoryError) as cause:
        raise error(f"{path} cannot be read ({reason_of(cause)}): write it again") from cause


def write_array(group: h5py.Group, name: str, array: Any, *, compress: bool = False) -> h5py.Dataset:
    """Store a NumPy array of at least one axis as data set `name`, with a checksum on every chunk.

    With `compress`, the data set is also shuffled and compressed by gzip.
    """
    array = np.asarray(array)
    assert array.ndim >= 1 and array.dtype.kind in _KINDS, (name, array.dtype, array.shape)
    chunks, budget = [], max(1, _CHUNK_BYTES // array.dtype.itemsize)
    for size in reversed(array.shape):
        chunks.append(max(1, min(size, budget)))
        budget = max(1, budget // chunks[-1])
    return group.create_dataset(
        name,
        data=array,
        chunks=tuple(reversed(chunks)),
        # The library takes no chunk longer than an axis that cannot grow, and an empty axis has no chunk.
        maxshape=tuple(max(1, size) for size in array.shape),
        fletcher32=True,
        shuffle=compress,
        compression="gzip" if compress else None,
        compression_opts=1 if compress else None,
    )


def read_array(
    group: h5py.Group, name: str, *, kinds: str, ndim: int | None = None, error: type[BppsaError]
) -> np.ndarray:
    """Return data set `name` of `group` as a NumPy array.

    `kinds` contains the NumPy kinds that it may have, of "b", "i", "u" and "f". `ndim` is the number of axes
    that it must have. Raises `error` if it is missing, is no data set, has another kind or number of axes,
    lacks chunks, or does not fit into memory.
    """
    where = f"{group.file.filename}: {group.name.rstrip('/')}/{name}"
    stored = group.get(name)
    if not isinstance(stored, h5py.Dataset):
        raise error(
            f"{where} is {'missing' if stored is None else 'a group instead of a data set'}: write the file "
            "again"
        )
    if stored.dtype.kind not in kinds:
        wanted = " or ".join(_KINDS[kind] for kind in kinds)
        raise error(f"{where} has dtype {stored.dtype} instead of {wanted}: write the file again")
    if ndim is not None and len(stored.shape) != ndim:
        raise error(f"{where} has shape {stored.shape} instead of {ndim} axes: write the file again")
    size = int(stored.size) * stored.dtype.itemsize
    if size > LARGE and size > (free := free_host_memory()):
        raise error(f"{where} needs {size} bytes, but only {free} are free: use a machine with more memory")
    return np.asarray(stored[()])


def check_format(file: h5py.File, format: str, version: int, error: type[BppsaError]) -> None:
    """Raise `error` unless a file has this format and version."""
    stored = tuple(file.attrs.get(name) for name in ("format", "format_version"))
    if stored != (format, version):
        raise error(
            f"{file.filename} has format {stored[0]!r}, version {stored[1]}: pass a file of format "
            f"{format!r}, version {version}"
        )


def attribute(
    group: h5py.Group | h5py.Dataset, name: str, kind: type[str | int], error: type[BppsaError]
) -> Any:
    """Read an attribute, text or an integer. Raises `error` if it is missing or of another type."""
    value = group.attrs.get(name)
    if isinstance(value, bytes):
        value = value.decode()
    if not isinstance(value, str if kind is str else (int, np.integer)):
        raise error(
            f"{group.file.filename}: attribute {name!r} of {group.name} is {value!r}, not {kind.__name__}: "
            "write the file again"
        )
    return kind(value)


def _check(raw: BinaryIO, sealed: bool, verify: bool, error: type[BppsaError], unsealed: str) -> None:
    """Look at an open file without the HDF5 library."""
    path, size = raw.name, raw.seek(0, os.SEEK_END)
    raw.seek(max(0, size - SEAL_BYTES))
    magic, seal, start, end = MAGIC, raw.read(), 0, size - SEAL_BYTES
    raw.seek(0)
    head = raw.read(_BLOCK_BYTES + len(_HDF5_SIGNATURE))
    if head.startswith(_BLOCK_MAGIC):
        magic, seal, start, end = _BLOCK_MAGIC, head[:_BLOCK_BYTES].rstrip(b"\0"), _BLOCK_BYTES, size
    if not sealed and seal.startswith(magic):
        raise error(f"{path} has a seal (a SHA-256 at its end): pass sealed=True, or omit --unsealed")
    if head[start : start + len(_HDF5_SIGNATURE)] != _HDF5_SIGNATURE:
        kind = "a sealed HDF5 file" if sealed else "an HDF5 file"
        raise error(
            f"{path} is not {kind}, or its first bytes are damaged: pass another file, or write it again"
        )
    if sealed and not seal.startswith(magic):
        raise error(
            f"{path} is an HDF5 file without a seal: another program wrote or copied the file, or it is "
            f"truncated; {unsealed}"
        )
    if not (sealed and verify):
        return
    state = hashlib.sha256()
    raw.seek(start)
    while start < end and (block := raw.read(min(_CHUNK_BYTES, end - start))):
        state.update(block)
        start += len(block)
    if seal != magic + state.hexdigest().encode() + b"\n":
        raise error(f"{path} is truncated or damaged (its SHA-256 is not the sealed one): write it again")
