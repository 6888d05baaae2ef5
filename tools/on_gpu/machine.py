"""What the machine is: the GPU, its limits and clocks, and the versions of all that compiles and runs."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from bppsa_cupy.devices import Device, get_device
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.tools.machine import available_cores, describe_machine, versions
from bppsa_cupy.tools.on_gpu.clocks import spin_up, tell_timed
from bppsa_cupy.tools.on_gpu.lines import tell

#: What nvidia-smi is asked for.
ASKED = (
    "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,power.draw,power.limit,"
    "temperature.gpu,memory.total,memory.used,pcie.link.gen.current,compute_mode,persistence_mode"
)
#: Attributes of the GPU that launches and predictions depend on.
ATTRIBUTES = (
    "MultiProcessorCount", "ClockRate", "MemoryClockRate", "GlobalMemoryBusWidth", "L2CacheSize",
    "MaxSharedMemoryPerBlock", "MaxSharedMemoryPerBlockOptin", "MaxSharedMemoryPerMultiprocessor",
    "MaxRegistersPerBlock", "MaxThreadsPerMultiProcessor", "MaxGridDimX",
)  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(prog="machine", description=__doc__)
    result.add_argument("--device", choices=("cuda", "host"), default="cuda")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0."""
    device = get_device(parser().parse_args(argv).device)
    tell(**describe_machine(device, available_cores()), versions=versions(device))
    if device.name == "cuda":
        tell(**gpu_of(device))
    tell(nvidia_smi=ask_nvidia_smi())
    spin_up(device)
    tell_timed(device, launch_seconds=launch_seconds(device))
    tell_timed(device, graph_gap_seconds=graph_gap_seconds(device))
    if device.name == "cuda":
        tell(cluster=run_cluster(device))
    return 0


def gpu_of(device: Device) -> dict[str, Any]:
    """The GPU's architecture and attributes, and NVRTC's version."""
    gpu = device.xp.cuda.Device()
    attributes = {name: gpu.attributes[name] for name in ATTRIBUTES if name in gpu.attributes}
    nvrtc = list(device.xp.cuda.nvrtc.getVersion())
    return {"compute_capability": gpu.compute_capability, "attributes": attributes, "nvrtc": nvrtc}


def ask_nvidia_smi() -> dict[str, str] | str:
    """Clocks, power and memory by their names; why they are not known, where they are not."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return "nvidia-smi is not on the path"
    command = [program, f"--query-gpu={ASKED}", "--format=csv,noheader"]
    result = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if result.returncode:
        return (result.stdout + result.stderr).strip()
    values = [value.strip() for value in result.stdout.splitlines()[0].split(",")]
    return dict(zip(ASKED.split(","), values, strict=False))


def launch_seconds(device: Device, launches: int = 1000) -> float:
    """Seconds from one small launch to the next, of many after one another."""
    run = device.bind(KERNELS["step_count"], device.zeros(1, "int32"), device.zeros(1, "int64"))
    for _ in range(3):
        run()
    start = device.timestamp()
    for _ in range(launches):
        run()
    return device.seconds(start, device.timestamp()) / launches


def graph_gap_seconds(device: Device, launches: int = 1000) -> float:
    """Seconds from one small kernel of a graph to the next, each of which waits for the one before."""
    run = device.bind(KERNELS["step_count"], device.zeros(1, "int32"), device.zeros(1, "int64"))
    graph = device.sequence([run] * launches)
    for _ in range(3):
        graph()
    start = device.timestamp()
    graph()
    return device.seconds(start, device.timestamp()) / launches


#: Two blocks of a cluster, each of which writes its number into the other's shared memory.
CLUSTER = r"""
extern "C" __global__ void __cluster_dims__(2, 1, 1) cluster_probe(int* out)
{
    __shared__ int mine;
    const unsigned own = unsigned(__cvta_generic_to_shared(&mine));
    unsigned rank, theirs;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(theirs) : "r"(own), "r"(1 - rank));
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    asm volatile("st.shared::cluster.u32 [%0], %1;" :: "r"(theirs), "r"(10 + rank) : "memory");
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    out[rank] = mine;
}
"""


def run_cluster(device: Device) -> str:
    """How a thread-block cluster went: "passed", "wrong: what it wrote", or why there is none."""
    if int(device.xp.cuda.Device().compute_capability) < 90:
        return "left out: clusters are of compute capability 9.0 and newer"
    out = device.zeros(2, "int32")
    try:
        device.xp.RawModule(code=CLUSTER).get_function("cluster_probe")((2,), (1,), (out,))
        wrote = device.to_host(out).tolist()
    except Exception as error:  # of CuPy's compiler or the driver: the parts after it say more
        return f"failed: {type(error).__name__}: {error}"
    return "passed" if wrote == [11, 10] else f"wrong: {wrote}"


if __name__ == "__main__":
    sys.exit(main())
