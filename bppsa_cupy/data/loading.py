"""One function for every layout."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from bppsa_cupy.arguments import as_flag, as_integer, as_path, is_one_of
from bppsa_cupy.data import sequences
from bppsa_cupy.data.dataset import Dataset, RawDataset, make_dataset
from bppsa_cupy.data.readers import (
    IDX_IMAGES,
    STEPS,
    TEXTS,
    find_idx,
    read_cifar10,
    read_digits,
    read_idx,
    read_npz,
    read_text,
)
from bppsa_cupy.errors import DataError

_TAKES = (
    "'digits', 'text', a folder of CIFAR-10's binary layout (data_batch_1.bin …) or of IDX files "
    "(train-images-idx3-ubyte …), or a file .bin, .npz, …-images-idx3-ubyte, .h5 (sequences of bppsa-data) "
    "or .txt (a text by characters)"
)


def load(
    source: str | os.PathLike[str],
    *,
    classes: int | None = None,
    normalize: bool = True,
    seed: int = 0,
    steps: int = STEPS,
) -> Dataset:
    """The data set at `source`.

    source     "digits" (scikit-learn's, enlarged to 1 × 32 × 32), or a path: a folder with
               data_batch_*.bin (CIFAR-10's binary layout, any number of records) and perhaps
               test_batch.bin, or one such file; a folder of MNIST's IDX files, gzipped or not, or its
               file of training images; an .npz with x_train, y_train (and x_test, y_test), or x, y; a
               file of sequences, .h5, as bppsa-data writes it; a text, .txt, .md or .rst, by characters, or
               "text", what Python's own help says of the language
    classes    the number of classes; None takes 10 for CIFAR-10, at least 10 for IDX files, the named ones
               of sequences, and else the highest label + 1
    normalize  bring each channel to about zero mean and unit deviation: by constants for CIFAR-10 (mean
               0.4914, 0.4822, 0.4465, deviation 0.2470, 0.2435, 0.2616 of values / 255), else computed
               from the training inputs; what is used is in `normalization`. Sequences say themselves
               what they need
    seed       which digits are for the test
    steps      of each sequence of a text
    Raises DataError where the source is missing, of another layout, or damaged.
    """
    if classes is not None:
        classes = as_integer("load", "classes", classes, 1, error=DataError)
    normalize = as_flag("load", "normalize", normalize, error=DataError)
    seed = as_integer("load", "seed", seed, 0, None, error=DataError)
    if is_one_of(source, ["digits"]):
        made = make_dataset(read_digits(seed), classes, normalize)
        return replace(made, source="digits")
    steps = as_integer("load", "steps", steps, 1, error=DataError)
    if is_one_of(source, ["text"]):
        return replace(make_dataset(read_text(None, steps), classes, normalize), source="text")
    path = as_path("load", "source", source, error=DataError)
    if not path.exists():
        raise DataError(f"data {str(source)!r} does not exist: it must be {_TAKES}")
    try:
        raw = read_text(path, steps) if path.suffix in TEXTS and path.is_file() else _read(path)
    except OSError as cause:
        raise DataError(f"{path} cannot be read ({cause.strerror or cause})") from cause
    return replace(make_dataset(raw, classes, normalize), source=os.path.abspath(path))


def _read(path: Path) -> RawDataset:
    if path.is_dir():
        inner = path / "cifar-10-batches-bin"
        folder = inner if inner.is_dir() else path
        if any(folder.glob("data_batch_*.bin")):
            return read_cifar10(folder)
        if find_idx(path, "train"):
            return read_idx(path)
    elif path.suffix == ".bin":
        return read_cifar10(path)
    elif path.suffix == ".npz":
        return read_npz(path)
    elif path.suffix in sequences.SUFFIXES:
        found = sequences.read_sequences(path)
        return RawDataset(
            found.name, found.train, found.test, len(found.class_names), normalization=found.constants,
            ready=found.normalization != "train",
        )  # fmt: skip
    elif IDX_IMAGES.match(path.name):
        return read_idx(path)
    raise DataError(f"{path} is of no known layout: data must be {_TAKES}")
