"""The report of kernels' machine code as pages: the tables, and what is to be expected beside PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from bppsa_cupy.processors.models import H200, OF_GROUP, SURE
from bppsa_cupy.processors.sizes import WalkSize
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.clusters import BYTES_A_CYCLE, MEETING
from bppsa_cupy.raw_kernels.frames.twins import kernels_of
from bppsa_cupy.tools.instruments.machine_code import rivals
from bppsa_cupy.tools.instruments.machine_code.cases import WIDE_CELLS
from bppsa_cupy.tools.instruments.machine_code.cluster_walks import READ_FOR, limits
from bppsa_cupy.tools.instruments.machine_code.goals import goals
from bppsa_cupy.tools.instruments.machine_code.predictions import PREDICTED as PREDICTED_ON
from bppsa_cupy.tools.instruments.machine_code.single_steps import BATCHES, WIDTHS, single_step
from bppsa_cupy.tools.instruments.machine_code.walk import BESIDE, COMMON, MEMORY, PLACES

HEAD = """\
# Kernels on a GPU: what their machine code says

Nothing here was measured on a GPU. `make machine-code` writes this page and
[machine-code.json](machine-code.json): every kernel is compiled by NVRTC {nvrtc},
disassembled (nvdisasm {nvdisasm}), followed with the arguments of a case as far as they decide branches,
and its hot loop is walked for one warp that is alone: of loops with the same arithmetic the one that most
steps go through, not the one for those that are left over. `python -m bppsa_cupy.tools.instruments.bench
machine-code --kernel NAME --arch sm_90 --listing` prints a loop, instruction by instruction, with the cycle
at which each issues; `--arch sm_120` reads Blackwell's code, with the memory latencies of sm_90.

**A step** is what one copy of the loop's text does: a step in time of a walk, an element of an elementwise
kernel, a product of a sum. The loop is the innermost one with the deepest nesting; of walks and scans the
smallest one around it that stores, with as many steps of the inner one as there are units. Of
`*_forward_step` and `*_backward_step`, at H = 512, it is one weight with the samples of a warp. Lanes of a
warp may differ, so both sides of a branch count; functions that a round can do without do not.

**Cycles** follow from the control word of each instruction: the cycles until the next may issue, and the
scoreboards that it sets and waits for. NVIDIA does not document that word. Its fields are read alike on
sm_75, 80, 86, 90 and 120, and a test checks on each that a register a load writes is read behind a wait for
the load's own scoreboard. How long a result takes is not in the code:

| cycles | L1 | L2 | memory | shared memory |
|---|---|---|---|---|
{memory}

after Luo et al. (2024) for A100 and H100 and Jia et al. (2019) for T4. Assumed: {common}; beside its stall
count, {beside}. A column L1, L2 or memory takes all loads from there. Left out: other warps, bank
conflicts, queues of memory, instruction fetch. Differences between two versions of a kernel can be trusted,
and cycles to some 25 %.

**Sectors** are those of 32 bytes that a warp's loads and stores of a step lie in, a lane that may take part
counted; - where lanes' addresses follow from a division or from memory.

## Walks over time, and their scans
"""

WIDE = """
### By width, sm_90, float32

To 128 hidden units of an RNN and 64 of a GRU or an LSTM, threads hold the weights of a unit each in
registers. To {rnn_tanh} of an RNN, {gru} of a GRU and {lstm} of an LSTM a whole block holds them, in its
registers and shared memory: cycles are those of one of its warps, alone. Beyond, a block reads them from L2,
and cycles are those of one round of its threads over the sums of a step: with G gates it makes G·H / 256
rounds, at least one. Of reductions beyond 20 units, whose blocks hold columns in shared memory, a step here
is one unit of the H that a step in time goes through: four rows of a thread's tile.
"""

BY_CLUSTERS = """
### By thread-block clusters, sm_90, float32

The walks of wide layers whose units a cluster's blocks share out, by the layouts that the model takes for
{batch} samples. Cycles are those of a warp that is alone and waits for no other block: what the way of a
write to the others, the fence of all writes and the barrier take is not in the code.
"""

OTHERS = """
## All kernels, sm_90, float32

Sizes are those of `tools/machine_code/cases.py`.
"""

PREDICTED = """
## Predicted: T = 30000, B = 16, H = 20 on an H200

132 multiprocessors of 4 schedulers; 1.98 GHz where little runs, 1.7 GHz where all work. Warps that share a
scheduler take a warp's cycles with loads from L2, or the instructions that all of them issue, if those are
more. Newton's method is taken to need 6 iterations. Chunks are as many as are the quickest.
"""

GRU = """
## Predicted: a GRU of T = 1034, B = 16, H = 20 on an H200
"""

STEPS = """
## Predicted: a step of a wide layer on an H200

Where neither a block nor a cluster of them holds W_hh in registers and shared memory, a pass over time is a
launch a step (`raw_kernels/frames/cuda/step.cuh`), in graphs of 500: product with W_hh and cell in one
kernel, forward and back. Its blocks share out units and samples, so that all multiprocessors read a part of
the weights each. The table is by the model that chooses (`processors/models.py`): {following:.1f} µs from a
kernel of a graph to one that waits for it, then the longer of a warp's cycles (with all warps'
instructions) and the bytes that blocks read, at {cache:.1f} TB/s from L2 to {cache_bytes} MiB of weights,
{memory:.1f} TB/s beyond. These rates and the time between two kernels are assumed, as are a warp's 1000
cycles for sums over lanes and the cell, and 600 for each turn of copies; instructions and cycles of the
products are those of `*_step` above.
"Least" are weights read once, or multiply-adds at the GPU's peak, without any launch; "in blocks" is the walk
whose blocks go through all steps with samples of their own.

Two other ways were counted, for an LSTM of H = 512, B = 16. cuBLAS and an elementwise kernel are two launches
that wait for each other, {following:.1f} µs more than one, and 0.26 MB of sums written and read; a product of
2048 × 512 by 512 × 16 is 32 tiles of 64 rows, on a quarter of the multiprocessors, unless it is cut along its
terms, which is a third launch. One kernel whose blocks keep their weights and wait for one another at each
step would save the time between two launches but for a barrier (a write, an atomic and a read through L2: 0.4
µs at the least), and 4 of 8 MB from L2: at most half of a step. It needs all blocks to be resident at once,
and hangs where they are not, as where another stream's kernel has a part of the GPU. So no block waits for
one outside its cluster, whose blocks the GPU starts together.

At B = 64 and more blocks of few units and samples read too much. Ways with wider tiles were counted for an
LSTM of H = 1024, B = 64, whose step takes {wide_forward:.1f} µs forward and {wide_backward:.1f} back,
{wide_least:.1f} at the least:

- Blocks of 8 units and 64 samples, weights and states in shared memory, 8 × 8 sums a thread, an eighth of
  the terms a warp. Forward 128 blocks read 50 MB (9.2 µs) and issue 21,500 instructions a scheduler (12.7
  µs; of 72 instructions 64 are multiply-adds): 13.9 µs. Back a sum has four times as many terms: by blocks
  of 16 units and 32 samples 100 MB, 19.5 µs.
- cuBLAS, its tiles of 128 × 64 cut into 128 parts along the terms: 12.8 µs at 75 % of the peak, three
  launches, 4.2 MB of parts written and read, and the cell's arrays once more: 18 µs either way.

So a wider tile of our own would be the quickest forward, and about as quick as cuBLAS back. Neither is built:
the rates of L2 decide, and these are assumed.
"""

COLUMNS = (
    "registers",
    "instructions",
    "of reals",
    *PLACES,
    "loads",
    "stores",
    "sectors",
    "waits, loads from L2",
)

PASS_COLUMNS = ("cell", "way", "part", "ms", "counted from")

STEP_COLUMNS = (
    "kernel", "H", "B", "cycles of a warp", "MB read", "bound by", "µs", "least", "in blocks", "taken"
)  # fmt: skip


CLUSTERS = """
## Predicted: walks by thread-block clusters on an H200

From sm_90 on a layer that is too wide for one block is walked by clusters
(`raw_kernels/frames/cuda/clusters.cuh`): each block keeps the weights of its units, and writes what a step
makes of them (a state forward, the gradients by its recurrent sums back) to the others' shared memory; one
barrier of the cluster a step. A cluster walks as many samples together as the layout says; clusters that do
not run at once follow one another in waves.

Assumed: {meeting} cycles for a write's way, the fence and the barrier, and {rate} bytes a cycle handed on
(Luo et al. 2024). Clusters at once are those of groups of {group} multiprocessors; of a GPU at hand the
driver is asked (`cuOccupancyMaxActiveClusters`), and where it says fewer, clusters of fewer blocks or another
way are taken. They are gone where they should take {sure} of another way's time at most: "others" is the
quickest of a launch a step and a walk in blocks.
"""

LIMITS = """
The widest layers that clusters of so many blocks hold, forward and back, float32 / float64. Beyond them, and
where a GPU or a part of one (MIG) has no such clusters, a launch a step is taken:
"""

CLUSTER_COLUMNS = (
    "walk", "H", "B", "blocks", "samples", "at once", "waves", "KiB of weights in shared memory",
    "KiB handed on", "cycles", "µs", "others",
)  # fmt: skip


def page(report: Mapping[str, Any]) -> str:
    """The page of what `machine-code --json` writes."""
    rows = report["rows"]
    wide = report["widths"]
    walks = [row for row in rows if row["hidden"] is not None or row["kernel"].endswith("_scan")]
    parts = [
        HEAD.format(
            memory="\n".join(
                f"| {target} | {m['L1']} | {m['L2']} | {m['memory']} | {m['shared']} |"
                for target, m in MEMORY.items()
            ),
            common=_listed(COMMON),
            beside=_listed(BESIDE),
            **report["versions"],
        ),
        *_table(("kernel", "target", *COLUMNS), ((r["kernel"], r["target"], *_cells(r)) for r in walks)),
        WIDE.format(**_widest_in_blocks()),
        *_table(("kernel", "H", *COLUMNS), ((r["kernel"], str(r["hidden"]), *_cells(r)) for r in wide)),
        BY_CLUSTERS.format(batch=READ_FOR),
        *_table(
            ("kernel", "H", *COLUMNS),
            ((r["kernel"], str(r["hidden"]), *_cells(r)) for r in report["clusters"]),
        ),
        OTHERS,
        *_table(("kernel", *COLUMNS), ((r["kernel"], *_cells(r)) for r in rows if r["target"] == "sm_90")),
        PREDICTED,
        *_table(PASS_COLUMNS, _predicted(report["predictions"])),
        GRU,
        *_table(PASS_COLUMNS, _predicted(report["predictions_gru"])),
        STEPS.format(
            following=H200.following * 1e6,
            cache=H200.cache / 1e12,
            memory=H200.memory / 1e12,
            cache_bytes=H200.cache_bytes >> 20,
            **_widest(),
        ),
        *_table(STEP_COLUMNS, map(_single_step, report["single_steps"])),
        CLUSTERS.format(meeting=MEETING, rate=BYTES_A_CYCLE, group=OF_GROUP, sure=SURE),
        *_table(CLUSTER_COLUMNS, map(_cluster_walk, report["cluster_walks"])),
        LIMITS,
        *_table(("GPU", "blocks", "KiB of a block", *WIDE_CELLS), limits()),
    ]
    return "\n".join(parts) + "\n"


SUMMARY = """\
# On a GPU: what is to be expected

Nothing here was measured on a GPU: [what was](performance-gpu.md) has a page of its own. What our kernels
take is counted from their machine code ([tables](results/machine-code.md), which `make machine-code` writes
with this page); what PyTorch takes was published by others. `make gpu` measures both on a GPU at hand
([what it runs](journal.md#on-a-gpu)).

## The rival

For float32 and half input without packing and projections PyTorch takes cuDNN's algorithm
`CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H`, one kernel that keeps the weights on the multiprocessors: forward
to H = 384 of an RNN and 192 of a GRU or an LSTM, back to 256 and 128. Beyond these widths, and for packed
sequences, it takes cuDNN's standard algorithm, step by step. Microseconds a step:

| | forward | back |
|---|---|---|
| RNN, H = 32 to 80, persistent | 0.36 to 0.44 | 0.94 to 1.1 |
| LSTM, H = 32 to 40, persistent | 0.6 | 1.14 to 1.64 |
| LSTM, H = 128, persistent | 2.6 | 4.1 |
| standard | 7 to 10 | 9 to 19 |

They were published with PyTorch's pull request 62143 (2021, taken back, and landed again as 73211), which
names neither the GPU nor the batch. It was one of V100's or A100's time: an H100 or H200 is assumed to be
1.0 to 1.4 times as quick. No GRU is among them, and no RNN beyond H = 80: an asterisk marks a line whose
number is our estimate.

## Ours

132 multiprocessors of 4 schedulers; 1.98 GHz where little runs, 1.7 GHz where all work; 5 µs a launch of
the host's. The first number of a range is what the model that chooses predicts (`processors/models.py`), the
second twice as long where several walks share a multiprocessor, which is where there are more than 128 of
them: four then share the pipe of its shared memory. An interpreter of the kernels' PTX that counts that pipe
found 251 to 533 cycles a step of four walks of a GRU's way back for the 214 that one takes alone, and 302 to
578 for an LSTM's 283; with one warp a multiprocessor it agrees with the tables within 7 %.
Products over sequences (the input's projection forward, the gradients of weights back) are our kernels',
which reach 8 to 15 % of the GPU's multiply-adds by the instructions of their loops, or cuBLAS's where it is
predicted to be quicker (`matmul_seconds`): at 70 % of them, or half of that in the range's second number.

Layers that are too wide for one block are walked by thread-block clusters, to H = {rnn_tanh} of an RNN, {gru}
of a GRU and {lstm} of an LSTM. A step's instructions are counted, its {meeting} cycles in which the blocks
meet are an estimate ([widths, samples, bytes, and the limits of other GPUs](results/machine-code.md)).

Milliseconds of a pass, T steps of B samples. The ratio is theirs / ours of forward and back together: above
1 ours is quicker.

"""

BELOW = """
## Where the ratio may be below 1

- **T = 10.** Launches of the host's are all there is: some 5 on either way for two of cuDNN's. A training
  step that is captured into a graph, as a way back by chunks can be, has none.
- **An RNN of H = 256.** A block reads a third of the weights from shared memory at each step (0.6 µs).
- **64 samples of H = 512.** Clusters walk some of them at once, in waves one after another.
- **Beyond what clusters hold, and before sm_90 beyond a block.** A launch a step, whose products are our own,
  for all samples at once: 2.2 µs and more.

## Goals
"""


def summary(report: Mapping[str, Any]) -> str:
    """The page of what is to be expected beside PyTorch, of the same report."""
    columns = ("cell", "T", "B", "H", "theirs forward", "ours", "theirs back", "ours", "ratio")
    widest = {cell: both.partition(" ")[0] for cell, both in zip(WIDE_CELLS, limits()[0][3:], strict=True)}
    parts = [
        SUMMARY.format(meeting=MEETING, **widest) + "\n".join(_table(columns, rivals.lines())),
        BELOW,
        "By the machine code, on sm_90 at H = 20 and B = 16:",
        "",
        *_table(("what", "goal", "predicted", "within"), goals(report, PREDICTED_ON)),
        "",
        "Against PyTorch, to be measured: 12 times and more at T = 30000, H = 20, B = 16 (back 50 times), 3",
        "times at T = 1000 of an RNN and at the GRU's S, M and L, and never below 1 for one sample of H up",
        "to 1024. With 64 samples of H = 512 the table above says less: cuDNN's products are",
        "quicker there.",
    ]
    return "\n".join(parts) + "\n"


def _single_step(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{row['cell']}_{row['verb']}_step",
        *(str(row[name]) for name in ("hidden", "batch")),
        _number(row["cycles"]),
        f"{row['read'] / 1e6:.1f}",
        row["bound"],
        *(f"{row[name] * 1e6:.2f}" for name in ("seconds", "least", "in_blocks")),
        row["taken"],
    )


def _cluster_walk(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{row['cell']}_{row['verb']}",
        *(str(row[name]) for name in ("hidden", "batch", "blocks", "samples", "at_once", "waves")),
        *(f"{row[name] / 1024:.0f}" for name in ("shared", "handed")),
        _number(row["cycles"]),
        *(f"{row[name] * 1e6:.2f}" for name in ("seconds", "others")),
    )


def _widest() -> dict[str, float]:
    """Microseconds of a step of the widest LSTM with the most samples, both ways, and the least of them."""
    size = WalkSize(FORMS["lstm"], 1, max(BATCHES), max(WIDTHS), 4)
    forward, backward = (single_step(H200, size, verb) for verb in ("forward", "backward"))
    times = {"forward": forward.seconds, "backward": backward.seconds, "least": forward.least}
    return {f"wide_{name}": 1e6 * seconds for name, seconds in times.items()}


def _widest_in_blocks() -> dict[str, int]:
    """Of each cell of the tables the widest layer whose walks either way are by whole blocks."""
    there = H200.shared_bytes
    return {
        cell: min(
            max(layout.width for layout in kernels_of(FORMS[cell])[verb].layouts("float32", there))
            for verb in ("forward", "backward")
        )
        for cell in WIDE_CELLS
    }


def _listed(numbers: Mapping[str, int]) -> str:
    """Names by their number: "MUFU, F2I 24; LDC 32"."""
    ordered = sorted((number, name) for name, number in numbers.items() if number)
    groups = groupby(ordered, key=lambda one: one[0])
    return "; ".join(f"{', '.join(name for _, name in group)} {number}" for number, group in groups)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    names = list(head)
    lines = ["| " + " | ".join(row) + " |" for row in (names, *rows)]
    return [lines[0], "|" + "---|" * len(names), *lines[1:]]


def _cells(row: Mapping[str, Any]) -> list[str]:
    waits = sorted(row["waits"].items(), key=lambda one: -one[1])[:3]
    return [
        f"{row['registers']}" + (f" ({row['spill_bytes']} B spilled)" if row["spill_bytes"] else ""),
        *(_number(row[name]) for name in ("instructions", "reals")),
        *(_number(row["cycles"][place]) for place in PLACES),
        *(_number(row[name]) for name in ("loads", "stores")),
        "-" if row["sectors"] is None else _number(row["sectors"]),
        ", ".join(f"{name} {_number(wait)}" for name, wait in waits if wait >= 1),
    ]


def _number(value: float) -> str:
    """Three digits that count, thousands apart."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def _predicted(parts: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """A line a part, and one of the sum of each way that has several."""
    lines: list[tuple[str, ...]] = []
    for (cell, way), group in groupby(parts, key=lambda one: (one["cell"], one["way"])):
        found = list(group)
        lines += [(cell, way, one["part"], f"{one['seconds'] * 1e3:.3f}", one["count"]) for one in found]
        if len(found) > 1:
            lines.append((cell, way, "**all**", f"**{sum(p['seconds'] for p in found) * 1e3:.2f}**", ""))
    return lines
