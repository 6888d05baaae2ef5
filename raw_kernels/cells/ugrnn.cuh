// The cell ugrnn: gates g, c; states h.

struct Cell {
    static const int gates = 2, states = 1, kept = 2, parameters = 0, separate = 0, coefficients = 3;
    static const int reads_after = 0, reads_before = 1, separate_gates = 0, direct = 1;

    static __device__ __forceinline__ void forward(const real* x, const real* u, const real* before,
        const real* p, real* after, real* kept)
    {
        const real g_ = sigmoid_of(u[0] + x[0]);
        const real c = tanh_of(u[1] + x[1]);
        after[0] = c + g_ * (before[0] - c);
        kept[0] = g_;
        kept[1] = c;
    }

    static __device__ __forceinline__ void backward(const real* g, const real* kept, const real* after,
        const real* before, const real* p, real* by_x, real* by_u, real* by_before, real* by_p)
    {
        const real g_ = kept[0], c = kept[1];
        const real t0 = g[0] * (real(1) - g_);
        by_x[0] = t0 * g_ * (before[0] - c);
        by_x[1] = t0 * (real(1) - c * c);
        by_before[0] = g[0] * g_;
    }

    static __device__ __forceinline__ void coefficients_of(const real* kept, const real* after,
        const real* before, const real* p, real* a)
    {
        const real g_ = kept[0], c = kept[1];
        const real t0 = real(1) - g_;
        a[0] = t0 * g_ * (before[0] - c);
        a[1] = t0 * (real(1) - c * c);
        a[2] = g_;
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
