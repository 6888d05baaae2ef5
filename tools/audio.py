"""A folder of WAV files as a data set of MFCC sequences, as in the paper's section 4.2, by librosa.

Source: Davis and Mermelstein, Comparison of parametric representations for monosyllabic word
recognition, 1980; the paper's table 3.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from bppsa_cupy.data.dataset import Split, draw_test
from bppsa_cupy.data.sequences import Sequences, write_sequences
from bppsa_cupy.errors import DataError, reason_of
from bppsa_cupy.system.files import check_writable


@dataclass(frozen=True)
class Mfcc:
    """The features to compute from a clip.

    Attributes
    ----------
    n_mfcc : int
        Coefficients per channel, at least 2. The first, the average power, is dropped.
    n_fft : int
        Samples per window.
    hop_length : int
        Samples between frames.
    n_mels : int
        Bands of the mel spectrum.
    """

    n_mfcc: int
    n_fft: int
    hop_length: int
    n_mels: int = 128

    def __post_init__(self) -> None:
        if not 2 <= self.n_mfcc <= self.n_mels or min(self.n_fft, self.hop_length) < 1:
            raise DataError(f"{self}: pass n_mfcc from 2 to n_mels, and n_fft and hop_length of at least 1")


#: The paper's table 3. Clips of 132,300 frames and two channels give 259 × 38, 517 × 24 and 1034 × 12.
SETS = {"S": Mfcc(20, 4096, 512), "M": Mfcc(13, 2048, 256), "L": Mfcc(7, 1024, 128)}


def make_audio(
    folder: Path,
    output: Path,
    mfcc: Mfcc,
    *,
    test_fraction: float = 0.2,
    seed: int = 0,
    progress: bool = False,
) -> Sequences:
    """Compute the features of all clips of a folder, normalised per clip, and write a file of sequences.

    Shorter clips are padded with zeros. Raises DataError, and writes nothing, if a clip is empty, cannot be
    decoded, is shorter than a window, or differs from the others in rate or channels.
    """
    if not 0 <= test_fraction < 1:
        raise DataError(f"got test_fraction={test_fraction}: pass a fraction of at least 0 and below 1")
    check_writable(output, error=DataError)
    clips = find_clips(folder)
    names = sorted(set(clips.values()))
    labels = np.array([names.index(label) for label in clips.values()], np.int64)
    features = [normalize(array) for array in _extract_all(list(clips), mfcc, progress)]
    lengths = np.array([len(array) for array in features], np.int64)
    inputs = np.zeros((len(features), lengths.max(), features[0].shape[1]), np.float32)
    for row, array in zip(inputs, features, strict=True):
        row[: len(array)] = array
    is_test = draw_test(labels, test_fraction, seed)
    train, test = (
        Split(inputs[chosen], labels[chosen], lengths=None if np.ptp(lengths) == 0 else lengths[chosen])
        for chosen in (~is_test, is_test)
    )
    sequences = Sequences(
        name=folder.stem,
        train=train,
        test=test if is_test.any() else None,
        class_names=tuple(names),
        normalization="sample",
        origin={"features": "mfcc", **asdict(mfcc), "test_fraction": test_fraction, "seed": seed},
    )
    write_sequences(output, sequences)
    return sequences


def find_clips(folder: Path) -> dict[Path, str]:
    """Return the class of each WAV file in the subfolders of a folder, as a dict by path.

    The class is the name of the subfolder that contains the file. Raises DataError if a file is in no
    subfolder, or there are fewer than two classes.
    """
    clips = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() != ".wav" or any(part.startswith(".") for part in path.parts):
            continue
        if path.parent == folder:
            raise DataError(f"{path} is not in a class folder: move each file to a subfolder of its class")
        clips[path] = path.parent.name
    if len(labels := set(clips.values())) < 2:
        raise DataError(
            f"{folder} has {len(clips)} WAV files of the classes {sorted(labels)}: pass a folder with at "
            "least two class folders"
        )
    return clips


def _extract_all(files: Sequence[Path], mfcc: Mfcc, progress: bool) -> list[np.ndarray]:
    """Features of every clip, in order, not normalised."""
    first, first_rate = decode(files[0])

    def extract_checked(file: Path) -> np.ndarray:
        samples, rate = decode(file)
        if (rate, samples.shape[1]) != (first_rate, first.shape[1]):
            raise DataError(
                f"{file} has {samples.shape[1]} channels at {rate} Hz, but {files[0]} has {first.shape[1]} "
                f"channels at {first_rate} Hz: convert all clips to one format"
            )
        return extract(samples, rate, mfcc, str(file))

    pool = ThreadPoolExecutor(os.cpu_count() or 1)
    try:
        # Small products: BLAS threads beside the pool's make them many times as slow on a busy machine.
        with threadpool_limits(1, user_api="blas"):
            features = pool.map(extract_checked, files)
            return list(tqdm(features, "features", len(files), unit="clip", disable=not progress))
    finally:
        pool.shutdown(cancel_futures=True)


def decode(file: Path) -> tuple[np.ndarray, int]:
    """Return samples (frames, channels) float32, full scale 1, and the rate in Hz of a WAV file.

    Raises DataError if the file cannot be decoded, is empty or not finite, or if soundfile is missing.
    """
    soundfile = import_audio("soundfile")
    try:
        samples, rate = soundfile.read(file, dtype="float32", always_2d=True)
    except (OSError, RuntimeError, ValueError, TypeError) as cause:
        raise DataError(f"{file} cannot be decoded ({reason_of(cause)}): remove it") from cause
    if not len(samples) or not np.isfinite(samples).all():
        raise DataError(f"{file} has no samples, or has NaN or infinite samples: remove it")
    return samples, int(rate)


def extract(samples: np.ndarray, rate: int, mfcc: Mfcc, source: str) -> np.ndarray:
    """Return features (T, F) float32 of samples (frames, channels), not normalized.

    T = 1 + frames // hop_length and F = channels (n_mfcc − 1), channel after channel. Raises DataError for a
    clip shorter than one window.
    """
    librosa = import_audio("librosa")
    channels = np.ascontiguousarray(samples.T)
    if channels.shape[1] < mfcc.n_fft:
        raise DataError(
            f"{source} has {channels.shape[1]} samples per channel, but a window needs {mfcc.n_fft}: pass a "
            "smaller --n-fft, or remove the file"
        )
    options = {name: getattr(mfcc, name) for name in ("n_mfcc", "n_fft", "hop_length", "n_mels")}
    # A channel at a time: librosa would cut several together at 80 dB below the loudest.
    features = [librosa.feature.mfcc(y=channel, sr=rate, **options)[1:].T for channel in channels]
    return np.concatenate(features, axis=1).astype(np.float32)


def normalize(features: np.ndarray) -> np.ndarray:
    """Scale each coefficient to mean 0 and deviation 1 over the frames. Constant coefficients become 0."""
    wide = features.astype(np.float64)
    wide -= wide.mean(axis=0)
    deviation = np.sqrt((wide * wide).mean(axis=0))
    varies = deviation > np.finfo(np.float32).eps * np.abs(features).max(axis=0)
    return (np.where(varies, wide, 0) / np.where(varies, deviation, 1)).astype(np.float32)


def import_audio(name: str) -> Any:
    """Import a module of the extra audio. Raises DataError if it is missing."""
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as cause:
        raise DataError(
            f"reading audio needs {name}, which cannot be imported ({cause}): install the extra audio"
        ) from cause
