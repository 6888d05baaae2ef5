"""The log of training: a text file of one JSON object an iteration."""

from __future__ import annotations

import errno
import io
import json
import os
from pathlib import Path
from typing import Any

from bppsa_cupy.errors import BppsaError, DataError
from bppsa_cupy.system.files import check_writable, write_failure, write_text


class TrainingLog:
    """Rows of training, each written when it is known; `path` None for no log.

    path  an older log is replaced by the first row, so that a run that makes no step leaves it as it was
    step  the step a resumed run goes on from: the older log's rows up to it are kept. A last line that was
          cut short is dropped

    Raises BppsaError naming the path where it cannot be written, DataError where a line of the older log
    is no row.
    """

    def __init__(self, path: Path | None, step: int = 0) -> None:
        self._path = path
        self._file: io.FileIO | None = None
        self._kept: list[str] = []
        if path is None:
            return
        if path.is_file() or not path.exists():
            check_writable(path)
            if path.exists() and not os.access(path, os.W_OK):
                raise BppsaError(write_failure(path, OSError(errno.EACCES, "")))
        if step and path.is_file():
            self._kept = _rows_up_to(path, step)

    @property
    def begun(self) -> bool:
        """Whether the log holds a row before the next one; also where there is no log."""
        return self._path is None or self._file is not None or bool(self._kept)

    def write(self, row: dict[str, Any]) -> None:
        """Add a row."""
        if self._path is None:
            return
        data = memoryview(json.dumps(row, allow_nan=False).encode() + b"\n")
        try:
            if self._file is None:
                self._file = self._open(self._path)
            while data:
                data = data[self._file.write(data) :]
        except OSError as cause:
            raise BppsaError(write_failure(self._path, cause)) from cause

    def _open(self, path: Path) -> io.FileIO:
        if self._kept:
            write_text(path, "".join(self._kept))
        return io.FileIO(path, "a" if self._kept else "w")

    def __enter__(self) -> TrainingLog:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def _rows_up_to(path: Path, step: int) -> list[str]:
    """The lines of a log's rows up to `step`."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as cause:
        raise DataError(f"log {path} cannot be read ({os.strerror(cause.errno or 0)})") from cause
    kept = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            before = row["step"] <= step
        except (ValueError, KeyError, TypeError) as cause:
            if number == len(lines):
                break
            raise DataError(
                f"line {number} of log {path} is no row with a step: it is not the log of this training; "
                "give another --log, or mend the line"
            ) from cause
        if before:
            kept.append(line + "\n")
    return kept
