"""Files of Jacobians: one HDF5 group a record, in AnnData's CSR encoding."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import h5py
import numpy as np

from bppsa_cupy.arguments import as_flag
from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import ArgumentError, JacobianFileError, ShapeError, reason_of
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.records.records import JacobianRecords
from bppsa_cupy.system.hdf5 import attribute, create, open_file, read_array, write_array
from bppsa_cupy.system.interrupts import interruptible

FORMAT, VERSION = "bppsa-jacobians", 2
#: (encoding-type, encoding-version) of a matrix, and of one with a value for each sample of a batch.
MATRIX, BATCH = ("csr_matrix", "0.1.0"), ("bppsa-csr-batch", "0.1.0")
#: A record's fields that are plain attributes of its group.
ATTRIBUTES = {"layer": int, "name": str, "step": int, "direction": str}


class HasJacobians(Protocol):
    """A network, as far as this file needs it."""

    def transposed_jacobians(self) -> Sequence[JacobianRecord]: ...


def save_jacobians(
    path: str | os.PathLike[str],
    source: HasJacobians | Sequence[JacobianRecord],
    *,
    compress: bool = False,
    anndata: bool = False,
) -> None:
    """Write transposed Jacobians to an HDF5 file.

    Parameters
    ----------
    path : path
        The file.
    source : network or sequence of JacobianRecord
        A network after a forward pass, or records.
    compress : bool, default: False
        Shuffle and gzip the data sets.
    anndata : bool, default: False
        Let AnnData read batches too. A group with values (nnz, B) gets groups `samples/0` to `samples/B-1`,
        each a "csr_matrix" whose `data` is a view of its column. A view takes 2 kB and 0.6 ms.

    Raises
    ------
    JacobianFileError
        If two records have the same layer, direction and step, or the file cannot be written.

    Notes
    -----
    Each record is a group with data sets `indptr`, `indices` and `data`. Values (nnz,) use the "csr_matrix"
    of AnnData, which other readers open too. Values (nnz, B) use "bppsa-csr-batch" with an attribute `batch`.
    Equal patterns are stored once. Law: `load_jacobians` returns equal records.

    Examples
    --------
    >>> import os, tempfile, numpy as np, bppsa_cupy as bp
    >>> record = bp.JacobianRecord(0, "ReLU", bp.Pattern.diagonal(3), np.ones((3, 2)))
    >>> path = os.path.join(tempfile.mkdtemp(), "jacobians.h5")
    >>> bp.save_jacobians(path, [record])
    >>> bp.load_jacobians(path)
    JacobianRecords(0 ReLU)
    """
    compress, anndata = (
        as_flag("save_jacobians", name, value, error=JacobianFileError)
        for name, value in (("compress", compress), ("anndata", anndata))
    )
    given: Any = source.transposed_jacobians() if hasattr(source, "transposed_jacobians") else source
    if not isinstance(given, Sequence) or not all(isinstance(one, JacobianRecord) for one in given):
        raise JacobianFileError(
            f"save_jacobians got a {type(source).__name__}: pass a network, or a list of JacobianRecords"
        )
    records: Sequence[JacobianRecord] = given
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
            if anndata and record.data.ndim == 2:
                _write_samples(group)


def load_jacobians(path: str | os.PathLike[str], *, sealed: bool = True) -> JacobianRecords:
    """Read records from a file written by `save_jacobians`.

    Parameters
    ----------
    path : path
        The file.
    sealed : bool, default: True
        Check the seal of the file. Pass False for a file that another program wrote; damage may go unseen
        then.

    Returns
    -------
    JacobianRecords
        The records in the order in which they were written, with NumPy data.

    Raises
    ------
    JacobianFileError
        If the file is missing, damaged, truncated or of another kind.

    Examples
    --------
    >>> import os, tempfile, numpy as np, bppsa_cupy as bp
    >>> record = bp.JacobianRecord(0, "ReLU", bp.Pattern.diagonal(3), np.ones((3, 2)))
    >>> path = os.path.join(tempfile.mkdtemp(), "jacobians.h5")
    >>> bp.save_jacobians(path, [record])
    >>> bp.load_jacobians(path)[0].batch
    2
    """
    sealed = as_flag("load_jacobians", "sealed", sealed, error=JacobianFileError)
    patterns: dict[tuple, Pattern] = {}
    lengths: dict[h5py.Dataset, np.ndarray] = {}
    unsealed = "if you trust the file, read it with load_jacobians(path, sealed=False) or --unsealed"
    with open_file(path, sealed=sealed, error=JacobianFileError, unsealed=unsealed) as file:
        kind, version = file.attrs.get("format"), file.attrs.get("format_version")
        if kind != FORMAT:
            raise JacobianFileError(
                f"{path} has the format {kind!r}: it must be {FORMAT!r}, as bppsa-jacobians dump writes it"
            )
        if version != VERSION:
            raise JacobianFileError(
                f"{path} has version {version} of its format: this program reads {VERSION}, which stores the "
                "lengths of sequences. Write the file again by bppsa-jacobians dump"
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
                f"{count} records are named {name}: records of a file must differ in layer, direction or step"
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
            f"{record.label}: its geometry cannot be written as JSON ({cause})"
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


def _write_samples(group: h5py.Group) -> None:
    """A group a sample of a batch, as AnnData encodes a matrix: links to the pattern, a view of values."""
    data = group["data"]
    for sample in range(data.shape[1]):
        interruptible()
        own = group.create_group(f"samples/{sample}")
        own.attrs["encoding-type"], own.attrs["encoding-version"] = MATRIX
        own.attrs["shape"] = group.attrs["shape"]
        own["indices"], own["indptr"] = group["indices"], group["indptr"]
        view = h5py.VirtualLayout(data.shape[:1], data.dtype)
        if data.shape[0]:
            source = h5py.VirtualSource(".", data.name, data.shape, data.dtype)
            view[:] = source[:, sample]
        own.create_virtual_dataset("data", view)


def _read(
    group: Any, patterns: dict[tuple, Pattern], lengths: dict[h5py.Dataset, np.ndarray]
) -> JacobianRecord:
    where = f"{group.file.filename}: {group.name}"
    if not isinstance(group, h5py.Group):
        raise JacobianFileError(f"{where} is a data set: it must be a group")

    def get(name: str, kind: type) -> Any:
        return attribute(group, name, kind, JacobianFileError)

    def optional(name: str, kind: type) -> Any:
        return get(name, kind) if name in group.attrs else None

    encoding = get("encoding-type", str), get("encoding-version", str)
    if encoding not in (MATRIX, BATCH):
        raise JacobianFileError(f"{where} is encoded as {encoding}: it must be {MATRIX} or {BATCH}")
    data = read_array(group, "data", kinds="f", ndim=1 if encoding == MATRIX else 2, error=JacobianFileError)
    if encoding == BATCH and data.shape[1] != get("batch", int):
        raise JacobianFileError(
            f"{where} is damaged: it holds {data.shape[1]} samples, and its batch is {get('batch', int)}"
        )
    try:
        return JacobianRecord(
            **{name: get(name, kind) for name, kind in ATTRIBUTES.items()},
            pattern=_read_pattern(group, get("shape", tuple), patterns),
            data=data,
            geometry=_geometry(where, get("geometry", str)),
            gradient_norm=optional("gradient_norm", float),
            sample=optional("sample", int),
            path=optional("path", str) or "",
            lengths=_read_lengths(group, lengths),
        )
    except (ArgumentError, ShapeError) as cause:
        raise JacobianFileError(f"{where} is damaged: {cause}") from cause


def _read_pattern(group: h5py.Group, shape: tuple[int, ...], patterns: dict[tuple, Pattern]) -> Pattern:
    if len(shape) != 2 or min(shape) < 0:
        raise JacobianFileError(
            f"{group.file.filename}: {group.name} has the shape {shape}: it must be two sizes"
        )
    key = (shape, group.get("indptr"), group.get("indices"))
    if key not in patterns:
        arrays = [
            read_array(group, name, kinds="i", ndim=1, error=JacobianFileError)
            for name in ("indptr", "indices")
        ]
        patterns[key] = Pattern((shape[0], shape[1]), *arrays)
    return patterns[key]


def _read_lengths(group: h5py.Group, known: dict[h5py.Dataset, np.ndarray]) -> np.ndarray | None:
    if "lengths" not in group:
        return None
    key = group.get("lengths")
    if key not in known:
        known[key] = read_array(group, "lengths", kinds="i", ndim=1, error=JacobianFileError)
    return known[key]


def _geometry(where: str, text: str) -> dict[str, Any]:
    try:
        geometry = json.loads(text)
    except json.JSONDecodeError as cause:
        raise JacobianFileError(f"{where}: attribute 'geometry' is not JSON ({reason_of(cause)})") from cause
    if not isinstance(geometry, dict):
        raise JacobianFileError(f"{where}: attribute 'geometry' must be a JSON object")
    return geometry
