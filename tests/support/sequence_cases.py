"""Files of short sequences to train on."""

import numpy as np

from bppsa_cupy.data.bitstream import make_bitstreams
from bppsa_cupy.data.dataset import Raw
from bppsa_cupy.data.sequences import Sequences, write_sequences

STEPS, FEATURES, CLASSES = 12, 3, 4


def write_padded(path):
    """30 training and 14 test sequences of 1 to 12 steps, each class with a mean of its own."""
    rng = np.random.default_rng(3)

    def raw(count):
        labels = np.arange(count) % CLASSES
        lengths = rng.integers(1, STEPS + 1, count)
        lengths[0] = STEPS
        inputs = rng.standard_normal((count, STEPS, FEATURES)).astype(np.float32)
        inputs[..., 0] += 3 * labels[:, None]
        inputs[np.arange(STEPS) >= lengths[:, None]] = 1e4
        return Raw(inputs, labels, "made", lengths)

    write_sequences(path, Sequences("padded", raw(30), raw(14), tuple("abcd")))
    return path


def write_bits(path):
    """40 training and 16 test bitstreams of 20 bits."""
    splits = make_bitstreams(20, 40), make_bitstreams(20, 16, split=1)
    write_sequences(path, Sequences("bits", *splits, tuple("0123456789")))
    return path
