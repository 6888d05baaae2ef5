"""Where a training step spends its time, one JSON object per line: Python functions by cProfile, and GPU
kernels by the profiler of PyTorch.

With --once it only runs three plain steps, for a profiler outside.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from bppsa_cupy.tools import cli
from bppsa_cupy.tools.benchmarks.harness import OVERALL, Step
from bppsa_cupy.tools.benchmarks.steps import captured_step, networks, plain_step
from bppsa_cupy.tools.on_gpu.lines import tell

#: Python functions and kernels that are named.
NAMED = 25


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 where all was profiled, 1 where a side failed: its line has the error."""
    parser = cli.Parser(prog="step_profile", description=__doc__, example="step_profile.py --device host")
    usual = ["RNN T1000", "RNN T30000", "vgg11 pruned by 97% B=16"]
    parser.add_argument("--device", choices=("cuda", "host"), default="cuda", help="Run on this device.")
    parser.add_argument("--like", nargs="+", default=usual, help="Profile these cases.")
    parser.add_argument("--steps", type=cli.positive, default=50, help="Profile this number of steps.")
    parser.add_argument("--once", action="store_true", help="Only run three plain steps.")
    arguments = parser.parse_args(argv)
    failed = False
    for _, case, make in networks():
        if case not in arguments.like:
            continue
        for name, build in {"plain": plain_step, "captured": captured_step}.items():
            line = {"case": case, "side": name}
            try:
                step = build(make, arguments.device)
                run_step = step.parts[OVERALL]
                for _ in range(3):
                    run_step()
                step.device.synchronize()
                if arguments.once:
                    break
                for profile in (profile_python, profile_kernels):
                    tell(**line, **profile(step, arguments.steps))
            except Exception as error:  # the other sides still count
                failed = True
                tell(**line, error=f"{type(error).__name__}: {error}")
    return int(failed)


def profile_python(step: Step, steps: int) -> dict[str, Any]:
    """Seconds of the host per step without the profiler, calls per step, and the functions with most time of
    their own under it."""
    started = time.perf_counter()
    for _ in range(steps):
        step.parts[OVERALL]()
    host = (time.perf_counter() - started) / steps
    step.device.synchronize()
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(steps):
        step.parts[OVERALL]()
    profile.disable()
    step.device.synchronize()
    stats = pstats.Stats(profile)
    functions = [
        {
            "function": f"{file.rpartition('/')[2]}:{line} {name}",
            "calls": count / steps,
            "us": 1e6 * seconds / steps,
        }
        for (file, line, name), (_, count, seconds, _, _) in stats.stats.items()  # type: ignore[attr-defined]
    ]
    functions.sort(key=lambda function: -function["us"])
    calls = stats.total_calls / steps  # type: ignore[attr-defined]
    return {"host_seconds": host, "calls": calls, "functions": functions[:NAMED]}


def profile_kernels(step: Step, steps: int) -> dict[str, Any]:
    """Kernels and copies per step, and those with most time of the GPU."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as recorded:
        for _ in range(steps):
            step.parts[OVERALL]()
        step.device.synchronize()
    counts: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    for event in recorded.events() or ():
        if event.device_type == DeviceType.CUDA:
            counts[event.name] += 1
            seconds[event.name] += event.time_range.elapsed_us()
    kernels = [
        {"kernel": name[:80], "count": counts[name] / steps, "us": us / steps}
        for name, us in seconds.most_common(NAMED)
    ]
    return {
        "gpu_us": sum(seconds.values()) / steps,
        "count": sum(counts.values()) / steps,
        "kernels": kernels,
    }


if __name__ == "__main__":
    sys.exit(main())
