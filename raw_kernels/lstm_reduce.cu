// The product of the transposed Jacobians of each chunk of an LSTM layer over (h, c), and what the chunk
// makes of its own steps' gradients. With dc' = dc + o (1 - tanh² c) dh: dh before the step is
// W_oᵀ diag(c_o) dh plus the sum over i, f and g of W_gᵀ diag(c_g) dc', dc before it is f dc'. How, and in
// what: reduce.cuh.

#include "prelude.cuh"
#include "activations.cuh"
#include "reduce.cuh"
#include "reduce_block.cuh"

// Columns a thread holds: as many as the compiler keeps in registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
const int COLUMNS = 1;
#else
const int COLUMNS = sizeof(real) == 4 ? 2 : 1;
#endif

struct LstmCell {
    static const int gates = 4, parts = 2, coefficients = 6, carried = 1;
    const real *gate, *state, *initial;
    size_type plane;
    int batch;

    // One step of one sample. a: dc' by dh; by the pre-activations of i, f, g and o; f.
    struct Step {
        const real *gate, *now, *before;
        int plane, batch;

        __device__ __forceinline__ Step(const LstmCell& cell, const Chunks& chunks, size_type s, size_type b)
            : gate(cell.gate + 4 * chunks.time(s) * cell.plane + b),
              now(cell.state + (2 * chunks.time(s) + 1) * cell.plane + b),
              before((s ? cell.state + 2 * chunks.time(s - 1) * cell.plane : cell.initial) + cell.plane + b),
              plane(int(cell.plane)), batch(cell.batch)
        {
        }

        __device__ __forceinline__ void load(int k, real* a) const
        {
            const int place = k * batch;
            const real i = gate[place], f = gate[place + plane], g = gate[place + 2 * plane];
            const real o = gate[place + 3 * plane], c = tanh_of(now[place]);
            a[0] = o * (real(1) - c * c);
            a[1] = g * i * (real(1) - i);
            a[2] = before[place] * f * (real(1) - f);
            a[3] = i * (real(1) - g * g);
            a[4] = c * o * (real(1) - o);
            a[5] = f;
        }
    };

    __device__ __forceinline__ static void enter(const real* a, real* x) { x[1] += a[0] * x[0]; }

    __device__ __forceinline__ static void entry(const real* a, const real* w, real* p)
    {
        p[0] = w[3] * a[4];
        p[1] = w[0] * a[1] + w[1] * a[2] + w[2] * a[3];
    }

    __device__ __forceinline__ static real carry(const real* a, const real* x) { return a[5] * x[1]; }
};

extern "C" __global__ void __launch_bounds__(256, 1) lstm_reduce(
    const real* __restrict__ gates,         // (steps, 4 * hidden, batch): of lstm_forward: i, f, g, o
    const real* __restrict__ state,         // (steps, 2 * hidden, batch): of lstm_forward: h, c
    const real* __restrict__ initial,       // (2 * hidden, batch): the state before step 0
    const real* __restrict__ weight_hh,     // (4 * hidden, hidden)
    const real* __restrict__ gradient,      // (steps, hidden, batch) if per_step else (0): by each step's
                                            // output
    const long long* __restrict__ lengths,  // (batch)
    real* __restrict__ maps,                // ((steps + chunk - 1) // chunk - first, batch, 2 * hidden, 2 *
                                            // hidden) output only, by columns: what a unit gradient by
                                            // element j behind the chunk becomes before it, without its
                                            // power of two
    int* __restrict__ exponents,            // ((steps + chunk - 1) // chunk - first, batch, 2 * hidden)
                                            // output only, by column
    real* __restrict__ offsets,             // ((steps + chunk - 1) // chunk - first, 2 * hidden, batch) if
                                            // per_step else (0) output only
    size_type steps, size_type hidden, size_type batch, size_type chunk, size_type first, int per_step,
    int reverse)
{
    extern __shared__ __align__(16) real shared[];
    const LstmCell cell = {gates, state, initial, hidden * batch, int(batch)};
    const Chunks chunks = {lengths, steps, batch, chunk, first, reverse};
    const Reduction given = {weight_hh, gradient, maps, offsets, exponents, chunks, hidden, per_step};
    if (hidden <= 20) reduce_in_registers<LstmCell, 20, COLUMNS>(cell, given, shared);
    else reduce_in_block<LstmCell, 4>(cell, given, shared);
}
