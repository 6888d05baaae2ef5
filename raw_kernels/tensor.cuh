// Products of tiles on tensor cores: 16×8 times 8×8, one warp per product, from sm_80 on. A float has 24 bits, and
// tensor cores read 11 of them: three products of rounded parts are nearly float32 (3xTF32). Where there are none,
// threads exchange their elements. Where there is no __CUDA_ARCH__ the compiler is no CUDA compiler, and parts are
// rounded as tensor cores do.
//
// With g = lane / 4 and t = lane % 4 a thread holds
//   a  elements (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4)
//   b  elements (t, g), (t + 4, g)
//   c  elements (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define HAS_TENSOR_CORES 1
#else
#define HAS_TENSOR_CORES 0
#endif

// Whether products are made of parts.
#ifdef __CUDA_ARCH__
const bool IN_PARTS = HAS_TENSOR_CORES;
#else
const bool IN_PARTS = true;
#endif

// `value` rounded to 11 bits, ties away from zero.
__device__ __forceinline__ float tensor_part(float value)
{
#if HAS_TENSOR_CORES
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return __uint_as_float(bits);
#else
    if (!IN_PARTS) return value;
    const unsigned bits = __float_as_uint(value), exponent = 0xffu << 23;
    return (bits & exponent) == exponent ? value : __uint_as_float((bits + 0x1000) & ~0x1fffu);
#endif
}

// c += a b, of elements that are parts.
__device__ __forceinline__ void add_tile(float (&c)[4], const float (&a)[4], const float (&b)[2])
{
#if HAS_TENSOR_CORES
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
          "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
#else
    const unsigned all = 0xffffffffu;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        const int first = lane / 4 * 4 + k % 4, column = lane % 4 * 8 + k % 4;
        const float above = __shfl_sync(all, a[k / 4 * 2], first), below = __shfl_sync(all, a[k / 4 * 2 + 1], first);
        const float left = __shfl_sync(all, b[k / 4], column), right = __shfl_sync(all, b[k / 4], column + 4);
        c[0] += above * left;
        c[1] += above * right;
        c[2] += below * left;
        c[3] += below * right;
    }
#endif
}
