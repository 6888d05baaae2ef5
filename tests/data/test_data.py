"""Data sets of every layout are read as they were written, and wrong files are refused."""

import gzip
import struct

import numpy as np
import pytest

from bppsa_cupy.data import load
from bppsa_cupy.errors import DataError


def write_cifar10(path, labels, seed=0):
    records = np.random.default_rng(seed).integers(0, 256, (len(labels), 3073), np.uint8)
    records[:, 0] = labels
    records.tofile(path)
    return records[:, 1:].reshape(-1, 3, 32, 32)


def idx_bytes(array):
    return struct.pack(f">I{array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


def write_mnist(folder, part, count, *, packed, dot="-"):
    pixels = np.random.default_rng(count).integers(0, 256, (count, 5, 4), np.uint8)
    labels = (np.arange(count) % 10).astype(np.uint8)
    for name, array in {f"images{dot}idx3": pixels, f"labels{dot}idx1": labels}.items():
        content = idx_bytes(array)
        if packed:
            (folder / f"{part}-{name}-ubyte.gz").write_bytes(gzip.compress(content))
        else:
            (folder / f"{part}-{name}-ubyte").write_bytes(content)
    return pixels, labels


# ---- CIFAR-10's binary layout ----


def test_a_cifar10_folder(tmp_path):
    first = write_cifar10(tmp_path / "data_batch_1.bin", [0, 9, 3])
    second = write_cifar10(tmp_path / "data_batch_2.bin", [5], seed=1)
    test = write_cifar10(tmp_path / "test_batch.bin", [7, 7], seed=2)
    data = load(tmp_path)
    assert (data.name, data.input_shape, data.classes) == ("cifar10", (3, 32, 32), 10)
    np.testing.assert_array_equal(data.train.inputs, np.concatenate([first, second]))
    np.testing.assert_array_equal(data.train.labels, [0, 9, 3, 5])
    np.testing.assert_array_equal(data.test.inputs, test)
    assert data.train.inputs.dtype == np.uint8
    assert data.train.labels.dtype == np.int64
    assert data.normalization.mean == (0.4914, 0.4822, 0.4465)


@pytest.mark.parametrize("size", [0, 1, 3072, 3074, 9000])
def test_a_part_of_a_record_is_refused(tmp_path, size):
    (tmp_path / "data_batch_1.bin").write_bytes(bytes(size))
    message = f"has {size} bytes, {size // 3073} records of 3073 bytes and {size % 3073} bytes more"
    with pytest.raises(DataError, match=message):
        load(tmp_path)


def test_a_label_out_of_range_is_named(tmp_path):
    write_cifar10(tmp_path / "data_batch_1.bin", [0, 1, 10])
    with pytest.raises(DataError, match=r"data_batch_1\.bin has label 10 in record 2"):
        load(tmp_path)


# ---- IDX ----


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dot", ["-", "."])
def test_an_idx_folder(tmp_path, packed, dot):
    pixels, labels = write_mnist(tmp_path, "train", 7, packed=packed, dot=dot)
    test, _ = write_mnist(tmp_path, "t10k", 3, packed=packed, dot=dot)
    data = load(tmp_path)
    assert (data.input_shape, data.classes) == ((1, 5, 4), 10)
    np.testing.assert_array_equal(data.train.inputs[:, 0], pixels)
    np.testing.assert_array_equal(data.train.labels, labels)
    np.testing.assert_array_equal(data.test.inputs[:, 0], test)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b[:-1], "has 155 bytes: a header for 7 × 5 × 4 values takes 156"),
        (lambda b: b + b"\0", "has 157 bytes"),
        (lambda b: b[:10], "begins with 00000803"),
        (lambda b: b"\0\0\x08\x01" + b[4:], "begins with 00000801"),
        (lambda b: b"", "begins with nothing"),
    ],
)
def test_wrong_idx_files_are_refused(tmp_path, change, message):
    write_mnist(tmp_path, "train", 7, packed=False)
    file = tmp_path / "train-images-idx3-ubyte"
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(DataError, match=message):
        load(tmp_path)


def test_damaged_gzip_and_missing_labels_are_refused(tmp_path):
    write_mnist(tmp_path, "train", 7, packed=True)
    file = tmp_path / "train-images-idx3-ubyte.gz"
    content = file.read_bytes()
    for bad in (content[:-9], b"xx" + content[2:], content[:30] + b"\xff\xff\xff" + content[33:]):
        file.write_bytes(bad)
        with pytest.raises(DataError, match="train-images"):
            load(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"no labels beside it: .*train-labels-idx1-ubyte\.gz"):
        load(tmp_path)


# ---- NumPy archives ----


def test_an_archive_of_sequences(tmp_path):
    x = np.random.default_rng(0).normal(2, 3, (20, 6, 2))
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(20)[:, None] % 4)
    data = load(tmp_path / "a.npz")
    assert (data.name, data.input_shape, data.classes, data.test) == ("a", (6, 2), 4, None)
    assert data.train.inputs.dtype == np.float32
    np.testing.assert_allclose(data.normalization.mean, x.mean((0, 1)), rtol=1e-6)
    np.testing.assert_allclose(data.normalization.std, x.std((0, 1)), rtol=1e-6)


def test_an_archive_of_bytes_with_a_test(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (6, 8, 7), np.uint8)
    np.savez(tmp_path / "a.npz", x_train=x, y_train=np.arange(6), x_test=x[:2], y_test=np.arange(2))
    data = load(tmp_path / "a.npz", classes=9, normalize=False)
    assert (data.input_shape, data.classes, data.normalization) == ((1, 8, 7), 9, None)
    np.testing.assert_array_equal(data.test.inputs[:, 0], x[:2])


X, Y = np.ones((4, 3)), np.arange(4)
WRONG_ARCHIVES = {
    "names": ({"a": X, "y": Y}, "holds a, y: it must hold x_train"),
    "half a test": ({"x_train": X, "y_train": Y, "x_test": X}, "holds only x_test"),
    "lengths": ({"x": X, "y": Y[:3]}, r"has 4 inputs and labels int64 of shape \(3,\)"),
    "labels": ({"x": X, "y": Y * 0.5}, "labels float64"),
    "negative": ({"x": X, "y": Y - 1}, "label -1 in record 0"),
    "nan": ({"x": np.where(Y[:, None] == 2, np.nan, X), "y": Y}, "NaN or infinite input in sample 2"),
    "axes": ({"x": Y, "y": Y}, r"inputs of shape \(4,\)"),
    "none": ({"x": X[:0], "y": Y[:0]}, "N at least 1"),
    "text": ({"x": np.full((4, 3), "a"), "y": Y}, "inputs of <U1"),
    "objects": ({"x": np.full((4, 3), None), "y": Y}, "plain arrays"),
    "shapes": (
        {"x_train": X, "y_train": Y, "x_test": X[:, :2], "y_test": Y},
        r"samples of shape \(3,\) and .* of \(2,\)",
    ),
}


@pytest.mark.parametrize("case", WRONG_ARCHIVES)
def test_wrong_archives_are_refused(tmp_path, case):
    arrays, message = WRONG_ARCHIVES[case]
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=message):
        load(tmp_path / "a.npz")


# ---- digits, and no layout ----


def test_digits():
    pytest.importorskip("sklearn", reason="the digits need scikit-learn")
    data = load("digits")
    assert (data.name, data.input_shape, data.classes) == ("digits", (1, 32, 32), 10)
    assert len(data.train) + len(data.test) == 1797
    for label in range(10):
        in_test, in_train = ((split.labels == label).sum() for split in (data.test, data.train))
        assert in_test == round(0.2 * (in_test + in_train))
    again, other = load("digits"), load("digits", seed=1)
    np.testing.assert_array_equal(data.test.inputs, again.test.inputs)
    assert not np.array_equal(data.test.inputs, other.test.inputs)
    assert data.train.inputs.max() == 255


def test_unknown_sources_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"none' does not exist: it must be 'digits', 'text', a folder"):
        load(tmp_path / "none")
    with pytest.raises(DataError, match="is of no known layout"):
        load(tmp_path)
    (tmp_path / "a.csv").write_text("1,2", encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.csv is of no known layout"):
        load(tmp_path / "a.csv")
