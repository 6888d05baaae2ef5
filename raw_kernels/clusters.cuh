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

// Packs from a place of shared memory on, which lie at the same place in each block of the cluster.
struct Shared {
#ifndef __CUDA_ARCH__
    Pack* place;

    __device__ __forceinline__ explicit Shared(real* own) : place(reinterpret_cast<Pack*>(own)) {}
    __device__ __forceinline__ Pack read(int number) const { return place[number]; }
    __device__ __forceinline__ void put(int number, int rank, const Pack& pack) const
    {
        mapa(place, rank)[number] = pack;
    }
#else
    unsigned place;

    __device__ __forceinline__ explicit Shared(real* own) : place(__cvta_generic_to_shared(own))
    {
        asm volatile("" : "+r"(place));  // else it is made anew at each use
    }

    // This block's.
    __device__ __forceinline__ Pack read(int number) const
    {
        uint4 bits;
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
                     : "r"(place + number * 16) : "memory");
        return reinterpret_cast<const Pack&>(bits);
    }

    // That of the block of a rank.
    __device__ __forceinline__ void put(int number, int rank, const Pack& pack) const
    {
        const uint4 bits = reinterpret_cast<const uint4&>(pack);
        unsigned there;
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(place + number * 16), "r"(rank));
        asm volatile("st.shared::cluster.v4.b32 [%0], {%1, %2, %3, %4};"
                     ::"r"(there), "r"(bits.x), "r"(bits.y), "r"(bits.z), "r"(bits.w) : "memory");
    }
#endif
};
