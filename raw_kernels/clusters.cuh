// Thread-block clusters, of sm_90 and newer: blocks that run at once, wait for one another, and write into each other's
// shared memory. Where there is no __CUDA_ARCH__ the compiler is no CUDA compiler, and gives PTX's instructions as
// functions of their names.

// Arrives at the cluster's barrier: what the thread wrote before is seen by those that have waited there.
__device__ __forceinline__ void arrive_at_cluster()
{
#ifndef __CUDA_ARCH__
    barrier_cluster_arrive();
#else
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}

// Waits there until all threads of the cluster that have not ended have arrived.
__device__ __forceinline__ void wait_for_cluster()
{
#ifndef __CUDA_ARCH__
    barrier_cluster_wait();
#else
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// Writes `own`, which is in this block's shared memory, to its place in that of the cluster's block of a rank.
__device__ __forceinline__ void put_in_block(Pack* own, unsigned rank)
{
#ifndef __CUDA_ARCH__
    *mapa(own, rank) = *own;
#else
    const uint4 bits = *reinterpret_cast<const uint4*>(own);
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(unsigned(__cvta_generic_to_shared(own))), "r"(rank));
    asm volatile("st.shared::cluster.v4.b32 [%0], {%1, %2, %3, %4};"
                 ::"r"(there), "r"(bits.x), "r"(bits.y), "r"(bits.z), "r"(bits.w) : "memory");
#endif
}
