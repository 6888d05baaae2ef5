"""Run mypy over the package as it is imported, which the checkout's folders do not show it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
MAPPED = ("jacobians", "raw_kernels", "tools")


def main() -> int:
    """mypy on a tree of links; fails where it looked at fewer files than there are."""
    sources = [file for folder in ("bppsa_cupy", *MAPPED) for file in (ROOT / folder).rglob("*.py")]
    tree = ROOT / "out" / "types"
    shutil.rmtree(tree, ignore_errors=True)
    for file in sources:
        below = file.relative_to(ROOT)
        place = tree / below if below.parts[0] == "bppsa_cupy" else tree / "bppsa_cupy" / below
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(file)
    result = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--package", "bppsa_cupy"),
            *("--config-file", str(ROOT / "setup.cfg"), "--cache-dir", str(ROOT / "out" / "mypy")),
        ],
        cwd=tree,
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
