// The cell rnn_relu: gates h; states h.

struct Cell {
    static const int gates = 1, states = 1, kept = 0, parameters = 0, separate = 0, coefficients = 1;
    static const int reads_after = 1, reads_before = 0, separate_gates = 0, direct = 0;

    static __device__ __forceinline__ void forward(const real* x, const real* u, const real* before,
        const real* p, real* after, real* kept)
    {
        const real t0 = u[0] + x[0];
        after[0] = t0 <= real(0) ? real(0) : t0;
    }

    static __device__ __forceinline__ void backward(const real* g, const real* kept, const real* after,
        const real* before, const real* p, real* by_x, real* by_u, real* by_before, real* by_p)
    {
        by_x[0] = real(0) < after[0] ? g[0] : real(0);
        by_before[0] = real(0);
    }

    static __device__ __forceinline__ void coefficients_of(const real* kept, const real* after,
        const real* before, const real* p, real* a)
    {
        a[0] = real(0) < after[0] ? real(1) : real(0);
    }

    static __device__ __forceinline__ void enter(const real* a, real* x)
    {
        x[0] *= a[0];
    }

    static __device__ __forceinline__ void entry(const real* a, const real* w, real* p)
    {
        p[0] = w[0];
    }

    static __device__ __forceinline__ void carry(const real* a, const real* x, real* d)
    {
        d[0] = real(0);
    }
};
