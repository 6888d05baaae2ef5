// Frames of a linear cell's kernels. A thread takes a unit of a row.

#include "prelude.cuh"
#include "activations.cuh"
#include "cell.cuh"

// A unit's numbers of a row lie `hidden` apart.

const int G = Cell::gates, Q = Cell::parameters, Q_EXTENT = Q ? Q : 1;

template <int COUNT>
__device__ __forceinline__ void load_unit_of(const real* row, size_type hidden, real* numbers)
{
#pragma unroll
    for (int i = 0; i < COUNT; ++i) numbers[i] = row[i * hidden];
}

template <int COUNT>
__device__ __forceinline__ void store_unit_of(const real* numbers, size_type hidden, real* row)
{
#pragma unroll
    for (int i = 0; i < COUNT; ++i) row[i * hidden] = numbers[i];
}

// ---- CELL_terms ----

// Factors and terms of a linear cell's scan, c_t = a_t c_{t-1} + b_t, of its projected input.
extern "C" __global__ void CELL_terms(
    const real* __restrict__ projected,  // (rows, GATES * hidden)
    const real* __restrict__ unit,       // (PARAMETERS * hidden)
    real* __restrict__ a,                // (rows, hidden) output only
    real* __restrict__ b,                // (rows, hidden) output only
    size_type rows, size_type hidden)
{
    GRID_STRIDE(item, rows * hidden) {
        const size_type k = item % hidden;
        real x[G], p[Q_EXTENT];
        load_unit_of<G>(projected + item / hidden * G * hidden + k, hidden, x);
        load_unit_of<Q>(unit + k, hidden, p);
        Cell::terms(x, p, a + item, b + item);
    }
}

// ---- CELL_output ----

// What a linear cell puts out, of its projected input and its states.
extern "C" __global__ void CELL_output(
    const real* __restrict__ projected,  // (rows, GATES * hidden)
    const real* __restrict__ unit,       // (PARAMETERS * hidden)
    const real* __restrict__ state,      // (rows, hidden)
    real* __restrict__ y,                // (rows, hidden) output only
    size_type rows, size_type hidden)
{
    GRID_STRIDE(item, rows * hidden) {
        const size_type k = item % hidden;
        real x[G], p[Q_EXTENT];
        load_unit_of<G>(projected + item / hidden * G * hidden + k, hidden, x);
        load_unit_of<Q>(unit + k, hidden, p);
        Cell::output(x, state + item, p, y + item);
    }
}

// ---- CELL_by_state ----

// The gradient by a linear cell's states of the one by what it puts out.
extern "C" __global__ void CELL_by_state(
    const real* __restrict__ projected,  // (rows, GATES * hidden)
    const real* __restrict__ unit,       // (PARAMETERS * hidden)
    const real* __restrict__ state,      // (rows, hidden)
    const real* __restrict__ gradient,   // (rows, hidden): by y
    real* __restrict__ by,               // (rows, hidden) output only
    size_type rows, size_type hidden)
{
    GRID_STRIDE(item, rows * hidden) {
        const size_type k = item % hidden;
        real x[G], p[Q_EXTENT];
        load_unit_of<G>(projected + item / hidden * G * hidden + k, hidden, x);
        load_unit_of<Q>(unit + k, hidden, p);
        Cell::by_state(gradient + item, x, state + item, p, by + item);
    }
}

// ---- CELL_by_inputs ----

// The gradients by a linear cell's projected input and its unit parameters, of those by its scan's factors and terms
// and, where it has an output of its own, by that.
extern "C" __global__ void CELL_by_inputs(
    const real* __restrict__ projected,  // (rows, GATES * hidden)
    const real* __restrict__ unit,       // (PARAMETERS * hidden)
    const real* __restrict__ state,      // (OUTPUT * rows, hidden)
    const real* __restrict__ by_a,       // (rows, hidden)
    const real* __restrict__ by_b,       // (rows, hidden)
    const real* __restrict__ by_y,       // (OUTPUT * rows, hidden)
    real* __restrict__ by,               // (rows, (GATES + PARAMETERS) * hidden) output only
    size_type rows, size_type hidden)
{
    GRID_STRIDE(item, rows * hidden) {
        const size_type k = item % hidden, row = item / hidden;
        real x[G], p[Q_EXTENT], by_x[G], by_p[Q_EXTENT];
        load_unit_of<G>(projected + row * G * hidden + k, hidden, x);
        load_unit_of<Q>(unit + k, hidden, p);
        const real g[] = {by_a[item], by_b[item], OUTPUT ? by_y[item] : real(0)};
        Cell::by_inputs(g, x, state + (OUTPUT ? item : 0), p, by_x, by_p);
        real* const own = by + row * (G + Q) * hidden + k;
        store_unit_of<G>(by_x, hidden, own);
        store_unit_of<Q>(by_p, hidden, own + G * hidden);
    }
}
