// The linear cell minlstm: gates f, i, h; states h.

struct Cell {
    static const int gates = 3, parameters = 0;

    static __device__ __forceinline__ void terms(const real* x, const real* p, real* a, real* b)
    {
        const real t0 = x[0] <= -real(85) ? -real(85) : x[0];
        const real t1 = x[1] <= -real(85) ? -real(85) : x[1];
        const real f = sigmoid_of(t0);
        const real i = sigmoid_of(t1);
        const real new_a = f / (f + i);
        a[0] = new_a;
        b[0] = x[2] - new_a * x[2];
    }

    static __device__ __forceinline__ void by_inputs(const real* g, const real* x, const real* state,
        const real* p, real* by_x, real* by_p)
    {
        const real t0 = x[0] <= -real(85) ? -real(85) : x[0];
        const real t1 = x[1] <= -real(85) ? -real(85) : x[1];
        const real f = sigmoid_of(t0);
        const real i = sigmoid_of(t1);
        const real t2 = real(1) / (f + i);
        const real t3 = t2 * (g[0] - g[1] * x[2]);
        const real t4 = f * t2;
        const real t5 = -t3 * t4;
        by_x[0] = -real(85) < t0 ? f * (real(1) - f) * (t3 + t5) : real(0);
        by_x[1] = -real(85) < t1 ? t5 * i * (real(1) - i) : real(0);
        by_x[2] = g[1] * (real(1) - t4);
    }
};
