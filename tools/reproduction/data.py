"""The data that runs make themselves: the paper's bitstreams, and waves in place of audio."""

from __future__ import annotations

import numpy as np

from bppsa_cupy.data import Dataset
from bppsa_cupy.data.bitstream import CLASSES, make_bitstreams
from bppsa_cupy.data.dataset import Raw, RawDataset, make_dataset
from bppsa_cupy.data.mfcc import normalize

#: Classes of waves, as IRMAS has instruments.
KINDS = 11
#: Deviation of the noise on waves of unit amplitude.
NOISE = 0.5


def bitstreams(length: int, samples: int) -> Dataset:
    """The paper's bitstreams (equation 8), (samples, length, 1)."""
    raw = RawDataset(f"bitstream{length}", make_bitstreams(length, samples), None, CLASSES, ready=True)
    return make_dataset(raw, None, True)


def waves(steps: int, features: int, samples: int, seed: int = 0) -> Dataset:
    """A stand-in for features of audio, (samples, steps, features), each of zero mean and unit deviation over
    the steps: class k has k + 1 periods of a wave in every feature, of any phase, under noise."""
    generator = np.random.default_rng(seed)
    labels = np.arange(samples) % KINDS
    phases = generator.uniform(0, 2 * np.pi, (samples, 1, features))
    turns = 2 * np.pi * np.arange(steps)[None, :, None] / steps
    clean = np.sin((labels[:, None, None] + 1) * turns + phases)
    noisy = clean + NOISE * generator.standard_normal(clean.shape)
    inputs = np.stack([normalize(sample) for sample in noisy])
    raw = RawDataset("waves", Raw(inputs, labels, "waves"), None, KINDS, ready=True)
    return make_dataset(raw, None, True)
