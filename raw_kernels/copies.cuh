// Copies from global to shared memory that no register waits for, from sm_80 on; before, loads and stores.
// Copies are started in groups, and waited for group by group. Where there is no __CUDA_ARCH__ the compiler is no
// CUDA compiler, and gives PTX's instructions as functions of their names.

// Starts the copy of one value of 4, 8 or 16 bytes; what is larger goes past the L1 cache.
template <class Value>
__device__ __forceinline__ void copy_ahead(Value* to, const Value* from)
{
#ifndef __CUDA_ARCH__
    cp_async(to, from);
#elif __CUDA_ARCH__ >= 800
    const unsigned place = __cvta_generic_to_shared(to);
    if (sizeof(Value) == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
                     ::"r"(place), "l"(from), "n"(sizeof(Value)) : "memory");
#else
    *to = *from;
#endif
}

// Ends a group of copies.
__device__ __forceinline__ void end_group()
{
#ifndef __CUDA_ARCH__
    cp_async_commit_group();
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for all of this thread's copies but those of the last LEFT groups.
template <int LEFT>
__device__ __forceinline__ void wait_for_groups()
{
#ifndef __CUDA_ARCH__
    cp_async_wait_group(LEFT);
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
}
