// The linear cell mingru: gates h, z; states h.

struct Cell {
    static const int gates = 2, parameters = 0;

    static __device__ __forceinline__ void terms(const real* x, const real* p, real* a, real* b)
    {
        const real z = sigmoid_of(x[1]);
        a[0] = real(1) - z;
        b[0] = z * x[0];
    }

    static __device__ __forceinline__ void by_inputs(const real* g, const real* x, const real* state,
        const real* p, real* by_x, real* by_p)
    {
        const real z = sigmoid_of(x[1]);
        by_x[0] = g[1] * z;
        by_x[1] = z * (real(1) - z) * (g[1] * x[0] - g[0]);
    }
};
