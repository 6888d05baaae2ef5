"""Packages that a part of this one takes and the rest does without."""

from __future__ import annotations

from importlib import import_module


def need(part: str, package: str, called: str, oldest: tuple[int, ...]) -> None:
    """Raise ImportError, naming the extra to install, unless a package is there and no older than `oldest`.

    Parameters
    ----------
    part : str
        The part of bppsa_cupy that needs it; `package` is also the name of its extra.
    called : str
        The name of the package.
    """
    cure = f"in the checkout, pip install -e '.[{package}]'"
    wanted = f"{called} {'.'.join(map(str, oldest))} or later"
    try:
        version: str = import_module(package).__version__
    except ImportError as error:
        raise ImportError(f"{part} needs {wanted}, which cannot be imported ({error}): {cure}") from error
    numbers = version.split("+")[0].split(".")[: len(oldest)]
    if tuple(int("".join(filter(str.isdigit, number))) for number in numbers) < oldest:
        raise ImportError(f"{part} needs {wanted}, but {version} is installed: {cure}")
