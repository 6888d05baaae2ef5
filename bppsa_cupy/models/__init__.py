"""Models by name, and models of the user's own by file or module."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bppsa_cupy.errors import BppsaError
from bppsa_cupy.models.alexnet import alexnet
from bppsa_cupy.models.lenet5 import lenet5
from bppsa_cupy.models.recurrent import gru, lstm, rnn
from bppsa_cupy.models.resnet import of_depth
from bppsa_cupy.models.vgg11 import vgg11
from bppsa_cupy.models.vgg16 import vgg16
from bppsa_cupy.network import Sequential

#: Built-in factories: each takes input_shape and Sequential's options, all by keyword.
MODELS: dict[str, Callable[..., Sequential]] = {
    "lenet5": lenet5,
    "vgg11": vgg11,
    "vgg16": vgg16,
    "alexnet": alexnet,
    **{f"resnet{depth}": of_depth(depth) for depth in (20, 56, 110, 224, 362)},
    "rnn": rnn,
    "gru": gru,
    "lstm": lstm,
}


def build_model(
    spec: str,
    input_shape: tuple[int, ...] | None = None,
    *,
    classes: int | None = None,
    **options: Any,
) -> Sequential:
    """The network that `spec` names.

    spec         a built-in name, "path/to/file.py:factory" or "module:factory"
    input_shape  of one sample; by default the factory's own
    classes      of the output, for a factory that takes `classes`; by default the factory's own
    options      for the factory: seed, dtype, device, …

    Raises BppsaError naming the spec and what is wrong with it.
    """
    if input_shape is not None:
        options["input_shape"] = tuple(input_shape)
    factory = find_factory(spec)
    signature = inspect.signature(factory)
    if classes is not None and "classes" in signature.parameters:
        options["classes"] = classes
    try:
        signature.bind(**options)
    except TypeError as error:
        raise BppsaError(
            f"model {spec!r} {error}: a factory takes input_shape and Sequential's options, by keyword"
        ) from error
    try:
        network = factory(**options)
    except (BppsaError, MemoryError):
        raise
    except Exception as error:
        raise BppsaError(f"model {spec!r} fails: {type(error).__name__}: {error}") from error
    if not isinstance(network, Sequential):
        raise BppsaError(f"model {spec!r} made a {type(network).__name__}: a factory returns a Sequential")
    return network


def find_factory(spec: str) -> Callable[..., Sequential]:
    """The factory that `spec` names. Raises BppsaError."""
    if spec in MODELS:
        return MODELS[spec]
    module, colon, name = spec.rpartition(":")
    if not colon:
        raise BppsaError(
            f"model {spec!r} is none of {', '.join(MODELS)}: give one of these, path/to/file.py:factory or "
            "module:factory"
        )
    loaded = _load_file(module) if module.endswith(".py") else _import(module, spec)
    factory = getattr(loaded, name, None)
    if not callable(factory):
        raise BppsaError(f"model {spec!r}: {module} has no function {name!r}")
    return factory


def _import(name: str, spec: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise BppsaError(f"model {spec!r}: module {name!r} cannot be imported ({error})") from error
    except Exception as error:
        raise BppsaError(f"model {spec!r}: module {name!r} fails: {type(error).__name__}: {error}") from error


def _load_file(file: str) -> Any:
    path = Path(file)
    if not path.is_file():
        raise BppsaError(f"model file {file!r} does not exist")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise BppsaError(f"model file {file!r} fails: {type(error).__name__}: {error}") from error
    return module
