"""The serial passes over time by one launch of thread-block clusters, whose blocks hold together what is too
wide for one."""

from __future__ import annotations

from collections.abc import Callable

from bppsa_cupy.devices import Device, Launch
from bppsa_cupy.devices.base import RefusedError
from bppsa_cupy.processors.models import model_of
from bppsa_cupy.processors.sizes import WalkSize
from bppsa_cupy.raw_kernels.frames.clusters import cluster_kernel
from bppsa_cupy.raw_kernels.frames.kernels import real_of
from bppsa_cupy.raw_kernels.kernel import Kernel, Layout, Variant


def kernel_for(device: Device, size: WalkSize, verb: str) -> tuple[Kernel, Layout] | None:
    """The kernel of a walk "forward" or "backward" by clusters, and its layout, where that is predicted to be
    the quickest with as many clusters at once as the device says that it runs; None elsewhere."""
    names = ("steps", "hidden", "sets", "batch", "walks")
    sizes = {**dict(zip(names, size.scalars, strict=True)), "chunk": max(1, size.steps)}

    def resident(layout: Layout) -> int:
        kernel = cluster_kernel(size.cell, verb, layout)
        variant = Variant(real_of(size.itemsize), layout=layout)
        shape = kernel.launch(device.facts_of_launch(sizes, size.itemsize))
        return device.resident_clusters(kernel, variant, shape)

    layout = model_of(device).cluster_layout(size, verb, resident)
    return None if layout is None else (cluster_kernel(size.cell, verb, layout), layout)


class InClusters:
    """A pass by one launch of clusters; once the device has refused the launch, this and all later passes go
    the other way.

    launch  of the clusters
    blocks  of a cluster; 0 once the launch was refused
    other   makes the pass by the other way
    """

    def __init__(self, launch: Launch, layout: Layout, other: Callable[[], Launch]) -> None:
        self.launch, self._other, self.blocks = launch, other, layout.cluster

    def __call__(self) -> None:
        try:
            self.launch()
        except RefusedError:
            if not self.blocks:
                raise
            self.blocks, self.launch = 0, self._other()
            self.launch()


def quickest(
    device: Device, size: WalkSize, verb: str, by: Callable[[Kernel], Launch], other: Callable[[], Launch]
) -> Launch:
    """The pass "forward" or "backward" that `by` makes of a kernel of clusters where that is predicted to be
    the quickest, and elsewhere, or where the device refuses it, the one that `other` makes."""
    found = kernel_for(device, size, verb)
    if found is None:
        return other()
    kernel, layout = found
    return InClusters(by(kernel), layout, other)
