"""Models by name, and models of the user's own by file or module."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from bppsa_cupy.arguments import as_integer, as_list, is_one_of
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.models.images import alexnet, lenet5, resnet, vgg11, vgg16
from bppsa_cupy.models.sequences import call_factory, gru, load_factory, lstm, of_cell, rnn
from bppsa_cupy.network import Sequential

#: Built-in factories: each takes input_shape and Sequential's options, all by keyword.
MODELS: dict[str, Callable[..., Sequential]] = {
    "lenet5": lenet5,
    "vgg11": vgg11,
    "vgg16": vgg16,
    "alexnet": alexnet,
    **{f"resnet{depth}": partial(resnet, depth) for depth in (20, 56, 110, 224, 362)},
    "rnn": rnn,
    "gru": gru,
    "lstm": lstm,
    "cell": of_cell,
}


def build_model(
    spec: str,
    input_shape: tuple[int, ...] | None = None,
    *,
    classes: int | None = None,
    **options: Any,
) -> Sequential:
    """Create a network from a built-in model or from your own factory.

    Parameters
    ----------
    spec : str
        A built-in name, "path/to/file.py:factory" or "module:factory".
    input_shape : tuple of int, optional
        Shape of one sample. Default: that of the factory.
    classes : int, optional
        Number of outputs, for factories that have `classes`. Default: that of the factory.
    **options
        Further arguments of the factory: seed, dtype, device, ...

    Returns
    -------
    Sequential

    Raises
    ------
    BppsaError
        If the model is unknown, or the factory fails.

    Examples
    --------
    >>> from bppsa_cupy.models import build_model
    >>> build_model("rnn", (50, 1), classes=10, hidden_size=20, device="host").output_shape
    (10,)
    """
    if input_shape is not None:
        takes = "the sizes of a sample"
        options["input_shape"] = tuple(as_list("build_model", "input_shape", input_shape, takes))
    if classes is not None:
        classes = as_integer("build_model", "classes", classes, 1)
    factory = find_factory(spec)
    signature = inspect.signature(factory)
    if classes is not None and "classes" in signature.parameters:
        options["classes"] = classes
    try:
        signature.bind(**options)
    except TypeError as error:
        raise BppsaError(
            f"model {spec!r} {error}: write a factory whose keyword arguments are input_shape and the "
            "options of Sequential"
        ) from error
    network = call_factory("model", spec, factory, **options)
    if not isinstance(network, Sequential):
        raise BppsaError(
            f"model {spec!r} returned a {type(network).__name__}: return a Sequential from the factory"
        )
    return network


def find_factory(spec: str) -> Callable[..., Sequential]:
    """The factory named by `spec`. Raises BppsaError."""
    return MODELS[spec] if is_one_of(spec, MODELS) else load_factory("model", spec, MODELS)
