// The cell gru: gates r, z, n; states h.

struct Cell {
    static const int gates = 3, states = 1, kept = 4, parameters = 0, separate = 1, coefficients = 4;
    static const int reads_after = 0, reads_before = 1, separate_gates = 4, direct = 1;

    static __device__ __forceinline__ void forward(const real* x, const real* u, const real* before,
        const real* p, real* after, real* kept)
    {
        const real r = sigmoid_of(u[0] + x[0]);
        const real z = sigmoid_of(u[1] + x[1]);
        const real n = tanh_of(x[2] + u[2] * r);
        after[0] = n + z * (before[0] - n);
        kept[0] = r;
        kept[1] = z;
        kept[2] = n;
        kept[3] = u[2];
    }

    static __device__ __forceinline__ void backward(const real* g, const real* kept, const real* after,
        const real* before, const real* p, real* by_x, real* by_u, real* by_before, real* by_p)
    {
        const real r = kept[0], z = kept[1], n = kept[2], u_n = kept[3];
        const real t0 = g[0] * (real(1) - z);
        const real t1 = t0 * (real(1) - n * n);
        const real t2 = t1 * r;
        by_x[0] = t2 * u_n * (real(1) - r);
        by_x[1] = t0 * z * (before[0] - n);
        by_x[2] = t1;
        by_u[0] = t2;
        by_before[0] = g[0] * z;
    }

    static __device__ __forceinline__ void coefficients_of(const real* kept, const real* after,
        const real* before, const real* p, real* a)
    {
        const real r = kept[0], z = kept[1], n = kept[2], u_n = kept[3];
        const real t0 = real(1) - z;
        const real t1 = t0 * r * (real(1) - n * n);
        a[0] = t1 * u_n * (real(1) - r);
        a[1] = t0 * z * (before[0] - n);
        a[2] = t1;
        a[3] = z;
    }

    static __device__ __forceinline__ void enter(const real* a, real* x)
    {
    }

    static __device__ __forceinline__ void entry(const real* a, const real* w, real* p)
    {
        p[0] = a[0] * w[0] + a[1] * w[1] + a[2] * w[2];
    }

    static __device__ __forceinline__ void carry(const real* a, const real* x, real* d)
    {
        d[0] = a[3] * x[0];
    }
};
