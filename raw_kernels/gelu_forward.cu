// GELU (Hendrycks and Gimpel 2016), x F(x), and its slope F(x) + x F'(x) at every element. F is the normal
// distribution's, erfc(-x / sqrt 2) / 2, which does not cancel below 0; or with `tanh_form` its approximation
// (1 + tanh u) / 2, the logistic function of 2 u = 2 sqrt(2 / pi) (x + 0.044715 x^3).

#include "prelude.cuh"
#include "activations.cuh"

extern "C" __global__ void gelu_forward(
    const real* __restrict__ input,  // (size)
    real* __restrict__ output,       // (size) output only
    real* __restrict__ slope,        // (size) output only
    size_type size, int tanh_form)
{
    GRID_STRIDE(i, size) {
        const real x = input[i];
        real share, density;
        if (tanh_form) {
            // F is 0 or 1 from 40 on, where a cube could overflow.
            const real c = x > real(40) ? real(40) : x < real(-40) ? real(-40) : x, square = c * c;
            const real twice = real(1.5957691216057308) * c * (real(1) + real(0.044715) * square);
            share = sigmoid_of(twice);
            density = real(1.5957691216057308) * (real(1) + real(0.134145) * square) * share * sigmoid_of(-twice);
        } else {
            share = real(0.5) * erfc(real(-0.70710678118654752) * x);
            density = real(0.39894228040143268) * exp_of(real(-0.5) * x * x);
        }
        output[i] = x * share;
        slope[i] = share + x * density;
    }
}
