"""Edit files of every format at random and read them back: `python tests/stress/files.py SECONDS`.

Each edited file must be refused by an error of the package that names it, or read. A case follows from the
seed and its number. Two kinds of edits are drawn:

- bytes: bits, bytes and numbers change, and bytes are cut, added or repeated. HDF5 files keep their old
  checksum, so a changed file must be refused.
- structure: h5py removes, replaces, reshapes and links items of an HDF5 file. The checksum is made anew.

The exit code is 1 where a file is neither refused nor read within the limits of time and memory. Such a file
stays in the folder `out/stress`.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import multiprocessing
import os
import resource
import secrets
import struct
import sys
import tempfile
import time
import traceback
import wave
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

# Child processes are forked: threads would not survive in them.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[variable] = "1"
os.environ |= {"NUMBA_THREADING_LAYER": "workqueue", "BPPSA_QUIET": "1"}

import h5py  # noqa: E402
import numpy as np  # noqa: E402

import bppsa_cupy as bp  # noqa: E402
from bppsa_cupy.data import load  # noqa: E402
from bppsa_cupy.data.dataset import Dataset, Split  # noqa: E402
from bppsa_cupy.data.sequences import Sequences, read_sequences, write_sequences  # noqa: E402
from bppsa_cupy.records.file import load_jacobians, save_jacobians  # noqa: E402
from bppsa_cupy.system import hdf5  # noqa: E402
from bppsa_cupy.tools.audio import decode  # noqa: E402
from bppsa_cupy.training.checkpoint import load_checkpoint, restore, save_checkpoint, snapshot  # noqa: E402
from bppsa_cupy.training.loop import TrainingLog  # noqa: E402
from bppsa_cupy.training.settings import Settings  # noqa: E402

#: Limits of one case: seconds, and bytes of address space beyond what the process has.
SECONDS, MEMORY = 20.0, 1 << 30
#: Numbers at which sizes, addresses and counts break.
NUMBERS = (0, 1, 2, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)
#: Formats whose content is checked even where the checksum fits.
CHECKED = "jacobians.h5", "sequences.h5"
OUT = Path(__file__).parents[2] / "out" / "stress"


class Format(NamedTuple):
    """A file format: the name and content of a valid file, what reads it, and files that lie beside it."""

    name: str
    content: bytes
    read: Callable[[Path], Any]
    beside: tuple[tuple[str, bytes], ...] = ()

    @property
    def sealed(self) -> bool:
        return self.content[-hdf5.SEAL_BYTES :].startswith(hdf5.MAGIC)


def make_network() -> bp.Sequential:
    layers = [bp.Conv2d(2, 2, 3, padding=1), bp.ReLU(), bp.MaxPool2d(2), bp.Flatten(), bp.Linear(8, 3)]
    return bp.Sequential(layers, (2, 4, 4), dtype="float64", device="host")


def make_images() -> np.ndarray:
    return np.linspace(-1, 1, 64).reshape(2, 2, 4, 4)


def make_formats(folder: Path) -> list[Format]:
    """One valid file of each format; `folder` is for temporary files."""
    return [*make_hdf5_formats(folder), *make_other_formats()]


def make_hdf5_formats(folder: Path) -> list[Format]:
    file, images, settings = folder / "made.h5", make_images(), Settings(batch_size=2)
    network = make_network()
    gradient = np.ones_like(network.forward(images))
    network.backward(gradient, "bp")
    expected = {name: array.copy() for name, array in network.gradients.items()}
    split = Split(np.float32([*images] * 3), np.arange(6) % 3, None)
    dataset = Dataset("made", (2, 4, 4), 3, split, split, None)
    steps = Split(np.ones((3, 4, 2), "float32"), np.array([0, 1, 0]), None, np.array([4, 2, 3]), "made")
    sequences = Sequences("made", steps, steps, ("a", "b"))
    wide, tall = bp.Pattern.dense(3, 5), bp.Pattern((5, 4), [0, 1, 1, 3, 4, 6], [2, 0, 3, 1, 0, 2])

    def make_optimizer(net: bp.Sequential) -> bp.SGD:
        return bp.SGD(net.parameters, lr=0.1, momentum=0.9)

    def read_plan(path: Path) -> None:
        plan = bp.Plan.load(path)
        try:
            network.use(plan)
            for method in plan.schedules:
                network.gradients.flat[...] = np.nan
                network.backward(gradient, method)
                for name, array in expected.items():
                    np.testing.assert_allclose(network.gradients[name], array, 1e-4, 1e-5, err_msg=method)
        except bp.PlanError as error:  # a plan in memory does not know its file
            raise type(error)(f"{path}: {error}") from error

    def read_product(path: Path) -> None:
        product = bp.PlannedProduct.load(path)
        if max(size for factor in product.factors for size in factor.shape) > 10_000:
            return
        values = [np.arange(1.0, 1 + factor.nnz) for factor in product.factors]
        matrices = [factor.to_scipy(array) for factor, array in zip(product.factors, values, strict=True)]
        expected_product = matrices[0]
        for matrix in matrices[1:]:
            expected_product = expected_product @ matrix
        difference = abs(product.to_scipy(product(*values)) - expected_product)
        assert not difference.nnz or difference.max() <= 1e-9 * abs(expected_product).max()

    def resume(path: Path) -> None:
        net = make_network()
        optimizer = make_optimizer(net)
        before = net.state_dict(), optimizer.state_dict(), dict(net.random_state)
        try:
            restore(net, optimizer, load_checkpoint(path), settings, dataset)
        except bp.BppsaError:
            after = net.state_dict(), optimizer.state_dict(), dict(net.random_state)
            np.testing.assert_equal(after, before)
            raise
        np.testing.assert_equal(net.state_dict(), load_checkpoint(path).parameters)

    trained = make_network()
    optimizer = make_optimizer(trained)
    trained.backward(trained.forward(images), "bp")
    optimizer.step(trained.gradients)
    written: dict[str, tuple[Callable[[], None], Callable[[Path], Any]]] = {
        "plan.h5": (lambda: network.plan(batch_size=2).save(file), read_plan),
        "product.h5": (lambda: bp.plan_product(wide, tall, bp.Pattern.diagonal(4)).save(file), read_product),
        "jacobians.h5": (lambda: save_jacobians(file, network.transposed_jacobians()[-2:]), load_jacobians),
        "checkpoint.h5": (
            lambda: save_checkpoint(file, snapshot(trained, optimizer, settings, dataset, 1, 3)),
            resume,
        ),
        "sequences.h5": (lambda: write_sequences(file, sequences), read_sequences),
    }
    formats = []
    for name, (write, read) in written.items():
        write()
        formats.append(Format(name, file.read_bytes(), read))
    return formats


def make_other_formats() -> list[Format]:
    """Archives of arrays, IDX, CIFAR-10, sound, and the training log."""
    rng = np.random.default_rng(0)
    stored, packed, sound = (io.BytesIO() for _ in range(3))
    arrays = {"x": rng.random((4, 1, 3, 3)).astype("float32"), "y": np.arange(4)}
    np.savez(stored, **arrays)
    np.savez_compressed(packed, **arrays)
    images = struct.pack(">4I", 0x803, 3, 4, 4) + rng.bytes(48)
    labels = struct.pack(">2I", 0x801, 3) + bytes([0, 1, 9])
    names = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
    with wave.open(sound, "wb") as clip:
        clip.setparams((1, 2, 8000, 0, "NONE", ""))
        clip.writeframes(rng.bytes(400))

    def read_log(path: Path) -> None:
        with TrainingLog(path, 3):
            pass

    log = b"".join(b'{"step": %d, "epoch": 1, "loss": 0.5}\n' % step for step in range(1, 6))
    return [
        Format("stored.npz", stored.getvalue(), load),
        Format("packed.npz", packed.getvalue(), load),
        Format(names[0], images, load, ((names[1], labels),)),
        Format(f"{names[0]}.gz", gzip.compress(images), load, ((f"{names[1]}.gz", gzip.compress(labels)),)),
        Format("data_batch_1.bin", bytes([3]) + rng.bytes(3072), load),
        Format("clip.wav", sound.getvalue(), decode),
        Format("log.jsonl", log, read_log),
    ]


def edit_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    """`content` after one to eight random edits."""
    array = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 4, 8])):
        start, length = int(rng.integers(len(array) or 1)), int(rng.integers(1, 64))
        kind = rng.integers(100)
        if kind < 30:
            array[start : start + 1] = bytes([array[start] ^ 1 << int(rng.integers(8))])
        elif kind < 55:
            array[start : start + 1] = bytes([rng.choice([0, 1, 127, 128, 255, rng.integers(256)])])
        elif kind < 80:
            width, order = int(rng.choice([2, 4, 8])), "little" if rng.integers(4) else "big"
            number = NUMBERS[rng.integers(len(NUMBERS))] if kind < 70 else rng.integers(len(array) + 1)
            array[start : start + width] = (int(number) % 256**width).to_bytes(width, order)
        elif kind < 90:
            other = int(rng.integers(len(array)))
            array[start : start + length] = array[other : other + length]
        elif kind < 97:
            array[start : start + length * bool(kind < 94)] = b"" if kind < 94 else rng.bytes(length)
        else:
            del array[start:]
        if not array:
            break
    return bytes(array)


#: Values of any kind: empty, of many axes, of other types, too large.
VALUES: tuple[Callable[[np.random.Generator], Any], ...] = (
    lambda rng: rng.integers(-(2**31), 2**31, rng.integers(0, 20)),
    lambda rng: rng.integers(-1, 5, rng.integers(0, 20)).astype(rng.choice(["i1", "i2", "i4", "u8", ">i4"])),
    lambda rng: rng.standard_normal(tuple(rng.integers(0, 4, rng.integers(0, 5)))),
    lambda rng: np.array([np.nan, np.inf, -np.inf, 1e300]),
    lambda rng: np.array([2**63, 2**64 - 1], np.uint64),
    lambda rng: np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
    lambda rng: "text " * int(rng.choice([0, 1, 50, 10_000])),
    lambda rng: np.bytes_(rng.bytes(int(rng.integers(0, 9)))),
    lambda rng: int(rng.choice([-1, 0, 1, 2, 7, 2**31, 2**62])),
    lambda rng: float(rng.choice([0.0, -1.5, np.nan, np.inf])),
    lambda rng: str(rng.choice(["{}", "[]", "null", "1e999", '{"a": NaN}', "[1, 2", '"x"', "[" * 3000])),
)


def edit_structure(content: bytes, rng: np.random.Generator) -> bytes:
    """`content`, an HDF5 file, after one to three random edits; edits that h5py refuses are left out."""
    stream = io.BytesIO(content)
    with h5py.File(stream, "r+") as file:
        for _ in range(rng.choice([1, 1, 2, 3])):
            names = ["/"]
            file.visit(names.append)
            item = file[names[rng.integers(len(names))]]
            with suppress(Exception):
                edit_item(file, item, rng)
    return stream.getvalue()


def edit_item(file: h5py.File, item: Any, rng: np.random.Generator) -> None:
    """Change one group, data set or attribute."""

    def replace(value: Any, **options: Any) -> None:
        name, attributes = item.name, dict(item.attrs)
        del file[name]
        file.create_dataset(name, data=value, **options)
        file[name].attrs.update(attributes)

    value = VALUES[rng.integers(len(VALUES))](rng)
    group = item if isinstance(item, h5py.Group) else item.parent
    kinds = ("values", "values", "remove", "replace", "reshape", "attribute", "link", "hole")
    kind = kinds[rng.integers(len(kinds))]
    if kind == "values":
        array = item[()]
        for _ in range(rng.integers(1, 4)):
            array.reshape(-1)[rng.integers(array.size)] = rng.choice([0, 1, -1, 2, 127, rng.integers(0, 300)])
        item[...] = array
    elif kind == "remove":
        del file[item.name]
    elif kind == "replace":
        replace(value)
    elif kind == "reshape":
        array = item[()]
        shapes = [array[:-1], array[::-1], array[..., None], np.repeat(array, 2, 0), array[:0], array.ravel()]
        replace(shapes[rng.integers(len(shapes))])
    elif kind == "attribute":
        name = list(item.attrs)[rng.integers(len(item.attrs))]
        if rng.integers(3):
            item.attrs[name] = value
        else:
            del item.attrs[name]
    elif kind == "link":
        links = [h5py.SoftLink("/"), h5py.SoftLink("/nowhere"), h5py.ExternalLink("other.h5", "/"), file["/"]]
        name = str(rng.choice(["x", "0", "data", "indices", "indptr", "train"]))
        if name in group:
            del group[name]
        group[name] = links[rng.integers(len(links))]
    else:  # a data set without some of its chunks, or of an absurd size
        shape = tuple(int(size) for size in rng.choice([1, 5, 1000, 2**31, 2**40], max(1, item.ndim)))
        chunks = tuple(min(size, 100) for size in shape)
        replace(None, shape=shape, dtype=item.dtype, chunks=chunks, compression="gzip")


def seal(content: bytes) -> bytes:
    """`content`, an HDF5 file, with the checksum that belongs to it."""
    return content + hdf5.MAGIC + hashlib.sha256(content).hexdigest().encode() + b"\n"


class Cases:
    """The cases of a seed."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed, self.folder, self.formats = seed, folder, make_formats(folder)
        for format in self.formats:
            for name, content in format.beside:
                (folder / name).write_bytes(content)

    def draw(self, number: int) -> tuple[Format, str, bytes]:
        """The format of a case, the kind of its edits, and the edited file."""
        rng = np.random.default_rng([self.seed, number])
        format = self.formats[rng.integers(len(self.formats))]
        if format.name in CHECKED and rng.integers(3):
            return format, "structure", seal(edit_structure(format.content, rng))
        return format, "bytes", edit_bytes(format.content, rng)

    def play(self, number: int) -> tuple[str, str]:
        """("refused" or "read" or "wrong", why)."""
        format, kind, content = self.draw(number)
        path = self.folder / format.name
        path.write_bytes(content)
        try:
            format.read(path)
        except bp.BppsaError as error:
            named = format.name in str(error)
            return ("refused", "") if named else ("wrong", f"the error does not name the file: {error}")
        except Exception:
            return "wrong", traceback.format_exc(limit=-4)
        if kind == "bytes" and format.sealed and content != format.content:
            return "wrong", "a changed file with its old checksum was read"
        return "read", ""


def serve(cases: Cases, pipe: Connection) -> None:
    """Play the cases that the pipe asks for, in a child process with a limit on its memory."""
    with open("/proc/self/statm", encoding="ascii") as pages:
        size = int(pages.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        pipe.send(cases.play(pipe.recv()))


def main() -> int:
    """Return 0 where every file was refused or read, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("seconds", type=float, help="how long to go on")
    parser.add_argument("--cases", type=int, default=sys.maxsize, help="how many at most (default: no limit)")
    parser.add_argument("--seed", type=int, help="of the cases (default: a new one)")
    arguments = parser.parse_args()
    seed = secrets.randbelow(2**32) if arguments.seed is None else arguments.seed
    fork, child, counts = multiprocessing.get_context("fork"), None, Counter[tuple[str, str, str]]()
    print(f"files, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="bppsa-stress-") as folder:
        cases, number, start = Cases(seed, Path(folder)), 0, time.monotonic()
        while number < arguments.cases and time.monotonic() - start < arguments.seconds:
            if child is None:
                pipe, other = fork.Pipe()
                child = fork.Process(target=serve, args=(cases, other), daemon=True)
                child.start()
                other.close()
            pipe.send(number)
            try:
                outcome, why = pipe.recv() if pipe.poll(SECONDS) else ("wrong", f"no end in {SECONDS} s")
            except EOFError:
                child.join()
                outcome, why = "wrong", f"the process ended with {child.exitcode}"
            format, kind, content = cases.draw(number)
            counts[format.name, kind, outcome] += 1
            if outcome == "wrong":
                OUT.mkdir(parents=True, exist_ok=True)
                (OUT / f"{seed}-{number}-{format.name}").write_bytes(content)
                print(f"case {number}, {format.name}, {kind}: {why}", flush=True)
                child.kill()
                child = None
            number += 1
        if child is not None:
            child.kill()
    for (name, kind, outcome), count in sorted(counts.items()):
        print(f"  {name}, {kind}: {count} {outcome}")
    wrong = sum(count for (_, _, outcome), count in counts.items() if outcome == "wrong")
    print(f"files, seed {seed}: {counts.total()} tried, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
