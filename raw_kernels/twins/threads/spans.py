"""Cutting host loops into spans that are worth a thread, and transposing ones into tiles."""

import numpy as np

from bppsa_cupy.raw_kernels.twins.simd.addresses import callback
from bppsa_cupy.raw_kernels.twins.threads.crew import by_all
from bppsa_cupy.system.compiled import compiled, part

#: Elements a span has at least: the work of a few microseconds, about what starting a thread costs.
LEAST = 65536


@compiled()
def span_count(elements):
    """Into how many spans a loop over `elements` elements is cut; 1 means that no thread is started."""
    return max(1, min(64, elements // LEAST))


@compiled()
def span_start(span, spans, length):
    """Where span `span` of `spans` begins; the last one ends at span_start(spans, spans, length)."""
    return np.uint64(np.int64(span) * length // spans)


def spans_of(act):
    """run(elements, length, arguments): act(start, end, *arguments) on spans that make up [0, length), in
    parallel where their `elements` elements are worth it. Compiled into the twin that calls it, and cached
    with that."""

    @part()
    def act_on_span(span, spans, length, arguments):
        act(span_start(span, spans, length), span_start(span + 1, spans, length), *arguments)

    @part()
    def run_spans(elements, length, arguments):
        spans = span_count(elements)
        if spans > 1:
            task_address, data = callback(act_on_span, (spans, length, arguments))
            by_all(spans, task_address, data)
        else:
            act(np.uint64(0), np.uint64(length), *arguments)

    return run_spans


@compiled()
def tile_width(batch):
    """Features a tile of a transposition to (features, batch) has: its rows stay in the first cache,
    also where a power-of-two batch puts them all in a few of its sets."""
    return np.uint64(max(16, min(1024, 4096 // batch)))
