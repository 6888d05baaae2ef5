"""What a command says of the error that ends it."""

from __future__ import annotations

from bppsa_cupy.errors import BppsaError
from bppsa_cupy.system.memory import free_host_memory

#: Errors that a command states on one line; any other is a bug and shows its traceback.
STATED = (BppsaError, OSError, MemoryError, KeyboardInterrupt)


#: What the system's loader says of a library that finds no address space.
_UNLOADED = ("failed to map segment", "cannot allocate memory")


def for_want_of_memory(error: ImportError) -> bool:
    """Whether a library could not be loaded for want of memory."""
    return any(text in str(error).lower() for text in _UNLOADED)


def complaint(error: BaseException) -> tuple[str, int]:
    """One line on a stated error, and the exit code: 1, or 130 after Ctrl-C."""
    text = " ".join(str(error).split())
    if isinstance(error, KeyboardInterrupt):
        return "interrupted; nothing half written is left", 130
    if isinstance(error, MemoryError):
        return (
            f"too little memory: {text or 'an allocation failed'}; {free_host_memory()} bytes are free: "
            "use a smaller batch or network, or raise the limit (ulimit -v)"
        ), 1
    return text, 1
