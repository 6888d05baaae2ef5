"""Machine code of kernels: what control words say, which code is reached, what a walk and its sectors are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.kernel import Variant
from bppsa_cupy.tools.instruments.machine_code import lanes, nvrtc
from bppsa_cupy.tools.instruments.machine_code.cases import BLOCK_AND_GRID, PARAMETERS
from bppsa_cupy.tools.instruments.machine_code.disassembly import (
    Disassembly,
    DisassemblyError,
    disassemble,
    nvdisasm,
    read_listing,
)
from bppsa_cupy.tools.instruments.machine_code.flow import Access, Flow, reach
from bppsa_cupy.tools.instruments.machine_code.instructions import (
    TARGETS,
    Instruction,
    control_of,
    read_instruction,
)
from bppsa_cupy.tools.instruments.machine_code.lanes import UNIFORM, Value, constant
from bppsa_cupy.tools.instruments.machine_code.loops import hot_loop, steps_of
from bppsa_cupy.tools.instruments.machine_code.rules import execute
from bppsa_cupy.tools.instruments.machine_code.sectors import sectors_of
from bppsa_cupy.tools.instruments.machine_code.state import State, next_register, results
from bppsa_cupy.tools.instruments.machine_code.walk import BESIDE, memory_latencies, walk

pytestmark = [pytest.mark.long, pytest.mark.instrument]

NUMBERS = st.integers(-(2**31), 2**31 - 1)
LANE = np.arange(32, dtype=np.uint32)


def needs_tools() -> None:
    if nvrtc.nvrtc() is None or nvdisasm() is None:
        pytest.skip("NVRTC or nvdisasm is missing: the extra `test` has both")


def word(stall: int = 1, written: int = 7, read: int = 7, waits: int = 0) -> int:
    return (stall | written << 5 | read << 8 | waits << 11) << 41


def one(text: str, **control: int) -> Instruction:
    return read_instruction(0, text, 1, word(**control))


def code_of(text: str, target: str = "sm_90") -> Disassembly:
    needs_tools()
    return disassemble(nvrtc.compile_text(text, target).code, "probe")


# ---- instructions ----


def test_an_instruction_is_read() -> None:
    found = read_instruction(
        16, "@!P0 LDG.E.64.CONSTANT R6, desc[UR4][R2.64+0x8]", 7, word(4, 2, 7, 0b100001)
    )
    assert (found.guard, found.name, found.width, found.line) == ("!P0", "LDG", 8, 7)
    assert found.operands == ("R6", "desc[UR4][R2.64+0x8]")
    assert found.control == (4, 2, None, (0, 5))
    assert results(found) == (["R6", "R7"], [], 1)
    assert read_instruction(0, "BRA `(.L_x_3)", 1, word()).target == ".L_x_3"
    branch = read_instruction(0, "BRA.U !UP0, `(.L_x_3)", 1, word())
    assert (branch.guard, branch.target, branch.branches) == ("!UP0", ".L_x_3", True)


@pytest.mark.parametrize("target", TARGETS)
def test_what_a_load_writes_is_read_behind_a_wait_for_its_scoreboard(target: str) -> None:
    needs_tools()
    kernel = KERNELS["sequence_weight_gradient"]
    code = disassemble(nvrtc.compile_text(kernel.source(Variant()), target).code, kernel.name)
    borders, checked = set(code.labels.values()), 0
    for index, load in enumerate(code.instructions):
        # Loads of shared memory arrive in order: only the last of several names a scoreboard.
        if load.name not in ("LDG", "LDS") or load.control.written is None:
            assert load.name != "LDG", f"{target}: {load}"
            continue
        written, waited = set(results(load)[0]), False
        for place in range(index + 1, len(code.instructions)):
            follower = code.instructions[place]
            if place in borders or follower.branches or follower.guard:
                break
            waited = waited or load.control.written in follower.control.waits
            if written & {operand.lstrip("-|~").rstrip("|") for operand in follower.operands}:
                assert waited, f"{target}: {follower} reads {load}"
                checked += 1
                break
    assert checked >= 10


def test_code_that_is_not_there_is_named() -> None:
    with pytest.raises(DisassemblyError, match="no code of other"):
        read_listing("\t.section\t.text.probe\n", "other")


# ---- values ----


@given(NUMBERS, NUMBERS, NUMBERS)
def test_arithmetic_is_that_of_64_bits(a: int, b: int, c: int) -> None:
    state = State({})
    low, high = c & 0xFFFFFFFF, c >> 32 & 0xFFFFFFFF
    for name, number in (("R1", a), ("R2", b), ("R4", low), ("R5", high)):
        state.put(name, constant(number), lanes.ALL)
    for text in ("IMAD.WIDE R6, R1, R2, R4", "IADD3 R8, P0, R1, R2, RZ", "SHF.R.S32.HI R9, RZ, 0x1f, R1"):
        execute(state, one(text))
    wide = (a * b + c) & (2**64 - 1)
    assert [int(state.value(name).lanes[0]) for name in ("R6", "R7")] == [wide & 0xFFFFFFFF, wide >> 32]
    assert bool(state.mask("P0")[0]) == ((a & 0xFFFFFFFF) + (b & 0xFFFFFFFF) >= 2**32)
    assert int(state.value("R9").lanes[0].view(np.int32)) == (a >> 31)
    execute(state, one("LOP3.LUT R10, R1, R2, R4, 0x96, !PT"))
    assert int(state.value("R10").lanes[0]) == (a ^ b ^ c) & 0xFFFFFFFF


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_a_comparison_of_64_bits_is_two_of_32(a: int, b: int) -> None:
    state = State({})
    for name, number in (("R2", a), ("R3", a >> 32), ("R4", b), ("R5", b >> 32)):
        state.put(name, constant(number), lanes.ALL)
    for relation, expected in (("GE", a >= b), ("LT", a < b), ("NE", a != b), ("EQ", a == b), ("GT", a > b)):
        execute(state, one(f"ISETP.{relation}.U32.AND P0, PT, R2, R4, PT"))
        execute(state, one(f"ISETP.{relation}.AND.EX P1, P2, R3, R5, PT, P0"))
        assert (bool(state.mask("P1").all()), bool(state.mask("!P2").all())) == (expected, expected)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.booleans())
def test_numbers_of_64_bits_are_pairs_of_registers(a: int, b: int, chosen: bool) -> None:
    state = State({0x380 + 4 * k: constant(b >> 32 * k) for k in range(2)})
    for name, number in (("R2", a), ("R3", a >> 32)):
        state.put(name, constant(number), lanes.ALL)
    state.put_mask("P0", lanes.ALL if chosen else ~lanes.ALL, lanes.ALL)
    for text in (
        "LDCU.64 UR4, c[0x0][0x380]", "IADD.64 R6, R2, -UR4", "UIADD3.64 UR6, UPT, UPT, UR4, 0xf, URZ",
        "SEL.64 R8, R2, UR4, P0", "MOV.64 R10, UR4", "ISETP.LT.S64.AND P1, PT, R2, UR4, PT",
        "ISETP.LT.U64.AND P2, PT, R2, UR4, PT",
    ):  # fmt: skip
        execute(state, one(text))

    def number(name: str) -> int:
        low, high = (int(state.value(next_register(name, k)).lanes[0]) for k in range(2))
        return high << 32 | low

    wrapped = 2**64
    expected = {"R6": a - b, "UR6": b + 15, "R8": a if chosen else b, "R10": b}
    assert {name: number(name) for name in expected} == {k: v % wrapped for k, v in expected.items()}
    assert (bool(state.mask("P1").all()), bool(state.mask("P2").all())) == (a < b, a % wrapped < b % wrapped)


def test_unknown_numbers_keep_how_lanes_lie() -> None:
    state = State({0x160: constant(16)})
    execute(state, one("S2R R0, SR_TID.X"))
    execute(state, one("S2R R1, SR_CTAID.X"))
    execute(state, one("IMAD R2, R0, c[0x0][0x160], R1"))
    execute(state, one("LEA R3, P0, R2, c[0x0][0x210], 0x2"))
    value = state.value("R3")
    assert not value.exact and np.array_equal(value.lanes, 64 * LANE) and state.mask("P0") is None
    execute(state, one("@P0 IMAD R3, R0, R0, RZ"))
    assert np.array_equal(state.value("R3").lanes, LANE * LANE) and not state.value("R3").exact
    execute(state, one("IMAD R4, R3, R2, RZ"))
    assert state.value("R4") is None


def test_ways_that_meet_keep_what_holds_on_both() -> None:
    four, five, affine = constant(4), constant(5), Value(4 * LANE, False)
    assert lanes.meet(four, constant(4)) is four
    assert lanes.meet(four, five).exact is False and not lanes.meet(four, five).lanes.any()
    assert np.array_equal(lanes.meet(affine, Value(4 * LANE + np.uint32(9), True)).lanes, 4 * LANE)
    assert lanes.meet(affine, UNIFORM) is None and lanes.meet(None, four) is None


# ---- which code is reached ----

PROBE = """
typedef long long size_type;
extern "C" __global__ void __launch_bounds__(32) probe(const float* __restrict__ x, float* __restrict__ y,
    size_type hidden, size_type steps, int apart)
{
    const int row = threadIdx.x;
    float sum = 0;
    if (hidden <= 8) {
        for (size_type s = 0; s < steps; ++s) sum += sinf(x[s * 32 + row] * sum);
    } else if (row < hidden) {
#pragma unroll 4
        for (size_type s = 0; s < steps; ++s) {
            sum = sum * 2 + x[s * 640 + row * apart];
            y[s * 32 + row] = sum;
        }
    }
    y[row] = sum;
}
"""


def reached(hidden: int, apart: int, target: str = "sm_90") -> Flow:
    first, (block, _) = PARAMETERS[target], BLOCK_AND_GRID[target]
    words = {block: 32, first + 16: hidden, first + 20: 0, first + 24: 1000, first + 28: 0, first + 32: apart}
    return reach(code_of(PROBE, target), {place: constant(number) for place, number in words.items()})


@pytest.mark.parametrize("target", PARAMETERS)
def test_arguments_decide_which_loop_is_hot(target: str) -> None:
    narrow, wide = reached(8, 1, target), reached(20, 1, target)
    names = [[flow.code.instructions[k].name for k in hot_loop(flow)] for flow in (narrow, wide)]
    assert "STG" not in names[0] and names[0].count("LDG") >= 1
    assert names[1].count("STG") == names[1].count("LDG") == 4
    assert steps_of(wide.code.instructions[k] for k in hot_loop(wide)) == 4


NESTED = """
extern "C" __global__ void __launch_bounds__(32) probe(const float* __restrict__ x, float* __restrict__ y,
    int steps, int hidden)
{
    for (int s = 0; s < steps; ++s) {
        float sum = 1;
#pragma unroll COPIES
        for (int k = 0; k < hidden; ++k) sum = sum * 3 + x[s * hidden + k];
        y[s * 32 + threadIdx.x] = sum;
    }
}
"""


@pytest.mark.parametrize("copies", [1, 4])
def test_a_step_that_loops_over_units_has_all_of_them(copies: int) -> None:
    code = code_of(NESTED.replace("COPIES", str(copies)))
    flow = reach(code, {0: constant(32), 0x220: constant(100), 0x224: constant(64)})

    def names(trips: int | None) -> list[str]:
        return [code.instructions[k].name for k in hot_loop(flow, trips)]

    assert (names(None).count("LDG"), names(None).count("STG")) == (copies, 0)
    # What is left over by copies of four is three more loads of text that is run through.
    assert 64 <= names(64).count("LDG") <= 64 + copies - 1 and names(64).count("STG") == 1
    assert 20 <= names(20).count("LDG") <= 20 + copies - 1


@pytest.mark.parametrize("apart, sectors", [(1, 3), (2, 5), (8, 20), (16, 20)])
def test_sectors_are_those_of_the_lanes_that_take_part(apart: int, sectors: int) -> None:
    flow = reached(20, apart)
    found = [(flow.code.instructions[k], flow.accesses[k]) for k in hot_loop(flow) if k in flow.accesses]
    assert {sectors_of(i.width, a) for i, a in found if i.name == "LDG"} == {sectors}
    assert {sectors_of(i.width, a) for i, a in found if i.name == "STG"} == {3}


def test_sectors_of_wide_and_backward_accesses() -> None:
    def count(width: int, places: np.ndarray) -> int | None:
        return sectors_of(width, Access(Value(places.astype(np.uint32), False), lanes.ALL))

    assert (count(16, 16 * LANE), count(4, 0 * LANE), count(1, LANE)) == (16, 1, 1)
    assert count(4, np.uint32(0) - 4 * LANE) == 4
    assert sectors_of(4, Access(None, lanes.ALL)) is None and sectors_of(4, Access(None, ~lanes.ALL)) == 0


# ---- the walk ----


def test_a_walk_adds_stalls_and_waits() -> None:
    shared = memory_latencies("sm_90")["shared"]
    loop = [
        one("LDS R0, [R4]", stall=2, written=0),
        one("FFMA R1, R0, R2, R3", stall=5, waits=0b1),
        one("BRA `(.L_x_0)", stall=4),
    ]
    found = walk(loop, [True] * 3, "sm_90", "L2")
    assert found.cycles == shared + 5 + 4 + BESIDE["BRA"]
    assert found.waits == {"LDS": shared - 2, "BRA": BESIDE["BRA"]}
    assert walk(loop, [False, True, True], "sm_90", "L2").cycles == 2 + 5 + 4 + BESIDE["BRA"]


def test_loads_that_are_fetched_ahead_are_not_waited_for() -> None:
    ahead = [one("LDG.E R0, [R4.64]", written=1)] + [one("FFMA R1, R1, R2, R3", stall=4)] * 200
    used = one("FADD R5, R0, R1", stall=4, waits=0b10)
    near, far = (
        walk([ahead[0], used], [True] * 2, "sm_90", "L2"),
        walk([*ahead, used], [True] * 202, "sm_90", "L2"),
    )
    assert near.cycles == memory_latencies("sm_90")["L2"] + 4
    assert far.cycles == 1 + 200 * 4 + 4 and far.waits == {}


def test_groups_of_copies_to_shared_memory_are_waited_for_in_their_order() -> None:
    copy = [one("LDGSTS.E.128 [R0], [R2.64]"), one("LDGDEPBAR")]
    last = walk([*copy, one("DEPBAR.LE SB0, 0x0")], [True] * 3, "sm_90", "L2")
    earlier = walk([*copy, one("DEPBAR.LE SB0, 0x1")], [True] * 3, "sm_90", "L2")
    latency = memory_latencies("sm_90")["L2"]
    assert last.cycles == latency + 1 and earlier.cycles == pytest.approx((latency + 3) / 2, abs=2)


def test_latencies_of_a_target_that_is_not_known_are_those_before_it() -> None:
    assert memory_latencies("sm_86") == memory_latencies("sm_80") != memory_latencies("sm_90")


def test_control_words_of_no_scoreboards() -> None:
    assert control_of(word(15)) == (15, None, None, ())
