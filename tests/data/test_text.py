"""Texts by characters: numbers, sequences, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bppsa_cupy as bp
from bppsa_cupy.data import load


def test_a_text_becomes_sequences_and_what_follows_each_step(tmp_path: Path) -> None:
    file = tmp_path / "own.txt"
    whole = "naïve ünïcode, " * 40
    file.write_text(whole, encoding="utf-8")
    data = load(file, steps=7)
    assert data.vocabulary == "".join(sorted(set(whole))) and data.classes == len(data.vocabulary)
    assert data.input_shape == (7, 1) and data.per_step and data.normalization is None
    cut = len(whole) - len(whole) // 10
    for split, text in ((data.train, whole[:cut]), (data.test, whole[cut:])):
        read = "".join(data.vocabulary[int(number)] for number in split.inputs.reshape(-1))
        follow = "".join(data.vocabulary[number] for number in split.labels.reshape(-1))
        assert text.startswith(read) and text[1:].startswith(follow) and len(text) - len(read) <= 7
    assert load(file, steps=7).digest == data.digest != load(file, steps=8).digest


def test_what_is_no_text_or_too_short_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "own.txt"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(bp.DataError, match="is no text of UTF-8"):
        load(file)
    for content in ("", "too short"):
        file.write_text(content, encoding="utf-8")
        with pytest.raises(bp.DataError, match=f"has {len(content)} characters: sequences of 128 steps take"):
            load(file)
    with pytest.raises(bp.DataError, match="steps"):
        load("text", steps=0)


@pytest.mark.long
def test_a_model_of_blocks_learns_a_text_and_goes_on_with_it(tmp_path: Path) -> None:
    from bppsa_cupy.models import build_model, sample
    from bppsa_cupy.training.loop import train
    from bppsa_cupy.training.optimizers import AdamW
    from bppsa_cupy.training.settings import Settings

    file = tmp_path / "own.txt"
    file.write_text("abcde" * 400, encoding="utf-8")
    data = load(file, steps=20)
    net = build_model(
        "mingru", data.input_shape, classes=data.classes, tokens=data.classes, hidden_size=16, outputs="all",
        device="host",
    )  # fmt: skip
    train(net, data, AdamW(net.parameters, lr=0.01), Settings(epochs=6, batch_size=16))
    found = sample(net, [0, 1], 8, temperature=0)
    assert "".join(data.vocabulary[number] for number in found) == "cdeabcde"
    np.testing.assert_array_equal(sample(net, [0], 5, seed=3), sample(net, [0], 5, seed=3))
    with pytest.raises(bp.ShapeError, match="a prompt of 0 tokens"):
        sample(net, [], 5)
