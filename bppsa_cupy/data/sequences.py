"""The file of sequences: inputs (N, T, F), labels and lengths of training and test samples, in HDF5."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import h5py
import numpy as np

from bppsa_cupy.data.dataset import Raw
from bppsa_cupy.errors import DataError
from bppsa_cupy.system.hdf5 import attribute, create, open_file, read_array, write_array

FORMAT, VERSION = "bppsa-sequences", 1
SUFFIXES = (".h5", ".hdf5")
#: How the inputs were normalised: not at all, or each coefficient to zero mean and unit deviation over the
#: steps of its sample.
NORMALIZATIONS = ("none", "sample")


@dataclass(frozen=True, eq=False)
class Sequences:
    """The content of a file of sequences.

    Attributes
    ----------
    train, test : Raw or None
        Inputs (N, T, F) uint8 or float32, labels (N,) or (N, T), and lengths (N,) or None.
    class_names : sequence of str
        One name per class, in the order of labels.
    normalization : str
        The normalization, one of NORMALIZATIONS.
    origin : mapping
        How the file was made, as JSON values.
    """

    name: str
    train: Raw
    test: Raw | None
    class_names: tuple[str, ...]
    normalization: str = "none"
    origin: Mapping[str, object] = field(default_factory=dict)


def write_sequences(path: str | os.PathLike[str], sequences: Sequences, *, compress: bool = False) -> None:
    """Write a sealed file, replacing `path` at the end; `compress` gzips the inputs.

    Raises DataError if the file cannot be written.
    """
    with create(path, error=DataError) as file:
        file.attrs.update(format=FORMAT, format_version=VERSION, name=sequences.name)
        file.attrs.update(
            class_names=json.dumps(sequences.class_names),
            normalization=sequences.normalization,
            origin=json.dumps(dict(sequences.origin)),
        )
        for name, raw in (("train", sequences.train), ("test", sequences.test)):
            if raw is not None:
                group = file.create_group(name)
                write_array(group, "inputs", raw.inputs, compress=compress)
                write_array(group, "labels", np.asarray(raw.labels, np.int64))
                if raw.lengths is not None:
                    write_array(group, "lengths", np.asarray(raw.lengths, np.int64))


def read_sequences(path: str | os.PathLike[str]) -> Sequences:
    """Read what `write_sequences` wrote.

    Raises DataError if the file is missing, damaged or of another kind. `data.load` checks labels and values.
    """
    with open_file(path, error=DataError) as file:
        kind = attribute(file, "format", str, DataError)
        version = attribute(file, "format_version", int, DataError)
        normalization = attribute(file, "normalization", str, DataError)
        if (kind, version) != (FORMAT, VERSION) or normalization not in NORMALIZATIONS:
            raise DataError(
                f"{path} has format {kind!r}, version {version} and normalization {normalization!r}: pass a "
                f"file with format {FORMAT!r}, version {VERSION} and normalization "
                f"{' or '.join(NORMALIZATIONS)}"
            )
        return Sequences(
            attribute(file, "name", str, DataError), _read_split(file["train"]),
            _read_split(file["test"]) if "test" in file else None,
            tuple(json.loads(file.attrs["class_names"])), normalization, json.loads(file.attrs["origin"]),
        )  # fmt: skip


def _read_split(group: h5py.Group) -> Raw:
    inputs = read_array(group, "inputs", kinds="uf", ndim=3, error=DataError)
    lengths = None
    if "lengths" in group:
        lengths = read_array(group, "lengths", kinds="iu", ndim=1, error=DataError)
    labels = read_array(group, "labels", kinds="iu", error=DataError)
    return Raw(inputs, labels, f"{group.file.filename} ({group.name.strip('/')})", lengths)
