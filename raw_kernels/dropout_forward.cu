// Dropout: the output, and which elements were kept. Four elements share one draw of random numbers; an
// element is kept where its number, 32 bits, is not below `threshold`. Numbers go by elements of a whole batch, of
// which these may be a part.

#include "prelude.cuh"
#include "philox.cuh"

extern "C" __global__ void dropout_forward(
    const real* __restrict__ input,      // (size)
    real* __restrict__ output,           // (size) output only, scale times the input where it is kept, else 0
    unsigned char* __restrict__ kept,    // (size) output only, 1 or 0
    const long long* __restrict__ draw,  // (1): the number of the training pass
    size_type size,
    size_type first,  // the number of the first of these elements in the whole batch
    size_type key, size_type layer, size_type threshold, real scale)
{
    const size_type before = first % 4;
    GRID_STRIDE(group, (before + size + 3) / 4) {
        unsigned int numbers[4];
        philox(numbers, first / 4 + group, (unsigned int)layer, (unsigned int)*draw, key);
        for (int k = 0; k < 4; k++) {
            const size_type item = 4 * group + k - before;
            if (item < 0 || item >= size) continue;
            const bool keep = (size_type)numbers[k] >= threshold;
            kept[item] = keep;
            output[item] = keep ? scale * input[item] : real(0);
        }
    }
}
