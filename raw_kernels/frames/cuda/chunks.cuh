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

    // The steps of chunk `number`.
    __device__ Span whole(size_type number) const
    {
        return {number * length, min(steps, number * length + length)};
    }

    // Those of them at which sample b is not padded; every other one is the identity.
    __device__ Span span(size_type number, size_type b) const
    {
        const Span all = whole(number);
        if (reverse) return {max(all.begin, steps - lengths[b]), all.end};
        return {all.begin, min(all.end, lengths[b])};
    }
};
