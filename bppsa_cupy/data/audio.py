"""A folder or an archive of audio clips as a data set of feature sequences."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from bppsa_cupy.data import mfcc as features
from bppsa_cupy.data import wav
from bppsa_cupy.data.clips import Clip, Source, find_clips, split_clips
from bppsa_cupy.data.dataset import Normalization, Raw
from bppsa_cupy.data.mfcc import Mfcc
from bppsa_cupy.data.sequences import Sequences, write_sequences
from bppsa_cupy.errors import DataError
from bppsa_cupy.system.files import check_writable
from bppsa_cupy.system.memory import check_thread_room


def make_audio(
    path: Path,
    output: Path,
    mfcc: Mfcc,
    *,
    layout: str = "auto",
    pattern: str | None = None,
    test: str | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    normalization: str = "sample",
    workers: int | None = None,
    progress: bool = False,
) -> Sequences:
    """Write the features of all clips of `path` to the file of sequences `output`, and return them.

    path           a folder of WAV files or a zip archive of one
    layout, pattern, test  see clips.find_clips
    test_fraction  of the recordings of each class, where the layout does not say which are for the test
    seed           which recordings those are
    normalization  "sample" each coefficient over the frames of its clip (the paper's); "train" by constants
                   of all frames of the training clips, when the file is loaded
    workers        threads; by default one a processor

    Raises DataError naming the first file that is empty, truncated, damaged or too short, or of
    another rate or number of channels than the first.
    """
    if normalization not in ("sample", "train") or not 0 <= test_fraction < 1:
        raise DataError(
            f"normalization {normalization!r} and the test fraction {test_fraction} were asked for: it is "
            "'sample' or 'train', and at least 0 and below 1"
        )
    check_writable(output, error=DataError)
    source = Source(path)
    listed = find_clips(source, layout, pattern, test)
    train, held = split_clips(listed, test_fraction, seed)
    by_layout = all(clip.test is not None for clip in listed)
    drawn = {} if by_layout else {"test_fraction": test_fraction, "seed": seed}
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
    samples, first_rate = wav.decode(source.read(clips[0].name), first)
    channels = samples.shape[1]
    features.check_bands(mfcc, mfcc.rate or first_rate)

    def extract(clip: Clip) -> np.ndarray:
        where = f"{source.path}: {clip.name}"
        samples, rate = wav.decode(source.read(clip.name), where)
        if rate != first_rate and mfcc.rate is None:
            raise DataError(f"{where} has {rate} Hz, {first} has {first_rate}: give --rate to resample")
        if samples.shape[1] != channels and not mfcc.mono:
            raise DataError(
                f"{where} has {samples.shape[1]} channels, {first} has {channels}: give --mono to average "
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
