"""Random changes of training images, by seed, epoch and sample."""

from __future__ import annotations

import numpy as np

from bppsa_cupy.arguments import is_one_of
from bppsa_cupy.errors import DataError

#: What `Augmentation` knows.
AUGMENTATIONS = ("crop-flip",)
#: Pixels of zeros on each side of an image, in which a crop of its own size lies.
PADDING = 4
#: Tells these random numbers from those of the order, which follow from seed and epoch.
_STREAM = 1


class Augmentation:
    """One epoch's changes of the samples of a split: "crop-flip" pads images by 4 pixels of zeros, before
    they are normalised, crops them at random to their size and flips every other one, left to right, as
    torchvision's RandomCrop(size, padding=4) and RandomHorizontalFlip do (He et al. 2016, section 4.2).

    What is done to a sample follows from the seed, the epoch and its number in the split alone: the same on
    every device, whatever the batch, and after a resume. Raises DataError for another name, and for samples
    that are no images (C, H, W).
    """

    def __init__(self, name: str, samples: int, shape: tuple[int, ...], seed: int, epoch: int) -> None:
        check_augmentation(name)
        if len(shape) != 3:
            raise DataError(f"{name} was asked for, and the samples are {shape}: it takes images (C, H, W)")
        draws = np.random.default_rng((seed, epoch, _STREAM))
        self._corners = draws.integers(0, 2 * PADDING + 1, (samples, 2))
        self._flipped = draws.integers(0, 2, samples).astype(bool)

    def apply(self, inputs: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """A changed copy of `inputs`, (B, C, H, W): samples `chosen` (B,) of the split."""
        height, width = inputs.shape[2:]
        padded = np.pad(inputs, ((0, 0), (0, 0), (PADDING, PADDING), (PADDING, PADDING)))
        result = np.empty_like(inputs)
        for image, whole, sample in zip(result, padded, chosen, strict=True):
            top, left = self._corners[sample]
            crop = whole[:, top : top + height, left : left + width]
            image[...] = crop[:, :, ::-1] if self._flipped[sample] else crop
        return result


def check_augmentation(name: str) -> None:
    """Raise DataError where there is no augmentation of this name."""
    if not is_one_of(name, AUGMENTATIONS):
        raise DataError(f"the augmentation {name!r} was asked for: there is {', '.join(AUGMENTATIONS)}")
