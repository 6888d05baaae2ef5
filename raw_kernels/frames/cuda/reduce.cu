// The product of the transposed Jacobians of each chunk of steps of a recurrent layer, and what the chunk
// makes of its own steps' gradients: by h, J_sᵀ is the sum over the gates of W_gᵀ diag(d_g), and by any state
// the diagonals that reach it without W_hh. How, and in what: reduce.cuh.

#include "prelude.cuh"
#include "activations.cuh"
#include "cell.cuh"
#include "frames/cuda/chunks.cuh"
#include "frames/cuda/walk.cuh"
#include "frames/cuda/reduce.cuh"

// Columns that a thread holds in registers in float32, and in its tile of a block.
const int IN_REGISTERS = COLUMNS, IN_TILE = TILE_COLUMNS;

#if UNITS
#include "frames/cuda/reduce_registers.cuh"
#else
#include "frames/cuda/reduce_block.cuh"
#endif

extern "C" __global__ void __launch_bounds__(BLOCK, 1) CELL_reduce(
    const real* __restrict__ gates,         // (steps, batch | SAVED, hidden): of CELL_forward
    const real* __restrict__ state,         // (steps, batch | STATES, hidden): of CELL_forward
    const real* __restrict__ initial,       // (batch | STATES, hidden): before step 0
    const real* __restrict__ weight_hh,     // (RECURRENT * hidden, hidden)
    const real* __restrict__ unit,          // (PARAMETERS * hidden): of each unit
    const real* __restrict__ gradient,      // (steps, batch | hidden) if per_step else (0): by each step's
                                            // output
    const long long* __restrict__ lengths,  // (batch)
    real* __restrict__ maps,                // ((steps + chunk - 1) // chunk - first, batch, STATES * hidden,
                                            // STATES * hidden) output only, by columns: what a unit gradient
                                            // by element j behind the chunk becomes before it, without its
                                            // power of two
    int* __restrict__ exponents,            // ((steps + chunk - 1) // chunk - first, batch, STATES * hidden)
                                            // output only, by column
    real* __restrict__ offsets,             // ((steps + chunk - 1) // chunk - first, batch | STATES, hidden)
                                            // if per_step else (0) output only
    size_type steps, size_type hidden, size_type batch, size_type chunk,
    size_type first, int per_step, int reverse)
{
    extern __shared__ __align__(16) real shared[];
    const Chunks chunks = {lengths, steps, batch, chunk, first, reverse};
    const Reduction given = {gates, state, initial, weight_hh, unit, gradient, maps, offsets, exponents,
                             chunks, int(hidden), per_step};
    reduce(given, shared);
}
