"""Every kernel against its twin on a device, without pytest: a JSON object a line, a kernel and dtype.

    kernels_on_device.py                     all cases of all kernels, in float32 and float64
    kernels_on_device.py --small --like X    a small case of some, without twins: for a sanitizer
    kernels_on_device.py --write FILE        what the twins give, without a GPU
    kernels_on_device.py --expected FILE     against that, and not the twins

`worst` is the largest difference, in parts of what is allowed; `error` what a kernel raised.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numba
import numpy as np
from kernel_cases import CASES, Case, arguments
from kernel_comparison import launch_text, overlook_powers_of_zeros
from tolerances import relative

from bppsa_cupy.devices import Device, get_device
from bppsa_cupy.devices.cuda import import_cupy
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.kernel import REALS, Kernel, Variant

#: What `run` takes; arrays that a kernel writes, by name.
Work = tuple[str, str, str, bool, "Path | None"]
Outputs = dict[str, np.ndarray]

#: Terms of the longest sum that a case may have.
LENGTH = 256


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(prog="kernels_on_device.py", description=__doc__)
    result.add_argument("--device", choices=("cuda", "emulated", "host"), default="cuda")
    result.add_argument("--like", default=".*", metavar="PATTERN", help="of kernels' names (default all)")
    result.add_argument("--dtypes", type=lambda text: text.split(","), default=list(REALS))
    result.add_argument("--small", action="store_true", help="one small case each, without the twin")
    result.add_argument("--write", type=Path, metavar="FILE", help="what the twins give into an .npz file")
    result.add_argument(
        "--expected", type=Path, metavar="FILE", help="take what --write wrote; twins without it"
    )
    result.add_argument("--processes", type=int, default=min(16, os.cpu_count() or 1))
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 where every kernel agrees with its twin."""
    given = parser().parse_args(argv)
    names = [name for name in KERNELS if re.fullmatch(given.like, name)]
    names.sort(key=lambda name: -len(KERNELS[name].source(Variant())))  # what compiles longest begins first
    if given.write is not None:
        made = {
            k: v for n in names for d in given.dtypes for k, v in outputs_of(KERNELS[n], Variant(d)).items()
        }
        given.write.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(given.write, **made)
        print(json.dumps({"written": len(made), "bytes": given.write.stat().st_size}))
        return 0
    expected = given.expected if given.expected is not None and given.expected.exists() else None
    work = [(given.device, name, dtype, given.small, expected) for name in names for dtype in given.dtypes]
    if given.small and given.device == "cuda":
        import_cupy().cuda.set_allocator(None)  # inside CuPy's pool a sanitizer would see no bounds
    failed = False
    for line in _lines(work, given.processes):
        failed = failed or not line["agrees"]
        print(json.dumps(line), flush=True)
    return int(failed)


def _lines(work: list[Work], processes: int) -> Iterator[dict[str, Any]]:
    """The lines as they come; in processes beside each other, most of whose time goes to compiling."""
    if processes < 2:
        yield from (run(*one) for one in work)
        return
    threads = max(1, (os.cpu_count() or 1) // processes)
    with multiprocessing.get_context("spawn").Pool(processes, numba.set_num_threads, (threads,)) as pool:
        yield from pool.imap_unordered(_run, work)


def _run(one: Work) -> dict[str, Any]:
    return run(*one)


def run(device: str, name: str, dtype: str, small: bool, expected: Path | None = None) -> dict[str, Any]:
    """The line of one kernel and dtype; `expected` is a file that --write wrote."""
    kernel, variant = KERNELS[name], Variant(dtype)
    line: dict[str, Any] = {"kernel": name, "dtype": dtype, "agrees": True, "cases": 0, "worst": 0.0}
    line["against"] = "nothing" if small else "its twin" if expected is None else "what was written"
    stored = {} if expected is None or small else np.load(expected)
    for number, case in enumerate(cases_of(kernel, small)):
        line["cases"] += 1
        try:
            given = _given(kernel, variant, case)
            if small:
                wanted: Outputs | None = None
            elif expected is None:
                wanted = by_twin(kernel, given)
            else:
                wanted = _read(stored, kernel, variant, number, given)
            found = difference(make_device(device), kernel, given, wanted)
        except Exception as error:
            return {**line, "agrees": False, "case": _told(case), "error": f"{type(error).__name__}: {error}"}
        if not found <= line["worst"]:
            line |= {"worst": found, "case": _told(case)}
        line["agrees"] = line["agrees"] and found <= 1
    return line


def make_device(name: str) -> Device:
    """A device, the emulated one among them."""
    if name == "emulated":
        from emulator.device import EmulatedDevice

        return EmulatedDevice()
    return get_device(name)


def cases_of(kernel: Kernel, small: bool) -> list[Case]:
    """A kernel's cases; or one of them, in the middle of those by size that leave no array empty."""
    cases = list(CASES[kernel.name](np.random.default_rng(0)))
    if not small:
        return cases
    sizes = [elements_of(kernel, case) for case in cases]
    order = sorted(range(len(cases)), key=lambda k: (min(sizes[k]) > 0, sum(sizes[k])))
    whole = [k for k in order if min(sizes[k]) > 0] or order
    return [cases[whole[len(whole) // 2]]]


def elements_of(kernel: Kernel, case: Case) -> list[int]:
    """The elements of each array that a kernel writes in a case."""
    written = [p for p in kernel.parameters if p.role in ("out", "inout")]
    return [int(eval(p.size, {"min": min, "max": max}, case.scalars)) for p in written]


def _given(kernel: Kernel, variant: Variant, case: Case) -> list[Any]:
    """A case's arguments, the same whenever they are asked for."""
    return arguments(kernel, variant, case, np.random.default_rng(1))


def by_twin(kernel: Kernel, given: list[Any]) -> Outputs:
    """What the twin writes, by the parameters' names."""
    taken = [np.array(value) if isinstance(value, np.ndarray) else value for value in given]
    get_device("host").launch(kernel, *taken)
    return {
        parameter.name: value
        for parameter, value in zip(kernel.parameters, taken, strict=True)
        if parameter.is_array and parameter.role != "in"
    }


def outputs_of(kernel: Kernel, variant: Variant) -> Outputs:
    """What --write keeps of a kernel: what its twin writes in every case, and a checksum of what it took."""
    found: Outputs = {}
    for number, case in enumerate(cases_of(kernel, small=False)):
        given = _given(kernel, variant, case)
        key = _key(kernel, variant, number)
        found[f"{key}/given"] = np.array(_checksum(given), np.uint32)
        found |= {f"{key}/{name}": array for name, array in by_twin(kernel, given).items()}
    return found


def _key(kernel: Kernel, variant: Variant, number: int) -> str:
    return f"{kernel.name}/{variant.real}/{number}"


def _checksum(given: list[Any]) -> int:
    """Of all arrays and numbers; what is only written is not looked at."""
    found = 0
    for value in given:
        found = zlib.crc32(np.ascontiguousarray(value).tobytes(), found)
    return found


def _read(stored: Any, kernel: Kernel, variant: Variant, number: int, given: list[Any]) -> Outputs:
    """What was written of a case. Raises ValueError where it was of other arguments."""
    key = _key(kernel, variant, number)
    if f"{key}/given" not in stored or int(stored[f"{key}/given"]) != _checksum(given):
        raise ValueError("what is expected was written for other cases: write it again")
    written = [p.name for p in kernel.parameters if p.is_array and p.role != "in"]
    return {name: stored[f"{key}/{name}"] for name in written}


def difference(device: Device, kernel: Kernel, given: list[Any], wanted: Outputs | None) -> float:
    """The largest difference from what is wanted, in parts of what is allowed; 0 where nothing is."""
    left = launch_text(kernel, device, given)
    if wanted is None:
        return 0.0
    names = [parameter.name for parameter in kernel.parameters]
    found = {name: array for name, array in zip(names, left, strict=True) if name in wanted}
    overlook_powers_of_zeros(found, wanted)
    return max((_apart(found[name], wanted[name]) for name in wanted if wanted[name].size), default=0.0)


def _apart(actual: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference of two arrays, in parts of what is allowed; never NaN."""
    if actual.dtype.kind != "f":
        return 0.0 if np.array_equal(actual, wanted) else np.inf
    finite = np.isfinite(wanted)
    if not np.isfinite(actual[finite]).all():
        return np.inf
    if not np.array_equal(actual[~finite], wanted[~finite], equal_nan=True):
        return np.inf
    size = np.abs(wanted[finite])
    if not size.size:
        return 0.0
    allowed = relative(actual.dtype, LENGTH) * (size + size.max())
    apart = np.abs(actual[finite] - wanted[finite])
    return float(
        np.max(np.where(apart == 0, 0.0, apart / np.where(allowed == 0, np.finfo(float).tiny, allowed)))
    )


def _told(case: Case) -> dict[str, Any]:
    return {name: value for name, value in case.scalars.items() if isinstance(value, int | float)}


if __name__ == "__main__":
    sys.exit(main())
