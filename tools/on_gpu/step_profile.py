"""Where a training step spends its time, one JSON object per line: Python functions by cProfile, GPU kernels
by the profiler of PyTorch, and the nodes of its CUDA graph.

With --once it only runs three plain steps, for a profiler outside.
"""

from __future__ import annotations

import cProfile
import ctypes
import pstats
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bppsa_cupy.tools import cli
from bppsa_cupy.tools.benchmarks.harness import OVERALL, Step
from bppsa_cupy.tools.benchmarks.steps import captured_step, networks, plain_step
from bppsa_cupy.tools.on_gpu.walk_steps import tell

#: Python functions and kernels that are named.
NAMED = 25
#: Types of a graph's nodes, as the driver numbers them.
NODES = {0: "kernel", 1: "memcpy", 2: "memset", 4: "graph", 5: "empty", 10: "alloc", 11: "free"}


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 where all was profiled, 1 where a side failed: its line has the error."""
    parser = cli.Parser(prog="step_profile", description=__doc__, example="step_profile.py --device host")
    usual = ["RNN T10", "RNN T30000", "vgg11 pruned by 97% B=64"]
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
                step, nodes = build(make, arguments.device), Counter[str]()
                if name == "captured" and arguments.device == "cuda":
                    count_nodes(step.device.xp.cuda, nodes)
                for _ in range(3):
                    step.parts[OVERALL]()
                step.device.synchronize()
                if arguments.once:
                    break
                if nodes:
                    tell(**line, nodes=nodes)
                for profile in (profile_python, profile_kernels):
                    tell(**line, **profile(step, arguments.steps))
            except Exception as error:  # the other sides still count
                failed = True
                tell(**line, error=f"{type(error).__name__}: {error}")
    return int(failed)


def count_nodes(cuda: Any, counts: Counter[str]) -> None:
    """Count the nodes of later captures by type, before CuPy destroys the graph."""
    driver, end = ctypes.CDLL("libcuda.so.1"), cuda.Stream.end_capture
    info, list_nodes = driver.cuStreamGetCaptureInfo_v2, driver.cuGraphGetNodes

    def end_capture(stream: Any) -> Any:
        kind, graph, size = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_size_t()
        info(ctypes.c_void_p(stream.ptr), ctypes.byref(kind), None, ctypes.byref(graph), None, None)
        list_nodes(graph, None, ctypes.byref(size))
        nodes = (ctypes.c_void_p * size.value)()
        list_nodes(graph, nodes, ctypes.byref(size))
        for node in nodes:
            driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind))
            counts[NODES.get(kind.value, str(kind.value))] += 1
        return end(stream)

    cuda.Stream.end_capture = end_capture


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
        {"function": f"{Path(file).name}:{line} {name}", "calls": count / steps, "us": 1e6 * seconds / steps}
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
    totals = {"gpu_us": sum(seconds.values()) / steps, "count": sum(counts.values()) / steps}
    return {**totals, "kernels": kernels}


if __name__ == "__main__":
    sys.exit(main())
