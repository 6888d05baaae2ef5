"""Calls that PyTorch records: by torch.compile and export, torch.jit.trace, torch.fx and dispatch modes."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
import torch.fx

Function = TypeVar("Function", bound=Any)
_frames: Any = torch._C._dynamo.eval_frame


def is_recorded() -> bool:
    """Whether a pass must be an operator of `torch.ops`, since what it computes otherwise is not seen."""
    return torch.compiler.is_compiling() or torch._C._is_tracing() or torch._C._len_torch_dispatch_stack() > 0


def hide_from_dynamo(function: Function) -> Function:
    """Let a function and what it calls run as they are where Dynamo breaks the graph before its call.

    It costs nothing per call, unlike torch.compiler.disable.
    """
    if hasattr(_frames, "set_code_exec_strategy"):
        skip = _frames._FrameAction.SKIP
        _frames.set_code_exec_strategy(function.__code__, _frames._FrameExecStrategy(skip, skip))
    return function


def is_exported() -> bool:
    """Whether a graph is made for other programs, which have PyTorch's operators alone."""
    return torch.compiler.is_exporting() or torch.jit.is_tracing()


def is_proxy(value: Any) -> bool:
    """Whether torch.fx gives this value in place of a tensor."""
    return isinstance(value, torch.fx.Proxy)


def record_call(module: torch.nn.Module, proxy: Any, *arguments: Any) -> Any:
    """The call of a module as torch.fx records those of torch.nn, without its inner operations."""
    path = proxy.tracer.path_of_module(module)
    return proxy.tracer.create_proxy("call_module", path, (proxy, *arguments), {})
