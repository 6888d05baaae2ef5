"""Tokens drawn from what a network makes of the ones before them."""

from __future__ import annotations

from typing import Any

import numpy as np

from bppsa_cupy.errors import ShapeError
from bppsa_cupy.network import Sequential


def sample(
    network: Sequential, prompt: Any, count: int, *, temperature: float = 1.0, seed: int = 0
) -> np.ndarray:
    """So many tokens after a prompt, each drawn from the softmax of the scores that the network gives the
    ones before it.

    network      over sequences (T, 1) of tokens' numbers, with scores at every step
    prompt       at least one number
    temperature  scores are divided by it; 0 takes the highest
    Raises ShapeError.
    """
    steps, generator = network.steps(), np.random.default_rng(seed)
    given = np.asarray(prompt).reshape(-1)
    if not given.size or temperature < 0:
        raise ShapeError(
            f"sample got a prompt of {given.size} tokens and temperature={temperature}: it takes one at "
            "least, and a temperature of 0 or more"
        )
    found = np.empty(count, np.int64)
    scores = None
    for token in given:
        scores = steps(np.full((1, 1), token))
    for place in range(count):
        logits = np.asarray(network.device.to_host(scores), np.float64).reshape(-1)
        if temperature == 0:
            found[place] = logits.argmax()
        else:
            chances = np.exp((logits - logits.max()) / temperature)
            found[place] = generator.choice(chances.size, p=chances / chances.sum())
        scores = steps(np.full((1, 1), found[place]))
    return found
