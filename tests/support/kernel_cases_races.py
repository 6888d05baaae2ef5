"""The cases of a kernel in which races are looked for: a few small ones that reach each of its layouts."""

from __future__ import annotations

import numpy as np
from emulator.device import LEAST
from kernel_cases import CASES, arguments
from kernel_comparison import turned

from bppsa_cupy.raw_kernels.architectures import ARCHITECTURES
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.kernels import VERBS
from bppsa_cupy.raw_kernels.kernel import IN_MEMORY, Kernel, Variant

#: The cell whose kernels run in every layout: the frames are the same for all.
IN_EVERY_LAYOUT = "gru"
OF_CELLS = {f"{name}_{verb}" for name in FORMS for verb in VERBS if name != IN_EVERY_LAYOUT}
#: Elements of a launch's arrays at most: larger ones have no other races, and take longer.
ELEMENTS = 120_000


def cases_to_race(kernel: Kernel) -> list[list[object]]:
    """Arguments of the launches to look at: some small ones; of a kernel with layouts one in each, of a cell
    whose frames another one shows one at all."""
    rng = np.random.default_rng(20240229)
    taken: dict[object, list[object]] = {}
    for number, case in enumerate(CASES[kernel.name](rng)):
        values = arguments(kernel, Variant(), case, rng)
        if sum(value.size for value in values if isinstance(value, np.ndarray)) > ELEMENTS:
            continue
        given = {**case.scalars, "shared_bytes": ARCHITECTURES[LEAST].shared_bytes}
        layout = kernel.variant_for(Variant(), given).layout
        key = "any" if kernel.name in OF_CELLS else layout if layout != IN_MEMORY else number % 6
        taken[key] = turned(kernel, values)
    return list(taken.values())
