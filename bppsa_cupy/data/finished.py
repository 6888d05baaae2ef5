"""Finished arrays of a long computation, kept beside its output until that is whole."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from bppsa_cupy.errors import DataError
from bppsa_cupy.system.hdf5 import create, open_file, read_array, write_array

#: Seconds of work that a kill may lose.
INTERVAL = 10.0


class FinishedArrays(Mapping[str, np.ndarray]):
    """Real arrays by key, which a run that was stopped leaves for the next one.

    They lie in sealed files of a hidden folder beside `output`; a file that is damaged is as if it were
    not there. A key must say all that its array follows from.
    """

    def __init__(self, output: Path) -> None:
        self.folder = output.with_name(f".{output.name}.parts")
        self._kept: dict[str, np.ndarray] = {}
        self._new: dict[str, np.ndarray] = {}
        self._written = time.monotonic()
        for file in sorted(self.folder.glob("*.h5")):
            try:
                with open_file(file, error=DataError) as stored:
                    self._kept |= {key: read_array(stored, key, kinds="f", error=DataError) for key in stored}
            except DataError:
                continue

    def __getitem__(self, key: str) -> np.ndarray:
        return self._kept[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, key: str, array: np.ndarray) -> None:
        """Keep `array`; it is on the disk after INTERVAL seconds at the latest that call `add` again."""
        self._kept[key] = self._new[key] = array
        if time.monotonic() - self._written > INTERVAL:
            self.flush()

    def flush(self) -> None:
        """Bring all to the disk. Raises DataError where that fails."""
        if self._new:
            self.folder.mkdir(exist_ok=True)
            with create(self.folder / f"{min(self._new)}.h5", error=DataError) as file:
                for key, array in self._new.items():
                    write_array(file, key, array)
        self._new = {}
        self._written = time.monotonic()

    def remove(self) -> None:
        """Delete all that was kept on the disk."""
        shutil.rmtree(self.folder, ignore_errors=True)
