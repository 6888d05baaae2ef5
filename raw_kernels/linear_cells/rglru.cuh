// The linear cell rglru: gates r, i, v; states h; parameters rate.

struct Cell {
    static const int gates = 3, parameters = 1;

    static __device__ __forceinline__ void terms(const real* x, const real* p, real* a, real* b)
    {
        const real r = sigmoid_of(x[0]);
        const real i = sigmoid_of(x[1]);
        const real t0 = p[0] * r;
        const real t1 = expm1_of(t0);
        const real t2 = sqrt(-t1 * (real(2) + t1));
        a[0] = exp_of(t0);
        b[0] = t2 * i * x[2];
    }

    static __device__ __forceinline__ void by_inputs(const real* g, const real* x, const real* state,
        const real* p, real* by_x, real* by_p)
    {
        const real r = sigmoid_of(x[0]);
        const real i = sigmoid_of(x[1]);
        const real t0 = p[0] * r;
        const real t1 = exp_of(t0);
        const real t2 = g[1] * i;
        const real t3 = expm1_of(t0);
        const real t4 = -t3 * (real(2) + t3);
        const real t5 = real(4) * t4;
        const real t6 = t5 <= real(1e-06) ? real(1e-06) : t5;
        const real t7 = sqrt(t6);
        const real t8 = r * (t1 * t2 * x[2] * (-real(2) - real(2) * t3) / t7 + g[0] * t1);
        const real t9 = sqrt(t4);
        const real t10 = t2 * t9;
        by_x[0] = p[0] * t8 * (real(1) - r);
        by_x[1] = t10 * x[2] * (real(1) - i);
        by_x[2] = t10;
        by_p[0] = t8;
    }
};
