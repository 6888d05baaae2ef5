"""Which machine this is, as measurements name it: no name of a host, no path."""

from __future__ import annotations

import platform
from pathlib import Path


def cpu_model() -> str:
    """The processor's model as Linux names it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                name, colon, value = line.partition(":")
                if colon and name.strip() == "model name":
                    return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def gpu_models() -> list[str]:
    """The models of the GPUs as NVIDIA's driver lists them, sorted; none where it lists none."""
    models = []
    for path in Path("/proc/driver/nvidia/gpus").glob("*/information"):
        try:
            facts = dict(line.partition(":")[::2] for line in path.read_text(encoding="utf-8").splitlines())
        except OSError:
            continue
        models.append(facts.get("Model", "").strip())
    return sorted(models)
