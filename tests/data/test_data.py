"""Data sets of every layout are read as they were written, and wrong files are refused."""

import gzip
import struct

import numpy as np
import pytest
from refusals import assert_refused

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


@pytest.mark.parametrize("size", [0, 3072, 9000])
def test_a_part_of_a_record_is_refused(tmp_path, size):
    (tmp_path / "data_batch_1.bin").write_bytes(bytes(size))
    assert_refused(lambda: load(tmp_path), DataError, f"{size} bytes", "3073")


def test_a_label_out_of_range_is_named(tmp_path):
    write_cifar10(tmp_path / "data_batch_1.bin", [0, 1, 10])
    assert_refused(lambda: load(tmp_path), DataError, str(tmp_path), "label 10")


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


@pytest.mark.parametrize("change, value, fix", [
    (lambda b: b[:-1], "155 bytes", "156"), (lambda b: b + b"\0", "157 bytes", "156"),
    (lambda b: b[:10], "00000803", "train-images"),
    (lambda b: b"\0\0\x08\x01" + b[4:], "00000801", "train-images"),
])  # fmt: skip
def test_wrong_idx_files_are_refused(tmp_path, change, value, fix):
    write_mnist(tmp_path, "train", 7, packed=False)
    file = tmp_path / "train-images-idx3-ubyte"
    file.write_bytes(change(file.read_bytes()))
    assert_refused(lambda: load(tmp_path), DataError, value, fix)


def test_missing_labels_are_refused(tmp_path):
    write_mnist(tmp_path, "train", 7, packed=True)
    (tmp_path / "train-labels-idx1-ubyte.gz").unlink()
    assert_refused(lambda: load(tmp_path), DataError, "labels", "train-labels-idx1-ubyte.gz")


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
WRONG_ARCHIVES = [
    ({"a": X, "y": Y}, "a, y", "x_train"),
    ({"x_train": X, "y_train": Y, "x_test": X}, "x_test", "y_test"),
    ({"x": X, "y": Y[:3]}, "4 inputs", "(3,)"),
    ({"x": X, "y": Y * 0.5}, "labels", "float64"),
    ({"x": X, "y": Y - 1}, "label -1", "sample 0"),
    ({"x": np.where(Y[:, None] == 2, np.nan, X), "y": Y}, "NaN", "sample 2"),
    ({"x": Y, "y": Y}, "(4,)", "inputs"),
    ({"x": X[:0], "y": Y[:0]}, "N", "at least 1"),
    ({"x": np.full((4, 3), None), "y": Y}, "plain arrays", "a.npz"),
    ({"x_train": X, "y_train": Y, "x_test": X[:, :2], "y_test": Y}, "(4, 3)", "(4, 2)"),
]


@pytest.mark.parametrize("arrays, value, fix", WRONG_ARCHIVES)
def test_wrong_archives_are_refused(tmp_path, arrays, value, fix):
    np.savez(tmp_path / "a.npz", **arrays)
    assert_refused(lambda: load(tmp_path / "a.npz"), DataError, value, fix)


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
    (tmp_path / "a.csv").write_text("1,2", encoding="utf-8")
    assert_refused(lambda: load(tmp_path / "none"), DataError, "none", "'digits'")
    assert_refused(lambda: load(tmp_path), DataError, str(tmp_path), "layout")
    assert_refused(lambda: load(tmp_path / "a.csv"), DataError, "a.csv", "layout")
