"""Functions of the user's own, by file or module."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable
from typing import Any

from bppsa_cupy.arguments import as_instance, as_path
from bppsa_cupy.errors import BppsaError


def load_factory(kind: str, spec: str, known: Iterable[str]) -> Callable[..., Any]:
    """Import the function named by `spec`: "path/to/file.py:factory" or "module:factory".

    `kind` and the `known` built-in names are for messages. Raises BppsaError.
    """
    takes = f"the name of a {kind}, path/to/file.py:factory or module:factory"
    module, colon, name = as_instance(f"a {kind}", "its name", spec, str, takes, error=BppsaError).rpartition(
        ":"
    )
    if not colon:
        raise BppsaError(
            f"{kind} {spec!r} is unknown: pass one of {', '.join(known)}, path/to/file.py:factory or "
            "module:factory"
        )
    try:
        loaded = _load_file(kind, module) if module.endswith(".py") else importlib.import_module(module)
    except BppsaError:
        raise
    except Exception as error:
        raise BppsaError(
            f"{kind} {spec!r} cannot be loaded, because importing {module} raises {type(error).__name__} "
            f"({error}): correct the module or its name"
        ) from error
    factory = getattr(loaded, name, None)
    if factory is None:
        raise BppsaError(
            f"{kind} {spec!r} cannot be loaded, because {module} has no function {name!r}: pass the name of "
            "a function in this module"
        )
    if not callable(factory):
        raise BppsaError(
            f"{kind} {spec!r} cannot be loaded, because {name} in {module} is a {type(factory).__name__}: "
            f"pass a function that returns the {kind}"
        )
    return factory


def call_factory(kind: str, spec: str, factory: Callable[..., Any], **options: Any) -> Any:
    """Call a factory. Its exceptions become BppsaError."""
    try:
        return factory(**options)
    except (BppsaError, MemoryError):
        raise
    except Exception as error:
        raise BppsaError(f"{kind} {spec!r} raises {type(error).__name__}: {error}") from error


def _load_file(kind: str, file: str) -> Any:
    path = as_path(f"a {kind}", "its file", file, error=BppsaError)
    if not path.is_file():
        raise BppsaError(f"{kind} file {file!r} does not exist: pass the path of an existing Python file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module
