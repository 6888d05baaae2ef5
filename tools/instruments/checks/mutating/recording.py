"""Which lines each test runs, kept on disk until a source, the test or what it imports of tests is edited."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mutating.mutant import ROOT

Lines = dict[str, list[int]]
IMPORTED = re.compile(r"^(?:from|import) (\w+)", re.MULTILINE)


def lines_run(paths: Iterable[str], run: Callable[[], Any]) -> tuple[float, Lines]:
    """Seconds of a call, and the lines of these files that it ran. Numba's functions are not seen."""
    files = {str(ROOT / path): path for path in paths}
    seen: dict[str, set[int]] = {path: set() for path in files.values()}

    def enter(frame: Any, event: str, argument: Any) -> Any:
        path = files.get(frame.f_code.co_filename)
        if path is None:
            return None
        add = seen[path].add

        def note(frame: Any, event: str, argument: Any) -> Any:
            add(frame.f_lineno)
            return note

        return note

    start = time.process_time()
    before = sys.gettrace()
    threading.settrace(enter)
    sys.settrace(enter)
    try:
        run()
    finally:
        sys.settrace(before)
        threading.settrace(before)  # type: ignore[arg-type]
    return time.process_time() - start, {path: sorted(lines) for path, lines in seen.items() if lines}


def imported_by(test_file: Path) -> set[Path]:
    """A file of tests, what it imports of what tests share, directly or not, and conftest.py."""
    found: set[Path] = set()
    tests = test_file.parents[1]
    waiting = [test_file, tests / "conftest.py"]
    while waiting:
        file = waiting.pop()
        if file in found or not file.exists():
            continue
        found.add(file)
        for name in IMPORTED.findall(file.read_text(encoding="utf-8")):
            waiting += [tests / "support" / f"{name}.py", *tests.glob(f"support/{name}/*.py")]
    return found


class Recorded:
    """Seconds and lines of each test of some files, by the test's name."""

    def __init__(self, file: Path, sources: list[str]) -> None:
        self._file = file
        texts = [(ROOT / path).read_bytes() for path in sources]
        self._state = hashlib.sha256(b"\0".join(texts)).hexdigest()
        self._kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        self.tests: dict[str, tuple[float, Lines]] = {}

    def of(self, test_file: Path, record: Callable[[], dict[str, tuple[float, Lines]]]) -> None:
        """Take what was recorded of one file of tests, or record it."""
        texts = [path.read_bytes() for path in sorted(imported_by(test_file))]
        digest = hashlib.sha256(b"\0".join([self._state.encode(), *texts])).hexdigest()
        kept = self._kept.get(test_file.name)
        if kept is None or kept["digest"] != digest:
            kept = {"digest": digest, "tests": record()}
            self._kept[test_file.name] = kept
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps(self._kept))
        self.tests.update(kept["tests"])
