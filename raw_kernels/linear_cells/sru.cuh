// The linear cell sru: gates c, f, r, skip; states h, c.

struct Cell {
    static const int gates = 4, parameters = 0;

    static __device__ __forceinline__ void terms(const real* x, const real* p, real* a, real* b)
    {
        const real new_a = sigmoid_of(x[1]);
        a[0] = new_a;
        b[0] = x[0] - new_a * x[0];
    }

    static __device__ __forceinline__ void output(const real* x, const real* state, const real* p, real* y)
    {
        const real r = sigmoid_of(x[2]);
        y[0] = x[3] + r * (state[0] - x[3]);
    }

    static __device__ __forceinline__ void by_state(const real* g, const real* x, const real* state,
        const real* p, real* by)
    {
        const real r = sigmoid_of(x[2]);
        by[0] = g[0] * r;
    }

    static __device__ __forceinline__ void by_inputs(const real* g, const real* x, const real* state,
        const real* p, real* by_x, real* by_p)
    {
        const real r = sigmoid_of(x[2]);
        const real new_a = sigmoid_of(x[1]);
        const real t0 = real(1) - new_a;
        const real t1 = g[2] * (real(1) - r);
        by_x[0] = g[1] * t0;
        by_x[1] = new_a * t0 * (g[0] - g[1] * x[0]);
        by_x[2] = t1 * r * (state[0] - x[3]);
        by_x[3] = t1;
    }
};
