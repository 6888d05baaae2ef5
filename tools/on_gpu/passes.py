"""Times of whole passes of recurrent layers: forward serially and by Newton's method, back serially and by
chunks.

A line a layer, size and way, with what the layer says that it ran. Sizes that would take over LONGEST
seconds by what fewer steps took are told and left out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from bppsa_cupy.devices import Device, get_device
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.layers import GRU, LSTM, RNN
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.tools.on_gpu.clocks import spin_up, tell_timed
from bppsa_cupy.tools.on_gpu.lines import summary
from bppsa_cupy.tools.on_gpu.times import BUDGET, LAUNCHES, LONGEST, sized_parser

LAYERS = {"RNN": RNN, "GRU": GRU, "LSTM": LSTM}
FORWARD, BACKWARD = ("serial", "newton"), ("linear", "blelloch")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = sized_parser("passes", __doc__)
    result.add_argument("--layers", type=lambda text: text.split(","), default=list(LAYERS))
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 where every pass ran, 1 where one raised: its line has the error."""
    arguments = parser().parse_args(argv)
    device, failed = get_device(arguments.device), False
    spin_up(device)
    for hidden in arguments.hidden:
        for name in arguments.layers:
            for method in FORWARD:
                for line in lines_of(name, hidden, method, arguments):
                    failed = failed or "error" in line
                    tell_timed(device, **line)
    return int(failed)


def lines_of(name: str, hidden: int, method: str, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The lines of one layer, forward by one method; ways back are timed after the serial one."""
    before: dict[str, tuple[int, float]] = {}
    for steps in arguments.steps:
        line = {"layer": name, "hidden": hidden, "steps": steps, "batch": arguments.batch_size}
        late = {way: s for way, (n, s) in before.items() if s * steps / n > LONGEST}
        try:
            for found in _passes(name, hidden, steps, method, late, arguments):
                before[found["way"]] = steps, found["seconds"]
                yield {**line, **found}
        except (BppsaError, MemoryError) as error:
            yield {**line, "way": f"forward {method}", "error": f"{type(error).__name__}: {error}"}
        for way, seconds in late.items():
            yield {**line, "way": way, "left_out": f"fewer steps took {seconds:.3g} s"}


def _passes(
    name: str, hidden: int, steps: int, method: str, late: dict[str, float], arguments: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    layer = LAYERS[name](1, hidden, outputs="last", forward_method=method)
    network = Sequential([layer], input_shape=(steps, 1), device=arguments.device)
    device = get_device(arguments.device)
    rng = np.random.default_rng(0)
    inputs = device.asarray(rng.standard_normal((arguments.batch_size, steps, 1)).astype(np.float32))
    gradient = device.asarray(rng.standard_normal((arguments.batch_size, hidden)).astype(np.float32))
    if f"forward {method}" in late:
        return
    network.forward(inputs)
    seconds = timed(device, lambda: network.forward(inputs, into=network.last_pass))
    assert network.last_pass is not None
    ran = [way for one in network.last_pass.layers for way in getattr(one, "forward_ways", ())]
    yield {"way": f"forward {method}", "ran": ran, **summary(seconds)}
    for back in BACKWARD if method == "serial" else ():
        if f"backward {back}" not in late:
            seconds = timed(device, partial(network.backward, gradient, method=back))
            assert network.last_backward is not None
            ways = list(network.last_backward.backward_ways)
            yield {"way": f"backward {back}", "ran": ways, **summary(seconds)}


def timed(device: Device, run: Callable[[], Any]) -> list[float]:
    """Seconds of each of some runs after two that compile, and capture graphs."""
    found: list[float] = []
    for number in range(2 + LAUNCHES):
        start = device.timestamp()
        run()
        found.append(device.seconds(start, device.timestamp()))
        if number > 2 and sum(found[2:]) > BUDGET:
            break
    return found[2:]


if __name__ == "__main__":
    sys.exit(main())
