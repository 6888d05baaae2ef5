"""Arguments for the kernels of recurrent layers: any hidden size, steps no chunk divides, ragged lengths."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from kernel_cases import Case, case, cases_of

#: steps, hidden, batch, chunk
SIZES = (
    (0, 3, 2, 4), (1, 1, 1, 1), (5, 3, 0, 2), (4, 20, 2, 4), (5, 33, 1, 2), (3, 64, 2, 2), (2, 100, 1, 1),
    (7, 20, 19, 3), (3, 5, 37, 5),
)  # fmt: skip


@cases_of("rnn_forward", "rnn_backward", "gru_forward", "gru_backward", "lstm_forward", "lstm_backward")
def recurrent(rng: np.random.Generator) -> Iterator[Case]:
    for steps, hidden, batch, chunk in SIZES:
        for per_step, relu, reverse, ragged in ((0, 0, 0, 0), (1, 1, 0, 1), (1, 0, 1, 1), (0, 1, 1, 0)):
            least = min(1, steps) if ragged else steps
            arrays = {
                "lengths": rng.integers(least, steps + 1, batch),
            }
            yield case(
                arrays, steps=steps, hidden=hidden, batch=batch, chunk=chunk, per_step=per_step, relu=relu,
                reverse=reverse,
            )  # fmt: skip
