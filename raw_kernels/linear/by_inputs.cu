// The gradients by a linear cell's projected input and its unit parameters, of those by its scan's factors and terms
// and, where it has an output of its own, by that. A thread a unit of a row.

#include "prelude.cuh"
#include "activations.cuh"
#include "cell.cuh"
#include "linear/rows.cuh"

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
