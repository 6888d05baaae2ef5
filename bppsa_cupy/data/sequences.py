"""Files of sequences in HDF5, and the bitstreams of the paper (section 4.1)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import h5py
import numpy as np
from tqdm import tqdm

from bppsa_cupy.data.dataset import Split
from bppsa_cupy.errors import DataError
from bppsa_cupy.system.hdf5 import attribute, check_format, create, open_file, read_array, write_array

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
    train, test : Split or None
        Inputs (N, T, F) uint8 or float32, labels (N,) or (N, T), and lengths (N,) or None.
    class_names : sequence of str
        One name per class, in the order of labels.
    normalization : str
        The normalization, one of NORMALIZATIONS.
    origin : mapping
        How the file was made, as JSON values.
    """

    name: str
    train: Split
    test: Split | None
    class_names: tuple[str, ...]
    normalization: str = "none"
    origin: Mapping[str, object] = field(default_factory=dict)


def write_sequences(path: str | os.PathLike[str], sequences: Sequences, *, compress: bool = False) -> None:
    """Write a sealed file, replacing `path` at the end; `compress` gzips the inputs.

    Raises DataError if the file cannot be written.
    """
    with create(path, error=DataError) as file:
        file.attrs.update(format=FORMAT, format_version=VERSION, name=sequences.name)
        names, origin = json.dumps(sequences.class_names), json.dumps(dict(sequences.origin))
        file.attrs.update(class_names=names, normalization=sequences.normalization, origin=origin)
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
        check_format(file, FORMAT, VERSION, DataError)
        normalization = attribute(file, "normalization", str, DataError)
        if normalization not in NORMALIZATIONS:
            raise DataError(
                f"{path} has normalization {normalization!r}: pass a file with {' or '.join(NORMALIZATIONS)}"
            )
        return Sequences(
            attribute(file, "name", str, DataError), _read_split(file["train"]),
            _read_split(file["test"]) if "test" in file else None,
            tuple(json.loads(file.attrs["class_names"])), normalization, json.loads(file.attrs["origin"]),
        )  # fmt: skip


def _read_split(group: h5py.Group) -> Split:
    inputs = read_array(group, "inputs", kinds="uf", ndim=3, error=DataError)
    lengths = None
    if "lengths" in group:
        lengths = read_array(group, "lengths", kinds="iu", ndim=1, error=DataError)
    labels = read_array(group, "labels", kinds="iu", error=DataError)
    return Split(inputs, labels, None, lengths, f"{group.file.filename} ({group.name.strip('/')})")


CLASSES = 10
#: A random 64-bit integer is below entry c with probability (1 + 2c) / 20, equation 8's.
THRESHOLDS = np.array([((1 + 2 * c) << 64) // 20 for c in range(CLASSES)], np.uint64)


def make_bitstreams(
    length: int, samples: int, *, seed: int = 0, split: int = 0, progress: bool = False
) -> Split:
    """Create bitstreams for the classification task of Wang et al. 2020, section 4.1.

    Parameters
    ----------
    length : int
        T, at least 1.
    samples : int
        N, at least 1.
    seed : int, default: 0
        Seed of the bits and classes, at least 0.
    split : int, default: 0
        0 for training samples, 1 for test samples of the same distribution.
    progress : bool, default: False
        Whether to show a progress bar.

    Returns
    -------
    Split
        Inputs (N, T, 1) uint8 of zeros and ones, and labels (N,).

    Raises
    ------
    DataError
        If an argument is out of range, or there is too little memory.

    Notes
    -----
    Sample k depends only on (seed, split, k). A larger N begins with the same samples, a larger T with the
    same bits, in every version of NumPy.

    Examples
    --------
    >>> from bppsa_cupy.data.sequences import make_bitstreams
    >>> make_bitstreams(50, 8).inputs.shape
    (8, 50, 1)
    """
    if length < 1 or samples < 1 or seed < 0:
        raise DataError(
            f"make_bitstreams got length={length}, samples={samples} and seed={seed}: pass length and "
            "samples of at least 1, and a seed of at least 0"
        )
    try:
        bits = np.empty((samples, length, 1), np.uint8)
    except MemoryError as cause:
        raise DataError(
            f"{samples} bitstreams of length {length} need {samples * length} bytes, which are not "
            "available: pass fewer samples or a smaller length"
        ) from cause
    labels = np.empty(samples, np.int64)
    for k in tqdm(range(samples), desc="bitstreams", unit="sample", disable=not progress):
        words = np.random.PCG64((seed, split, k)).random_raw(1 + length)
        labels[k] = int(words[0]) % CLASSES
        np.less(words[1:], THRESHOLDS[labels[k]], out=bits[k, :, 0].view(bool))
    return Split(bits, labels, source=f"bitstreams of length {length}, seed {seed}")
