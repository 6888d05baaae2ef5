"""PyTorch's recurrent layers alone, in one process: seconds forward and back, and the kernels that it ran.

A line a layer and size, forward and back: cuDNN chooses its algorithm by size, which the names tell.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

from bppsa_cupy.devices import get_device
from bppsa_cupy.tools.machine import torch_device
from bppsa_cupy.tools.on_gpu.clocks import spin_up, tell_timed
from bppsa_cupy.tools.on_gpu.lines import summary
from bppsa_cupy.tools.on_gpu.passes import LAYERS, timed
from bppsa_cupy.tools.on_gpu.times import sized_parser


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = sized_parser("pytorch", __doc__)
    result.add_argument("--layers", type=lambda text: text.split(","), default=list(LAYERS))
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0; 1 without PyTorch, or where it cannot use the device."""
    arguments = parser().parse_args(argv)
    try:
        import torch

        device, place = get_device(arguments.device), torch_device(get_device(arguments.device))
        torch.zeros(1, device=place)
    except (ImportError, AssertionError, RuntimeError) as error:
        print(f"PyTorch is not timed: {error}", file=sys.stderr)
        return 1
    spin_up(device)
    versions = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}
    for hidden in arguments.hidden:
        for steps in arguments.steps:
            for name in arguments.layers:
                layer = getattr(torch.nn, name)(1, hidden, batch_first=True).to(place)
                x = torch.randn(arguments.batch_size, steps, 1, device=place)
                line = {"layer": name, "hidden": hidden, "steps": steps, "batch": arguments.batch_size}
                output = layer(x)[0][:, -1].sum()
                inputs = list(layer.parameters())
                for way, run in (
                    ("forward", lambda layer=layer, x=x: layer(x)),
                    ("backward", lambda o=output, p=inputs: torch.autograd.grad(o, p, retain_graph=True)),
                ):
                    # On a stream of PyTorch's, CuPy's events would see nothing.
                    with device.on_stream(
                        0, torch.cuda.current_stream().cuda_stream if place.type == "cuda" else 0
                    ):
                        seconds = timed(device, run)
                    tell_timed(device, **line, way=way, **summary(seconds), **versions, kernels=names_of(run))
    return 0


def names_of(run: Callable[[], Any]) -> dict[str, int]:
    """How often which kernel runs, of a call; of the CPU's operators where there is no GPU."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    kinds = {ProfilerActivity.CUDA: torch.cuda.is_available(), ProfilerActivity.CPU: True}
    with profile(activities=[kind for kind, there in kinds.items() if there]) as profiled:
        run()
    events = profiled.key_averages()
    on_gpu = [event for event in events if event.device_type.name == "CUDA"]
    return {event.key: event.count for event in on_gpu or events}


if __name__ == "__main__":
    sys.exit(main())
