// The product of the transposed Jacobians of each chunk of a tanh or ReLU recurrent layer, and what the
// chunk makes of its own steps' gradients: J_sᵀ = W_hhᵀ diag(f'(h_s)). How, and in what: reduce.cuh.
//
//   state      (steps, hidden, batch)         input, of rnn_forward
//   weight_hh  (hidden, hidden)               input
//   gradient   (steps, hidden, batch) or (0)  input, by each step's output; none where not per_step
//   lengths    (batch)                        input
//   maps       (reduced, batch, hidden, hidden) output only, by columns: what a unit gradient by element
//              j behind the chunk becomes before it, without its power of two
//   exponents  (reduced, batch, hidden)       output only, by column
//   offsets    (reduced, hidden, batch) or (0) output only
//
// reduced is the number of chunks from `first` on.

#include "prelude.cuh"
#include "reduce.cuh"
#include "reduce_block.cuh"

struct RnnCell {
    static const int gates = 1, parts = 1, coefficients = 1, carried = -1;
    const real* state;
    size_type plane;
    int batch, relu;

    // One step of one sample. a: f'(h).
    struct Step {
        const real* state;
        int batch, relu;

        __device__ __forceinline__ Step(const RnnCell& cell, const Chunks& chunks, size_type s, size_type b)
            : state(cell.state + chunks.time(s) * cell.plane + b), batch(cell.batch),
              relu(opaque(cell.relu))
        {
        }

        __device__ __forceinline__ void load(int k, real* a) const
        {
            const real h = state[k * batch];
            a[0] = relu ? (h > real(0) ? real(1) : real(0)) : real(1) - h * h;
        }
    };

    __device__ __forceinline__ static void enter(const real* a, real* x) { x[0] *= a[0]; }
    __device__ __forceinline__ static void entry(const real*, const real* w, real* p) { p[0] = w[0]; }
    __device__ __forceinline__ static real carry(const real*, const real*) { return real(0); }
};

extern "C" __global__ void __launch_bounds__(256) rnn_reduce(
    const real* __restrict__ state, const real* __restrict__ weight_hh, const real* __restrict__ gradient,
    const long long* __restrict__ lengths, real* __restrict__ maps, int* __restrict__ exponents,
    real* __restrict__ offsets, size_type steps, size_type hidden, size_type batch, size_type chunk,
    size_type first, int per_step, int relu, int reverse)
{
    extern __shared__ __align__(16) real shared[];
    const RnnCell cell = {state, hidden * batch, int(batch), relu};
    const Chunks chunks = {lengths, steps, batch, chunk, first, reverse};
    const Reduction given = {weight_hh, gradient, maps, offsets, exponents, chunks, hidden, per_step};
    if (hidden <= 20) reduce_in_registers<RnnCell, 20, sizeof(real) == 4 ? 4 : 2>(cell, given, shared);
    else reduce_in_block<RnnCell, 8>(cell, given, shared);
}
