"""scikit-learn's handwritten digits, 1,797 images that come with the library."""

from __future__ import annotations

import numpy as np

from bppsa_cupy.data.dataset import Raw
from bppsa_cupy.errors import DataError

#: Every pixel of the 8 × 8 images is repeated to this many in each direction.
ENLARGE = 4
TEST_FRACTION = 0.2


def read(seed: int) -> tuple[Raw, Raw]:
    """Training and test samples, (N, 1, 32, 32) uint8; a fifth of each class is for the test.

    `seed` chooses which. Raises DataError where scikit-learn is missing.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as cause:
        raise DataError(
            f"data 'digits' was asked for and scikit-learn cannot be imported ({cause}): "
            "install the extra demo"
        ) from cause
    digits = load_digits()
    images = np.round(digits.images * (255 / 16)).astype(np.uint8)
    images = images.repeat(ENLARGE, axis=1).repeat(ENLARGE, axis=2)[:, None]
    labels = digits.target
    generator = np.random.default_rng(seed)
    is_test = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        is_test[members[: round(TEST_FRACTION * len(members))]] = True
    train, test = (Raw(images[chosen], labels[chosen], "digits") for chosen in (~is_test, is_test))
    return train, test
