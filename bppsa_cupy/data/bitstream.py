"""The paper's synthetic task (section 4.1): tell bitstreams apart by how many of their bits are set.

Equation 8: x_t ~ Bernoulli(0.05 + 0.1·c) for a sample of class c in 0 … 9.
"""

from __future__ import annotations

import numpy as np
from tqdm import tqdm

from bppsa_cupy.data.dataset import Raw
from bppsa_cupy.errors import DataError

CLASSES = 10
#: A random 64-bit integer is below entry c with probability (1 + 2c) / 20, equation 8's.
THRESHOLDS = np.array([((1 + 2 * c) << 64) // 20 for c in range(CLASSES)], np.uint64)


def make_bitstreams(
    length: int, samples: int, *, seed: int = 0, split: int = 0, progress: bool = False
) -> Raw:
    """Create bitstreams for the task of section 4.1 of the paper.

    Parameters
    ----------
    length : int
        T, at least 1.
    samples : int
        N, at least 1.
    seed : int, default: 0
        Seed of the bits and classes, at least 0.
    split : int, default: 0
        0 for training samples, 1 for test samples of the same distribution.
    progress : bool, default: False
        Whether to show a progress bar.

    Returns
    -------
    Raw
        Inputs (N, T, 1) uint8 of zeros and ones, and labels (N,).

    Raises
    ------
    DataError
        If an argument is out of range, or there is too little memory.

    Notes
    -----
    Sample k depends only on (seed, split, k). A larger N begins with the same samples, a larger T with the
    same bits, in every version of NumPy.

    Examples
    --------
    >>> from bppsa_cupy.data.bitstream import make_bitstreams
    >>> make_bitstreams(50, 8).inputs.shape
    (8, 50, 1)
    """
    if length < 1 or samples < 1 or seed < 0:
        raise DataError(
            f"got length={length}, samples={samples} and seed={seed}: pass length and samples of at least 1, "
            "and a seed of at least 0"
        )
    try:
        bits = np.empty((samples, length, 1), np.uint8)
    except MemoryError as cause:
        raise DataError(
            f"{samples} bitstreams of length {length} need {samples * length} bytes, which are not "
            "available: pass fewer samples or a smaller length"
        ) from cause
    labels = np.empty(samples, np.int64)
    for k in tqdm(range(samples), desc="bitstreams", unit="sample", disable=not progress):
        words = np.random.PCG64((seed, split, k)).random_raw(1 + length)
        labels[k] = int(words[0]) % CLASSES
        np.less(words[1:], THRESHOLDS[labels[k]], out=bits[k, :, 0].view(bool))
    return Raw(bits, labels, f"bitstreams of length {length}, seed {seed}")
