"""A folder or an archive of WAV files as a data set of feature sequences."""

from __future__ import annotations

import io
import os
import re
import struct
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath

import numpy as np
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from bppsa_cupy.data import mfcc as features
from bppsa_cupy.data.dataset import Normalization, Raw
from bppsa_cupy.data.mfcc import Mfcc, import_audio
from bppsa_cupy.data.sequences import Sequences, write_sequences
from bppsa_cupy.errors import DataError, reason_of
from bppsa_cupy.system.files import check_writable
from bppsa_cupy.system.memory import check_thread_room

_REMEDY = "remove it, or fetch it again"


@dataclass(frozen=True)
class Clip:
    """A WAV file.

    Attributes
    ----------
    name : str
        Path inside its source, with slashes.
    recording : str
        Clips of one recording go to the same split. Their names only differ in a last "__1".
    test : bool or None
        Whether it is a test clip; None if names do not say so.
    """

    name: str
    label: str
    recording: str
    test: bool | None = None


def make_audio(
    path: Path,
    output: Path,
    mfcc: Mfcc,
    *,
    pattern: str | None = None,
    test: str | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    normalization: str = "sample",
    workers: int | None = None,
    progress: bool = False,
) -> Sequences:
    """Compute the features of all clips of a source and write a file of sequences.

    Parameters
    ----------
    path : Path
        A folder of WAV files, or a zip archive of one.
    output : Path
        The file to write.
    mfcc : Mfcc
        The features to compute.
    pattern, test : str or None
        See `find_clips`.
    test_fraction : float, default: 0.2
        Share of the recordings of each class for the test, without `test`.
    seed : int, default: 0
        Chooses these recordings.
    normalization : {"sample", "train"}, default: "sample"
        "sample" normalizes over the frames of each clip, as in the paper. "train" uses constants of the
        training clips when the file is loaded.
    workers : int, optional
        Number of threads. Default: the number of processors.
    progress : bool, default: False
        Whether to show a progress bar.

    Raises
    ------
    DataError
        If a file is empty, damaged or too short, or its rate or channels differ. The message names the file.
    """
    if normalization not in ("sample", "train") or not 0 <= test_fraction < 1:
        raise DataError(
            f"got normalization={normalization!r} and test_fraction={test_fraction}: pass 'sample' or "
            "'train', and a fraction of at least 0 and below 1"
        )
    check_writable(output, error=DataError)
    source = Source(path)
    train, held = split_clips(find_clips(source, pattern, test), test_fraction, seed)
    drawn = {} if test is not None else {"test_fraction": test_fraction, "seed": seed}
    clips = train + held
    found = _extract_all(source, clips, mfcc, workers or os.cpu_count() or 1, progress)
    constants = None
    if normalization == "train":  # by coefficient, over all frames; a constant one keeps 1
        constants = Normalization.of(np.concatenate(found[: len(train)])[None])
    else:
        found = [features.normalize(array) for array in found]
    names = sorted({clip.label for clip in clips})
    steps = max(map(len, found))
    splits = [
        _pad(group, arrays, names, steps, path)
        for group, arrays in ((train, found[: len(train)]), (held, found[len(train) :]))
    ]
    sequences = Sequences(
        name=path.stem,
        train=splits[0],
        test=splits[1] if held else None,
        class_names=tuple(names),
        normalization=normalization,
        constants=constants,
        origin={"features": "mfcc", **asdict(mfcc), **drawn},
    )
    write_sequences(output, sequences)
    return sequences


def _extract_all(
    source: Source, clips: Sequence[Clip], mfcc: Mfcc, workers: int, progress: bool
) -> list[np.ndarray]:
    """Features of every clip, in order, not normalised."""
    first = f"{source.path}: {clips[0].name}"
    samples, first_rate = decode(source.read(clips[0].name), first)
    channels = samples.shape[1]

    def extract(clip: Clip) -> np.ndarray:
        where = f"{source.path}: {clip.name}"
        samples, rate = decode(source.read(clip.name), where)
        if rate != first_rate and mfcc.rate is None:
            raise DataError(f"{where} has {rate} Hz, {first} has {first_rate}: pass --rate to resample")
        if samples.shape[1] != channels and not mfcc.mono:
            raise DataError(
                f"{where} has {samples.shape[1]} channels, {first} has {channels}: pass --mono to average "
                "them"
            )
        return features.extract(samples, rate, mfcc, where)

    check_thread_room()
    pool = ThreadPoolExecutor(workers)
    try:
        # Small products: BLAS threads beside the pool's make them many times as slow on a busy machine.
        with threadpool_limits(1, user_api="blas"):
            found = pool.map(extract, clips)
            return list(tqdm(found, "features", len(clips), unit="clip", disable=not progress))
    finally:
        pool.shutdown(cancel_futures=True)


def _pad(
    clips: Sequence[Clip], found: Sequence[np.ndarray], names: Sequence[str], steps: int, path: Path
) -> Raw:
    """One split: inputs padded by zeros to `steps`, and lengths where one is shorter."""
    width = found[0].shape[1] if found else 0
    inputs = np.zeros((len(clips), steps, width), np.float32)
    for row, array in zip(inputs, found, strict=True):
        row[: len(array)] = array
    lengths = np.array([len(array) for array in found], np.int64)
    labels = np.array([names.index(clip.label) for clip in clips], np.int64)
    return Raw(inputs, labels, str(path), None if (lengths == steps).all() else lengths)


# ---- files ----


class Source:
    """The WAV files of a folder, at any depth, or of a zip archive. Raises DataError if there are none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._archive: zipfile.ZipFile | None = None
        try:
            if path.is_dir():
                found = [file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()]
            else:
                self._archive = zipfile.ZipFile(path)
                found = self._archive.namelist()
        except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as cause:
            raise DataError(
                f"{path} cannot be read ({reason_of(cause)}): give a folder, or a zip archive, of WAV files"
            ) from cause
        self.names = sorted(name for name in found if _is_wav(PurePosixPath(name)))
        if not self.names:
            raise DataError(f"{path} has no WAV file: pass a folder with WAV files, or a zip archive of one")

    def read(self, name: str) -> bytes:
        """The bytes of a file. Threads may call it at the same time."""
        try:
            if self._archive is None:
                return (self.path / name).read_bytes()
            return self._archive.read(name)
        except Exception as cause:  # zipfile and its decompressors raise what they like
            raise DataError(f"{self.path}: {name} cannot be read ({reason_of(cause)}): {_REMEDY}") from cause


def _is_wav(name: PurePosixPath) -> bool:
    hidden = any(folder.startswith(".") or folder == "__MACOSX" for folder in name.parts)
    return name.suffix.lower() == ".wav" and not hidden


def decode(content: bytes, source: str) -> tuple[np.ndarray, int]:
    """Return samples (frames, channels) float32, full scale 1, and the rate in Hz of a WAV file.

    Raises DataError, naming `source`, if the content is not a WAV file, empty, damaged or not finite, or if
    soundfile is missing.
    """
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        raise DataError(
            f"{source} is empty or not a WAV file: it begins with {content[:12]!r}, not with RIFF, a size, "
            "WAVE"
        )
    # The library reads a truncated file without a word: its chunks are walked here first.
    offset, size = 12, 0
    while offset + 8 <= len(content):
        name, size = struct.unpack_from("<4sI", content, offset)
        if name == b"data":
            break
        offset, size = offset + 8 + size + size % 2, 0
    there = max(len(content) - offset - 8, 0)
    if not 0 < size <= there:
        raise DataError(
            f"{source} is empty or truncated: its header states {size} bytes of samples, but the file "
            f"has {there}; {_REMEDY}"
        )
    soundfile = import_audio("soundfile")
    try:
        samples, rate = soundfile.read(io.BytesIO(content), dtype="float32", always_2d=True)
    except (RuntimeError, ValueError, TypeError) as cause:
        raise DataError(f"{source} cannot be decoded ({reason_of(cause)}): {_REMEDY}") from cause
    if not len(samples) or not np.isfinite(samples).all():
        raise DataError(f"{source} holds no samples, or NaN or infinite ones: {_REMEDY}")
    return samples, int(rate)


# ---- classes and splits ----


def find_clips(source: Source, pattern: str | None = None, test: str | None = None) -> list[Clip]:
    """List the clips of a source, by name.

    Parameters
    ----------
    source : Source
        The source to search.
    pattern : str or None
        Regular expression for the whole name without ".wav", with a group "label". By default the folder is
        the class.
    test : str or None
        Regular expression for the names of test clips.

    Raises
    ------
    DataError
        If a file does not fit, or there is only one class.
    """
    by_name, for_test = (None if text is None else _compile(text) for text in (pattern, test))
    if by_name is not None and "label" not in by_name.groupindex:
        raise DataError(
            f"the pattern {pattern!r} has no group 'label': write one, such as '(?P<label>[0-9]+)_.*'"
        )
    clips = []
    for name in source.names:
        path = PurePosixPath(name)
        match = None if by_name is None else by_name.fullmatch(path.stem)
        label = path.parent.name if by_name is None else match["label"] if match else ""
        if not label:
            raise DataError(
                f"{source.path} has {name}, which "
                + ("is not in the folder of a class" if by_name is None else f"does not match {pattern!r}")
                + ": pass --pattern, a regular expression that finds the label in the name, such as "
                "'(?P<label>[0-9]+)_.*'"
            )
        recording = re.sub(r"__\d+$", "", str(path.with_suffix("")))
        tested = None if for_test is None else for_test.fullmatch(path.stem) is not None
        clips.append(Clip(name, label, recording, tested))
    labels = sorted({clip.label for clip in clips})
    if len(labels) < 2:
        raise DataError(
            f"{source.path} has only the class {labels[0]!r}, in {len(clips)} clips: pass two classes, or "
            "--pattern"
        )
    return clips


def _compile(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as cause:
        raise DataError(
            f"{pattern!r} is not a valid regular expression ({cause}): correct the pattern"
        ) from cause


def split_clips(clips: list[Clip], fraction: float, seed: int) -> tuple[list[Clip], list[Clip]]:
    """Split clips into training and test, as names say or by `fraction` of each class's recordings.

    `seed` chooses the recordings. Raises DataError if no training clip is left.
    """
    if any(clip.test is None for clip in clips):
        generator = np.random.default_rng(seed)
        chosen: set[tuple[str, str]] = set()
        for label in sorted({clip.label for clip in clips}):
            recordings = sorted({clip.recording for clip in clips if clip.label == label})
            order = generator.permutation(len(recordings))
            chosen |= {(label, recordings[k]) for k in order[: round(fraction * len(recordings))]}
        clips = [replace(clip, test=(clip.label, clip.recording) in chosen) for clip in clips]
    train, test = ([clip for clip in clips if clip.test == wanted] for wanted in (False, True))
    if not train:
        raise DataError(f"all {len(test)} clips are for the test: pass another --test or --test-fraction")
    return train, test
