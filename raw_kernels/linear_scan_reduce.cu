// What each chunk of a linear scan makes of the state that comes to it: `product` times it, plus `end`. Where
// `behind`, likewise of the scan's transpose (linear_scan_forward). Steps from lengths[b] on change nothing.

#include "prelude.cuh"
#include "linear_scan.cuh"

template <class Number>
__device__ inline void reduce_chunk(const Factors& a, const real* b, const Resets& resets, real* product, real* end,
                                    const Steps& at, size_type batch, size_type steps, size_type width, bool behind,
                                    real sign)
{
    Number carried = Number::of(0), factor = Number::of(1);
    const size_type origin = at.sample * steps * width + at.element;
    size_type t = at.first, done = 0;
#pragma unroll 1
    for (; done + AHEAD <= at.count; done += AHEAD) {
        Number factors[AHEAD], terms[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) {
            factors[k] = Number::at(a.at(at.sample, t + k * at.stride, at.element)).turned(sign);
            terms[k] = Number::at(b + origin + (t + k * at.stride) * width);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; ++k, t += at.stride) {
            const bool reset = resets.at(at.sample, t);
            step_of(carried, factors[k], terms[k], behind, reset);
            factor = reset ? Number::of(0) : factors[k] * factor;
        }
    }
#pragma unroll 1
    for (; done < at.count; ++done, t += at.stride) {
        const bool reset = resets.at(at.sample, t);
        const Number one = Number::at(a.at(at.sample, t, at.element)).turned(sign);
        step_of(carried, one, Number::at(b + origin + t * width), behind, reset);
        factor = reset ? Number::of(0) : one * factor;
    }
    const size_type place = (at.chunk * batch + at.sample) * width + at.element;
    factor.to(product + place);
    carried.to(end + place);
}

extern "C" __global__ void linear_scan_reduce(
    const real* __restrict__ a,                // (a_samples, a_steps, width): one row may serve all samples, or steps
    const real* __restrict__ b,                // (batch, steps, width)
    const long long* __restrict__ lengths,     // (batch)
    const unsigned char* __restrict__ resets,  // (reset_samples, steps): one row may serve all samples
    real* __restrict__ product,                // (chunks, batch, width) output only
    real* __restrict__ end,                    // (chunks, batch, width) output only
    size_type batch, size_type steps, size_type width, size_type a_samples, size_type a_steps,
    size_type reset_samples, size_type chunk, size_type chunks, int paired, int conjugate, int descending,
    int behind)
{
    const Factors factors(a, a_samples, a_steps, width);
    const Resets marked = {resets, reset_samples, steps};
    const int parts = paired ? 2 : 1;
    const size_type elements = width / parts;
    const real sign = conjugate ? real(-1) : real(1);
    GRID_STRIDE(item, chunks * batch * elements) {
        const Steps at(item, lengths, batch, steps, elements, chunk, parts, descending);
        if (paired)
            reduce_chunk<Pair>(factors, b, marked, product, end, at, batch, steps, width, behind, sign);
        else
            reduce_chunk<Real>(factors, b, marked, product, end, at, batch, steps, width, behind, sign);
    }
}
