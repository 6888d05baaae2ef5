"""Tasks of a parallel loop that its threads take one by one.

A thread that has slept takes tens of microseconds to wake, and may wake on the core of the thread that has
woken it, where it waits until that one has nothing left to do. So tasks are not dealt out beforehand: each
thread has a run of them, which stays the same from loop to loop and so in its cache, and goes on with those
that others have not begun. While others have not come, who works gives way between tasks, a few times; a
thread that finds itself on the core of another then moves on to the next that it may use.
"""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.twins.simd.addresses import callback, has_failed
from bppsa_cupy.raw_kernels.twins.threads.barrier import (
    add_one,
    core_of_thread,
    give_way,
    leave_core,
    number_at,
)
from bppsa_cupy.raw_kernels.twins.threads.threads import thread_count
from bppsa_cupy.system.compiled import compiled, part

#: Words from one member's numbers to the next one's, and where they are, in cache lines of their own: tasks
#: taken of its run, and its core plus one, 0 where it has not come. After them all is how many have come,
#: and how often one has given way; each time may cost a slice of time where other work waits for the core.
APART, TAKEN, CORE = 16, 0, 8
GIVEN, MOST_GIVEN = 8, 3
#: Where the last cache line says that a task has failed.
FAILED = 9


@compiled()
def new_crew(tasks):
    """A crew for so many tasks; member 0 is the thread that calls this."""
    crew = np.zeros((min(thread_count(), tasks) + 1) * APART, np.int64)
    crew[CORE] = core_of_thread() + 1
    return crew


@compiled()
def members_of(crew):
    """How many members a crew has."""
    return crew.size // APART - 1


@compiled()
def join(crew, member):
    """Begin as a member: on a core of its own, where there is one."""
    if member > 0:
        core = core_of_thread()
        for other in range(members_of(crew)):
            if other != member and crew[other * APART + CORE] == core + 1:
                leave_core(core)
                break
        crew[member * APART + CORE] = core_of_thread() + 1
    add_one(crew, members_of(crew) * APART)


@compiled()
def next_task(crew, member, tasks):
    """A task that nobody has taken: of the member's own run, then of the next ones'; -1 if there is none."""
    members = members_of(crew)
    common = members * APART
    waits = number_at(crew, common) < members and crew[common + GIVEN] < MOST_GIVEN
    if waits and crew[member * APART + TAKEN] > 0:
        crew[common + GIVEN] += 1
        give_way()
    for further in range(members):
        owner = (member + further) % members
        first, end = tasks * owner // members, tasks * (owner + 1) // members
        task = first + add_one(crew, owner * APART + TAKEN)
        if task < end:
            return task
    return -1


@part(parallel=True)
def by_all(tasks, task_address, data):
    """Call the function at `task_address`, which `callback` made, for each task by all threads. The loop is
    compiled once for all kinds of tasks, because Numba takes long to compile a parallel loop."""
    crew = new_crew(tasks)
    failures = members_of(crew) * APART + FAILED
    for member in prange(members_of(crew)):
        join(crew, np.int64(member))
        task = next_task(crew, np.int64(member), tasks)
        while task >= 0:
            if has_failed(task_address, task, data):
                crew[failures] = 1
            task = next_task(crew, np.int64(member), tasks)
    if crew[failures]:
        raise MemoryError("a task of a parallel loop got no memory")


def tasks_of(act):
    """run(tasks, together, arguments): act(task, *arguments) of each of so many tasks, by all threads where
    they work `together`; where that is None, no code for it is compiled. Compiled into the twin that calls
    it, and cached with that."""

    @part()
    def run_tasks(tasks, together, arguments):
        if together is not None and together:
            task_address, data = callback(act, arguments)
            by_all(tasks, task_address, data)
        else:
            for task in range(tasks):
                act(task, *arguments)

    return run_tasks
