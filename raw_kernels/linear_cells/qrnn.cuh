// The linear cell qrnn: gates z, f, o; states h, c.

struct Cell {
    static const int gates = 3, parameters = 0;

    static __device__ __forceinline__ void terms(const real* x, const real* p, real* a, real* b)
    {
        const real z = tanh_of(x[0]);
        const real new_a = sigmoid_of(x[1]);
        a[0] = new_a;
        b[0] = z - new_a * z;
    }

    static __device__ __forceinline__ void output(const real* x, const real* state, const real* p, real* y)
    {
        const real o = sigmoid_of(x[2]);
        y[0] = state[0] * o;
    }

    static __device__ __forceinline__ void by_state(const real* g, const real* x, const real* state,
        const real* p, real* by)
    {
        const real o = sigmoid_of(x[2]);
        by[0] = g[0] * o;
    }

    static __device__ __forceinline__ void by_inputs(const real* g, const real* x, const real* state,
        const real* p, real* by_x, real* by_p)
    {
        const real z = tanh_of(x[0]);
        const real o = sigmoid_of(x[2]);
        const real new_a = sigmoid_of(x[1]);
        const real t0 = real(1) - new_a;
        by_x[0] = g[1] * t0 * (real(1) - z * z);
        by_x[1] = new_a * t0 * (g[0] - g[1] * z);
        by_x[2] = g[2] * state[0] * o * (real(1) - o);
    }
};
