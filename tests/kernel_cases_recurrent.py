"""Arguments for the kernels of recurrent layers: any hidden size, steps no chunk divides, ragged lengths."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from kernel_cases import Case, case, cases_of

#: steps, hidden, batch, chunk
SIZES = (
    (0, 3, 2, 4), (1, 1, 1, 1), (5, 3, 0, 2), (21, 20, 2, 10), (5, 33, 1, 2), (3, 64, 1, 2), (2, 100, 1, 1),
    (9, 7, 19, 9), (2, 5, 33, 5),
)  # fmt: skip


@cases_of("rnn_forward", "rnn_backward", "gru_forward", "gru_backward", "lstm_forward", "lstm_backward")
def recurrent(rng: np.random.Generator) -> Iterator[Case]:
    settings = (((0, 0, 0, 0), (1, 0, 1, 1)), ((1, 1, 0, 1), (0, 1, 1, 0)))
    for number, (steps, hidden, batch, chunk) in enumerate(SIZES):
        for per_step, relu, reverse, ragged in settings[number % 2]:
            least = min(1, steps) if ragged else steps
            arrays = {
                "lengths": rng.integers(least, steps + 1, batch),
            }
            yield case(
                arrays, steps=steps, hidden=hidden, batch=batch, chunk=chunk, per_step=per_step, relu=relu,
                reverse=reverse,
            )  # fmt: skip


@cases_of("sequence_gather", "sequence_scatter")
def layouts(rng: np.random.Generator) -> Iterator[Case]:
    for steps, features, batch, before, after in (
        (0, 2, 3, 0, 0), (1, 1, 1, 0, 0), (5, 3, 2, 0, 4), (7, 20, 17, 2, 1), (300, 1, 2, 0, 0),
    ):  # fmt: skip
        arrays = {"lengths": rng.integers(min(1, steps), steps + 1, batch)}
        yield case(
            arrays, steps=steps, features=features, rows=features + 2, batch=batch, offset=before,
            total=before + features + after,
        )  # fmt: skip


@cases_of("sequence_project")
def projections(rng: np.random.Generator) -> Iterator[Case]:
    for steps, inputs, outputs, batch in (
        (0, 2, 3, 2), (1, 1, 1, 1), (3, 38, 60, 16), (4, 5, 7, 33), (2, 0, 3, 2)
    ):  # fmt: skip
        for transposed, biased in ((0, 0), (0, 1), (1, 0)):
            yield case(
                steps=steps, rows=inputs + transposed, inputs=inputs, outputs=outputs, batch=batch,
                transposed=transposed, biased=biased,
            )  # fmt: skip


@cases_of("sequence_weight_gradient")
def weight_gradients(rng: np.random.Generator) -> Iterator[Case]:
    for steps, rows, columns, batch, parts in (
        (1, 1, 1, 1, 1), (5, 20, 20, 16, 2), (7, 33, 32, 3, 3), (3, 60, 38, 17, 4), (2, 5, 70, 1, 2),
        (3, 4, 6, 131, 2),
    ):  # fmt: skip
        for shifted, reverse in ((0, 0), (1, 0), (1, 1)):
            yield case(
                steps=steps, rows=rows, columns=columns, batch=batch, parts=parts, shifted=shifted,
                reverse=reverse, first=2, delta_rows=rows + 3, value_rows=columns + shifted,
            )  # fmt: skip


@cases_of("rnn_fill", "gru_fill", "lstm_fill")
def fills(rng: np.random.Generator) -> Iterator[Case]:
    for steps, hidden, batch in ((0, 3, 2), (1, 1, 1), (5, 7, 3), (2, 20, 17)):
        for relu, reverse in ((0, 0), (1, 1)):
            arrays = {"lengths": rng.integers(min(1, steps), steps + 1, batch)}
            yield case(arrays, steps=steps, hidden=hidden, batch=batch, relu=relu, reverse=reverse)
