"""Kernels that are wrong in ways only a sanitizer sees; run as a program, under AddressSanitizer.

Each is run in a forked process, which the sanitizer ends. Printed is a JSON object: by the name of the
fault, the process's exit status and what it wrote to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

import numpy as np

from bppsa_cupy.raw_kernels.kernel import Kernel
from emulator.device import EmulatedDevice
from emulator.text_kernel import array_in, array_out, text_kernel

OUT = array_out("out", "real", "32")
VALUES = array_in("values", "real", "32")

#: A kernel over `values` and `out`, and the words with which its sanitizer must name the fault.
FAULTS: dict[str, tuple[Kernel, str]] = {
    "nothing": (text_kernel("out[threadIdx.x] = values[threadIdx.x];", VALUES, OUT), ""),
    "read outside": (
        text_kernel("out[threadIdx.x] = values[threadIdx.x + 1];", VALUES, OUT),
        "heap-buffer-overflow",
    ),
    "read before": (
        text_kernel("out[threadIdx.x] = values[int(threadIdx.x) - 1];", VALUES, OUT),
        "heap-buffer-overflow",
    ),
    "write outside": (
        text_kernel("out[threadIdx.x] = 1; out[threadIdx.x + 1] = 1;", VALUES, OUT),
        "heap-buffer-overflow",
    ),
    "read of an empty array": (
        text_kernel("out[threadIdx.x] = values[0];", array_in("values", "real", "0"), OUT),
        "heap-buffer-overflow",
    ),
    "dynamic shared memory": (
        text_kernel(
            "extern __shared__ real held[]; held[threadIdx.x + 1] = 1; out[threadIdx.x] = 1;",
            VALUES, OUT, shared_bytes=32 * 4,
        ),
        "heap-buffer-overflow",
    ),
    "static shared memory": (
        text_kernel(
            "__shared__ real held[32]; real* at = held; at[threadIdx.x + 1] = 1; out[threadIdx.x] = held[0];",
            VALUES, OUT,
        ),
        "global-buffer-overflow",
    ),
    "row of a shared tile": (
        text_kernel(
            "__shared__ real tile[32][8]; tile[1][threadIdx.x] = 1; out[threadIdx.x] = 1;", VALUES, OUT
        ),
        "out of bounds",
    ),
    "local array on a fiber": (
        text_kernel(
            "real local[8]; real* at = local; for (unsigned i = 0; i <= threadIdx.x; ++i) at[i] = values[i];"
            "__syncthreads(); out[threadIdx.x] = at[threadIdx.x];",
            VALUES, OUT,
        ),
        "stack-buffer-overflow",
    ),
    "signed overflow": (
        text_kernel("int lane = threadIdx.x; out[lane] = 2147483640 + lane;", VALUES, OUT),
        "signed integer overflow",
    ),
    "shift too far": (
        text_kernel("out[threadIdx.x] = 1 << (threadIdx.x + 1);", VALUES, OUT),
        "shift exponent 32 is too large",
    ),
    "float beyond an index": (
        text_kernel("out[threadIdx.x] = int(values[threadIdx.x] * 1e20f);", VALUES, OUT),
        "outside the range of representable values",
    ),
}  # fmt: skip


def run_forked(kernel: Kernel) -> tuple[int, str]:
    """Exit status and stderr of one launch in a process of its own."""
    arrays = {"values": np.ones(32, np.float32), "out": np.zeros(32, np.float32)}
    with tempfile.TemporaryFile() as errors:
        child = os.fork()
        if child == 0:
            os.dup2(errors.fileno(), 2)
            EmulatedDevice().launch(kernel, *(arrays[parameter.name] for parameter in kernel.parameters))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        errors.seek(0)
        return os.waitstatus_to_exitcode(status), errors.read().decode(errors="replace")


if __name__ == "__main__":
    json.dump({name: run_forked(kernel) for name, (kernel, _) in FAULTS.items()}, sys.stdout)
