"""The sizes for which kernels' code is read: a case that costs, of each family."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from bppsa_cupy.raw_kernels.architectures import ARCHITECTURES
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.kernels import TILE_ROWS
from bppsa_cupy.raw_kernels.kernel import Kernel, LaunchShape, Variant
from bppsa_cupy.tools.instruments.machine_code.lanes import Value, constant

#: Byte offset of a kernel's parameters in constant bank 0.
PARAMETERS = {"sm_75": 0x160, "sm_80": 0x160, "sm_86": 0x160, "sm_90": 0x210, "sm_120": 0x380}

#: Where that bank holds the sizes of a block and of the grid.
BLOCK_AND_GRID = {target: (0x0, 0xC) for target in PARAMETERS} | {"sm_120": (0x360, 0x370)}

#: Targets that are told by default: Turing, Ampere, Hopper.
TARGETS = ("sm_75", "sm_80", "sm_90")

#: Scalars by name: of recurrent layers those of the paper's longest case, of convolutions a layer of VGG-11,
#: of products rows of that layer's Jacobian; 0 for each that is not here, as flags are.
SIZES: Mapping[str, int] = {
    "batch": 16, "steps": 30000, "hidden": 20, "chunk": 71, "chunks": 423, "states": 1, "size": 1 << 20,
    "first": 1, "sets": 1, "walks": 16, "features": 4096, "count": 1 << 20, "unit": 1024, "groups": 1,
    "total": 1, "rows": 1000, "columns": 1000, "inner": 1000, "nnz": 100000, "entries": 100000,
    "terms": 1000000, "sources": 4096, "a_nnz": 100000, "b_nnz": 100000, "c_nnz": 100000, "a_batched": 1,
    "b_batched": 1, "batched": 1, "classes": 10, "windows": 16384, "planes": 1024, "channels": 64,
    "positions": 1024, "affine": 0, "in_channels": 64, "out_channels": 128, "in_height": 16, "in_width": 16,
    "out_height": 16, "out_width": 16, "kernel_height": 3, "kernel_width": 3, "stride_y": 1, "stride_x": 1,
    "padding_y": 1, "padding_x": 1, "dilation_y": 1, "dilation_x": 1, "biased": 1, "parts": 64,
    "inputs": 20, "outputs": 20,
}  # fmt: skip

#: Where a name means something else.
SIZES_OF: Mapping[str, Mapping[str, int]] = {
    "newton_mismatch": {"rows": 20},
    "newton_advance": {"rows": 20},
    "csr_spmv": {"affine": 1},
    "batch_norm_forward": {"affine": 1},
    "batch_norm_vjp": {"affine": 1, "coupled": 1},
    "sequence_project": {"rows": 20},
    "sequence_gather": {"features": 20, "total": 20},
    "sequence_scatter": {"features": 20, "rows": 20, "total": 20},
    "sequence_weight_gradient": {
        "rows": 20, "columns": 20, "bands": 1, "delta_rows": 20, "value_rows": 20, "first": 0, "shifted": 1
    },
}  # fmt: skip

#: Of single steps, which wide layers take.
SIZES_OF_STEPS: Mapping[str, int] = {"hidden": 512}

#: Cells and hidden units whose walks and reductions are read too: weights in registers of more and more
#: threads, in shared memory, and beyond.
WIDE_CELLS, WIDTHS = ("rnn_tanh", "gru", "lstm"), (32, 64, 128, 192, 256)


def scalars_of(kernel: Kernel, **others: int) -> dict[str, Any]:
    """A kernel's scalars by name: the case's, or `others`."""
    names = [p.name for p in kernel.parameters if not p.is_array]
    wide = SIZES_OF_STEPS if kernel.name.endswith(("_forward_step", "_backward_step")) else {}
    known = {**SIZES, **wide, **SIZES_OF.get(kernel.name, {}), **others}
    return {name: known.get(name, 0) for name in names}


def trips_of(kernel: Kernel, scalars: Mapping[str, Any]) -> int | None:
    """Of kernels whose step goes through all units, how many these are: walks over time, and scans of
    chunks, which store what a step made. None for others."""
    if kernel.name.endswith("_scan"):
        return int(scalars["states"] * scalars["hidden"])
    walks = kernel.name.endswith(("_forward", "_backward")) and "hidden" in scalars
    return int(scalars["hidden"]) if walks else None


def loads_of_step(kernel: Kernel, variant: Variant) -> int | None:
    """Of a cell's reduction, whose copies of lines do not tell its steps, the loads of one: in blocks those
    of a unit's weights, for a thread's rows; 0 in registers, where a round is a step. None for others."""
    cell, _, verb = kernel.name.rpartition("_")
    if verb != "reduce" or cell not in FORMS:
        return None
    return 0 if variant.layout.units else FORMS[cell].gates * TILE_ROWS


def launch_of(
    kernel: Kernel, itemsize: int, target: str, scalars: Mapping[str, Any]
) -> tuple[LaunchShape, dict[str, Any]]:
    """The launch of a kernel on a target, and what it follows from: the scalars, and the target's limits."""
    given = {**scalars, "itemsize": itemsize, "shared_bytes": ARCHITECTURES[target].shared_bytes}
    return kernel.launch(given), given


def constants_of(
    kernel: Kernel, variant: Variant, target: str, scalars: Mapping[str, Any]
) -> dict[int, Value]:
    """What constant bank 0 holds at a launch, by byte offset: sizes of block and grid, and the scalars."""
    shape, _ = launch_of(kernel, variant.itemsize, target, scalars)
    words = {
        place + 4 * k: number
        for place, sizes in zip(BLOCK_AND_GRID[target], (shape.block, shape.grid), strict=True)
        for k, number in enumerate(sizes)
    }
    offset = PARAMETERS[target]
    forms = {
        "size": "<q",
        "flag": "<i",
        "double": "<d",
        "real_value": "<d" if variant.itemsize == 8 else "<f",
    }
    for parameter in kernel.parameters:
        form = "<q" if parameter.is_array else forms[parameter.type]
        width = struct.calcsize(form)
        offset = -(-offset // width) * width
        if not parameter.is_array:
            packed = struct.pack(form, scalars[parameter.name])
            words |= {offset + k: int.from_bytes(packed[k : k + 4], "little") for k in range(0, width, 4)}
        offset += width
    return {place: constant(word) for place, word in words.items()}
