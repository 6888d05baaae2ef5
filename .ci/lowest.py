"""Tests with the oldest versions that setup.cfg admits; what is no option of its own goes to pytest.

Makes an environment in FOLDER by the Python that runs this, with the lower bound of every package that the
package and the extras EXTRAS need, or of those of --keep alone and the newest of the others, and runs the
tests there. Tests that need a package that is not there are skipped, and say which.
"""

from __future__ import annotations

import argparse
import configparser
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Optional parts whose packages are small; the others' tests are skipped.
EXTRAS = ("cells", "audio", "demo", "mpi")
#: What the tests themselves take of the extra `test`, in any version that it admits.
RUNNERS = ("pytest", "pytest-xdist", "hypothesis", "setuptools", "expecttest", "mpmath", "mpich")


def requirements(config: configparser.ConfigParser, extra: str | None = None) -> list[str]:
    """The lines of install_requires, or of an extra with those that it takes in."""
    if extra is None:
        text = config["options"]["install_requires"]
    else:
        text = config["options.extras_require"][extra]
    return [line.strip() for line in text.splitlines() if line.strip()]


def lowered(requirement: str) -> str:
    """A requirement of one version, its lower bound."""
    name, bound = re.fullmatch(r"([\w.\[\]-]+)\s*[=>]=\s*([\w.]+).*", requirement).groups()
    return f"{name}=={bound}"


def main() -> int:
    """pytest's exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="of the environment, made anew")
    parser.add_argument(
        "--keep", nargs="+", metavar="NAME", help="packages at their lower bound (default: all)"
    )
    args, options = parser.parse_known_args()
    config = configparser.ConfigParser()  # it fills in %(plot)s
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    needed = requirements(config) + [line for extra in EXTRAS for line in requirements(config, extra)]
    bounds = {lowered(line).split("==")[0]: lowered(line) for line in needed}
    kept = set(args.keep or bounds)
    if unknown := kept - set(bounds):
        parser.error(f"setup.cfg bounds {', '.join(bounds)}, and not {', '.join(unknown)}")
    wanted = [bounds[name] if name in kept else name for name in bounds]
    runners = [line for line in requirements(config, "test") if re.match(r"[\w-]+", line)[0] in RUNNERS]
    venv.create(args.folder, clear=True, with_pip=True)
    python = str(args.folder / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, *wanted, *runners], check=True)
    subprocess.run([*install, "--no-deps", "--editable", str(ROOT)], check=True)
    names = [*bounds, "llvmlite"]
    code = (
        "import sys, importlib.metadata as m; print(*(f'{n} {m.version(n)}' for n in sys.argv[1:]), sep=', ')"
    )
    subprocess.run([python, "-c", code, *names], check=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests" / "support"), "OMP_WAIT_POLICY": "passive"}
    # Old packages warn of what newer ones, on which they have no upper bound, are about to drop.
    shown = ["-W", "ignore::DeprecationWarning", "-q", "-m", "not gpu", "-p", "missing_packages"]
    command = [python, "-m", "pytest", *shown, *options]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
