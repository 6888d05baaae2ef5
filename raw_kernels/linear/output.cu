// What a linear cell puts out, of its projected input and its states. A thread a unit of a row.

#include "prelude.cuh"
#include "activations.cuh"
#include "cell.cuh"
#include "linear/rows.cuh"

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
