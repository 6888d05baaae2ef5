// tanh and the logistic function within 4 ulp; NaN stays NaN. In float they have no branch, so that a thread's
// several calls run side by side.

// The reciprocal within 1 ulp and 2^x within 2, of numbers whose results are normal.
#if defined(__CUDA_ARCH__)
__device__ __forceinline__ float reciprocal_of(float x)
{
    asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(x));
    return x;
}

__device__ __forceinline__ float exp2_of(float x)
{
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
    return x;
}
#else
__device__ inline float reciprocal_of(float x) { return 1.0f / x; }
__device__ inline float exp2_of(float x) { return exp2f(x); }
#endif

// numerator / denominator, of a denominator from 1 to 2.
__device__ __forceinline__ float quotient_of(float numerator, float denominator)
{
    const float inverse = reciprocal_of(denominator), quotient = numerator * inverse;
    return fmaf(fmaf(-quotient, denominator, numerator), inverse, quotient);
}

__device__ __forceinline__ double quotient_of(double numerator, double denominator)
{
    return numerator / denominator;
}

// An odd polynomial near 0, sign(x) (1 - 2 / (e^2|x| + 1)) beyond.
__device__ __forceinline__ float tanh_of(float x)
{
    const float size = fabsf(x), square = x * x, one = copysignf(1.0f, x);
    const float far = fmaf(-2.0f * one, reciprocal_of(exp2_of(2.88539008f * size) + 1.0f), one);
    float near = fmaf(-0.00513866292f, square, 0.0200919714f);
    near = fmaf(near, square, -0.0535588637f);
    near = fmaf(near, square, 0.133291110f);
    near = fmaf(near, square, -0.333331913f);
    near = fmaf(near * square, x, x);
    return size < 0.7f ? near : far;
}

__device__ inline double tanh_of(double x) { return tanh(x); }
__device__ inline float exp_of(float x) { return expf(x); }
__device__ inline double exp_of(double x) { return exp(x); }
__device__ inline float expm1_of(float x) { return expm1f(x); }
__device__ inline double expm1_of(double x) { return expm1(x); }

// e^-|x| neither overflows nor cancels.
__device__ __forceinline__ real sigmoid_of(real x)
{
    const real e = exp_of(-fabs(x));
    return quotient_of(x < real(0) ? e : real(1), real(1) + e);
}
