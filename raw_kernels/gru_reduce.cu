// The product of the transposed Jacobians of each chunk of a gated recurrent layer (the paper's appendix
// E), and what the chunk makes of its own steps' gradients: J_sᵀ = diag(z) + the sum over the gates of
// W_gᵀ diag(c_g). How, and in what: reduce.cuh.

#include "prelude.cuh"
#include "reduce.cuh"
#include "reduce_block.cuh"

struct GruCell {
    static const int gates = 3, parts = 1, coefficients = 4, carried = 0;
    const real *gate, *state, *initial;
    size_type plane;
    int batch;

    // One step of one sample. a: by the pre-activations of r and z, by m, and z.
    struct Step {
        const real *gate, *before;
        int plane, batch;

        __device__ __forceinline__ Step(const GruCell& cell, const Chunks& chunks, size_type s, size_type b)
            : gate(cell.gate + 4 * chunks.time(s) * cell.plane + b),
              before((s ? cell.state + chunks.time(s - 1) * cell.plane : cell.initial) + b),
              plane(int(cell.plane)), batch(cell.batch)
        {
        }

        __device__ __forceinline__ void load(int k, real* a) const
        {
            const int place = k * batch;
            const real r = gate[place], z = gate[place + plane], n = gate[place + 2 * plane];
            const real m = gate[place + 3 * plane], by_n = (real(1) - z) * (real(1) - n * n);
            a[0] = by_n * m * r * (real(1) - r);
            a[1] = (before[place] - n) * z * (real(1) - z);
            a[2] = by_n * r;
            a[3] = z;
        }
    };

    __device__ __forceinline__ static void enter(const real*, real*) {}

    __device__ __forceinline__ static void entry(const real* a, const real* w, real* p)
    {
        p[0] = w[0] * a[0] + w[1] * a[1] + w[2] * a[2];
    }

    __device__ __forceinline__ static real carry(const real* a, const real* x) { return a[3] * x[0]; }
};

extern "C" __global__ void __launch_bounds__(256) gru_reduce(
    const real* __restrict__ gates,         // (steps, 4 * hidden, batch): of gru_forward: r, z, n and m =
                                            // W_hn h + b_hn
    const real* __restrict__ state,         // (steps, hidden, batch): of gru_forward
    const real* __restrict__ initial,       // (hidden, batch): the state before step 0
    const real* __restrict__ weight_hh,     // (3 * hidden, hidden)
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
    int reverse)
{
    extern __shared__ __align__(16) real shared[];
    const GruCell cell = {gates, state, initial, hidden * batch, int(batch)};
    const Chunks chunks = {lengths, steps, batch, chunk, first, reverse};
    const Reduction given = {weight_hh, gradient, maps, offsets, exponents, chunks, hidden, per_step};
    if (hidden <= 20) reduce_in_registers<GruCell, 20, sizeof(real) == 4 ? 4 : 2>(cell, given, shared);
    else reduce_in_block<GruCell, 8>(cell, given, shared);
}
