// Maps of a walk as a stream of pieces, each some whole columns of one map, of which some are on their way to
// shared memory while one is used. For any size of a state.

#include "copies.cuh"

// Threads of a block; pieces of shared memory; reals of a piece, where a column has no more.
const int THREADS = 256, STAGES = 4, PIECE = 8192 / int(sizeof(real));

__device__ inline int columns_of_piece(int size)
{
    const int columns = PIECE / size;
    return columns >= size ? size : columns < 4 ? 1 : columns - columns % 4;
}

// The multiple of 4 that holds `count`, so that what lies behind begins at 16 bytes.
__device__ inline int padded(int count) { return (count + 3) / 4 * 4; }

// Thread t owns elements t, t + THREADS, ... of a state: it copies what is added to them and their exponents, which
// come with a map's first piece.
struct Pieces {
    const BoundaryScan& walk;
    const int size, columns;
    real *const stages, *const held, *const values, *const all_added;
    int* const all_exponents;
    const size_type start_of_walk;
    const real *maps, *added_from;
    const int* exponents_from;
    size_type to_fetch;
    int fetched = 0, column = 0, used = 0, fetched_map = 0, used_map = 0;
    const bool wide;

    // Shared memory: STAGES pieces; two turns of what is multiplied; THREADS values and a state of them; STAGES
    // times what is added, and exponents.
    __device__ __forceinline__ Pieces(const BoundaryScan& walk, size_type start_of_walk, real* shared)
        : walk(walk), size(walk.size), columns(columns_of_piece(size)), stages(shared),
          held(stages + STAGES * padded(columns * size)), values(held + 2 * padded(size)),
          all_added(values + THREADS + padded(size)), all_exponents((int*)(all_added + STAGES * padded(size))),
          start_of_walk(start_of_walk), maps(walk.maps), added_from(walk.added),
          exponents_from(walk.exponents), to_fetch(walk.count),
          wide(columns * size % PACK == 0 && size * size % PACK == 0)
    {
    }

    // Starts the copies of the first pieces.
    __device__ __forceinline__ void start()
    {
#pragma unroll 1
        for (int stage = 0; stage < STAGES - 1; ++stage) fetch();
    }

    // Waits for this thread's copies of the next piece to use.
    __device__ __forceinline__ void wait() { wait_for_groups<STAGES - 2>(); }

    // The piece to use, and what came with its map.
    __device__ __forceinline__ const real* piece() const { return stages + used * padded(columns * size); }
    __device__ __forceinline__ const real* added() const { return all_added + used_map * padded(size); }
    __device__ __forceinline__ const int* exponents() const { return all_exponents + used_map * padded(size); }

    // Goes on to the piece behind, which may be of the next map.
    __device__ __forceinline__ void leave(bool map_too)
    {
        used = (used + 1) % STAGES;
        if (map_too) used_map = (used_map + 1) % STAGES;
    }

    // Starts the copies of the next piece into the stage that every thread has left.
    __device__ __forceinline__ void fetch()
    {
        if (to_fetch > 0) {
            const int count = min(columns, size - column) * size, first = threadIdx.x;
            real* const to = stages + fetched * padded(columns * size);
            const real* const from = maps + (size_type)column * size;
            if (wide) {
#pragma unroll 1
                for (int i = first; i < count / PACK; i += THREADS)
                    copy_ahead(reinterpret_cast<Pack*>(to) + i, reinterpret_cast<const Pack*>(from) + i);
            } else {
#pragma unroll 1
                for (int i = first; i < count; i += THREADS) copy_ahead(to + i, from + i);
            }
            if (column == 0) {
#pragma unroll 1
                for (int i = first; i < size; i += THREADS) {
                    copy_ahead(all_exponents + fetched_map * padded(size) + i, exponents_from + i);
                    copy_ahead(all_added + fetched_map * padded(size) + i, added_from + start_of_walk + i);
                }
            }
            fetched = (fetched + 1) % STAGES;
            column += columns;
            if (column >= size) {
                column = 0;
                fetched_map = (fetched_map + 1) % STAGES;
                --to_fetch;
                maps += walk.items_apart * size * size;
                exponents_from += walk.items_apart * size;
                added_from += walk.added_apart;
            }
        }
        end_group();
    }
};
