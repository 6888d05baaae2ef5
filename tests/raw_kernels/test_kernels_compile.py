"""Every kernel compiles with NVRTC, which needs no GPU, and none spills registers but for what is said
here: every variant for Hopper and one for Turing, by `make compile` all for all that NVRTC knows."""

from __future__ import annotations

import pytest
from nvrtc import TARGETS, USUAL, WIDEST, measure, measure_kernel, nvrtc, targets_known

from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.kernel import Variant

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        nvrtc() is None, reason="NVRTC is missing: install nvidia-cuda-nvrtc-cu12 (the extra `test` has it)"
    ),
]

# 96 values live across a loop, where two blocks of 1024 threads leave 32 registers a thread.
SPILLING = """
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(float* values, int steps)
{
    float held[96];
#pragma unroll
    for (int i = 0; i < 96; ++i) held[i] = values[i * 1024 + threadIdx.x];
    for (int step = 0; step < steps; ++step)
#pragma unroll
        for (int i = 0; i < 96; ++i) held[i] = held[i] * held[(i + 1) % 96] + float(step);
#pragma unroll
    for (int i = 0; i < 96; ++i) values[i * 1024 + threadIdx.x] = held[i];
}
"""


#: Bytes that a kernel spills on one target alone: of walks of 128 units by whole blocks what they take after
#: the last step; of a GRU's back of 64 units what two lanes a unit have no room for.
SPILLED = {
    ("lstm_forward", "sm_120"): 16, ("lstm_backward", "sm_120"): 40, ("gru_backward", "sm_120"): 64,
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_compiles_without_spills(name: str, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--all-targets"):
        usages = measure_kernel(KERNELS[name], [target for target in TARGETS if target in targets_known()])
    else:
        # Another activation in the frames of "rnn_tanh".
        usages = measure_kernel(KERNELS[name], USUAL, USUAL if name.startswith("rnn_relu") else WIDEST)
    spilling = [usage for usage in usages if usage.spill_bytes > SPILLED.get((name, usage.target), 0)]
    assert not spilling, f"{name} spills registers: {spilling}"


def test_a_spill_is_seen() -> None:
    assert measure(SPILLING, "spilling", Variant(), "sm_90").spill_bytes > 0
