"""What a machine with a GPU can tell, in two calls of nine minutes, with its own packages: `make gpu`.

Nothing is installed or downloaded, and the package need not be: it is put together of links, and runs
tools/on_gpu/run.py, whose options these are.
"""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAPPED = ("jacobians", "raw_kernels", "tools")


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code of tools/on_gpu/run.py."""
    words = sys.argv[1:] if argv is None else argv
    with tempfile.TemporaryDirectory() as folder:
        tree = make_tree(ROOT, Path(folder))
        # By its file: as a module it would be looked for in this folder first, where the package has gaps.
        program = [sys.executable, str(tree / "tools" / "on_gpu" / "run.py"), "--tree", str(tree)]
        process = subprocess.Popen([*program, *words], env=environment(tree))
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                continue  # it got the same Ctrl-C, and ends what it has started


def make_tree(root: Path, folder: Path) -> Path:
    """A folder of links to the checkout's files in which the package is whole, as if installed."""
    for path in root.iterdir():
        if path.stem != "bppsa_cupy" and not path.name.startswith(".") and path.name != "out":
            (folder / path.name).symlink_to(path)
    package = folder / "bppsa_cupy"
    package.mkdir()
    for path in (*(root / "bppsa_cupy").iterdir(), *(root / name for name in MAPPED)):
        (package / path.name).symlink_to(path)
    # Commands and plans ask for the version of what is installed.
    setup = configparser.ConfigParser()
    setup.read(root / "setup.cfg", encoding="utf-8")
    facts = folder / "bppsa_cupy.dist-info"
    facts.mkdir()
    lines = [f"{key.title()}: {setup['metadata'][key]}\n" for key in ("name", "version")]
    (facts / "METADATA").write_text("Metadata-Version: 2.1\n" + "".join(lines), encoding="utf-8")
    return folder


def environment(tree: Path) -> dict[str, str]:
    """What the processes see: the tree before all else, its tests for plugins of pytest, and nothing written
    into the checkout."""
    others = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(tree), str(tree / "tests" / "support"), *([others] if others else [])])
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}


if __name__ == "__main__":
    sys.exit(main())
