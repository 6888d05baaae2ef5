// The gradient by a linear cell's states of the one by what it puts out. A thread a unit of a row.

#include "prelude.cuh"
#include "activations.cuh"
#include "cell.cuh"
#include "linear/rows.cuh"

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
