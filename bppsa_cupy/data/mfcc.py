"""Mel-frequency cepstral coefficients of audio clips, as in the paper's section 4.2, by librosa.

Source: Davis and Mermelstein, Comparison of parametric representations for monosyllabic word
recognition, 1980; the paper's table 3.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from bppsa_cupy.errors import DataError


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
    rate : int or None
        Sampling rate in Hz; clips of another rate are resampled. None keeps the rate of the clips.
    mono : bool
        Whether to average the channels first.
    """

    n_mfcc: int
    n_fft: int
    hop_length: int
    n_mels: int = 128
    rate: int | None = None
    mono: bool = False

    def __post_init__(self) -> None:
        if not 2 <= self.n_mfcc <= self.n_mels or min(self.n_fft, self.hop_length, self.rate or 1) < 1:
            raise DataError(f"{self}: n_mfcc must be 2 to n_mels, n_fft, hop_length and rate at least 1")


#: The paper's table 3. Clips of 132,300 frames and two channels give 259 × 38, 517 × 24 and 1034 × 12.
SETS = {"S": Mfcc(20, 4096, 512), "M": Mfcc(13, 2048, 256), "L": Mfcc(7, 1024, 128)}


def extract(samples: np.ndarray, rate: int, mfcc: Mfcc, source: str) -> np.ndarray:
    """Return features (T, F) float32 of samples (frames, channels), not normalized.

    T = 1 + frames // hop_length and F = channels (n_mfcc − 1), channel after channel. Raises DataError for a
    clip shorter than one window.
    """
    librosa = import_audio("librosa")
    channels = samples.T
    if mfcc.mono:
        channels = channels.mean(axis=0, keepdims=True)
    channels = np.ascontiguousarray(channels)
    if mfcc.rate is not None and mfcc.rate != rate:
        channels = librosa.resample(channels, orig_sr=rate, target_sr=mfcc.rate, axis=-1)
        rate = mfcc.rate
    if channels.shape[1] < mfcc.n_fft:
        raise DataError(
            f"{source} has {channels.shape[1]} frames, but a window needs {mfcc.n_fft}: pass a smaller "
            "--n-fft, or remove it"
        )
    options = {name: getattr(mfcc, name) for name in ("n_mfcc", "n_fft", "hop_length", "n_mels")}
    # A channel at a time: librosa would cut several together at 80 dB below the loudest.
    found = [librosa.feature.mfcc(y=channel, sr=rate, **options)[1:].T for channel in channels]
    return np.concatenate(found, axis=1).astype(np.float32)


def normalize(features: np.ndarray) -> np.ndarray:
    """Give each coefficient mean 0 and deviation 1 over the frames; constant ones become 0."""
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
