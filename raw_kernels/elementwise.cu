// Elementwise operators: activations with their slopes, dropout, and the diagonals of their Jacobians.

#include "prelude.cuh"

// ---- relu_forward ----

#include "packs.cuh"

// ReLU: max(x, 0), and NaN for NaN.
extern "C" __global__ void relu_forward(
    const real* __restrict__ input,  // (size)
    real* __restrict__ output,       // (size) output only
    size_type size)
{
    const size_type packs = in_packs(input) && in_packs(output) ? size / PACK : 0;
#pragma unroll 1
    GRID_STRIDE(i, packs) {
        Pack pack = reinterpret_cast<const Pack*>(input)[i];
#pragma unroll
        for (int k = 0; k < PACK; ++k) pack.values[k] = pack.values[k] <= real(0) ? real(0) : pack.values[k];
        reinterpret_cast<Pack*>(output)[i] = pack;
    }
#pragma unroll 1
    GRID_STRIDE(rest, size - packs * PACK) {
        const size_type i = packs * PACK + rest;
        output[i] = input[i] <= real(0) ? real(0) : input[i];
    }
}

// ---- relu_vjp ----

#include "packs.cuh"

// The gradient of ReLU by its input: the gradient by the output where that is not zero, else 0.
extern "C" __global__ void relu_vjp(
    const real* __restrict__ output,    // (size): ReLU's output
    const real* __restrict__ gradient,  // (size)
    real* __restrict__ input_gradient,  // (size) output only
    size_type size)
{
    const bool aligned = in_packs(output) && in_packs(gradient) && in_packs(input_gradient);
    const size_type packs = aligned ? size / PACK : 0;
#pragma unroll 1
    GRID_STRIDE(i, packs) {
        const Pack outputs = reinterpret_cast<const Pack*>(output)[i];
        Pack pack = reinterpret_cast<const Pack*>(gradient)[i];
#pragma unroll
        for (int k = 0; k < PACK; ++k)
            if (outputs.values[k] <= real(0)) pack.values[k] = real(0);
        reinterpret_cast<Pack*>(input_gradient)[i] = pack;
    }
#pragma unroll 1
    GRID_STRIDE(rest, size - packs * PACK) {
        const size_type i = packs * PACK + rest;
        input_gradient[i] = output[i] <= real(0) ? real(0) : gradient[i];
    }
}

// ---- relu_fill ----

// Values of ReLU's transposed Jacobian, a whole diagonal (paper, algorithm 7): 0 where the output is 0, else 1.
// Transposes from the layers' layout to batch innermost.
extern "C" __global__ void relu_fill(
    const real* __restrict__ output,  // (batch, features): the layer's output
    real* __restrict__ values,        // (features, batch) output only
    size_type features, size_type batch)
{
    GRID_STRIDE(item, features * batch) {
        const real y = output[item % batch * features + item / batch];
        values[item] = y <= real(0) ? real(0) : real(1);
    }
}

// ---- slope_fill ----

// Values of an activation's transposed Jacobian, a whole diagonal: the slopes that its forward pass kept.
// Transposes from the layers' layout to batch innermost.
extern "C" __global__ void slope_fill(
    const real* __restrict__ slope,  // (batch, features)
    real* __restrict__ values,       // (features, batch) output only
    size_type features, size_type batch)
{
    GRID_STRIDE(item, features * batch) values[item] = slope[item % batch * features + item / batch];
}

// ---- tanh_forward ----

#include "activations.cuh"

// tanh, and its slope at every element: (1 - y) (1 + y) of the output y.
extern "C" __global__ void tanh_forward(
    const real* __restrict__ input,  // (size)
    real* __restrict__ output,       // (size) output only
    real* __restrict__ slope,        // (size) output only
    size_type size)
{
    GRID_STRIDE(i, size) {
        const real y = tanh_of(input[i]);
        output[i] = y;
        slope[i] = (real(1) - y) * (real(1) + y);
    }
}

// ---- sigmoid_forward ----

#include "activations.cuh"

// The logistic function s, and its slope at every element: s (1 - s). 1 - s is s of -x, which does not cancel.
extern "C" __global__ void sigmoid_forward(
    const real* __restrict__ input,  // (size)
    real* __restrict__ output,       // (size) output only
    real* __restrict__ slope,        // (size) output only
    size_type size)
{
    GRID_STRIDE(i, size) {
        const real x = input[i], s = sigmoid_of(x);
        output[i] = s;
        slope[i] = s * sigmoid_of(-x);
    }
}

// ---- silu_forward ----

#include "activations.cuh"

// SiLU (Elfwing et al. 2018), x s of the logistic function s of x, and its slope at every element:
// s (1 + x (1 - s)). 1 - s is s of -x, which does not cancel.
extern "C" __global__ void silu_forward(
    const real* __restrict__ input,  // (size)
    real* __restrict__ output,       // (size) output only
    real* __restrict__ slope,        // (size) output only
    size_type size)
{
    GRID_STRIDE(i, size) {
        const real x = input[i], s = sigmoid_of(x);
        output[i] = x * s;
        slope[i] = s + x * s * sigmoid_of(-x);
    }
}

// ---- gelu_forward ----

#include "activations.cuh"

// GELU (Hendrycks and Gimpel 2016), x F(x), and its slope F(x) + x F'(x) at every element. F is the normal
// distribution's, erfc(-x / sqrt 2) / 2, which does not cancel below 0; or with `tanh_form` its approximation
// (1 + tanh u) / 2, the logistic function of 2 u = 2 sqrt(2 / pi) (x + 0.044715 x^3).
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

// ---- elu_forward ----

// ELU (Clevert et al. 2016), and its slope at every element: x > 0 ? x : alpha (e^x - 1).
extern "C" __global__ void elu_forward(
    const real* __restrict__ input,  // (size)
    real* __restrict__ output,       // (size) output only
    real* __restrict__ slope,        // (size) output only
    size_type size, real alpha)
{
    GRID_STRIDE(i, size) {
        const real x = input[i];
        output[i] = x > real(0) ? x : alpha * expm1(x);
        slope[i] = x > real(0) ? real(1) : alpha * exp(x);
    }
}

// ---- leaky_relu_forward ----

// Leaky ReLU (Maas et al. 2013), and its slope at every element: x > 0 ? x : negative_slope x.
extern "C" __global__ void leaky_relu_forward(
    const real* __restrict__ input,  // (size)
    real* __restrict__ output,       // (size) output only
    real* __restrict__ slope,        // (size) output only
    size_type size, real negative_slope)
{
    GRID_STRIDE(i, size) {
        const real x = input[i];
        const real rises = x > real(0) ? real(1) : negative_slope;
        output[i] = rises * x;
        slope[i] = rises;
    }
}

// ---- softplus_forward ----

#include "activations.cuh"

// Softplus, log(1 + e^z) / beta of z = beta x, and x where z is above the threshold; and its slope at every
// element: the logistic function of z, and 1 there. max(z, 0) + log(1 + e^-|z|) neither overflows nor cancels.
extern "C" __global__ void softplus_forward(
    const real* __restrict__ input,  // (size)
    real* __restrict__ output,       // (size) output only
    real* __restrict__ slope,        // (size) output only
    size_type size, real beta, real threshold)
{
    GRID_STRIDE(i, size) {
        const real x = input[i], z = beta * x;
        const real rest = log1p(exp_of(z < real(0) ? z : -z));
        output[i] = z > threshold ? x : (z < real(0) ? rest : z + rest) / beta;
        slope[i] = z > threshold ? real(1) : sigmoid_of(z);
    }
}

// ---- dropout_forward ----

#include "philox.cuh"

// Dropout: the output, and which elements were kept. Four elements share one draw of random numbers; an
// element is kept where its number, 32 bits, is not below `threshold`. Numbers go by elements of a whole batch, of
// which these may be a part.
extern "C" __global__ void dropout_forward(
    const real* __restrict__ input,      // (size)
    real* __restrict__ output,           // (size) output only, scale times the input where it is kept, else 0
    unsigned char* __restrict__ mask,    // (size) output only, 1 or 0
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
            mask[item] = keep;
            output[item] = keep ? scale * input[item] : real(0);
        }
    }
}

// ---- dropout_fill ----

// Values of dropout's transposed Jacobian, a whole diagonal: `scale` where the element was kept, else 0.
// Transposes from the layers' layout to batch innermost.
extern "C" __global__ void dropout_fill(
    const unsigned char* __restrict__ mask,  // (batch, features): 1 or 0
    real* __restrict__ values,               // (features, batch) output only
    size_type features, size_type batch, real scale)
{
    GRID_STRIDE(item, features * batch) {
        values[item] = mask[item % batch * features + item / batch] ? scale : real(0);
    }
}
