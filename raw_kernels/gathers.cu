// Values by index, and the gradient of rows that were read by index.

#include "prelude.cuh"

// ---- gather_fill ----

// Values of a transposed Jacobian that is made of weights alone (convolution, linear): the weight
// each entry of the pattern shows (paper, algorithm 4, with the corner cases already in the map).
extern "C" __global__ void gather_fill(
    const real* __restrict__ source,  // (sources): the flattened weights
    const index_t* __restrict__ map,  // (entries): position in source of each entry
    real* __restrict__ values,        // (entries) output only
    size_type sources, size_type entries)
{
    GRID_STRIDE(entry, entries) values[entry] = source[map[entry]];
}

// ---- embedding_weight_gradient ----

// The gradient by the rows of an embedding: of each, the sum of the gradients at the places that took it, in their
// order. A thread an element.
extern "C" __global__ void embedding_weight_gradient(
    const real* __restrict__ gradient,    // (places, width)
    const long long* __restrict__ order,  // (places): places by the row that they took, those of a row in order
    const long long* __restrict__ first,  // (rows + 1): where those of each row begin in `order`
    real* __restrict__ result,            // (rows, width) output only
    size_type places, size_type rows, size_type width)
{
    GRID_STRIDE(item, rows * width) {
        const size_type row = item / width, k = item % width;
        real sum = real(0);
        for (size_type place = first[row]; place < first[row + 1]; ++place) sum += gradient[order[place] * width + k];
        result[item] = sum;
    }
}
