"""What a command says of the error that ends it."""

from __future__ import annotations

from bppsa_cupy.errors import BppsaError
from bppsa_cupy.system.memory import free_host_memory

#: Errors that a command states on one line; any other is a bug and shows its traceback.
STATED = (BppsaError, OSError, MemoryError, KeyboardInterrupt)


def complaint(error: BaseException) -> tuple[str, int]:
    """One line on a stated error, and the exit code: 1, or 130 after Ctrl-C."""
    text = " ".join(str(error).split())
    if isinstance(error, KeyboardInterrupt):
        return "interrupted; nothing half written is left", 130
    if isinstance(error, MemoryError):
        return (
            f"too little memory: {text or 'an allocation failed'}; {free_host_memory()} bytes are free: "
            "use a smaller batch or network"
        ), 1
    return text, 1
