"""The minimum vertex cut of a graph, as near to its sinks as it can be."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def nearest_cut(
    operands: Mapping[Node, tuple[Node, ...]], sources: set[Node], sinks: set[Node], free: set[Node]
) -> set[Node]:
    """The fewest nodes, beside any of `free`, without which no path leads from `sources` to `sinks`; of all
    such sets the one with the least after it. Sources and sinks may be taken themselves.

    operands  node -> the nodes with an edge to it

    Every node is an edge from its entry to its exit, of capacity 1, or 0 where it is free; as many augmenting
    paths as there are fill them (Ford & Fulkerson 1956), and what can still reach a sink is after the cut.
    """
    users: dict[Node, list[Node]] = {node: [] for node in operands}
    for node, froms in operands.items():
        for other in froms:
            users.setdefault(other, []).append(node)
    nodes = list(users)
    used: set[Node] = set()
    flow: set[tuple[Node, Node]] = set()

    def ways(place: tuple[Node, bool]) -> list[tuple[Node, bool]]:
        """Where residual capacity leads from a node's entry (False) or exit (True)."""
        node, left = place
        if not left:
            back = [(other, True) for other in operands.get(node, ()) if (other, node) in flow]
            return back + ([(node, True)] if node not in used and node not in free else [])
        return [(other, False) for other in users[node]] + ([(node, False)] if node in used else [])

    while True:
        start = [(node, False) for node in nodes if node in sources]
        came: dict[tuple[Node, bool], tuple[Node, bool] | None] = dict.fromkeys(start)
        waiting, end = deque(start), None
        while waiting and end is None:
            here = waiting.popleft()
            if here[1] and here[0] in sinks:
                end = here
                break
            for there in ways(here):
                if there not in came:
                    came[there] = here
                    waiting.append(there)
        if end is None:
            break
        while came[end] is not None:
            before = came[end]
            assert before is not None
            (node, left), (other, _) = before, end
            if node == other:
                used.symmetric_difference_update({node})
            elif left:
                flow.add((node, other))
            else:
                flow.discard((other, node))
            end = before
    # Backwards from the sinks: places from which residual capacity leads to one.
    behind = {(node, True) for node in nodes if node in sinks}
    changed = True
    while changed:
        changed = False
        for node in nodes:
            for left in (False, True):
                if (node, left) not in behind and any(there in behind for there in ways((node, left))):
                    behind.add((node, left))
                    changed = True
    return {
        node for node in nodes if (node, True) in behind and (node, False) not in behind and node not in free
    }
