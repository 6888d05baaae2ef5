"""NumPy archives: x_train, y_train and perhaps x_test, y_test; or x, y."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bppsa_cupy.data.dataset import Raw
from bppsa_cupy.errors import DataError, reason_of


def read(file: Path) -> tuple[Raw, Raw | None]:
    """Training and test samples of an archive.

    Inputs: images (N, C, H, W), sequences (N, T, F), vectors (N, D); bytes of three axes are grey images
    (N, H, W) and get a channel axis. Bytes stay bytes, other numbers become float32. Labels: integers,
    (N,) or (N, 1), of sequences also (N, T). Raises DataError for other names or a damaged file; nothing is
    unpickled.
    """
    try:
        with open(file, "rb") as stream:
            archive = np.load(stream, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise DataError(f"{file} is no NumPy archive: write it with numpy.savez")
            arrays = {name: archive[name] for name in archive.files}
    except DataError:
        raise
    except Exception as cause:  # zipfile, its decompressors and the header's parser raise what they like
        raise DataError(
            f"{file} is no NumPy archive of plain arrays, or is damaged ({reason_of(cause)})"
        ) from cause
    if {"x_train", "y_train"} <= arrays.keys():
        train, known = _raw(file, arrays, ("x_train", "y_train")), {"x_test", "y_test"} & arrays.keys()
        if len(known) == 1:
            raise DataError(
                f"{file} holds {known.pop()} alone: it must hold both of x_test and y_test, or none"
            )
        return train, _raw(file, arrays, ("x_test", "y_test")) if known else None
    if {"x", "y"} <= arrays.keys():
        return _raw(file, arrays, ("x", "y")), None
    raise DataError(
        f"{file} holds {', '.join(sorted(arrays)) or 'nothing'}: it must hold x_train and y_train "
        "(and x_test and y_test), or x and y"
    )


def _raw(file: Path, arrays: dict[str, np.ndarray], names: tuple[str, str]) -> Raw:
    inputs, labels = (arrays[name] for name in names)
    source = f"{file} ({', '.join(names)})"
    for name in names:  # NumPy gives an entry that does not begin as its arrays do as bytes
        if not isinstance(arrays[name], np.ndarray):
            raise DataError(f"{file} is damaged: its {name} is no array of NumPy's")
    if inputs.dtype.kind not in "iuf":
        raise DataError(f"{source} has inputs of {inputs.dtype}: they must be bytes or real numbers")
    if inputs.dtype != np.uint8:
        inputs = inputs.astype(np.float32)
    elif inputs.ndim == 3:
        inputs = inputs[:, None]
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    return Raw(inputs, labels, source)
