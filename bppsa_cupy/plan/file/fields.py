"""Fields of a plan file: numbers, texts and folders, each checked as it is read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import h5py
import numpy as np

from bppsa_cupy.errors import BppsaError, PlanError, reason_of
from bppsa_cupy.system.hdf5 import attribute, read_array, write_array


@contextmanager
def naming(path: str, what: str) -> Iterator[None]:
    """Put the file's name, and of what is read, before the message of an error inside."""
    try:
        yield
    except BppsaError as error:
        raise PlanError(f"{path}: {what}: {error}") from error


def write_format(file: h5py.File, format: str, version: int) -> None:
    """Say what a file is: attributes `format` and `format_version` of its root."""
    file.attrs["format"], file.attrs["format_version"] = format, version


def check_format(file: h5py.File, format: str, version: int, what: str, cure: str) -> None:
    """Raise PlanError unless the file holds `what`, by its format and version, as this package reads it."""
    kind, found = text(file, "format"), number(file, "format_version")
    if kind != format:
        raise PlanError(f"{file.filename} holds {kind!r}: {what} is {format!r}")
    if found != version:
        raise PlanError(
            f"{file.filename} is {what} of version {found}, this package reads version {version}: {cure}"
        )


def members(file: h5py.File, name: str) -> list[tuple[str, h5py.Group]]:
    """The groups in group `name`, which holds nothing else."""
    folder = file.get(name)
    if not isinstance(folder, h5py.Group) or not all(isinstance(g, h5py.Group) for g in folder.values()):
        raise PlanError(f"{file.filename}: group /{name} is missing, or holds something else than groups")
    return list(folder.items())


def numbered(file: h5py.File, name: str) -> list[h5py.Group]:
    """The groups in group `name`, which are called 0, 1, …"""
    groups = dict(members(file, name))
    if set(groups) != {str(index) for index in range(len(groups))}:
        raise PlanError(f"{file.filename}: /{name} holds {sorted(groups)}: they must be numbered from 0")
    return [groups[str(index)] for index in range(len(groups))]


def integers(group: h5py.Group, name: str) -> np.ndarray:
    """A data set of one axis."""
    return read_array(group, name, kinds="i", ndim=1, error=PlanError)


def text(group: h5py.Group, name: str) -> str:
    """An attribute."""
    return attribute(group, name, str, PlanError)


def number(group: h5py.Group | h5py.Dataset, name: str) -> int:
    """An attribute."""
    return attribute(group, name, int, PlanError)


def json_attribute(group: h5py.Group, name: str, kind: type) -> Any:
    """What an attribute says as JSON, a list or a dict."""
    return _parsed(text(group, name), f"{group.file.filename}: attribute {name}", kind)


def write_json(group: h5py.Group, name: str, value: Any) -> None:
    """Store a long JSON text as a compressed data set of its bytes."""
    write_array(group, name, np.frombuffer(json.dumps(value).encode(), np.uint8), compress=True)


def read_json(group: h5py.Group, name: str, kind: type) -> Any:
    """What data set `name`, a text in UTF-8, says as JSON, a list or a dict."""
    stored = read_array(group, name, kinds="u", ndim=1, error=PlanError)
    return _parsed(stored.tobytes(), f"{group.file.filename}: {group.name.rstrip('/')}/{name}", kind)


def _parsed(content: str | bytes, where: str, kind: type) -> Any:
    try:
        value = json.loads(content)
    except ValueError as error:
        raise PlanError(f"{where} is no JSON: {reason_of(error)}") from error
    if not isinstance(value, kind):
        raise PlanError(f"{where} is no JSON {kind.__name__}")
    return value
