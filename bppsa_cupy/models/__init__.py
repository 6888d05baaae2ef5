"""Models by name, and models of the user's own by file or module."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from bppsa_cupy.arguments import as_instance, as_integer, as_list, as_path, is_one_of
from bppsa_cupy.errors import BppsaError, ShapeError
from bppsa_cupy.layers import GRU, LSTM, RNN, Linear
from bppsa_cupy.models.images import alexnet, lenet5, resnet, vgg11, vgg16
from bppsa_cupy.network import Sequential


def recurrent_network(
    input_shape: tuple[int, ...] | None = None,
    classes: int | None = None,
    hidden_size: int = 20,
    num_layers: int = 1,
    bidirectional: bool = False,
    outputs: str = "last",
    forward_method: str = "auto",
    *,
    layer: Any = RNN,
    **options: Any,
) -> Sequential:
    """Create a network of a recurrent layer, and a linear layer that reads its last output.

    Parameters
    ----------
    input_shape : tuple of int, optional
        (T, F). Default: (1000, 1) for an RNN and (517, 24) for others (Wang et al. 2020, sections 4.1, 4.2).
    classes : int, optional
        Number of outputs. Default: 10 for an RNN and 11 for others.
    hidden_size, num_layers, bidirectional, outputs, forward_method
        Arguments of the layer. outputs="all" returns scores at every step, (T, classes).
    layer : type, default: RNN
        The class of the layer.
    **options
        seed, dtype and device of `Sequential`.
    """
    shape, count = ((1000, 1), 10) if layer is RNN else ((517, 24), 11)
    input_shape = shape if input_shape is None else input_shape
    if len(input_shape) != 2:
        raise ShapeError(f"{layer.__name__.lower()} got input {input_shape}: pass sequences (T, F)")
    recurrent = layer(
        input_shape[1], hidden_size, num_layers, bidirectional=bidirectional, outputs=outputs,
        forward_method=forward_method,
    )  # fmt: skip
    scores = Linear(recurrent.directions * hidden_size, count if classes is None else classes)
    return Sequential([recurrent, scores], input_shape=input_shape, **options)


#: The recurrent network (Elman 1990) that the paper trains on bitstreams (section 4.1).
rnn = partial(recurrent_network, layer=RNN)
#: The GRU (Cho et al. 2014) that the paper trains on MFCC features of IRMAS, set M (section 4.2).
gru = partial(recurrent_network, layer=GRU)
#: An LSTM (Hochreiter and Schmidhuber 1997) instead of the paper's GRU.
lstm = partial(recurrent_network, layer=LSTM)

#: Built-in factories: each takes input_shape and Sequential's options.
MODELS: dict[str, Callable[..., Sequential]] = {
    "lenet5": lenet5,
    "vgg11": vgg11,
    "vgg16": vgg16,
    "alexnet": alexnet,
    **{f"resnet{depth}": partial(resnet, depth) for depth in (20, 56, 110, 224, 362)},
    "rnn": rnn,
    "gru": gru,
    "lstm": lstm,
}


def build_model(
    spec: str, input_shape: tuple[int, ...] | None = None, *, classes: int | None = None, **options: Any
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
    try:
        network = factory(**options)
    except (BppsaError, MemoryError):
        raise
    except Exception as error:
        raise BppsaError(f"model {spec!r} raises {type(error).__name__}: {error}") from error
    if not isinstance(network, Sequential):
        raise BppsaError(
            f"model {spec!r} returned a {type(network).__name__}: return a Sequential from the factory"
        )
    return network


def find_factory(spec: str) -> Callable[..., Sequential]:
    """The factory named by `spec`, as in `build_model`. Raises BppsaError."""
    if is_one_of(spec, MODELS):
        return MODELS[spec]
    takes = "the name of a model, path/to/file.py:factory or module:factory"
    spec = as_instance("a model", "its name", spec, str, takes, error=BppsaError)
    module, colon, name = spec.rpartition(":")
    if not colon:
        raise BppsaError(
            f"model {spec!r} is unknown: pass one of {', '.join(MODELS)}, path/to/file.py:factory or "
            "module:factory"
        )
    try:
        if not module.endswith(".py"):
            loaded = importlib.import_module(module)
        else:
            path = as_path("a model", "its file", module, error=BppsaError)
            if not path.is_file():
                raise BppsaError(
                    f"model file {module!r} does not exist: pass the path of an existing Python file"
                )
            of_file = importlib.util.spec_from_file_location(path.stem, path)
            assert of_file is not None and of_file.loader is not None
            loaded = importlib.util.module_from_spec(of_file)
            sys.modules.setdefault(path.stem, loaded)
            of_file.loader.exec_module(loaded)
    except BppsaError:
        raise
    except Exception as error:
        raise BppsaError(
            f"model {spec!r} cannot be loaded, because importing {module} raises {type(error).__name__} "
            f"({error}): correct the module or its name"
        ) from error
    factory = getattr(loaded, name, None)
    if not callable(factory):
        raise BppsaError(
            f"model {spec!r} cannot be loaded, because {module} has no function {name!r}: pass the name of "
            "a function in this module"
        )
    return factory
