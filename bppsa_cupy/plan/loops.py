"""The compiled loops that run the steps of a schedule on workers."""

import heapq

import numpy as np

from bppsa_cupy.system.compiled import compiled


@compiled()
def assign(operands, rank, durations, workers, starts, assigned, lengths):
    """Run every step on a worker.

    operands   (steps, 2): positions of the steps whose results a step reads, -1 for an input; earlier ones
    rank       (steps,): orders steps with equal paths
    durations  (steps,)
    starts     out, (steps,): when each step starts
    assigned   out, (steps,): on which worker
    lengths    out, (2,): the time the last step ends, and the longest chain of dependent steps
    """
    steps = durations.size
    behind = durations.copy()
    waiting = np.zeros(steps, np.int64)
    reader_ptr = np.zeros(steps + 2, np.int64)
    for p in range(steps - 1, -1, -1):
        for operand in operands[p]:
            if operand >= 0:
                behind[operand] = max(behind[operand], durations[operand] + behind[p])
                waiting[p] += 1
                reader_ptr[operand + 2] += 1
    reader_ptr = np.cumsum(reader_ptr)
    readers = np.empty(reader_ptr[-1], np.int64)
    for p in range(steps):
        for operand in operands[p]:
            if operand >= 0:
                readers[reader_ptr[operand + 1]] = p
                reader_ptr[operand + 1] += 1
    ready = [(0.0, 0, 0) for _ in range(0)]
    for p in range(steps):
        if waiting[p] == 0:
            ready.append((-behind[p], rank[p], p))
    heapq.heapify(ready)
    idle = [worker for worker in range(min(workers, steps))]
    running = [(0.0, 0) for _ in range(0)]
    now = 0.0
    while len(ready) > 0 or len(running) > 0:
        while len(ready) > 0 and len(idle) > 0:
            p = heapq.heappop(ready)[2]
            assigned[p], starts[p] = heapq.heappop(idle), now
            heapq.heappush(running, (now + durations[p], p))
        now = running[0][0]
        while len(running) > 0 and running[0][0] == now:
            p = heapq.heappop(running)[1]
            heapq.heappush(idle, assigned[p])
            for position in range(reader_ptr[p], reader_ptr[p + 1]):
                reader = readers[position]
                waiting[reader] -= 1
                if waiting[reader] == 0:
                    heapq.heappush(ready, (-behind[reader], rank[reader], reader))
    lengths[0], lengths[1] = now, behind.max() if steps else 0.0


@compiled()
def run_in_order(operands, ranks, durations, free):
    """Run steps on fixed ranks, each rank its steps in the order of the schedule.

    operands   (steps, 2): positions of the steps whose results a step reads, earlier ones; -1 for an input
    ranks      (steps,): where each step runs
    durations  (steps,)
    free       in and out, (ranks,): when each rank ends
    """
    ends = np.zeros(durations.size)
    for p in range(durations.size):
        left, right = operands[p]
        start = max(ends[left] if left >= 0 else 0.0, ends[right] if right >= 0 else 0.0, free[ranks[p]])
        ends[p] = free[ranks[p]] = start + durations[p]
