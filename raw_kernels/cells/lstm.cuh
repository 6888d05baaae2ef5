// The cell lstm: gates i, f, g, o; states h, c.

struct Cell {
    static const int gates = 4, states = 2, kept = 4, parameters = 0, separate = 0, coefficients = 6;
    static const int reads_after = 2, reads_before = 2, separate_gates = 0, direct = 2;

    static __device__ __forceinline__ void forward(const real* x, const real* u, const real* before,
        const real* p, real* after, real* kept)
    {
        const real i = sigmoid_of(u[0] + x[0]);
        const real f = sigmoid_of(u[1] + x[1]);
        const real g_ = tanh_of(u[2] + x[2]);
        const real o = sigmoid_of(u[3] + x[3]);
        const real new_c = before[1] * f + i * g_;
        const real t0 = tanh_of(new_c);
        after[0] = o * t0;
        after[1] = new_c;
        kept[0] = i;
        kept[1] = f;
        kept[2] = g_;
        kept[3] = o;
    }

    static __device__ __forceinline__ void backward(const real* g, const real* kept, const real* after,
        const real* before, const real* p, real* by_x, real* by_u, real* by_before, real* by_p)
    {
        const real i = kept[0], f = kept[1], g_ = kept[2], o = kept[3];
        const real t0 = g[0] * o;
        const real t1 = tanh_of(after[1]);
        const real by_c = g[1] + t0 * (real(1) - t1 * t1);
        const real t2 = by_c * i;
        const real t3 = by_c * f;
        by_x[0] = t2 * g_ * (real(1) - i);
        by_x[1] = before[1] * t3 * (real(1) - f);
        by_x[2] = t2 * (real(1) - g_ * g_);
        by_x[3] = t0 * t1 * (real(1) - o);
        by_before[0] = real(0);
        by_before[1] = t3;
    }

    static __device__ __forceinline__ void coefficients_of(const real* kept, const real* after,
        const real* before, const real* p, real* a)
    {
        const real i = kept[0], f = kept[1], g_ = kept[2], o = kept[3];
        const real t0 = tanh_of(after[1]);
        a[0] = o * (real(1) - t0 * t0);
        a[1] = o * t0 * (real(1) - o);
        a[2] = i * g_ * (real(1) - i);
        a[3] = before[1] * f * (real(1) - f);
        a[4] = i * (real(1) - g_ * g_);
        a[5] = f;
    }

    static __device__ __forceinline__ void enter(const real* a, real* x)
    {
        x[1] += a[0] * x[0];
        x[0] *= a[1];
    }

    static __device__ __forceinline__ void entry(const real* a, const real* w, real* p)
    {
        p[0] = w[3];
        p[1] = a[2] * w[0] + a[3] * w[1] + a[4] * w[2];
    }

    static __device__ __forceinline__ void carry(const real* a, const real* x, real* d)
    {
        d[0] = real(0);
        d[1] = a[5] * x[1];
    }
};
