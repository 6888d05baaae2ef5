// Linear recurrences, elementwise: serial walks, and scans by chunks.

#include "prelude.cuh"
#include "linear_scan.cuh"

// ---- linear_scan_forward ----

// Walks through chunks of a linear scan, each from the state before it: h_t = a_t h_{t-1} + b_t, or, where
// `descending`, a_t h_{t+1} + b_t. Where `behind`, a_t multiplies what goes on from step t in place of what comes to
// it, so that the same walk is the scan's own transpose: h_t = c + b_t, and then c = a_t h_t. Steps from lengths[b]
// on are 0, and a is 0 where `resets` says so. Where `guarded` and what is `wanted` is 0, nothing is written.

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

// ---- linear_scan_backward ----

// Back through chunks of a linear scan, each from the gradient that comes to it: g = gradient_t + c is the gradient
// by b_t, g conj(h_{t-1}) that by a_t, and c = conj(a_t) g goes on; h_{t-1} is `initial` at the scan's first step. The
// conjugates are those of `conjugate`. Where a serves all steps, its gradients are summed over each chunk. Gradients
// of steps from lengths[b] on are 0, and those by a where `resets` says so. `descending` is the direction back. Where
// `guarded` and what is `wanted` is 0, nothing is written.

struct Back {
    const real *h, *initial, *gradient, *start;
    real *by_b, *by_a, *by_initial;
    size_type batch, steps, width, chunks;
    bool each;
    real sign;
};

// The state before a step.
template <class Number>
__device__ __forceinline__ Number former_of(const Back& back, const Steps& at, size_type step)
{
    const size_type sample = at.sample * back.width + at.element;
    return Number::at(step == at.last ? back.initial + sample
                                      : back.h + sample + (at.sample * (back.steps - 1) + step + at.stride) * back.width)
        .turned(back.sign);
}

template <class Number>
__device__ __forceinline__ void step_back(const Back& back, const Steps& at, const Resets& resets, size_type step,
                                          Number a, Number gradient, Number former, Number& carried, Number& sum)
{
    const size_type place = (at.sample * back.steps + step) * back.width + at.element;
    const bool reset = resets.at(at.sample, step);
    const Number g = step_of(carried, a, gradient, true, reset);
    const Number by_a = reset ? Number::of(0) : g * former;
    g.to(back.by_b + place);
    if (back.each) by_a.to(back.by_a + place);
    sum = sum + by_a;
}

template <class Number>
__device__ inline void walk_back(const Factors& a, const Resets& resets, const Back& back, const Steps& at)
{
    const size_type sample = at.sample * back.width + at.element;
    const real* const gradient = back.gradient + at.sample * back.steps * back.width + at.element;
    Number carried = Number::at(back.start + at.chunk * back.batch * back.width + sample), sum = Number::of(0);
    size_type t = at.first, done = 0;
#pragma unroll 1
    for (; done + AHEAD <= at.count; done += AHEAD) {
        Number factors[AHEAD], terms[AHEAD], former[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) {
            const size_type step = t + k * at.stride;
            factors[k] = Number::at(a.at(at.sample, step, at.element)).turned(back.sign);
            terms[k] = Number::at(gradient + step * back.width);
            former[k] = former_of<Number>(back, at, step);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; ++k, t += at.stride)
            step_back(back, at, resets, t, factors[k], terms[k], former[k], carried, sum);
    }
#pragma unroll 1
    for (; done < at.count; ++done, t += at.stride) {
        const Number factor = Number::at(a.at(at.sample, t, at.element)).turned(back.sign);
        const Number term = Number::at(gradient + t * back.width);
        step_back(back, at, resets, t, factor, term, former_of<Number>(back, at, t), carried, sum);
    }
#pragma unroll 1
    for (t = at.live; t < at.end; ++t) {
        const size_type place = (at.sample * back.steps + t) * back.width + at.element;
        Number::of(0).to(back.by_b + place);
        if (back.each) Number::of(0).to(back.by_a + place);
    }
    if (!back.each) sum.to(back.by_a + (at.sample * back.chunks + at.chunk) * back.width + at.element);
    if (at.has_last) carried.to(back.by_initial + sample);
}

extern "C" __global__ void linear_scan_backward(
    const real* __restrict__ a,                // (a_samples, a_steps, width): one row may serve all samples, or steps
    const real* __restrict__ h,                // (batch, steps, width): of linear_scan_forward
    const real* __restrict__ initial,          // (batch, width): before the scan's first step
    const real* __restrict__ gradient,         // (batch, steps, width): by h
    const real* __restrict__ start,            // (chunks, batch, width): what comes to each chunk
    const long long* __restrict__ lengths,     // (batch)
    const unsigned char* __restrict__ resets,  // (reset_samples, steps): one row may serve all samples
    const int* __restrict__ wanted,            // (1) if guarded else (0)
    real* __restrict__ by_b,                   // (batch, steps, width) output only
    real* __restrict__ by_a,                   // (batch, steps, width) if each else (batch, chunks, width) output only
    real* __restrict__ by_initial,             // (batch, width) output only
    size_type batch, size_type steps, size_type width, size_type a_samples, size_type a_steps,
    size_type reset_samples, size_type chunk, size_type chunks, int paired, int conjugate, int descending,
    int each, int guarded)
{
    if (guarded && !*wanted) return;
    const Factors factors(a, a_samples, a_steps, width);
    const Resets marked = {resets, reset_samples, steps};
    const int parts = paired ? 2 : 1;
    const size_type elements = width / parts;
    const Back back = {h, initial, gradient, start, by_b, by_a, by_initial, batch, steps, width, chunks,
                       each != 0, conjugate ? real(-1) : real(1)};
    GRID_STRIDE(item, chunks * batch * elements) {
        const Steps at(item, lengths, batch, steps, elements, chunk, parts, descending);
        if (paired)
            walk_back<Pair>(factors, marked, back, at);
        else
            walk_back<Real>(factors, marked, back, at);
    }
}

// ---- linear_scan_reduce ----

// What each chunk of a linear scan makes of the state that comes to it: `product` times it, plus `end`. Where
// `behind`, likewise of the scan's transpose (linear_scan_forward). Steps from lengths[b] on change nothing.

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

// ---- linear_scan_carry ----

// The states that come to chunks of a linear scan, from what linear_scan_reduce made of each chunk: of the first one
// `first`, of each later one what the chunk before it makes of its own. Where `descending`, the last chunk is first.

template <class Number>
__device__ inline void carry_element(const real* product, const real* end, const real* first, real* start,
                                     size_type element, size_type chunks, size_type plane, bool descending)
{
    Number carried = Number::at(first + element);
#pragma unroll 4
    for (size_type k = 0; k < chunks; ++k) {
        const size_type place = (descending ? chunks - 1 - k : k) * plane + element;
        carried.to(start + place);
        carried = Number::at(product + place) * carried + Number::at(end + place);
    }
}

extern "C" __global__ void linear_scan_carry(
    const real* __restrict__ product,  // (chunks, plane)
    const real* __restrict__ end,      // (chunks, plane)
    const real* __restrict__ first,    // (plane)
    real* __restrict__ start,          // (chunks, plane) output only
    size_type chunks, size_type plane, int paired, int descending)
{
    const int parts = paired ? 2 : 1;
    GRID_STRIDE(item, plane / parts) {
        if (paired)
            carry_element<Pair>(product, end, first, start, 2 * item, chunks, plane, descending);
        else
            carry_element<Real>(product, end, first, start, item, chunks, plane, descending);
    }
}
