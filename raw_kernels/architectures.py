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
    """

    name: str
    shared_bytes: int
    multiprocessor_bytes: int
    multiprocessor_threads: int


#: Turing, Ampere (data centre, desktop), Ada, Hopper, Blackwell (desktop).
ARCHITECTURES = {
    name: Architecture(name, block * KIB, multiprocessor * KIB, threads)
    for name, block, multiprocessor, threads in (
        ("sm_75", 64, 64, 1024),
        ("sm_80", 163, 164, 2048),
        ("sm_86", 99, 100, 1536),
        ("sm_89", 99, 100, 1536),
        ("sm_90", 227, 228, 2048),
        ("sm_120", 99, 100, 1536),
    )
}
