// Dropout: the output, and which elements were kept. Four elements share one draw of random numbers; an
// element is kept where its number, 32 bits, is not below `threshold`.

#include "prelude.cuh"
#include "philox.cuh"

extern "C" __global__ void dropout_forward(
    const real* __restrict__ input,    // (size)
    real* __restrict__ output,         // (size) output only, scale times the input where it is kept, else 0
    unsigned char* __restrict__ kept,  // (size) output only, 1 or 0
    size_type size, size_type key, size_type layer, size_type draw, size_type threshold, real scale)
{
    GRID_STRIDE(group, (size + 3) / 4) {
        unsigned int numbers[4];
        philox(numbers, group, (unsigned int)layer, (unsigned int)draw, key);
        for (int k = 0; k < 4 && 4 * group + k < size; k++) {
            const bool keep = (size_type)numbers[k] >= threshold;
            kept[4 * group + k] = keep;
            output[4 * group + k] = keep ? scale * input[4 * group + k] : real(0);
        }
    }
}
