"""CIFAR-10's binary layout: records of a label byte and 3 × 32 × 32 pixel bytes.

Source: Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bppsa_cupy.data.dataset import Normalization, Raw
from bppsa_cupy.errors import DataError

SHAPE, CLASSES = (3, 32, 32), 10
RECORD = 1 + 3 * 32 * 32
#: Mean and deviation of the 50,000 training images, values divided by 255: red, green, blue.
NORMALIZATION = Normalization((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))


def read_folder(folder: Path) -> tuple[Raw, Raw | None]:
    """Training samples of all data_batch_*.bin by name, and test samples of test_batch.bin if it is there."""
    files = sorted(folder.glob("data_batch_*.bin"))
    if not files:
        raise DataError(f"{folder} has no data_batch_*.bin: CIFAR-10's binary layout has at least one")
    raws = [read_file(file) for file in files]
    train = raws[0]
    if len(raws) > 1:
        inputs, labels = (np.concatenate([getattr(r, name) for r in raws]) for name in ("inputs", "labels"))
        train = Raw(inputs, labels, str(folder))
    test = folder / "test_batch.bin"
    return train, read_file(test) if test.exists() else None


def read_file(file: Path) -> Raw:
    """All records of one file, as many as its size holds. Raises DataError for an incomplete record."""
    size = file.stat().st_size
    if size == 0 or size % RECORD:
        raise DataError(
            f"{file} has {size} bytes, {size // RECORD} records of {RECORD} bytes and {size % RECORD} bytes "
            "more: it must be whole records of a label byte and 3,072 pixels, and at least one"
        )
    records = np.fromfile(file, np.uint8).reshape(-1, RECORD)
    labels = records[:, 0]
    if labels.max() >= CLASSES:
        record = int(np.flatnonzero(labels >= CLASSES)[0])
        raise DataError(f"{file} has label {labels[record]} in record {record}: CIFAR-10 has labels 0 to 9")
    return Raw(np.ascontiguousarray(records[:, 1:]).reshape(-1, *SHAPE), labels.copy(), str(file))
