// The product of the transposed Jacobians of each chunk of a tanh or ReLU recurrent layer, and what the
// chunk makes of its own steps' gradients: J_sᵀ = W_hhᵀ diag(f'(h_s)). How, and in what: reduce.cuh.

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
    const real* __restrict__ state,         // (steps, hidden, batch): of rnn_forward
    const real* __restrict__ weight_hh,     // (hidden, hidden)
    const real* __restrict__ gradient,      // (steps, hidden, batch) if per_step else (0): by each step's
                                            // output
    const long long* __restrict__ lengths,  // (batch)
    real* __restrict__ maps,                // ((steps + chunk - 1) // chunk - first, batch, hidden, hidden)
                                            // output only, by columns: what a unit gradient by element j
                                            // behind the chunk becomes before it, without its power of two
    int* __restrict__ exponents,            // ((steps + chunk - 1) // chunk - first, batch, hidden) output
                                            // only, by column
    real* __restrict__ offsets,             // ((steps + chunk - 1) // chunk - first, hidden, batch) if
                                            // per_step else (0) output only
    size_type steps, size_type hidden, size_type batch, size_type chunk, size_type first, int per_step,
    int relu, int reverse)
{
    extern __shared__ __align__(16) real shared[];
    const RnnCell cell = {state, hidden * batch, int(batch), relu};
    const Chunks chunks = {lengths, steps, batch, chunk, first, reverse};
    const Reduction given = {weight_hh, gradient, maps, offsets, exponents, chunks, hidden, per_step};
    if (hidden <= 20) reduce_in_registers<RnnCell, 20, sizeof(real) == 4 ? 4 : 2>(cell, given, shared);
    else reduce_in_block<RnnCell, 8>(cell, given, shared);
}
