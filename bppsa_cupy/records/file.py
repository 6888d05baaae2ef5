"""Files of Jacobians: one HDF5 group a record, in AnnData's CSR encoding."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import h5py
import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import ArgumentError, JacobianFileError, ShapeError
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.records.records import JacobianRecords
from bppsa_cupy.system.hdf5 import attribute, create, open_file, read_array, write_array

FORMAT, VERSION = "bppsa-jacobians", 2
#: (encoding-type, encoding-version) of a matrix, and of one with a value for each sample of a batch.
MATRIX, BATCH = ("csr_matrix", "0.1.0"), ("bppsa-csr-batch", "0.1.0")
#: A record's fields that are plain attributes of its group.
ATTRIBUTES = {"layer": int, "name": str, "step": int, "direction": str}


def save_jacobians(
    path: str | os.PathLike[str],
    source: Any,
    *,
    compress: bool = False,
) -> None:
    """Write transposed Jacobians to an HDF5 file.

    Parameters
    ----------
    path : path
        The file.
    source : network or sequence of JacobianRecord
        A network after a forward pass, or records.
    compress : bool, default: False
        Whether to compress the data sets (shuffle and gzip).

    Raises
    ------
    JacobianFileError
        If two records have the same layer, direction and step, or the file cannot be written.

    Notes
    -----
    Each record is a group with data sets `indptr`, `indices` and `data`. Records with values (nnz,) have
    AnnData's encoding "csr_matrix", so that other programs can read them. Records with values (nnz, B) have
    the encoding "bppsa-csr-batch" and an attribute `batch`. Equal patterns are stored once. Law:
    `load_jacobians` returns equal records.

    Examples
    --------
    >>> import os, tempfile, numpy as np, bppsa_cupy as bp
    >>> record = bp.JacobianRecord(0, "ReLU", bp.Pattern.diagonal(3), np.ones((3, 2)))
    >>> path = os.path.join(tempfile.mkdtemp(), "jacobians.h5")
    >>> bp.save_jacobians(path, [record])
    >>> bp.load_jacobians(path)
    JacobianRecords(0 ReLU)
    """
    is_network = hasattr(source, "transposed_jacobians")
    records: Sequence[JacobianRecord] = source.transposed_jacobians() if is_network else source
    patterns: dict[Pattern, h5py.Group] = {}
    lengths: dict[bytes, h5py.Dataset] = {}
    with create(path, error=JacobianFileError) as file:
        file.attrs.update(format=FORMAT, format_version=VERSION)
        for position, (record, name) in enumerate(zip(records, _group_names(records), strict=True)):
            group = file.create_group(name)
            group.attrs["position"] = position
            _write(group, record.on_host(), patterns, compress)
            if record.lengths is not None:
                key = record.lengths.tobytes()
                if key in lengths:
                    group["lengths"] = lengths[key]
                else:
                    lengths[key] = write_array(group, "lengths", record.lengths)


def load_jacobians(path: str | os.PathLike[str], *, sealed: bool = True) -> JacobianRecords:
    """Read records from a file written by `save_jacobians`.

    Parameters
    ----------
    path : path
        The file.
    sealed : bool, default: True
        Whether to check the seal of the file, its SHA-256. Pass False for a file that another program wrote.
        Damage may then stay undetected.

    Returns
    -------
    JacobianRecords
        The records in the order in which they were written, with NumPy data.

    Raises
    ------
    JacobianFileError
        If the file is missing, damaged or truncated, or is not a file of Jacobians.

    Examples
    --------
    >>> import os, tempfile, numpy as np, bppsa_cupy as bp
    >>> record = bp.JacobianRecord(0, "ReLU", bp.Pattern.diagonal(3), np.ones((3, 2)))
    >>> path = os.path.join(tempfile.mkdtemp(), "jacobians.h5")
    >>> bp.save_jacobians(path, [record])
    >>> bp.load_jacobians(path)[0].batch
    2
    """
    patterns: dict[tuple, Pattern] = {}
    lengths: dict[h5py.Dataset, np.ndarray] = {}
    unsealed = "if you trust the file, read it with load_jacobians(path, sealed=False) or --unsealed"
    with open_file(path, sealed=sealed, error=JacobianFileError, unsealed=unsealed) as file:
        kind, version = file.attrs.get("format"), file.attrs.get("format_version")
        if kind != FORMAT:
            raise JacobianFileError(
                f"{path} has the format {kind!r} instead of {FORMAT!r}: pass a file written by "
                "bppsa-jacobians dump or bp.save_jacobians"
            )
        if version != VERSION:
            raise JacobianFileError(
                f"{path} has format version {version}, but this program reads version {VERSION}: write the "
                "file again with bppsa-jacobians dump"
            )
        groups = [file[name] for name in file]
        groups.sort(key=lambda group: attribute(group, "position", int, JacobianFileError))
        return JacobianRecords(_read(group, patterns, lengths) for group in groups)


def _group_names(records: Sequence[JacobianRecord]) -> list[str]:
    """A name for each record, which sorts as the layers do: "003_Conv2d", "000_RNN_forward_000007"."""
    several = Counter((record.layer, record.path) for record in records)
    names = []
    for record in records:
        place = f"{record.layer:03d}" + (f".{record.path}" if record.path else "")
        name = f"{place}_{record.name}"
        if several[record.layer, record.path] > 1:
            name += f"_{record.direction}_{record.step:06d}"
        names.append(re.sub(r"[^\w.-]", "_", name))
    for name, count in Counter(names).items():
        if count > 1:
            raise JacobianFileError(
                f"{count} records have the name {name}: pass records that differ in layer, direction or step"
            )
    return names


def _write(
    group: h5py.Group, record: JacobianRecord, patterns: dict[Pattern, h5py.Group], compress: bool
) -> None:
    (kind, version), pattern = MATRIX if record.data.ndim == 1 else BATCH, record.pattern
    group.attrs["encoding-type"], group.attrs["encoding-version"] = kind, version
    group.attrs["shape"] = np.asarray(pattern.shape, np.int64)
    write_array(group, "data", record.data, compress=compress)
    for name in ("indices", "indptr"):
        if pattern in patterns:
            group[name] = patterns[pattern][name]
        else:
            write_array(group, name, getattr(pattern, name), compress=compress)
    patterns.setdefault(pattern, group)
    try:
        geometry = json.dumps(record.geometry, sort_keys=True)
    except (TypeError, ValueError) as cause:
        raise JacobianFileError(
            f"the geometry of {record.label} cannot be written as JSON ({cause}): use only numbers, strings, "
            "booleans, None, lists and dicts"
        ) from cause
    group.attrs.update({name: getattr(record, name) for name in ATTRIBUTES}, geometry=geometry)
    optional = {
        "gradient_norm": record.gradient_norm,
        "sample": record.sample,
        "path": record.path or None,
    }
    if kind == BATCH[0]:
        optional["batch"] = record.batch
    group.attrs.update({name: value for name, value in optional.items() if value is not None})


def _read(
    group: Any, patterns: dict[tuple, Pattern], lengths: dict[h5py.Dataset, np.ndarray]
) -> JacobianRecord:
    where = f"{group.file.filename}: {group.name}"
    if not isinstance(group, h5py.Group):
        raise JacobianFileError(f"{where} is a data set instead of a group: write the file again")

    def get(name: str, kind: type) -> Any:
        return attribute(group, name, kind, JacobianFileError)

    def optional(name: str, kind: type) -> Any:
        return get(name, kind) if name in group.attrs else None

    encoding = get("encoding-type", str), get("encoding-version", str)
    if encoding not in (MATRIX, BATCH):
        raise JacobianFileError(
            f"{where} has the encoding {encoding} instead of {MATRIX} or {BATCH}: write the file again"
        )
    data = read_array(group, "data", kinds="f", ndim=1 if encoding == MATRIX else 2, error=JacobianFileError)
    if encoding == BATCH and data.shape[1] != get("batch", int):
        raise JacobianFileError(
            f"{where} has {data.shape[1]} samples, but its attribute 'batch' is {get('batch', int)}: write "
            "the file again"
        )
    try:
        return JacobianRecord(
            **{name: get(name, kind) for name, kind in ATTRIBUTES.items()},
            pattern=_read_pattern(group, get("shape", tuple), patterns),
            data=data,
            geometry=json.loads(get("geometry", str)),
            gradient_norm=optional("gradient_norm", float),
            sample=optional("sample", int),
            path=optional("path", str) or "",
            lengths=_read_lengths(group, lengths),
        )
    except (ArgumentError, ShapeError) as cause:
        raise JacobianFileError(f"{where} is damaged ({cause}): write the file again") from cause


def _read_pattern(group: h5py.Group, shape: Any, patterns: dict[tuple, Pattern]) -> Pattern:
    key = (shape, group.get("indptr"), group.get("indices"))
    if key not in patterns:
        arrays = [
            read_array(group, name, kinds="i", ndim=1, error=JacobianFileError)
            for name in ("indptr", "indices")
        ]
        patterns[key] = Pattern(shape, *arrays)
    return patterns[key]


def _read_lengths(group: h5py.Group, known: dict[h5py.Dataset, np.ndarray]) -> np.ndarray | None:
    if "lengths" not in group:
        return None
    key = group.get("lengths")
    if key not in known:
        known[key] = read_array(group, "lengths", kinds="i", ndim=1, error=JacobianFileError)
    return known[key]
