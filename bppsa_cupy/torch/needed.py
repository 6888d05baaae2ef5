"""Whether the PyTorch that is there will do."""

from __future__ import annotations

#: The oldest version whose torch.library registers what the modules take.
OLDEST = (2, 4)


def need_torch(oldest: tuple[int, int]) -> None:
    """Raise ImportError, naming the extra to install, unless PyTorch is there and no older than `oldest`."""
    cure = "pip install 'bppsa-cupy[torch]'"
    wanted = ".".join(map(str, oldest))
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"bppsa_cupy.torch takes PyTorch {wanted} or later, which cannot be imported ({error}): {cure}"
        ) from error
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < oldest:
        raise ImportError(
            f"bppsa_cupy.torch takes PyTorch {wanted} or later, {torch.__version__} is there: {cure}"
        )
