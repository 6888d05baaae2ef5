// What the kernels of linear scans share. A walk is that of one element (a real, or where `paired` a complex number,
// which lies as two reals) of one sample through one chunk of steps, a thread each, elements side by side.

struct Real {
    static const int PARTS = 1;
    real re;

    static __device__ __forceinline__ Real at(const real* place) { return {place[0]}; }
    static __device__ __forceinline__ Real of(real value) { return {value}; }
    __device__ __forceinline__ void to(real* place) const { place[0] = re; }
    __device__ __forceinline__ Real turned(real) const { return *this; }
    __device__ __forceinline__ Real operator*(Real x) const { return {re * x.re}; }
    __device__ __forceinline__ Real operator+(Real x) const { return {re + x.re}; }
};

struct Pair {
    static const int PARTS = 2;
    real re, im;

    static __device__ __forceinline__ Pair at(const real* place) { return {place[0], place[1]}; }
    static __device__ __forceinline__ Pair of(real value) { return {value, real(0)}; }
    __device__ __forceinline__ void to(real* place) const { place[0] = re, place[1] = im; }
    // Its conjugate where the sign is -1, itself where it is 1.
    __device__ __forceinline__ Pair turned(real sign) const { return {re, sign * im}; }
    __device__ __forceinline__ Pair operator*(Pair x) const
    {
        return {re * x.re - im * x.im, re * x.im + im * x.re};
    }
    __device__ __forceinline__ Pair operator+(Pair x) const { return {re + x.re, im + x.im}; }
};

// Arrays (samples or 1, steps or 1, width), of which one row may serve all samples, or all steps.
struct Factors {
    const real* values;
    size_type sample_apart, step_apart;

    __device__ __forceinline__ Factors(const real* values, size_type samples, size_type steps, size_type width)
        : values(values), sample_apart(samples > 1 ? steps * width : 0), step_apart(steps > 1 ? width : 0)
    {
    }

    __device__ __forceinline__ const real* at(size_type sample, size_type step, size_type element) const
    {
        return values + sample * sample_apart + step * step_apart + element;
    }
};

// The steps at which a factor is 0.
struct Resets {
    const unsigned char* flags;
    size_type samples, steps;

    __device__ __forceinline__ bool at(size_type sample, size_type step) const
    {
        return samples && flags[(samples > 1 ? sample * steps : 0) + step];
    }
};

// Where one walk goes: `count` steps from `first` on that lie before the sample's end, one by one in the direction
// `stride`, and those of the chunk behind that end, from `live` to `end`. All walks of a sample end at step `last`,
// which is in this one where `has_last`.
struct Steps {
    size_type chunk, sample, element, live, end, first, count, last;
    int stride;
    bool has_last;

    __device__ __forceinline__ Steps(size_type item, const long long* lengths, size_type batch, size_type steps,
                                     size_type elements, size_type length, int parts, bool descending)
    {
        chunk = item / (batch * elements);
        sample = item / elements % batch;
        element = item % elements * parts;
        const size_type begin = chunk * length, stop = lengths[sample];
        end = min(begin + length, steps);
        live = max(begin, min(end, stop));
        count = live - begin;
        first = descending ? live - 1 : begin;
        last = descending ? 0 : max(stop - 1, size_type(0));
        has_last = chunk == last / length;
        stride = descending ? -1 : 1;
    }
};

// A step of a scan: h = a c + b goes on, or where `behind` a h of h = c + b. The state h is returned.
template <class Number>
__device__ __forceinline__ Number step_of(Number& carried, Number a, Number b, bool behind, bool reset)
{
    Number h = b;
    if (behind) {
        h = carried + b;
        carried = reset ? Number::of(0) : a * h;
    } else {
        if (!reset) h = a * carried + b;
        carried = h;
    }
    return h;
}

// Steps whose factors and terms are read before the first of them is worked on.
const int AHEAD = 8;
