"""How work of each shape runs on a GPU: measured once, and kept in the cache folder.

The ways of a shape run in turn on arrays of their own at the first use, and the quickest is stored. Later
processes with the same GPU, driver, CuPy, cuBLAS and kernels read it. With BPPSA_AUTOTUNE=off nothing is
measured or read, and a fixed table decides (`rules`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from bppsa_cupy.errors import DeviceError
from bppsa_cupy.raw_kernels.kernel import digest_of_sources
from bppsa_cupy.system.compilation import kept_in
from bppsa_cupy.system.files import write_text

#: Runs of a way that are timed, after one that compiles; the shortest counts.
REPEATS = 3

Way = Callable[[], Callable[[], None]]


def rounded(count: int) -> int:
    """The least power of two from `count` on: shapes up to it share a choice."""
    return 1 << max(0, count - 1).bit_length()


class Choices:
    """The choices of one device, by the keys of the work.

    Parameters
    ----------
    used
        Choices that this process has made or adopted. They change bits, so a checkpoint stores them.
    leads
        Whether this process measures. Over ranks only rank 0 measures.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self.used: dict[str, str] = {}
        self.leads = True
        #: Goes up where choices that were made may be others now.
        self.version = 0

    def choose(self, key: str, ways: Mapping[str, Way], default: str) -> str:
        """The way of this work, one of `ways`.

        Parameters
        ----------
        key
            The kind of work, dtype and shape, with T and B `rounded`.
        ways
            Functions that bind each way to scratch arrays. They are called only to measure.
        default
            The way of the fixed table.
        """
        device = self._device
        if not device.tunes or len(ways) < 2:
            return default
        if (known := self.used.get(key, "")) in ways:
            return known
        if os.environ.get("BPPSA_AUTOTUNE", "on") == "off":
            self.used[key] = default
            return default
        if device.capturing:
            return default
        path = choices_path(device.xp)
        stored = read_choices(path).get(key, "")
        if stored in ways:
            chosen = stored
        elif self.leads:
            chosen = self._measured(ways, default)
            with suppress(OSError, DeviceError):  # a folder that cannot be written keeps no choices
                path.parent.mkdir(parents=True, exist_ok=True)
                choices = {**read_choices(path), key: chosen}
                write_text(path, json.dumps(choices, indent=0, sort_keys=True), error=DeviceError)
        else:
            return default
        self.used[key] = chosen
        return chosen

    def adopt(self, choices: Mapping[str, Any]) -> None:
        """Take these choices, of a checkpoint or of rank 0, before any other."""
        if any(self.used.get(key) != way for key, way in choices.items()):
            self.version += 1
        self.used.update(choices)

    def _measured(self, ways: Mapping[str, Way], default: str) -> str:
        """The quickest way; those that the device refuses are left out."""
        device, before = self._device, self._device.launched.copy()
        seconds: dict[str, float] = {}
        for name, make in ways.items():
            with suppress(DeviceError):
                launch, taken = make(), []
                with device.naming_memory:
                    for _ in range(1 + REPEATS):
                        device.synchronize()
                        start = device.timestamp()
                        launch()
                        taken.append(device.seconds(start, device.timestamp()))
                seconds[name] = min(taken[1:])
        device.launched.clear()
        device.launched.update(before)
        return min(seconds, key=lambda name: seconds[name]) if seconds else default


def choices_path(cupy: Any) -> Path:
    """The file of the current GPU's choices: its name is the digest of all that they depend on."""
    runtime = cupy.cuda.runtime
    gpu = runtime.getDeviceProperties(runtime.getDevice())["name"]
    cublas: Any = None
    with suppress(AttributeError):
        cublas = cupy.cuda.cublas.getVersion(cupy.cuda.device.get_cublas_handle())
    made_of = repr((gpu, runtime.driverGetVersion(), cupy.__version__, cublas, digest_of_sources()))
    return kept_in() / "cuda" / f"choices-{sha256(made_of.encode()).hexdigest()[:32]}.json"


def read_choices(path: Path) -> dict[str, str]:
    """The choices in a file; none where it is missing or damaged: they are measured anew then."""
    try:
        choices = json.loads(path.read_text(encoding="utf-8"))
        return {key: way for key, way in choices.items() if isinstance(way, str)}
    except (OSError, ValueError, AttributeError):
        return {}
