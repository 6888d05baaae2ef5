// The reduction where a thread has too few registers for whole columns: a block takes a slice of one map's
// columns in shared memory, a thread a tile of TILE_ROWS rows, blockDim.x apart, and IN_TILE columns. The
// block's x covers the rows once, its y the columns of a slice. W_hh is read from memory, a row a warp at a
// time.

const int BLOCK = 256, TILE_ROWS = 4;

// Units whose weights are read before the first of them is multiplied: as many as the compiler keeps in registers.
const int AT_ONCE = sizeof(real) == 4 || R == 1 ? 4 : 1;

__device__ __forceinline__ void reduce(const Reduction& given, real* shared)
{
    constexpr int C = IN_TILE;
    const Chunks& chunks = given.chunks;
    const int hidden = given.hidden, size = P * hidden, width = blockDim.y * C;
    const int threads = blockDim.x * blockDim.y, self = threadIdx.y * blockDim.x + threadIdx.x;
    const int slices = (size + (given.per_step ? 1 : 0) + width - 1) / width;
    real *columns = shared, *a = shared + size * width;
    int* exponents = reinterpret_cast<int*>(a + Cell::coefficients * hidden);
    const size_type batch = chunks.batch, items = chunks.reduced() * slices * batch;
    for (size_type item = blockIdx.x; item < items; item += gridDim.x) {
        const size_type number = item / batch / slices, map = number * batch + item % batch;
        const Walk own = {item % batch, hidden};
        const int start = int(item / batch % slices) * width;
        const Span span = chunks.span(number + chunks.first, own.sample);
        for (int place = self; place < size * width; place += threads)
            columns[place] = place / width == start + place % width ? real(1) : real(0);
        for (int c = self; c < width; c += threads) exponents[c] = 0;
        __syncthreads();
        int since = 0;
        for (size_type s = span.end - 1; s >= span.begin; --s) {
            const Step step(given, int(s), own);
            for (int k = self; k < hidden; k += threads) {
                real rows[ROWS];
                step.read(k, rows);
                step.coefficients(k, rows, a + k * Cell::coefficients);
                if (given.per_step && size >= start && size < start + width)
                    columns[k * width + size - start] += given.step_gradient(s, own)[k];
            }
            __syncthreads();
            for (int place = self; place < hidden * width; place += threads) {
                real x[P];
#pragma unroll
                for (int i = 0; i < P; ++i) x[i] = columns[i * hidden * width + place];
                Cell::enter(a + place / width * Cell::coefficients, x);
#pragma unroll
                for (int i = 0; i < P; ++i) columns[i * hidden * width + place] = x[i];
            }
            __syncthreads();
            real after[TILE_ROWS][C], carried[TILE_ROWS][C][P];
#pragma unroll
            for (int r = 0; r < TILE_ROWS; ++r)
#pragma unroll
                for (int c = 0; c < C; ++c) {
                    after[r][c] = real(0);
#pragma unroll
                    for (int i = 0; i < P; ++i) carried[r][c][i] = real(0);
                }
            const real* tile = columns + threadIdx.y * C;
#pragma unroll AT_ONCE
            for (int k = 0; k < hidden; ++k) {
                real x[C][P];
#pragma unroll
                for (int i = 0; i < P; ++i)
#pragma unroll
                    for (int pack = 0; pack < C / PACK; ++pack) {
                        const Pack loaded =
                            reinterpret_cast<const Pack*>(tile + (i * hidden + k) * width)[pack];
#pragma unroll
                        for (int lane = 0; lane < PACK; ++lane) x[pack * PACK + lane][i] = loaded.values[lane];
                    }
#pragma unroll
                for (int r = 0; r < TILE_ROWS; ++r) {
                    // A row that is not there is as the last one, and not stored: no branch keeps loads waiting.
                    const int row = min(int(threadIdx.x + r * blockDim.x), hidden - 1);
                    real w[R], p[P];
#pragma unroll
                    for (int gate = 0; gate < R; ++gate)
                        w[gate] = given.weight_hh[((size_type)gate * hidden + k) * hidden + row];
                    Cell::entry(a + k * Cell::coefficients, w, p);
#pragma unroll
                    for (int c = 0; c < C; ++c) {
#pragma unroll
                        for (int i = 0; i < P; ++i) after[r][c] += p[i] * x[c][i];
                        if (row == k) Cell::carry(a + k * Cell::coefficients, x[c], carried[r][c]);
                    }
                }
            }
            __syncthreads();
#pragma unroll
            for (int r = 0; r < TILE_ROWS; ++r) {
                const int row = threadIdx.x + r * blockDim.x;
                if (row >= hidden) continue;
#pragma unroll
                for (int c = 0; c < C; ++c) {
                    const int place = row * width + threadIdx.y * C + c;
                    columns[place] = after[r][c] + carried[r][c][0];
#pragma unroll
                    for (int i = 1; i < P; ++i) columns[i * hidden * width + place] = carried[r][c][i];
                }
            }
            __syncthreads();
            if (++since < RENORMALISED && s != span.begin) continue;
            since = 0;
            for (int c = self; c < width && start + c < size; c += threads) {
                real largest = 0;
                for (int i = 0; i < size; ++i) largest = max(largest, real(fabs(columns[i * width + c])));
                const int exponent = exponent_of(largest);
                const real factor = power_of_two(-exponent, real(0));
                for (int i = 0; i < size; ++i) columns[i * width + c] *= factor;
                exponents[c] += exponent;
            }
            __syncthreads();
        }
        for (int place = self; place < size * width; place += threads) {
            const int column = start + place / size, i = place % size;
            const real value = columns[i * width + place / size];
            if (column < size) given.maps[(map * size + column) * size + i] = value;
            else if (column == size && given.per_step)
                given.offsets[number * size * batch + own.start(P) + i] = value;
        }
        for (int c = self; c < width && start + c < size; c += threads)
            given.exponents[map * size + start + c] = exponents[c];
        __syncthreads();
    }
}
