"""Wheel and sdist: what they hold. `make dist` installs both and tries them."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
MAPPED = ("jacobians", "raw_kernels", "tools")
OWN_FILES = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE")


def python(*arguments, cwd, path=None):
    """The output of this Python on `arguments`, with nothing but `path` to import from besides its own."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    command = [sys.executable, *map(str, arguments)]
    result = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, encoding="utf-8")
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def build(kind, source, into):
    """The file that setuptools builds from `source`, without a network."""
    into.mkdir()
    code = f"from setuptools import build_meta; build_meta.build_{kind}({str(into)!r})"
    python("-c", code, cwd=source)
    (made,) = into.iterdir()
    return made


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sdist")
    for name in ("bppsa_cupy", *MAPPED):
        shutil.copytree(ROOT / name, folder / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in OWN_FILES:
        shutil.copy(ROOT / name, folder / "source" / name)
    return build("sdist", folder / "source", folder / "built")


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    """Built from the unpacked sdist, so that what the sdist lacks is missed."""
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    return build("wheel", source, folder / "built")


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed")
    python(
        "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", folder, wheel, cwd=folder
    )
    return folder


def names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_has_one_top_level_package(wheel):
    tops = {name.split("/")[0] for name in names(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"bppsa_cupy"}


def test_the_wheel_holds_every_source(wheel):
    expected = set()
    for folder in ("bppsa_cupy", *MAPPED):
        package = "bppsa_cupy" if folder == "bppsa_cupy" else f"bppsa_cupy/{folder}"
        expected |= {
            f"{package}/{path.relative_to(ROOT / folder)}"
            for path in (ROOT / folder).rglob("*")
            if path.suffix in (".py", ".cu", ".cuh", ".typed")
        }
    assert {"bppsa_cupy/py.typed", "bppsa_cupy/raw_kernels/prelude.cuh"} <= expected
    assert expected <= names(wheel)


@pytest.mark.parametrize("folder", ["jacobians", "raw_kernels"])
def test_a_mapped_folder_is_refused_as_a_top_level_package(folder):
    code = f"import {folder}"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, encoding="utf-8")
    assert result.returncode == 1
    assert (
        f"ImportError: import bppsa_cupy.{folder}: a bare `{folder}` would be a second copy" in result.stderr
    )
