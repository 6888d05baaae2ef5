"""Where the elements of a walk's state lie: a walk is a sample's with one of the sets of weights."""

from bppsa_cupy.system.compiled import compiled


@compiled()
def start_of(walk, hidden, batch):
    """Where a walk's elements begin in (sets, hidden, batch), which are `batch` apart."""
    return walk // batch * hidden * batch + walk % batch


@compiled()
def element_of(i, walk, hidden, sets, batch):
    """Where element i of a walk's state lies in (states, sets, hidden, batch)."""
    return (i // hidden * sets * hidden + i % hidden) * batch + start_of(walk, hidden, batch)
