"""Run mypy over the package as it is imported, which the checkout's folders do not show it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
MAPPED = ("jacobians", "raw_kernels", "tools")


def main() -> int:
    """mypy on a tree of links; fails where it looked at fewer files than there are."""
    sources = [file for folder in ("bppsa_cupy", *MAPPED) for file in (ROOT / folder).rglob("*.py")]
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, "bppsa_cupy")
        package.mkdir()
        for path in (*(ROOT / "bppsa_cupy").iterdir(), *(ROOT / name for name in MAPPED)):
            (package / path.name).symlink_to(path)
        result = subprocess.run(
            [
                *(sys.executable, "-m", "mypy", "--package", "bppsa_cupy"),
                *("--config-file", str(ROOT / "setup.cfg"), "--cache-dir", os.devnull),
            ],
            cwd=folder,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
    print(result.stdout, end="")
    checked = re.search(r"(\d+) source files", result.stdout)
    if result.returncode == 0 and (checked is None or int(checked[1]) != len(sources)):
        print(f"mypy saw {checked[1] if checked else 'no'} files of {len(sources)}", file=sys.stderr)
        return 1
    return result.returncode


if __name__ == "__main__":
    sys.exit(main())
