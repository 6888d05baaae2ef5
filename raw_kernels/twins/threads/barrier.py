"""Threads of one parallel loop that wait for one another between its rounds.

Ending a parallel loop after each round and beginning the next costs as much as tens of thousands of
multiply-adds, and threads that sleep in between may wake on one core and stay there. Here every thread keeps
running, and waits at a counter: a microsecond in place, then yielding its core, so that it holds up no thread
that shares it. Who has waited for some tens of microseconds waits for a thread that other work keeps off its
core, as a rule, and sleeps for moments: the system moves that one to the core that is idle then. A thread
that has woken on the core of another moves on to the next that it may use.

Whether the items of a parallel loop run side by side is up to its scheduler. So they meet first (`meet`), and
where one has waited in vain none of them works: the caller goes on by a loop a round.
"""

import os
import sys

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from bppsa_cupy.raw_kernels.twins.simd.denormals import IS_X86
from bppsa_cupy.raw_kernels.twins.simd.vectors import WORD, data_of
from bppsa_cupy.system.compiled import compiled

#: Where a barrier's numbers are, in cache lines of their own: how many arrived, whether they met, and the
#: core of each member.
ARRIVED, MET, CORES = 0, 8, 16

#: Words of the set of cores that the C library takes, and whether it is there.
CORE_WORDS, IS_LINUX = 16, sys.platform == "linux"

#: Looks at a counter before a thread yields, yields before it sleeps, for so many microseconds, and yields
#: before a meeting is given up (a second or more).
LOOKS, YIELDS, ASLEEP, PATIENCE = 20, 200, 20, 1 << 21


def _place(context, builder, kind, array, index):
    return builder.gep(data_of(context, builder, kind, array), [index])


@intrinsic
def add_one(typingctx, numbers, index):
    """numbers[index] += 1, in one with all that this thread wrote before; the number that it was."""

    def codegen(context, builder, signature, arguments):
        place = _place(context, builder, signature.args[0], *arguments)
        return builder.atomic_rmw("add", place, WORD(1), "seq_cst")

    return types.int64(numbers, types.int64), codegen


@intrinsic
def number_at(typingctx, numbers, index):
    """numbers[index], and with it all that was written before it was set."""

    def codegen(context, builder, signature, arguments):
        place = _place(context, builder, signature.args[0], *arguments)
        return builder.load_atomic(place, "seq_cst", 8)

    return types.int64(numbers, types.int64), codegen


@intrinsic
def set_if_zero(typingctx, numbers, index, value):
    """Set numbers[index] to `value` where it is 0; no other thread's setting comes in between."""

    def codegen(context, builder, signature, arguments):
        array, index, value = arguments
        place = _place(context, builder, signature.args[0], array, index)
        builder.cmpxchg(place, WORD(0), value, "seq_cst")
        return context.get_dummy_value()

    return types.void(numbers, types.int64, types.int64), codegen


def _call(builder, name, result, *values):
    kind = ir.FunctionType(result, [value.type for value in values])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), values)


@intrinsic
def relax(typingctx):
    """Tell the processor that this thread waits in a loop."""

    def codegen(context, builder, signature, arguments):
        if IS_X86:
            _call(builder, "llvm.x86.sse2.pause", ir.VoidType())
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def give_way(typingctx):
    """Let another thread that wants this core have it."""

    def codegen(context, builder, signature, arguments):
        if os.name == "posix":
            _call(builder, "sched_yield", ir.IntType(32))
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def sleep(typingctx):
    """Leave this core idle for a moment, so that a thread which waits for another core can have it."""

    def codegen(context, builder, signature, arguments):
        if os.name == "posix":
            _call(builder, "usleep", ir.IntType(32), ir.IntType(32)(ASLEEP))
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def core_of_thread(typingctx):
    """The core that this thread runs on, -1 where it is not known."""

    def codegen(context, builder, signature, arguments):
        return _call(builder, "sched_getcpu", ir.IntType(32)) if IS_LINUX else ir.IntType(32)(-1)

    return types.int32(), codegen


def _of_cores(name):
    """A function of the C library on this thread's set of cores, an array; 0 where it did what it does."""

    def compile(typingctx, cores):
        def codegen(context, builder, signature, arguments):
            if not IS_LINUX:
                return ir.IntType(32)(-1)
            data = data_of(context, builder, signature.args[0], arguments[0])
            number = ir.IntType(32)
            return _call(builder, name, number, number(0), WORD(8 * CORE_WORDS), data)

        return types.int32(cores), codegen

    return intrinsic(compile)


read_cores, set_cores = _of_cores("sched_getaffinity"), _of_cores("sched_setaffinity")


@compiled()
def leave_core(core):
    """Have this thread move to another core that it may use, where there is one."""
    cores = np.zeros(CORE_WORDS, np.uint64)
    if core < 0 or core >= 64 * CORE_WORDS or read_cores(cores) != 0:
        return
    word = cores[core // 64]
    cores[core // 64] = word & ~(np.uint64(1) << np.uint64(core % 64))
    if set_cores(cores) == 0:
        cores[core // 64] = word
        set_cores(cores)


@compiled()
def new_barrier(members):
    """A barrier that no thread has come to."""
    return np.zeros(CORES + members, np.int64)


@compiled()
def have_met(barrier):
    """Whether the items of the loop ran side by side, and so did their work."""
    return number_at(barrier, MET) > 0


@compiled()
def meet(barrier, members, member):
    """Wait until all `members` have come, each with a number from 0 on. False where some do not: then it is
    False for all of them."""
    core = core_of_thread()
    barrier[CORES + member] = core
    if add_one(barrier, ARRIVED) + 1 == members:
        set_if_zero(barrier, MET, 1)
    waited = 0
    while number_at(barrier, MET) == 0:
        waited += 1
        if waited > LOOKS:
            give_way()
        else:
            relax()
        if waited > PATIENCE:
            set_if_zero(barrier, MET, -1)
    for other in range(member):
        if barrier[CORES + other] == core:
            leave_core(core)
            break
    return have_met(barrier)


@compiled()
def wait(barrier, members, number):
    """Wait until all have come for the time `number` = 1, 2, … after they met."""
    add_one(barrier, ARRIVED)
    waited, target = 0, (number + 1) * members
    while number_at(barrier, ARRIVED) < target:
        waited += 1
        if waited > LOOKS + YIELDS:
            sleep()
        elif waited > LOOKS:
            give_way()
        else:
            relax()
