"""Making the next item while this one is worked on."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from bppsa_cupy.system.memory import check_thread_room

T = TypeVar("T")


def ahead(source: Iterator[T]) -> Iterator[T]:
    """The items of `source`, none of them None, in their order: a thread makes the next one while the caller
    has this one, and none further. What `source` raises is raised in its place. When the caller stops early,
    by an error or Ctrl-C too, the thread ends with the item that it is at. Raises MemoryError where the
    address space has no room for a thread."""
    check_thread_room()
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as thread:
        coming = thread.submit(next, source, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, source, None)
            yield item
