// Division by a number that stays the same: a shift where that is a power of two.

template <class Unsigned>
struct Divisor {
    Unsigned by;
    int shift;  // below 0: no power of two

    __device__ __forceinline__ explicit Divisor(Unsigned by)
        : by(by), shift(by & (by - 1) ? -1 : __ffsll((long long)by) - 1)
    {
    }

    __device__ __forceinline__ Unsigned quotient(Unsigned number) const
    {
        return shift < 0 ? number / by : number >> shift;
    }
};
