// Factors and terms of a linear cell's scan, c_t = a_t c_{t-1} + b_t, of its projected input. A thread a unit of a
// row.

#include "prelude.cuh"
#include "activations.cuh"
#include "cell.cuh"
#include "linear/rows.cuh"

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
