"""Edits of what an HDF5 file holds: groups, links, data sets and attributes, by h5py."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import h5py
import numpy as np

#: Arrays of any kind, empty, of many axes, of other types.
ARRAYS: tuple[Callable[[np.random.Generator], Any], ...] = (
    lambda rng: rng.integers(-(2**31), 2**31, rng.integers(0, 20)),
    lambda rng: rng.integers(-1, 5, rng.integers(0, 20)).astype(rng.choice(["i1", "i2", "i4", "u8", ">i4"])),
    lambda rng: rng.standard_normal(tuple(rng.integers(0, 4, rng.integers(0, 5)))),
    lambda rng: np.float16(rng.standard_normal(5)),
    lambda rng: np.array([np.nan, np.inf, -np.inf, 1e300]),
    lambda rng: np.array([2**63, 2**64 - 1], np.uint64),
    lambda rng: np.array([True, False]),
    lambda rng: np.array([1 + 2j]),
    lambda rng: np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
    lambda rng: h5py.Empty("f4"),
    lambda rng: "text " * int(rng.choice([0, 1, 50, 10_000])),
    lambda rng: np.bytes_(rng.bytes(int(rng.integers(0, 9)))),
    lambda rng: int(rng.choice([-1, 0, 1, 2, 7, 2**31, 2**62])),
    lambda rng: float(rng.choice([0.0, -1.5, np.nan, np.inf])),
    lambda rng: rng.bytes(8).hex(),
    lambda rng: "[" * 3000,
    lambda rng: str(
        rng.choice(["{}", "[]", "null", "1e999", '{"a": NaN}', "[1, 2", '"x"', "\ud7ff", "true"])
    ),
)


def edited(content: bytes, rng: np.random.Generator, times: int) -> bytes:
    """`content`, an HDF5 file, after some random edits; those that h5py refuses are left out."""
    stream = io.BytesIO(content)
    with h5py.File(stream, "r+") as file:
        for _ in range(times):
            names = ["/"]
            file.visit(names.append)
            item = file[names[rng.integers(len(names))]]
            edit = EDITS[rng.integers(len(EDITS))]
            with suppress(Exception):
                edit(file, item, rng)
    return stream.getvalue()


def _value(rng: np.random.Generator) -> Any:
    return ARRAYS[rng.integers(len(ARRAYS))](rng)


def _remove(file: h5py.File, item: Any, rng: np.random.Generator) -> None:
    del file[item.name]


def _replace(file: h5py.File, item: Any, rng: np.random.Generator) -> None:
    name, attributes = item.name, dict(item.attrs)
    value = _value(rng)
    del file[name]
    file[name] = value
    file[name].attrs.update(attributes)


def _change_values(file: h5py.File, item: Any, rng: np.random.Generator) -> None:
    array = item[()]
    flat = array.reshape(-1)
    for _ in range(rng.integers(1, 4)):
        flat[rng.integers(flat.size)] = rng.choice([0, 1, -1, 2, 127, rng.integers(0, 300)])
    item[...] = array


def _resize(file: h5py.File, item: Any, rng: np.random.Generator) -> None:
    name, attributes, array = item.name, dict(item.attrs), item[()]
    turned = [array[:-1], array[::-1], array[..., None], np.repeat(array, 2, 0), array[:0], array.ravel()]
    del file[name]
    file[name] = turned[rng.integers(len(turned))]
    file[name].attrs.update(attributes)


def _change_attribute(file: h5py.File, item: Any, rng: np.random.Generator) -> None:
    names = list(item.attrs)
    item.attrs[names[rng.integers(len(names))]] = _value(rng)


def _nudge_attribute(file: h5py.File, item: Any, rng: np.random.Generator) -> None:
    names = list(item.attrs)
    name = names[rng.integers(len(names))]
    value = item.attrs[name]
    item.attrs[name] = value[:-1] if isinstance(value, str) else value + rng.choice([-1, 1, 1000])


def _remove_attribute(file: h5py.File, item: Any, rng: np.random.Generator) -> None:
    names = list(item.attrs)
    del item.attrs[names[rng.integers(len(names))]]


def _rename(file: h5py.File, item: Any, rng: np.random.Generator) -> None:
    file.move(
        item.name,
        item.parent.name.rstrip("/") + "/" + str(rng.choice(["x", "0", "9", "ä", "data", "a" * 300])),
    )


def _link(file: h5py.File, item: Any, rng: np.random.Generator) -> None:
    """Circles, links that lead nowhere, and links into other files."""
    group = item if isinstance(item, h5py.Group) else item.parent
    links = [
        h5py.SoftLink("/"),
        h5py.SoftLink("/nowhere"),
        h5py.ExternalLink("other.h5", "/"),
        file["/"],
        item,
    ]
    name = str(rng.choice(["x", "0", "1", "data", "indices", "indptr", "train"]))
    if name in group:
        del group[name]
    group[name] = links[rng.integers(len(links))]


def _leave_a_hole(file: h5py.File, item: Any, rng: np.random.Generator) -> None:
    """A data set without some of its chunks, or of an absurd size."""
    name, attributes, dtype = item.name, dict(item.attrs), item.dtype
    shape = tuple(int(size) for size in rng.choice([1, 5, 1000, 2**31, 2**40], max(1, item.ndim)))
    del file[name]
    file.create_dataset(
        name, shape, dtype, chunks=tuple(min(size, 100) for size in shape), compression="gzip"
    )
    file[name].attrs.update(attributes)


def _add(file: h5py.File, item: Any, rng: np.random.Generator) -> None:
    group = item if isinstance(item, h5py.Group) else item.parent
    name = str(rng.choice(["x", "2", "extra"]))
    group[name] = _value(rng) if rng.integers(2) else group.create_group(name + "/inner")


EDITS = (
    *(_remove, _replace, _change_values, _change_values, _resize, _change_attribute, _nudge_attribute),
    *(_remove_attribute, _rename, _link, _leave_a_hole, _add),
)
