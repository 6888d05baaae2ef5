// tanh and the logistic function within 4 ulp; NaN stays NaN.

__device__ inline float tanh_of(float x) { return tanhf(x); }
__device__ inline double tanh_of(double x) { return tanh(x); }
__device__ inline float exp_of(float x) { return expf(x); }
__device__ inline double exp_of(double x) { return exp(x); }

// e^-|x| neither overflows nor cancels.
__device__ inline real sigmoid_of(real x)
{
    const real e = exp_of(x < real(0) ? x : -x);
    return (x < real(0) ? e : real(1)) / (real(1) + e);
}
