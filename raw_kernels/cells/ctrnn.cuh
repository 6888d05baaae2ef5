// The cell ctrnn: gates h; states h; parameters alpha.

struct Cell {
    static const int gates = 1, states = 1, kept = 1, parameters = 1, separate = 0, coefficients = 2;
    static const int reads_after = 0, reads_before = 1, separate_gates = 0, direct = 1;

    static __device__ __forceinline__ void forward(const real* x, const real* u, const real* before,
        const real* p, real* after, real* kept)
    {
        const real h = tanh_of(u[0] + x[0]);
        after[0] = before[0] + p[0] * (h - before[0]);
        kept[0] = h;
    }

    static __device__ __forceinline__ void backward(const real* g, const real* kept, const real* after,
        const real* before, const real* p, real* by_x, real* by_u, real* by_before, real* by_p)
    {
        const real h = kept[0];
        by_x[0] = g[0] * p[0] * (real(1) - h * h);
        by_before[0] = g[0] * (real(1) - p[0]);
        by_p[0] = g[0] * (h - before[0]);
    }

    static __device__ __forceinline__ void coefficients_of(const real* kept, const real* after,
        const real* before, const real* p, real* a)
    {
        const real h = kept[0];
        a[0] = p[0] * (real(1) - h * h);
        a[1] = real(1) - p[0];
    }

    static __device__ __forceinline__ void enter(const real* a, real* x)
    {
    }

    static __device__ __forceinline__ void entry(const real* a, const real* w, real* p)
    {
        p[0] = a[0] * w[0];
    }

    static __device__ __forceinline__ void carry(const real* a, const real* x, real* d)
    {
        d[0] = a[1] * x[0];
    }
};
