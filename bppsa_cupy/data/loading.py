"""The data set at a path: readers of image files, NumPy archives and sequences."""

from __future__ import annotations

import gzip
import math
import os
import re
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from bppsa_cupy.arguments import as_integer
from bppsa_cupy.data import sequences
from bppsa_cupy.data.dataset import Dataset, Normalization, RawDataset, Split, draw_test, make_dataset
from bppsa_cupy.errors import DataError, reason_of

_TAKES = (
    "'digits', a folder with the binary files of CIFAR-10 (data_batch_1.bin …) or with IDX files "
    "(train-images-idx3-ubyte …), or a file that ends in .bin, .npz, images-idx3-ubyte or .h5 (written by "
    "bppsa-data)"
)


def load(
    source: str | os.PathLike[str], *, classes: int | None = None, normalize: bool = True, seed: int = 0
) -> Dataset:
    """Load a data set.

    Parameters
    ----------
    source : str or PathLike
        "digits" (from scikit-learn, enlarged to 1 × 32 × 32) or a path to one of these:

        - a folder with CIFAR-10's data_batch_*.bin and optionally test_batch.bin, or one such file;
        - a folder with MNIST's IDX files, gzipped or not, or its file of training images;
        - an .npz with x_train, y_train (and x_test, y_test), or x, y;
        - an .h5 file of sequences that `bppsa-data` wrote.
    classes : int, optional
        Number of classes. Default: 10 for CIFAR-10, the number of class names for files of sequences, and
        otherwise the highest label + 1 (for IDX files at least 10).
    normalize : bool, default: True
        Whether `batches` normalizes each channel. CIFAR-10 has fixed constants. Others are computed from the
        training inputs. Files of sequences state their normalization.
    seed : int, default: 0
        Seed for the choice of the test samples of "digits".

    Returns
    -------
    Dataset

    Raises
    ------
    DataError
        If the source is missing, damaged or of an unknown format.

    Examples
    --------
    >>> import os, tempfile, numpy as np
    >>> from bppsa_cupy.data import load
    >>> path = os.path.join(tempfile.mkdtemp(), "data.npz")
    >>> np.savez(path, x=np.zeros((8, 3), np.float32), y=np.arange(8) % 2)
    >>> load(path).input_shape, load(path).classes
    ((3,), 2)
    """
    if classes is not None:
        classes = as_integer("load", "classes", classes, 1, error=DataError)
    seed = as_integer("load", "seed", seed, 0, None, error=DataError)
    if source == "digits":
        made = make_dataset(read_digits(seed), classes, normalize)
        return replace(made, source="digits")
    path = Path(source)
    try:
        if not path.exists():
            raise DataError(f"data {str(source)!r} does not exist: pass {_TAKES}")
        raw = _read(path)
    except OSError as cause:
        raise DataError(
            f"{path} cannot be read ({cause.strerror or cause}): check the path and its permissions"
        ) from cause
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
        file = sequences.read_sequences(path)
        return RawDataset(file.name, file.train, file.test, len(file.class_names), ready=True)
    elif IDX_IMAGES.match(path.name):
        return read_idx(path)
    raise DataError(f"{path} has an unknown layout: pass {_TAKES}")


# ---- CIFAR-10: records of a label byte and 3 × 32 × 32 pixel bytes (Krizhevsky 2009) ----

_RECORD = 1 + 3 * 32 * 32
#: Mean and deviation of the 50,000 training images, values divided by 255: red, green, blue.
_CIFAR10 = Normalization((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))


def read_cifar10(path: Path) -> RawDataset:
    """Read one file of records, or data_batch_*.bin and optionally test_batch.bin of a folder."""
    files = sorted(path.glob("data_batch_*.bin")) if path.is_dir() else [path]
    raws = [_read_records(file) for file in files]
    inputs, labels = (np.concatenate([getattr(raw, name) for raw in raws]) for name in ("inputs", "labels"))
    held = path / "test_batch.bin"
    test = _read_records(held) if path.is_dir() and held.exists() else None
    return RawDataset("cifar10", Split(inputs, labels, source=str(path)), test, 10, normalization=_CIFAR10)


def _read_records(file: Path) -> Split:
    size = file.stat().st_size
    if size == 0 or size % _RECORD:
        raise DataError(
            f"{file} has {size} bytes, which is not a positive multiple of the record size {_RECORD} (a "
            "label byte and 3,072 pixels): download it again"
        )
    records = np.fromfile(file, np.uint8).reshape(-1, _RECORD)
    images = np.ascontiguousarray(records[:, 1:]).reshape(-1, 3, 32, 32)
    return Split(images, records[:, 0].copy(), source=str(file))


# ---- MNIST's IDX: a big-endian header, then bytes; plain or gzipped (LeCun, Cortes and Burges) ----

IDX_IMAGES = re.compile(r"(.*)images([-.])idx3-ubyte(\.gz)?$")


def find_idx(folder: Path, split: str) -> Path | None:
    """The file of images of `split` ("train" or "t10k") in `folder`, or None."""
    files = (file for file in sorted(folder.glob(f"{split}-images*")) if IDX_IMAGES.match(file.name))
    return next(files, None)


def read_idx(path: Path) -> RawDataset:
    """Read a file of images with its labels, or the training and test files of a folder."""
    images = find_idx(path, "train") if path.is_dir() else path
    held = find_idx(path, "t10k") if path.is_dir() else None
    assert images is not None, path
    test = None if held is None else _read_idx_pair(held)
    return RawDataset(path.name, _read_idx_pair(images), test, least_classes=10)


def _read_idx_pair(images: Path) -> Split:
    """The images of one file, (N, 1, H, W) uint8, with the labels of the file that belongs to it."""
    match = IDX_IMAGES.match(images.name)
    assert match is not None, images
    stem = f"{match[1]}labels{match[2]}idx1-ubyte"
    candidates = [images.with_name(stem + end) for end in (match[3] or "", "", ".gz")]
    labels = next((file for file in candidates if file.exists()), None)
    if labels is None:
        raise DataError(f"{images} has no labels: add the file {candidates[0]}")
    return Split(_read_idx_bytes(images, 3)[:, None], _read_idx_bytes(labels, 1), source=str(images))


def _read_idx_bytes(file: Path, axes: int) -> np.ndarray:
    try:
        with gzip.open(file, "rb") if file.suffix == ".gz" else open(file, "rb") as stream:
            content = stream.read()
    except (gzip.BadGzipFile, EOFError, zlib.error) as cause:
        raise DataError(f"{file} cannot be read ({reason_of(cause)}): download it again") from cause
    header = 4 + 4 * axes
    magic = 0x800 + axes
    if len(content) < header or struct.unpack(">I", content[:4])[0] != magic:
        raise DataError(
            f"{file} begins with {content[:4].hex() or 'nothing'}, but an IDX file of bytes with {axes} axes "
            f"begins with {magic:08x}: download it again"
        )
    shape = struct.unpack(f">{axes}I", content[4:header])
    if len(content) != header + math.prod(shape):
        raise DataError(
            f"{file} has {len(content)} bytes, but its header states {' × '.join(map(str, shape))} values, "
            f"which need {header + math.prod(shape)}: download it again"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


# ---- NumPy archives: x_train, y_train and perhaps x_test, y_test; or x, y ----


def read_npz(file: Path) -> RawDataset:
    """Read training and test samples of an archive, without unpickling.

    Inputs are images (N, C, H, W), sequences (N, T, F) or vectors (N, D). Bytes (N, H, W) are grey images.
    Bytes stay bytes, other numbers become float32. Labels are integers, (N,) or (N, 1), or (N, T) for
    sequences. Raises DataError for other names or a damaged file.
    """
    try:
        with open(file, "rb") as stream, np.load(stream, allow_pickle=False) as archive:
            # An entry that does not begin as arrays do is given as bytes.
            arrays = {name: np.asarray(archive[name]) for name in archive.files}
    except Exception as cause:  # zipfile, its decompressors and the header's parser raise what they like
        raise DataError(
            f"{file} is not a NumPy archive of plain arrays, or is damaged ({reason_of(cause)}): write it "
            "with numpy.savez"
        ) from cause
    raws = []
    for names in (("x_train", "y_train"), ("x_test", "y_test"), ("x", "y")):
        if not set(names) <= arrays.keys():
            continue
        inputs, labels = (arrays[name] for name in names)
        source = f"{file} ({', '.join(names)})"
        if inputs.dtype.kind not in "iuf":
            raise DataError(f"{source} has inputs of {inputs.dtype}: convert the inputs to uint8 or float32")
        if inputs.dtype != np.uint8:
            inputs = inputs.astype(np.float32)
        elif inputs.ndim == 3:
            inputs = inputs[:, None]
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        raws.append(Split(inputs, labels, source=source))
    if not raws or len(arrays.keys() & {"x_test", "y_test"}) == 1:
        raise DataError(
            f"{file} contains the arrays {', '.join(sorted(arrays)) or 'none'}: pass a file with x_train "
            "and y_train (optionally x_test and y_test), or x and y"
        )
    return RawDataset(file.stem, raws[0], raws[1] if "x_test" in arrays else None)


# ---- scikit-learn's handwritten digits, 1,797 images that come with the library ----


def read_digits(seed: int) -> RawDataset:
    """Read digits as (N, 1, 32, 32) uint8; `seed` chooses a fifth of each class for the test.

    Raises DataError if scikit-learn is missing.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as cause:
        raise DataError(
            f"data 'digits' needs scikit-learn, which cannot be imported ({cause}): install the extra demo"
        ) from cause
    digits = load_digits()
    images = np.round(digits.images * (255 / 16)).astype(np.uint8)
    images = images.repeat(4, axis=1).repeat(4, axis=2)[:, None]
    labels = digits.target
    is_test = draw_test(labels, 0.2, seed)
    train, test = (Split(images[chosen], labels[chosen], source="digits") for chosen in (~is_test, is_test))
    return RawDataset("digits", train, test)
