"""Reading a file of unknown origin in a child process first.

The HDF5 library trusts the metadata of a file: on damage that no checksum covers, or that was made on
purpose, it can loop for ever, take all memory or crash. A process of its own, which imports h5py alone
(0.2 s), reads the file under limits; where that ends well, so does the same reading here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from bppsa_cupy.errors import BppsaError
from bppsa_cupy.system import walk_hdf5

#: Seconds of processor time that a file may take, and bytes that a further second is given for.
SECONDS, BYTES_A_SECOND = 10, 10_000_000
#: Seconds by the clock for each of processor time: a busy machine, or a slow disk.
PATIENCE = 10
#: Bytes of memory beside twice the file's size.
MEMORY = 1 << 30


def try_reading(path: str | os.PathLike[str], unread: Sequence[str], *, error: type[BppsaError]) -> None:
    """Read all of an HDF5 file in a child process, but the arrays in the groups `unread` of its root.

    Raises `error` where the library does not come to an end with it, crashes, or takes too much memory. What
    the library states as an error is left to the reader here.
    """
    size = os.path.getsize(path)
    seconds, memory = SECONDS + size // BYTES_A_SECOND, MEMORY + 2 * size
    program = [sys.executable, "-I", walk_hdf5.__file__, json.dumps(sys.path), os.path.abspath(path)]
    quiet = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    try:
        ended = subprocess.run(
            [*program, str(seconds), str(memory), json.dumps(list(unread))],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env={**os.environ, **quiet}, timeout=PATIENCE * seconds,
        )  # fmt: skip
        code, said = ended.returncode, ended.stderr.decode(errors="replace").strip()
    except subprocess.TimeoutExpired:
        code, said = -signal.SIGXCPU, ""
    except OSError as cause:
        raise error(
            f"{path} cannot be tried in a child process first ({cause.strerror or cause}): free some memory, "
            "or read it elsewhere"
        ) from cause
    if code:
        raise error(f"{path} cannot be read: {_told(code, said, seconds, memory)}")


def _told(code: int, said: str, seconds: int, memory: int) -> str:
    """What became of the child."""
    if code == -signal.SIGXCPU:
        found = f"the HDF5 library came to no end with it in {seconds} s"
    elif code == walk_hdf5.TOO_LARGE:
        found = f"the HDF5 library takes more than {memory} bytes of memory for it"
    elif code < 0:
        found = f"the HDF5 library crashed with it ({signal.Signals(-code).name})"
    else:
        found = f"the child process that tries it first failed ({said.splitlines()[-1] if said else code})"
    return f"{found}: its structure is damaged, give another file or write it again"
