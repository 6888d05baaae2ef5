// The linear cell minlstm_positive: gates f, i, h; states h.

struct Cell {
    static const int gates = 3, parameters = 0;

    static __device__ __forceinline__ void terms(const real* x, const real* p, real* a, real* b)
    {
        const real t0 = x[0] <= -real(85) ? -real(85) : x[0];
        const real t1 = x[1] <= -real(85) ? -real(85) : x[1];
        const real f = sigmoid_of(t0);
        const real i = sigmoid_of(t1);
        const real new_a = f / (f + i);
        const real h = sigmoid_of(x[2]);
        const real t2 = real(0) <= x[2] ? real(0.5) + x[2] : h;
        a[0] = new_a;
        b[0] = t2 - new_a * t2;
    }

    static __device__ __forceinline__ void by_inputs(const real* g, const real* x, const real* state,
        const real* p, real* by_x, real* by_p)
    {
        const real t0 = x[0] <= -real(85) ? -real(85) : x[0];
        const real t1 = x[1] <= -real(85) ? -real(85) : x[1];
        const real f = sigmoid_of(t0);
        const real i = sigmoid_of(t1);
        const real t2 = real(1) / (f + i);
        const real h = sigmoid_of(x[2]);
        const real t3 = real(0) <= x[2] ? real(0.5) + x[2] : h;
        const real t4 = t2 * (g[0] - g[1] * t3);
        const real t5 = f * t2;
        const real t6 = -t4 * t5;
        const real t7 = g[1] * (real(1) - t5);
        const real t8 = real(0) <= x[2] ? real(0) : real(1);
        by_x[0] = -real(85) < t0 ? f * (real(1) - f) * (t4 + t6) : real(0);
        by_x[1] = -real(85) < t1 ? t6 * i * (real(1) - i) : real(0);
        by_x[2] = ((real(0) <= x[2] ? t7 : real(0))) + t7 * h * t8 * (real(1) - h);
    }
};
