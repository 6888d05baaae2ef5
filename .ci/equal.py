"""Compare this checkout with another one, to the bit: outputs, gradients, plans and files.

    python .ci/equal.py OTHER/.venv-test/bin/python

Each side runs the same work through the public interface in a process of its own, with its own Python, then
loads the files that the other side wrote. Prints a line a result, and exits with 1 where any differs. Both
sides must have the same packages and threads.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.sparse

import bppsa_cupy as bp
from bppsa_cupy.models import build_model

#: Names of results, and their digests.
Results = Iterator[tuple[str, str]]

METHODS = ("bp", "linear", "blelloch", "hybrid", "auto")


def digest(*arrays: Any) -> str:
    """SHA-256 over dtypes, shapes and bytes."""
    state = hashlib.sha256()
    for array in arrays:
        stored = np.ascontiguousarray(array)
        state.update(f"{stored.dtype}{stored.shape}".encode() + stored.tobytes())
    return state.hexdigest()[:16]


def file_digest(path: Path) -> str:
    """Of every attribute and data set of an HDF5 file, by name."""
    parts: list[str] = []

    def visit(name: str, item: Any) -> None:
        parts.extend(f"{name}@{key}={item.attrs[key]}" for key in sorted(item.attrs))
        if isinstance(item, h5py.Dataset):
            parts.append(f"{name}:{digest(item[()])}")

    with h5py.File(path) as file:
        visit("/", file)
        file.visititems(visit)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def passes(net: bp.Sequential, x: np.ndarray, methods: tuple[str, ...], **given: Any) -> Results:
    """Output, and all gradients by every method."""
    y = net.forward(x, **given)
    yield "output", digest(y)
    gradient = np.random.default_rng(1).standard_normal(y.shape).astype(y.dtype)
    for method in methods:
        by_input = net.backward(gradient, method=method, input_gradient=True)
        yield f"gradients by {method}", digest(by_input, *net.gradients.values())


def planned(net: bp.Sequential, folder: Path, batch: int, **options: Any) -> tuple[str, str]:
    """Plan, save, load and use."""
    path = folder / "plan.h5"
    net.plan(batch_size=batch, **options).save(path)
    net.use(bp.Plan.load(path))
    return "plan file", file_digest(path)


def lenet5(dtype: str, folder: Path) -> Results:
    net = build_model("lenet5", dtype=dtype, device="host", seed=3)
    yield planned(net, folder, 8)
    x = np.random.default_rng(0).standard_normal((8, *net.input_shape)).astype(dtype)
    yield from passes(net, x, METHODS)
    bp.save_jacobians(folder / "jacobians.h5", net)
    yield "Jacobian file", file_digest(folder / "jacobians.h5")
    for name, make in {"SGD": lambda p: bp.SGD(p, lr=0.1, momentum=0.9), "Adam": bp.Adam}.items():
        optimizer = make(net.parameters)
        for _ in range(3):
            optimizer.step(net.gradients)
        yield f"parameters after {name}", digest(*net.parameters.values())


def vgg11(dtype: str, folder: Path) -> Results:
    net = build_model("vgg11", dtype=dtype, device="host", seed=1)
    bp.prune(net, 0.97)
    yield planned(net, folder, 2, levels=1, schedules=["linear", "hybrid"])
    x = np.random.default_rng(0).standard_normal((2, *net.input_shape)).astype(dtype)
    yield from passes(net, x, ("bp", "linear", "hybrid", "auto"))


def lstm(dtype: str, folder: Path) -> Results:
    for forward_method in ("serial", "newton"):
        layer = bp.LSTM(5, 9, num_layers=2, bidirectional=True, forward_method=forward_method)
        net = bp.Sequential([layer, bp.Linear(18, 4)], (None, 5), dtype=dtype, device="host", seed=2)
        x = np.random.default_rng(0).standard_normal((3, 160, 5)).astype(dtype)
        for name, text in passes(net, x, METHODS, lengths=[160, 71, 1]):
            yield f"{forward_method}: {name}", text
    bp.save_jacobians(folder / "jacobians.h5", net)
    yield "Jacobian file", file_digest(folder / "jacobians.h5")


def chain(dtype: str, folder: Path) -> Results:
    rng = np.random.default_rng(5)
    sizes = rng.integers(1, 30, 12)
    matrices = [
        scipy.sparse.random_array((after, before), density=0.3, rng=rng, format="csr", dtype=dtype)
        for before, after in itertools.pairwise(sizes)
    ]
    gradient = rng.standard_normal((sizes[0], 4)).astype(dtype)
    injections = [rng.standard_normal((size, 4)).astype(dtype) for size in sizes[1:]]
    for method in ("linear", "blelloch", "hybrid"):
        yield method, digest(*bp.scan(gradient, matrices, method=method, device="host"))
        affine = bp.scan(gradient, matrices, method=method, injections=injections, device="host")
        yield f"{method}, affine", digest(*affine)


def command(dtype: str, folder: Path) -> Results:
    """Training by the command line, and a checkpoint."""
    train(folder, dtype, "--epochs", "1")
    yield "checkpoint", file_digest(folder / "checkpoint.h5")


def train(folder: Path, dtype: str, *options: str) -> None:
    fixed = ("lenet5 --data digits --device host --method bp --batch-size 64 --optimizer adam").split()
    checkpoint = str(folder / "checkpoint.h5")
    command = [sys.executable, "-m", "bppsa_cupy.tools.train", *fixed, "--dtype", dtype]
    subprocess.run([*command, "--checkpoint", checkpoint, *options], check=True, stdout=subprocess.DEVNULL)


WORK: dict[str, Callable[[str, Path], Results]] = {
    "LeNet-5": lenet5,
    "VGG-11 pruned by 97 %": vgg11,
    "LSTM of two layers": lstm,
    "bp.scan": chain,
    "bppsa-train": command,
}


def run(folder: Path) -> dict[str, str]:
    """All work, its files below `folder`."""
    results: dict[str, str] = {}
    for name, work in WORK.items():
        for dtype in ("float32", "float64"):
            place = folder / f"{work.__name__}-{dtype}"
            place.mkdir(parents=True)
            results.update({f"{name} {dtype}: {what}": text for what, text in work(dtype, place)})
    return results


def load(folder: Path) -> dict[str, str]:
    """Digests of what the files below `folder` hold, as this side reads it."""
    results: dict[str, str] = {}
    for path in sorted(folder.glob("*/*.h5")):
        name = f"loaded {path.parent.name}/{path.stem}"
        if path.stem == "plan":
            copy = path.with_suffix(".copy")
            bp.Plan.load(path).save(copy)
            results[name] = file_digest(copy)
        elif path.stem == "jacobians":
            results[name] = digest(*(record.data for record in bp.load_jacobians(path)))
        else:
            train(path.parent, path.parent.name.rpartition("-")[2], "--epochs", "2", "--resume", str(path))
            results[f"{name}, resumed"] = file_digest(path)
    return results


def main(other: str) -> int:
    """Run both sides, compare, and tell."""
    results: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        sides = {"here": sys.executable, "there": other}
        for name, python in sides.items():
            results[name] = child(python, "run", Path(scratch, name))
        for name, python in sides.items():  # each reads what the other wrote
            written = Path(scratch, "there" if name == "here" else "here")
            results[name] |= child(python, "load", written)
    here, there = results["here"], results["there"]
    for name in dict.fromkeys([*here, *there]):
        same = here.get(name) == there.get(name)
        found = here.get(name) if same else f"{here.get(name)} here, {there.get(name)} there"
        print(f"{'equal' if same else 'DIFFERENT':9}  {name}  {found}")
    differing = sum(here.get(name) != there.get(name) for name in {*here, *there})
    print(f"{len({*here, *there})} results, {differing} different")
    return int(differing > 0)


def child(python: str, step: str, folder: Path) -> dict[str, str]:
    """One step's results by another Python."""
    command = [python, __file__, step, str(folder)]
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, encoding="utf-8", cwd=tempfile.gettempdir()
    )
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps({"run": run, "load": load}[sys.argv[1]](Path(sys.argv[2]))))
        sys.exit()
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
