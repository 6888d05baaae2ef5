"""Times of walks per step, on the host."""

from bppsa_cupy.devices import get_device
from bppsa_cupy.tools.on_gpu import walk_steps


def test_walks_are_timed_per_cell_batch_size_and_direction() -> None:
    found = list(walk_steps.time_walks(get_device("host"), ("rnn_tanh",), (1, 2), (3,), steps=6, seconds=1e9))
    assert [(line["batch"], line["direction"]) for line in found] == [
        (1, "forward"), (1, "backward"), (2, "forward"), (2, "backward"),
    ]  # fmt: skip
    assert all(0 < line["least"] <= line["ns_per_step"] and line["way"] == "by blocks" for line in found)
    late = list(walk_steps.time_walks(get_device("host"), ("gru",), (1,), (3,), steps=6, seconds=-1))
    assert [line["left_out"] for line in late] == ["-1 s are over"]
