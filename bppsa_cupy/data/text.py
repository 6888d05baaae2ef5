"""A text by characters: sequences of their numbers, each with the character that follows at every step."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bppsa_cupy.data.dataset import Raw, RawDataset
from bppsa_cupy.errors import DataError

#: Steps of a sequence, and the part of the text, at its end, that is for the test.
STEPS, TEST_PART = 128, 10
#: Suffixes of files that are texts.
SUFFIXES = (".txt", ".md", ".rst")


def read(path: Path | None, steps: int) -> RawDataset:
    """A file, UTF-8, or without one what Python's own help says of the language, half a megabyte of English.

    A character's number is its place among all that the text has, by code point. Sequences (steps, 1) lie one
    after the other, float32; the label of a step is the next character; the last tenth of the text is for the
    test. Raises DataError for a text that is not UTF-8, or too short for one sequence of either kind.
    """
    if path is None:
        from pydoc_data.topics import topics

        name, source, text = "text", "Python's help", "\n".join(topics[name] for name in sorted(topics))
    else:
        name, source = path.stem, str(path)
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as cause:
            raise DataError(
                f"{path} is no text of UTF-8 ({cause.reason} at byte {cause.start}): convert it"
            ) from cause
    vocabulary = "".join(sorted(set(text)))
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    numbers = np.searchsorted(np.unique(points), points)
    cut = len(text) - len(text) // TEST_PART
    least = TEST_PART * (steps + 1)
    if len(text) < least:
        raise DataError(
            f"{source} has {len(text)} characters: sequences of {steps} steps take {least}, a tenth of them "
            "for the test"
        )
    train, test = (_sequences(part, steps, source) for part in (numbers[:cut], numbers[cut:]))
    return RawDataset(name, train, test, len(vocabulary), ready=True, vocabulary=vocabulary)


def _sequences(numbers: np.ndarray, steps: int, source: str) -> Raw:
    """As many whole sequences as there are, and their labels."""
    count = (len(numbers) - 1) // steps
    inputs = numbers[: count * steps].astype(np.float32).reshape(count, steps, 1)
    return Raw(inputs, numbers[1 : count * steps + 1].astype(np.int64).reshape(count, steps), source)
