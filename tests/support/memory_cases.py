"""What is compared where memory ends, and the words of its error."""

from __future__ import annotations

from typing import Any

from cupy_fixtures import no_device_is_kept, stub  # noqa: F401  fixtures

import bppsa_cupy as bp

NAMED = r"^cuda: (an array of \d+ bytes|memory) was asked for.*, \d+ are free: use a smaller batch"


def state_of(net: bp.Sequential, optimizer: bp.Optimizer) -> dict[str, Any]:
    """Bits of all that training changes."""
    state = optimizer.state_dict()
    arrays = {**net.parameters.to_host(), **net.buffers.to_host(), **state["arrays"]}
    return {
        "steps": state["steps"],
        "random": dict(net.random_state),
        "version": net.parameters.version,
        **{name: (array.shape, array.tobytes()) for name, array in arrays.items()},
    }
