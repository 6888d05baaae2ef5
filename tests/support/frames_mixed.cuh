// A cell with all that a form may have: a separate gate, unit parameters, two states that reach each other
// without W_hh. f = sigmoid(x_0 + u_0), v = tanh(x_1 + p_0 u_1), c' = f c + (1 - f) v + p_1 h, h' = f c'.

struct Cell {
    static const int gates = 2, states = 2, kept = 3, parameters = 2, separate = 1, coefficients = 5;
    static const int reads_after = 2, reads_before = 3, separate_gates = 2, direct = 3;

    static __device__ __forceinline__ void forward(
        const real* x, const real* u, const real* before, const real* p, real* after, real* kept)
    {
        const real f = sigmoid_of(x[0] + u[0]), v = tanh_of(x[1] + p[0] * u[1]);
        after[1] = f * before[1] + (real(1) - f) * v + p[1] * before[0];
        after[0] = f * after[1];
        kept[0] = f;
        kept[1] = v;
        kept[2] = u[1];
    }

    static __device__ __forceinline__ void backward(
        const real* g, const real* kept, const real* after, const real* before, const real* p, real* by_x,
        real* by_u, real* by_before, real* by_p)
    {
        const real f = kept[0], v = kept[1], by_c = g[1] + g[0] * f;
        by_x[0] = (g[0] * after[1] + by_c * (before[1] - v)) * f * (real(1) - f);
        by_x[1] = by_c * (real(1) - f) * (real(1) - v * v);
        by_u[0] = by_x[1] * p[0];
        by_before[0] = by_c * p[1];
        by_before[1] = by_c * f;
        by_p[0] = by_x[1] * kept[2];
        by_p[1] = by_c * before[0];
    }

    static __device__ __forceinline__ void coefficients_of(
        const real* kept, const real* after, const real* before, const real* p, real* a)
    {
        const real f = kept[0], v = kept[1], slope = f * (real(1) - f);
        a[0] = f;
        a[1] = slope * after[1];
        a[2] = slope * (before[1] - v);
        a[3] = (real(1) - f) * (real(1) - v * v) * p[0];
        a[4] = p[1];
    }

    static __device__ __forceinline__ void enter(const real* a, real* x) { x[1] += a[0] * x[0]; }

    static __device__ __forceinline__ void entry(const real* a, const real* w, real* p)
    {
        p[0] = w[0] * a[1];
        p[1] = w[0] * a[2] + w[1] * a[3];
    }

    static __device__ __forceinline__ void carry(const real* a, const real* x, real* d)
    {
        d[0] = a[4] * x[1];
        d[1] = a[0] * x[1];
    }
};
