// 16 bytes, one load.
const int PACK = 16 / int(sizeof(real));

struct __align__(16) Pack {
    real values[PACK];
};

__device__ __forceinline__ bool in_packs(const real* array) { return size_type(array) % sizeof(Pack) == 0; }
