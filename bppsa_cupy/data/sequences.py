"""The file of sequences: inputs (N, T, F), labels and lengths of training and test samples, in HDF5."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import h5py
import numpy as np

from bppsa_cupy.data.dataset import Normalization, Raw
from bppsa_cupy.errors import DataError
from bppsa_cupy.system.hdf5 import attribute, create, open_file, read_array, write_array

FORMAT, VERSION = "bppsa-sequences", 1
SUFFIXES = (".h5", ".hdf5")
#: How the inputs were or are to be normalised: "none" values are used as they are; "sample" each
#: coefficient was brought to zero mean and unit deviation over the steps of its sample; "train" loading
#: does so by the constants in the file, those of all steps of the training samples.
NORMALIZATIONS = ("none", "sample", "train")


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
    constants : Normalization or None
        The constants of "train".
    origin : mapping
        How the file was made, as JSON values.
    """

    name: str
    train: Raw
    test: Raw | None
    class_names: tuple[str, ...]
    normalization: str = "none"
    constants: Normalization | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)


def write_sequences(path: str | os.PathLike[str], sequences: Sequences, *, compress: bool = False) -> None:
    """Write a sealed file, replacing `path` at the end; `compress` gzips the inputs.

    Raises DataError if the file cannot be written.
    """
    assert (sequences.normalization == "train") == (sequences.constants is not None)
    with create(path, error=DataError) as file:
        file.attrs.update(format=FORMAT, format_version=VERSION, name=sequences.name)
        file.attrs.update(
            class_names=json.dumps(sequences.class_names),
            normalization=sequences.normalization,
            origin=json.dumps(dict(sequences.origin)),
        )
        if sequences.constants is not None:
            write_array(file, "mean", np.array(sequences.constants.mean))
            write_array(file, "std", np.array(sequences.constants.std))
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
                f"{path} has the format {kind!r}, version {version}, and normalization {normalization!r}: "
                f"data must be {FORMAT!r}, version {VERSION}, with one of {', '.join(NORMALIZATIONS)}"
            )
        train, constants = _read_split(file, "train"), None
        if normalization == "train":
            shape = train.inputs.shape[2:]
            mean, std = (
                read_array(file, name, kinds="f", ndim=1, error=DataError) for name in ("mean", "std")
            )
            if mean.shape != shape or std.shape != shape or not (np.isfinite(mean) & (std > 0)).all():
                raise DataError(
                    f"{path}: mean and std have shapes {mean.shape} and {std.shape}, the inputs {shape[0]} "
                    "features: each must have one finite mean and one std above 0"
                )
            constants = Normalization(tuple(mean.tolist()), tuple(std.tolist()))
        names = _read_json(file, "class_names", list)
        if not names or not all(isinstance(name, str) for name in names):
            raise DataError(f"{path} has the class names {names!r}: they must be a list of texts, not empty")
        return Sequences(
            attribute(file, "name", str, DataError), train,
            _read_split(file, "test") if "test" in file else None,
            tuple(names), normalization, constants, _read_json(file, "origin", dict),
        )  # fmt: skip


def _read_split(file: h5py.File, name: str) -> Raw:
    group = file.get(name)
    if not isinstance(group, h5py.Group):
        raise DataError(f"{file.filename}: group {name} is missing: data must have training samples")
    inputs = read_array(group, "inputs", kinds="uf", ndim=3, error=DataError)
    if inputs.dtype not in (np.uint8, np.float32):
        raise DataError(f"{file.filename}: {name}/inputs is {inputs.dtype}: it must be uint8 or float32")
    lengths = None
    if "lengths" in group:
        lengths = read_array(group, "lengths", kinds="iu", ndim=1, error=DataError)
    labels = read_array(group, "labels", kinds="iu", error=DataError)
    return Raw(inputs, labels, f"{file.filename} ({name})", lengths)


def _read_json(file: h5py.File, name: str, kind: type) -> Any:
    text = attribute(file, name, str, DataError)
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, kind):
        raise DataError(f"{file.filename}: attribute {name!r} is {text[:60]}: it must be a {kind.__name__}")
    return value
