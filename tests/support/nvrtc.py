"""Kernels compiled by NVRTC in the tests, and the report of what they take of the machine."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from bppsa_cupy.raw_kernels.architectures import ARCHITECTURES
from bppsa_cupy.raw_kernels.kernel import Kernel, Variant
from bppsa_cupy.tools.instruments.machine_code.nvrtc import NvrtcError, compile_text

#: Turing, Ampere (data centre and desktop), Hopper, Blackwell.
TARGETS = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_120")
#: Those that every run of the tests compiles for; `--all-targets` (`make compile`) takes all.
USUAL = ("sm_75", "sm_90")


@dataclass(frozen=True)
class Usage:
    """What one compiled kernel takes: registers a thread, and bytes a thread of spills and of stack."""

    kernel: str
    variant: Variant
    target: str
    registers: int
    spill_bytes: int
    stack_bytes: int


#: Where tests leave the usages that the summary of the session prints.
USAGES = pytest.StashKey[list[Usage]]()


def measure(text: str, name: str, variant: Variant, target: str) -> Usage:
    """Compile one text and read what its entry `name` takes out of the assembler's report."""
    made = compile_text(text, target)
    if not made.registers:
        raise NvrtcError(f"{name}, {target}: no entry point in {made.report!r}")
    return Usage(name, variant, target, made.registers, made.spill_bytes, made.stack_bytes)


def measure_kernel(kernel: Kernel, targets: Iterable[str]) -> list[Usage]:
    """Compile for every target every variant that a kernel has there, on all cores."""
    work = [
        (kernel.source(v), kernel.name, v, target)
        for target in targets
        for v in kernel.variants(ARCHITECTURES[target].shared_bytes)
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda one: measure(*one), work))


def usage_table(usages: Iterable[Usage]) -> list[str]:
    """A line a kernel and variant: registers on sm_90, and the most of all targets."""
    groups: dict[tuple[str, str], list[Usage]] = {}
    for usage in usages:
        variant = f"{usage.variant.real}, {usage.variant.index}"
        groups.setdefault((usage.kernel, variant), []).append(usage)
    lines = [
        f"{'kernel':28} {'variant':17} {'registers':>9} {'most':>5} {'spill bytes':>11} {'stack bytes':>11}"
    ]
    for (kernel, variant), group in sorted(groups.items()):
        hopper = next((str(usage.registers) for usage in group if usage.target == "sm_90"), "-")
        lines.append(
            f"{kernel:28} {variant:17} {hopper:>9} {max(u.registers for u in group):5} "
            f"{max(u.spill_bytes for u in group):11} {max(u.stack_bytes for u in group):11}"
        )
    return lines
