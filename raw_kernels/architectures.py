"""What a GPU of each architecture takes of a launch.

Source: NVIDIA, CUDA C++ Programming Guide, "Compute Capabilities", the table of technical specifications per
compute capability.
"""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024


@dataclass(frozen=True)
class Architecture:
    """The limits of one architecture, where they are its own.

    name          as NVRTC takes it
    shared_bytes  of shared memory that a block can ask for, static and dynamic together
    multiprocessor_bytes, multiprocessor_threads  shared memory and threads of a multiprocessor
    cluster_blocks  of a thread-block cluster at most, more than 8 where a kernel allows it; 1: there are none
    """

    name: str
    shared_bytes: int
    multiprocessor_bytes: int
    multiprocessor_threads: int
    cluster_blocks: int


#: Turing, Ampere (data centre, desktop), Ada, Hopper, Blackwell (desktop).
ARCHITECTURES = {
    name: Architecture(name, block * KIB, multiprocessor * KIB, threads, cluster)
    for name, block, multiprocessor, threads, cluster in (
        ("sm_75", 64, 64, 1024, 1),
        ("sm_80", 163, 164, 2048, 1),
        ("sm_86", 99, 100, 1536, 1),
        ("sm_89", 99, 100, 1536, 1),
        ("sm_90", 227, 228, 2048, 16),
        ("sm_120", 99, 100, 1536, 8),
    )
}
