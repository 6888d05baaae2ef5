// Walks through chunks of a linear scan, each from the state before it: h_t = a_t h_{t-1} + b_t, or, where
// `descending`, a_t h_{t+1} + b_t. Where `behind`, a_t multiplies what goes on from step t in place of what comes to
// it, so that the same walk is the scan's own transpose: h_t = c + b_t, and then c = a_t h_t. Steps from lengths[b]
// on are 0, and a is 0 where `resets` says so. Where `guarded` and what is `wanted` is 0, nothing is written.

#include "prelude.cuh"
#include "linear_scan.cuh"

template <class Number>
__device__ inline void walk_chunk(const Factors& a, const real* b, const real* start, const Resets& resets,
                                  real* h, const Steps& at, size_type batch, size_type steps, size_type width,
                                  bool behind, real sign)
{
    Number carried = Number::at(start + (at.chunk * batch + at.sample) * width + at.element);
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
        for (int k = 0; k < AHEAD; ++k, t += at.stride)
            step_of(carried, factors[k], terms[k], behind, resets.at(at.sample, t)).to(h + origin + t * width);
    }
#pragma unroll 1
    for (; done < at.count; ++done, t += at.stride) {
        const Number factor = Number::at(a.at(at.sample, t, at.element)).turned(sign);
        const Number term = Number::at(b + origin + t * width);
        step_of(carried, factor, term, behind, resets.at(at.sample, t)).to(h + origin + t * width);
    }
#pragma unroll 1
    for (t = at.live; t < at.end; ++t) Number::of(0).to(h + origin + t * width);
}

extern "C" __global__ void linear_scan_forward(
    const real* __restrict__ a,                // (a_samples, a_steps, width): one row may serve all samples, or steps
    const real* __restrict__ b,                // (batch, steps, width)
    const real* __restrict__ start,            // (chunks, batch, width): what comes to each chunk
    const long long* __restrict__ lengths,     // (batch)
    const unsigned char* __restrict__ resets,  // (reset_samples, steps): one row may serve all samples
    const int* __restrict__ wanted,            // (1) if guarded else (0)
    real* __restrict__ h,                      // (batch, steps, width) output only
    size_type batch, size_type steps, size_type width, size_type a_samples, size_type a_steps,
    size_type reset_samples, size_type chunk, size_type chunks, int paired, int conjugate, int descending,
    int behind, int guarded)
{
    if (guarded && !*wanted) return;
    const Factors factors(a, a_samples, a_steps, width);
    const Resets marked = {resets, reset_samples, steps};
    const int parts = paired ? 2 : 1;
    const size_type elements = width / parts;
    const real sign = conjugate ? real(-1) : real(1);
    GRID_STRIDE(item, chunks * batch * elements) {
        const Steps at(item, lengths, batch, steps, elements, chunk, parts, descending);
        if (paired)
            walk_chunk<Pair>(factors, b, start, marked, h, at, batch, steps, width, behind, sign);
        else
            walk_chunk<Real>(factors, b, start, marked, h, at, batch, steps, width, behind, sign);
    }
}
