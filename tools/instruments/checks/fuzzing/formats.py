"""The formats of files that are read: a sound file of each, and its reader."""

from __future__ import annotations

import gzip
import io
import json
import struct
import wave
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import bppsa_cupy as bp
from bppsa_cupy.data import load, wav
from bppsa_cupy.data.clips import Source, find_clips
from bppsa_cupy.data.dataset import Normalization, Raw
from bppsa_cupy.data.sequences import Sequences, read_sequences, write_sequences
from bppsa_cupy.plan import Plan
from bppsa_cupy.plan.cost import MODELS, model_from_json, model_to_json
from bppsa_cupy.processors.calibration import fields_from_json
from bppsa_cupy.processors.models import H200
from bppsa_cupy.records.file import load_jacobians, save_jacobians
from bppsa_cupy.system import calibration
from bppsa_cupy.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from bppsa_cupy.training.log import TrainingLog
from fuzzing.uses import PlanInUse, ProductInUse, Resumed


@dataclass(frozen=True)
class Format:
    """A format.

    name     of it, and of its file
    content  a sound file
    read     what reads the file at a path; `foreign` says whether in a child process first
    hdf5     whether it is HDF5, sealed unless its name says otherwise
    beside   files that lie beside it, by name
    """

    name: str
    content: bytes
    read: Callable[..., Any]
    hdf5: bool = False
    beside: tuple[tuple[str, bytes], ...] = ()

    @property
    def sealed(self) -> bool:
        return self.hdf5 and "unsealed" not in self.name


def formats(folder: Path) -> list[Format]:
    """All of them; `folder` is for what is made on the way."""
    return [*_hdf5(folder), *_foreign_layouts(), *_texts(folder)]


def _hdf5(folder: Path) -> list[Format]:
    layers = [bp.Conv2d(1, 2, 3), bp.ReLU(), bp.MaxPool2d(2), bp.Flatten(), bp.Linear(8, 3)]
    net = bp.Sequential(layers, (1, 6, 6), device="host")
    y = net.forward(np.ones((2, 1, 6, 6), "float32"))
    net.backward(y, method="bp")
    file = folder / "made.h5"

    def written(write: Callable[..., None], *arguments: Any) -> bytes:
        write(file, *arguments)
        return file.read_bytes()

    net.plan(batch_size=4).save(file)
    plan = file.read_bytes()
    jacobians = written(save_jacobians, net.transposed_jacobians()[-2:])
    unsealed = io.BytesIO()
    with h5py.File(io.BytesIO(jacobians)) as source, h5py.File(unsealed, "w") as target:
        target.attrs.update(source.attrs)
        for name in source:
            source.copy(name, target)
    optimizer = bp.SGD(net.parameters, lr=0.1, momentum=0.9)
    checkpoint = Checkpoint(
        net.describe(), "float32", net.state_dict(), {}, optimizer.state_dict(), dict(net.random_state)
    )
    steps = Raw(np.ones((3, 4, 2), "float32"), np.array([0, 1, 0]), "made", np.array([4, 2, 3]))
    sequences = Sequences("made", steps, steps, ("a", "b"), "train", Normalization((0.0, 1.0), (1.0, 2.0)))

    def read_data(path: Path, foreign: bool) -> Any:
        return read_sequences(path, foreign=True) if foreign else load(path)

    def read_unsealed(path: Path, foreign: bool) -> Any:
        return load_jacobians(path, sealed=False, foreign=foreign)

    return [
        Format("plan.h5", plan, lambda path, foreign: Plan.load(path, foreign=foreign), True),
        Format("outline.h5", plan, lambda path, foreign: Plan.outline(path, foreign=foreign), True),
        Format("jacobians.h5", jacobians, lambda path, foreign: load_jacobians(path, foreign=foreign), True),
        Format("unsealed-jacobians.h5", unsealed.getvalue(), read_unsealed, True),
        Format(
            "checkpoint.h5", written(save_checkpoint, checkpoint),
            lambda path, foreign: load_checkpoint(path, foreign=foreign), True,
        ),
        Format(
            "sequences.h5", written(write_sequences, sequences),
            lambda path, foreign: read_sequences(path, foreign=foreign), True,
        ),
        Format("data.h5", written(write_sequences, sequences), read_data, True),
        *(
            Format(f"{use.__name__}.h5", file.read_bytes(), made.read, True)
            for use in (PlanInUse, ProductInUse, Resumed)
            if (made := use(file))
        ),
    ]  # fmt: skip


def _foreign_layouts() -> list[Format]:
    """Layouts that others made: archives of arrays, IDX, CIFAR-10, sound."""
    rng = np.random.default_rng(0)

    def loaded(path: Path, foreign: bool) -> Any:
        return load(path)

    stream, packed = io.BytesIO(), io.BytesIO()
    arrays = {"x": rng.random((4, 1, 3, 3)).astype("float32"), "y": np.arange(4)}
    np.savez(stream, **arrays)
    np.savez_compressed(packed, **arrays)
    images = struct.pack(">4I", 0x803, 3, 4, 4) + rng.bytes(48)
    labels = struct.pack(">2I", 0x801, 3) + bytes([0, 1, 9])
    names = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
    sound = io.BytesIO()
    with wave.open(sound, "wb") as clip:
        clip.setparams((1, 2, 8000, 0, "NONE", ""))
        clip.writeframes(rng.bytes(400))
    clips = io.BytesIO()
    with zipfile.ZipFile(clips, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("cat/1.wav", "dog/2.wav"):
            archive.writestr(name, sound.getvalue())

    def read_clips(path: Path, foreign: bool) -> None:
        source = Source(path)
        for clip in find_clips(source):
            wav.decode(source.read(clip.name), f"{path}: {clip.name}")

    return [
        Format("stored.npz", stream.getvalue(), loaded),
        Format("packed.npz", packed.getvalue(), loaded),
        Format(names[0], images, loaded, beside=((names[1], labels),)),
        Format(
            f"{names[0]}.gz",
            gzip.compress(images),
            loaded,
            beside=((f"{names[1]}.gz", gzip.compress(labels)),),
        ),
        Format("data_batch_1.bin", bytes([3]) + rng.bytes(3072), loaded),
        Format("clip.wav", sound.getvalue(), lambda path, foreign: wav.decode(path.read_bytes(), str(path))),
        Format("clips.zip", clips.getvalue(), read_clips),
    ]


def _texts(folder: Path) -> list[Format]:
    """The training log, and the cost model, whose seal is made anew."""
    rows = [{"step": k, "epoch": 1, "loss": 0.5} for k in range(1, 6)]
    log = "".join(json.dumps(row) + "\n" for row in rows).encode()
    measured = calibration.Calibration(
        "host",
        calibration.this_machine("host"),
        {},
        "2020-01-01",
        model_to_json(MODELS["host"]),
        H200.measured,
    )
    place, calibration.calibration_path = (
        calibration.calibration_path,
        lambda device: folder / f"{device}.json",
    )
    try:
        model = calibration.save_calibration(measured).read_bytes()
    finally:
        calibration.calibration_path = place

    def read_log(path: Path, foreign: bool) -> None:
        with TrainingLog(path, 3):
            pass

    def read_model(path: Path, foreign: bool) -> Any:
        place, calibration.calibration_path = calibration.calibration_path, lambda device: path
        try:
            model = calibration.load_part("host", "model", model_from_json)
            return model, calibration.load_part("host", "walks", fields_from_json)
        finally:
            calibration.calibration_path = place

    return [Format("log.jsonl", log, read_log), Format("cost-model.json", model, read_model)]
