// The steps of one direction cut into chunks of equal length, the last one as long as what is left.

// Steps [begin, end).
struct Span {
    size_type begin, end;
};

struct Chunks {
    const long long* lengths;
    size_type steps, batch, length, first;
    int reverse;

    // How many chunks there are from `first` on.
    __device__ size_type reduced() const { return (steps + length - 1) / length - first; }

    __device__ size_type time(size_type s) const { return reverse ? steps - 1 - s : s; }

    // The steps of chunk `number` at which sample b is not padded; every other one is the identity.
    __device__ Span span(size_type number, size_type b) const
    {
        const size_type start = number * length, valid = lengths[b];
        const Span whole = {start, min(steps, start + length)};
        if (reverse) return {max(whole.begin, steps - valid), whole.end};
        return {whole.begin, min(whole.end, valid)};
    }
};
