// Powers of two.

// 2^exponent, for exponents of normal numbers.
__device__ __forceinline__ float power_of_two(int exponent, float)
{
    return __int_as_float((exponent + 127) << 23);
}

__device__ __forceinline__ double power_of_two(int exponent, double)
{
    return __longlong_as_double((long long)(exponent + 1023) << 52);
}

// value 2^exponent for any exponent, exact where the result is a normal number: three factors of equal sign reach
// from the smallest number to beyond the largest, and no product on the way leaves the range before the result.
__device__ __forceinline__ real scaled(real value, int exponent)
{
    const int most = sizeof(real) == 4 ? 300 : 2200, kept = max(-most, min(most, exponent));
    const int third = kept * 21846 >> 16;
    const real factor = power_of_two(third, real(0));
    return value * factor * factor * power_of_two(kept - 2 * third, real(0));
}

// The power of two that brings `largest` into [1/2, 1); 0 for zero and for what is not finite.
__device__ __forceinline__ int exponent_of(real largest)
{
    int exponent = 0;
    if (largest > real(0) && largest < real(INFINITY)) frexp(largest, &exponent);
    const int most = sizeof(real) == 4 ? 126 : 1022;
    return exponent < -most ? -most : exponent > most ? most : exponent;
}
