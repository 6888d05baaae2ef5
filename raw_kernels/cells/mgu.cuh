// The cell mgu: gates f, n; states h.

struct Cell {
    static const int gates = 2, states = 1, kept = 3, parameters = 0, separate = 1, coefficients = 3;
    static const int reads_after = 0, reads_before = 1, separate_gates = 2, direct = 1;

    static __device__ __forceinline__ void forward(const real* x, const real* u, const real* before,
        const real* p, real* after, real* kept)
    {
        const real f = sigmoid_of(u[0] + x[0]);
        const real n = tanh_of(x[1] + u[1] * f);
        after[0] = before[0] + f * (n - before[0]);
        kept[0] = f;
        kept[1] = n;
        kept[2] = u[1];
    }

    static __device__ __forceinline__ void backward(const real* g, const real* kept, const real* after,
        const real* before, const real* p, real* by_x, real* by_u, real* by_before, real* by_p)
    {
        const real f = kept[0], n = kept[1], u_n = kept[2];
        const real t0 = g[0] * f * (real(1) - n * n);
        const real t1 = real(1) - f;
        by_x[0] = t1 * f * (g[0] * (n - before[0]) + t0 * u_n);
        by_x[1] = t0;
        by_u[0] = t0 * f;
        by_before[0] = g[0] * t1;
    }

    static __device__ __forceinline__ void coefficients_of(const real* kept, const real* after,
        const real* before, const real* p, real* a)
    {
        const real f = kept[0], n = kept[1], u_n = kept[2];
        const real t0 = f * (real(1) - n * n);
        const real t1 = real(1) - f;
        a[0] = t1 * f * (n + t0 * u_n - before[0]);
        a[1] = t0 * f;
        a[2] = t1;
    }

    static __device__ __forceinline__ void enter(const real* a, real* x)
    {
    }

    static __device__ __forceinline__ void entry(const real* a, const real* w, real* p)
    {
        p[0] = a[0] * w[0] + a[1] * w[1];
    }

    static __device__ __forceinline__ void carry(const real* a, const real* x, real* d)
    {
        d[0] = a[2] * x[0];
    }
};
