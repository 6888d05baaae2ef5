// Fibers: one stack for each CUDA thread that has been started and waits, switched by hand.
//
// A switch saves the callee-saved registers of the System V ABI on the stack that is left. Other
// machines, or EMULATOR_UCONTEXT, take ucontext, whose switch makes a system call. AddressSanitizer
// is told of every switch, since it checks addresses against the bounds of the running stack.

#pragma once

#include <stddef.h>
#include <stdint.h>

#if !defined(__x86_64__) && !defined(EMULATOR_UCONTEXT)
#define EMULATOR_UCONTEXT
#endif
#ifdef EMULATOR_UCONTEXT
#include <ucontext.h>
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulator {

struct Context {
#ifdef EMULATOR_UCONTEXT
    ucontext_t registers;
#else
    void* stack_pointer;
#endif
    void* bottom;      // lowest address of the stack
    size_t bytes;      // of the stack
    void* fake_stack;  // AddressSanitizer's, while the context is not running
};

#ifndef EMULATOR_UCONTEXT
extern "C" __attribute__((visibility("hidden"))) void emulator_switch(void** save, void* load);
asm(R"(
    .text
    .hidden emulator_switch
    .globl emulator_switch
    .type emulator_switch, @function
emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emulator_switch, . - emulator_switch
)");
#endif

// Leaves `from`, runs `to`, and returns when something switches back to `from`.
inline void switch_context(Context& from, Context& to)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&from.fake_stack, to.bottom, to.bytes);
#endif
#ifdef EMULATOR_UCONTEXT
    swapcontext(&from.registers, &to.registers);
#else
    emulator_switch(&from.stack_pointer, to.stack_pointer);
#endif
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

// To be called first in a new fiber. `caller` is the context that switched to it; its stack bounds,
// which only AddressSanitizer knows, are noted for the way back.
inline void arrive(Context& caller)
{
#ifdef __SANITIZE_ADDRESS__
    const void* bottom;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &caller.bytes);
    caller.bottom = const_cast<void*>(bottom);
#else
    (void)caller;
#endif
}

// A fiber that runs `entry`, which never returns, on `bytes` of stack from `bottom`, 16-byte aligned.
inline void make_context(Context& fiber, void* bottom, size_t bytes, void (*entry)())
{
    fiber.bottom = bottom;
    fiber.bytes = bytes;
    fiber.fake_stack = nullptr;
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region(bottom, bytes);  // frames of a launch that was given up
#endif
#ifdef EMULATOR_UCONTEXT
    getcontext(&fiber.registers);
    fiber.registers.uc_stack.ss_sp = bottom;
    fiber.registers.uc_stack.ss_size = bytes;
    fiber.registers.uc_link = nullptr;
    makecontext(&fiber.registers, entry, 0);
#else
    void** top = reinterpret_cast<void**>(static_cast<char*>(bottom) + bytes);
    *--top = nullptr;  // the return address of `entry`, whose frame starts 8 bytes off alignment
    *--top = reinterpret_cast<void*>(entry);
    for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
    fiber.stack_pointer = top;
#endif
}

}  // namespace emulator
