"""What a network is made of, layer by layer: shapes, parameters, and how large its Jacobians are."""

from __future__ import annotations

import math

import numpy as np

from bppsa_cupy.layers import Recurrent
from bppsa_cupy.layers.residual import walk
from bppsa_cupy.network.architecture import Architecture
from bppsa_cupy.system.units import counted, in_bytes


def summarize(architecture: Architecture, dtype: np.dtype) -> str:
    """A table with a line per layer, and the totals.

    Layers of a residual block follow their block. Indices and row pointers of a layer's Jacobians count once.
    """
    rows, entries, size = [("layer", "output", "parameters", "Jacobian nnz", "bytes")], 0, 0
    for place in walk(architecture):
        layer, shape = place.layer, place.stack.shapes[place.index]
        operator, steps, pattern = architecture.operator(layer, shape), 1, None
        if isinstance(layer, Recurrent):
            pattern, steps = layer.step_pattern, (shape[0] or 0) * layer.num_layers * layer.directions
        elif operator is not None:
            pattern = operator.pattern
        parameters = sum(map(math.prod, layer.parameter_shapes().values()))
        nnz = nbytes = "–"
        if pattern is not None:
            nnz = ("" if steps == 1 else f"{steps:,} × " if steps else "T × ") + f"{pattern.nnz:,}"
            layer_bytes = (
                steps * pattern.nnz * dtype.itemsize + pattern.indices.nbytes + pattern.indptr.nbytes
            )
            entries, size, nbytes = (
                entries + steps * pattern.nnz,
                size + layer_bytes,
                in_bytes(layer_bytes) if steps else "–",
            )
        name = f"{'  ' * (place.path.count('.') // 2)}{place.path} {type(layer).__name__}"
        rows.append((name, _text(place.output_shape), f"{parameters:,}" if parameters else "–", nnz, nbytes))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"{dtype}, input {_text(architecture.input_shape)}"]
    for name, shown, *numbers in rows:
        cells = [name.ljust(widths[0]), shown.ljust(widths[1])]
        cells += (number.rjust(width) for number, width in zip(numbers, widths[2:], strict=True))
        lines.append("  ".join(cells).rstrip())
    learned = sum(map(math.prod, architecture.parameter_shapes().values()))
    masked = sum(int((~mask).sum()) for mask in architecture.masks.values())
    held = f", of which masks hold {masked:,} at 0" if masked else ""
    lines.append(f"{counted(learned, 'parameter')}, {in_bytes(learned * dtype.itemsize)}{held}")
    total = f"{counted(entries, 'entry', 'entries')}, {in_bytes(size)}"
    if None in architecture.input_shape:
        total = "as many as there are steps, which the input's shape leaves open"
    return "\n".join([*lines, f"Jacobians of one sample: {total}"])


def _text(shape: tuple[int | None, ...]) -> str:
    return " × ".join("T" if size is None else str(size) for size in shape)
