// What a thread of a walk reads and writes at each step: the element of its unit and sample in each row, `width` apart,
// and `way` from one step to the next, in the order in which the walk goes.

// Of a walk forward: its inputs, and what it leaves.
struct ForwardRows {
    const real* projected;
    real *state, *gates;
    size_type width, way;
    bool writes;

    // Fetches the next step's inputs to place a of a stage.
    template <class Stage>
    __device__ __forceinline__ void fetch(Stage& stage, int a)
    {
#pragma unroll
        for (int g = 0; g < G; ++g) stage.fetch(a, g, projected + g * width);
        projected += G * way;
    }

    __device__ __forceinline__ void put(const real* now, const real* saved)
    {
        if (writes) {
#pragma unroll
            for (int i = 0; i < P; ++i) state[i * width] = now[i];
#pragma unroll
            for (int k = 0; k < K; ++k) gates[k * width] = saved[k];
        }
        state += P * way;
        gates += K * way;
    }

    // Passes `count` steps that leave the states as they are.
    __device__ __forceinline__ void pad(const real* now, int count)
    {
        const real zeros[K_EXTENT] = {};
#pragma unroll 1
        for (int s = 0; s < count; ++s) put(now, zeros);
        projected += count * G * way;
    }
};

// Of a walk back, what it reads: what was saved; each state, before the step where the cell reads it before and after; the
// gradient by its output. `initial` are the states before the first step.
struct BackwardRows {
    static constexpr int ROWS = K + P + 1;

    const real *gates, *state, *gradient, *initial;
    size_type width, way;

    // Fetches those of the next step to place a of a stage: the first step, where `is_first`.
    template <class Stage>
    __device__ __forceinline__ void fetch(Stage& stage, int a, bool is_first, bool per_step)
    {
        const real* before = is_first ? initial : state + P * way;
#pragma unroll
        for (int k = 0; k < K; ++k) stage.fetch(a, k, gates + k * width);
#pragma unroll
        for (int i = 0; i < P; ++i) {
            if (Cell::reads_before >> i & 1) stage.fetch(a, K + i, before + i * width);
            else if (Cell::reads_after >> i & 1) stage.fetch(a, K + i, state + i * width);
        }
        if (per_step) stage.fetch(a, K + P, gradient);
        gates += K * way;
        state += P * way;
        gradient += way;
    }
};

// Of a walk back, what it leaves.
struct DeltaRows {
    real* delta;
    size_type width, way;
    bool writes;

    __device__ __forceinline__ void put(const real* rows)
    {
        if (writes) {
#pragma unroll
            for (int d = 0; d < D; ++d) delta[d * width] = rows[d];
        }
        delta += D * way;
    }

    // Passes `count` steps whose gradients are 0.
    __device__ __forceinline__ void pad(size_type count)
    {
        const real zeros[D] = {};
#pragma unroll 1
        for (size_type s = 0; s < count; ++s) put(zeros);
    }
};
