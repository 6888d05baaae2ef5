// The linear cell mingru_positive: gates h, z; states h.

struct Cell {
    static const int gates = 2, parameters = 0;

    static __device__ __forceinline__ void terms(const real* x, const real* p, real* a, real* b)
    {
        const real z = sigmoid_of(x[1]);
        const real h = sigmoid_of(x[0]);
        const real t0 = real(0) <= x[0] ? real(0.5) + x[0] : h;
        a[0] = real(1) - z;
        b[0] = z * t0;
    }

    static __device__ __forceinline__ void by_inputs(const real* g, const real* x, const real* state,
        const real* p, real* by_x, real* by_p)
    {
        const real z = sigmoid_of(x[1]);
        const real t0 = g[1] * z;
        const real h = sigmoid_of(x[0]);
        const real t1 = real(0) <= x[0] ? real(0) : real(1);
        const real t2 = real(0) <= x[0] ? real(0.5) + x[0] : h;
        by_x[0] = ((real(0) <= x[0] ? t0 : real(0))) + t0 * h * t1 * (real(1) - h);
        by_x[1] = z * (real(1) - z) * (g[1] * t2 - g[0]);
    }
};
