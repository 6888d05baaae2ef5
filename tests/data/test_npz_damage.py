"""Entries of .npz files that are no arrays."""

from __future__ import annotations

import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from bppsa_cupy.data import load
from bppsa_cupy.errors import DataError


@pytest.mark.parametrize("name", ["x", "y"])
def test_an_entry_that_is_no_array_is_refused(name: str, tmp_path: Path) -> None:
    arrays = {"x": np.zeros((4, 3), np.float32), "y": np.zeros(4, np.int64)}
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
        for key, array in arrays.items():
            stream = BytesIO()
            np.save(stream, array)
            content = stream.getvalue()
            archive.writestr(f"{key}.npy", b"\x92" + content[1:] if key == name else content)
    with pytest.raises(DataError, match=f"its {name} is no array"):
        load(tmp_path / "data.npz")
