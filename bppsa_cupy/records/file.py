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
from bppsa_cupy.errors import JacobianFileError
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.records.records import JacobianRecords
from bppsa_cupy.system.hdf5 import check_format, create, open_file, read_array, write_array

FORMAT, VERSION = "bppsa-jacobians", 2
#: (encoding-type, encoding-version) of a matrix, and of one with a value for each sample of a batch.
MATRIX, BATCH = ("csr_matrix", "0.1.0"), ("bppsa-csr-batch", "0.1.0")
#: A record's fields that are plain attributes of its group.
ATTRIBUTES = {"layer": int, "name": str, "step": int, "direction": str}


def save_jacobians(path: str | os.PathLike[str], source: Any, *, compress: bool = False) -> None:
    """Write transposed Jacobians to an HDF5 file.

    Parameters
    ----------
    path : path
        The file.
    source : Sequential or sequence of JacobianRecord
        Records, or a network after a forward pass, whose Jacobians are then computed.
    compress : bool, default: False
        Whether to compress the data sets (shuffle and gzip).

    Raises
    ------
    JacobianFileError
        If two records have the same layer, path, direction and step, or the file cannot be written.

    Notes
    -----
    Each record is a group with data sets `indptr`, `indices` and `data`. Records with values (nnz,) have
    AnnData's encoding "csr_matrix", so that other programs can read them. Records with values (nnz, B) have
    the encoding "bppsa-csr-batch" and an attribute `batch`. Equal patterns are stored once.
    `load_jacobians` returns records equal to the saved ones.

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
            record = record.on_host()
            (kind, version), pattern = MATRIX if record.data.ndim == 1 else BATCH, record.pattern
            group.attrs["encoding-type"], group.attrs["encoding-version"] = kind, version
            group.attrs["shape"] = np.asarray(pattern.shape, np.int64)
            write_array(group, "data", record.data, compress=compress)
            for part in ("indices", "indptr"):
                if pattern in patterns:
                    group[part] = patterns[pattern][part]
                else:
                    write_array(group, part, getattr(pattern, part), compress=compress)
            patterns.setdefault(pattern, group)
            geometry = json.dumps(record.geometry, sort_keys=True, default=lambda number: number.item())
            group.attrs.update({name: getattr(record, name) for name in ATTRIBUTES}, geometry=geometry)
            optional = {
                "gradient_norm": record.gradient_norm,
                "sample": record.sample,
                "path": record.path or None,
                "batch": record.batch if kind == BATCH[0] else None,
            }
            group.attrs.update({name: value for name, value in optional.items() if value is not None})
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
        Whether to check the SHA-256 that `save_jacobians` wrote at the end of the file. Pass False only for a
        file that another program wrote without a SHA-256. Damage may then stay undetected.

    Returns
    -------
    JacobianRecords
        The records in the order in which they were written, with NumPy data.

    Raises
    ------
    JacobianFileError
        If the file is missing, damaged or truncated, is not a file of Jacobians, has a SHA-256 although
        `sealed` is False, or has none although `sealed` is True.

    Examples
    --------
    >>> import os, tempfile, numpy as np, bppsa_cupy as bp
    >>> record = bp.JacobianRecord(0, "ReLU", bp.Pattern.diagonal(3), np.ones((3, 2)))
    >>> path = os.path.join(tempfile.mkdtemp(), "jacobians.h5")
    >>> bp.save_jacobians(path, [record])
    >>> bp.load_jacobians(path)[0].batch
    2
    """
    stored: dict[Any, Any] = {}
    unsealed = "if you trust the file, read it with load_jacobians(path, sealed=False) or --unsealed"
    with open_file(path, sealed=sealed, error=JacobianFileError, unsealed=unsealed) as file:
        check_format(file, FORMAT, VERSION, JacobianFileError)
        groups = sorted((file[name] for name in file), key=lambda group: int(group.attrs["position"]))
        return JacobianRecords(_read(group, stored) for group in groups)


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


def _read(group: h5py.Group, stored: dict[Any, Any]) -> JacobianRecord:
    """The record of a group. `stored` holds the patterns and lengths that were read: records share them."""
    shape, indptr, indices = tuple(group.attrs["shape"].tolist()), group["indptr"], group["indices"]
    if (shape, indptr, indices) not in stored:
        stored[shape, indptr, indices] = Pattern(shape, indptr[()], indices[()])
    lengths = group.get("lengths")
    if lengths is not None and lengths not in stored:
        stored[lengths] = lengths[()]
    kinds = {**ATTRIBUTES, "gradient_norm": float, "sample": int, "path": str}
    return JacobianRecord(
        **{name: kind(group.attrs[name]) for name, kind in kinds.items() if name in group.attrs},
        pattern=stored[shape, indptr, indices],
        data=read_array(group, "data", kinds="f", error=JacobianFileError),
        geometry=json.loads(group.attrs["geometry"]),
        lengths=None if lengths is None else stored[lengths],
    )
