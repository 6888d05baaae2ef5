"""The kernels of a linear cell: the frames' CUDA C++ texts, filled with its struct, and their twins."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from bppsa_cupy.raw_kernels.kernel import Kernel, one_thread_per, read_parameters, read_source
from bppsa_cupy.raw_kernels.linear.form import LinearForm
from bppsa_cupy.raw_kernels.linear.twins import make_by_inputs, make_by_state, make_output, make_terms


@cache
def linear_kernels_of(form: LinearForm) -> dict[str, Kernel]:
    """A linear cell's kernels by verb: terms and by_inputs; output and by_state where it has an output of its
    own."""
    twins = {"terms": make_terms(form), "by_inputs": make_by_inputs(form)}
    if form.has_output:
        twins |= {"output": make_output(form), "by_state": make_by_state(form)}
    return {verb: kernel_of(form, verb, twin) for verb, twin in twins.items()}


def kernel_of(form: LinearForm, verb: str, twin: Callable[..., None]) -> Kernel:
    """The kernel NAME_VERB: the frame's text with the cell's struct and numbers in it."""
    words = {"GATES": form.gates, "PARAMETERS": form.parameters, "OUTPUT": int(form.has_output)}
    text = re.sub(
        rf"\b({'|'.join(words)})\b", lambda word: str(words[word[1]]), read_source(f"linear/{verb}.cu")
    )
    name = f"{form.name}_{verb}"
    text = text.replace("CELL_", f"{form.name}_").replace('#include "cell.cuh"\n', form.cuda)
    parameters = read_parameters(name, text)
    return Kernel(name, parameters, lambda s: one_thread_per(s["rows"] * s["hidden"]), twin, text)
