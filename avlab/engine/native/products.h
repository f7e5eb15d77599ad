// Products with packed weights.
#pragma once

#include "numbers.h"
#include "tiles.h"

// Products read their weight in blocks of 32 outputs, all inputs of a block in a row, in the order they are used.
// A tile's rows are those whose sums with a block of outputs are in registers together.
constexpr int64_t BLOCK = 32, TILE = 12;
typedef float vector16 __attribute__((vector_size(64)));

// Where entry [n, k] of a weight of K inputs lies once packed. bfloat16 inputs come in pairs, as its products take them.
static inline int64_t packed_at(const float *, int64_t n, int64_t k, int64_t K) {
    return n / BLOCK * BLOCK * K + k * BLOCK + n % BLOCK;
}
static inline int64_t packed_at(const bfloat16 *, int64_t n, int64_t k, int64_t K) {
    return n / BLOCK * BLOCK * K + k / 2 * 2 * BLOCK + n % BLOCK * 2 + k % 2;
}

template <typename T>
static void pack(const T *w, T *packed, int64_t N, int64_t K) {
    for (int64_t n = 0; n < N; n++)
        for (int64_t k = 0; k < K; k++) packed[packed_at(w, n, k, K)] = w[n * K + k];
}

// sums = x w^T for M rows of x, [M, K], and one packed block w of 32 outputs; sums: [M, 32].
template <int M>
static void tile(const float *x, const float *w, int64_t K, float *sums) {
    vector16 low[M] = {}, high[M] = {}, parts[2];
    for (int64_t k = 0; k < K; k++) {
        std::memcpy(parts, w + k * BLOCK, sizeof parts);
        for (int m = 0; m < M; m++) low[m] += parts[0] * x[m * K + k], high[m] += parts[1] * x[m * K + k];
    }
    for (int m = 0; m < M; m++) std::memcpy(sums + m * BLOCK, &low[m], 64), std::memcpy(sums + m * BLOCK + 16, &high[m], 64);
}

// Loops over M are unrolled by command: sums that the compiler left in memory would take three times as long.
template <int M>
static void tile(const bfloat16 *x, const bfloat16 *w, int64_t K, float *sums) {
#ifdef __AVX512BF16__
    __m512 low[M], high[M];
#pragma GCC unroll 12
    for (int m = 0; m < M; m++) low[m] = high[m] = _mm512_setzero_ps();
    for (int64_t k = 0; k < K; k += 2) {
        const auto first = (__m512bh)_mm512_loadu_si512(w + k * BLOCK);
        const auto second = (__m512bh)_mm512_loadu_si512(w + k * BLOCK + BLOCK);
#pragma GCC unroll 12
        for (int m = 0; m < M; m++) {
            int32_t pair;
            std::memcpy(&pair, x + m * K + k, 4);
            const auto both = (__m512bh)_mm512_set1_epi32(pair);
            low[m] = _mm512_dpbf16_ps(low[m], first, both);
            high[m] = _mm512_dpbf16_ps(high[m], second, both);
        }
    }
#pragma GCC unroll 12
    for (int m = 0; m < M; m++) {
        _mm512_storeu_ps(sums + m * BLOCK, low[m]);
        _mm512_storeu_ps(sums + m * BLOCK + 16, high[m]);
    }
#endif
}

// The same for any M up to TILE: each is a function of its own, whose sums are in registers.
template <typename T>
static void tile(int64_t M, const T *x, const T *w, int64_t K, float *sums) {
    switch (M) {
        case 1: return tile<1>(x, w, K, sums);
        case 2: return tile<2>(x, w, K, sums);
        case 3: return tile<3>(x, w, K, sums);
        case 4: return tile<4>(x, w, K, sums);
        case 5: return tile<5>(x, w, K, sums);
        case 6: return tile<6>(x, w, K, sums);
        case 7: return tile<7>(x, w, K, sums);
        case 8: return tile<8>(x, w, K, sums);
        case 9: return tile<9>(x, w, K, sums);
        case 10: return tile<10>(x, w, K, sums);
        case 11: return tile<11>(x, w, K, sums);
        default: return tile<12>(x, w, K, sums);
    }
}

// Sums of a few rows with a block of outputs, by the registers that every processor has.
template <typename T>
struct PlainSums {
    static constexpr int64_t ROWS = TILE;

    void operator()(const T *x, const T *w, int64_t rows, int64_t K, float *sums) { tile(rows, x, w, K, sums); }
};

// The same by matrix tiles, for K in whole tiles: two tiles of rows by the block's two halves. The packed layout is what
// the tiles' product takes.
template <typename Tiles>
struct TileSums {
    static constexpr int64_t ROWS = 2 * TILE_ROWS, INPUTS = TILE_BYTES / sizeof(bfloat16);
    Tiles tiles;
    int64_t configured = 0;  // for how many rows

    void operator()(const bfloat16 *x, const bfloat16 *w, int64_t rows, int64_t K, float *sums) {
        if (rows != configured) configure(rows);
        const bool lower = rows > TILE_ROWS;
        tiles.template zero<0>(), tiles.template zero<1>();
        if (lower) tiles.template zero<2>(), tiles.template zero<3>();
        for (int64_t k = 0; k < K; k += INPUTS) {
            tiles.template load<4>(x + k, K * sizeof(bfloat16));
            tiles.template load<6>(w + k * BLOCK, 2 * BLOCK * sizeof(bfloat16));
            tiles.template load<7>(w + k * BLOCK + BLOCK, 2 * BLOCK * sizeof(bfloat16));
            tiles.template multiply<0, 4, 6>(), tiles.template multiply<1, 4, 7>();
            if (lower) {
                tiles.template load<5>(x + TILE_ROWS * K + k, K * sizeof(bfloat16));
                tiles.template multiply<2, 5, 6>(), tiles.template multiply<3, 5, 7>();
            }
        }
        tiles.template store<0>(sums, BLOCK * sizeof(float)), tiles.template store<1>(sums + 16, BLOCK * sizeof(float));
        if (!lower) return;
        sums += TILE_ROWS * BLOCK;
        tiles.template store<2>(sums, BLOCK * sizeof(float)), tiles.template store<3>(sums + 16, BLOCK * sizeof(float));
    }
    void configure(int64_t rows) {
        const int64_t upper = std::min<int64_t>(rows, TILE_ROWS);
        TileShapes shapes;
        for (int tile : {0, 1, 4}) shapes.set(tile, upper);
        for (int tile : {2, 3, 5}) shapes.set(tile, rows - upper);
        for (int tile : {6, 7}) shapes.set(tile, TILE_ROWS);
        tiles.configure(shapes), configured = rows;
    }
    ~TileSums() {
        if (configured) tiles.release();
    }
};

enum Ending { NONE, SILU, TIMES, PLUS };

static inline float silu(float y) {
    const float e = exponential(-std::fabs(y));
    return y * (y < 0 ? e : 1) / (1 + e);
}

// out = ending(y + bias), `width` entries of a row.
template <typename T, typename Out>
static inline void finish(float *y, const T *bias, const T *other, Out *out, int64_t width, int64_t ending) {
    if (bias)
        for (int64_t i = 0; i < width; i++) y[i] += widen(bias[i]);
    if (ending == SILU)
        for (int64_t i = 0; i < width; i++) y[i] = silu(y[i]);
    if (ending == TIMES)
        for (int64_t i = 0; i < width; i++) y[i] *= widen(other[i]);
    if (ending == PLUS)
        for (int64_t i = 0; i < width; i++) y[i] += widen(other[i]);
    for (int64_t i = 0; i < width; i++) narrow(y[i], out[i]);
}

// `multiply` below, by one way of summing. Each row's inputs are read once a block, each block of the weight by all rows
// in turn while it is in a cache.
template <typename Sums, typename T, typename Out>
static void multiply_by(const T *x, const T *w, const T *bias, const T *other, Out *out, int64_t rows, int64_t N, int64_t K,
                        int64_t ending) {
    const int64_t pieces = (rows + Sums::ROWS - 1) / Sums::ROWS;  // of about as many rows each: 13 rows are 6 and 7
    Sums sums_of;
#pragma omp for schedule(static) nowait
    for (int64_t n = 0; n < N; n += BLOCK)
        for (int64_t i = 0; i < pieces; i++) {
            float sums[Sums::ROWS * BLOCK];
            const int64_t first = rows * i / pieces, count = rows * (i + 1) / pieces - first;
            const int64_t width = std::min(BLOCK, N - n);
            sums_of(x + first * K, w + n * K, count, K, sums);
            for (int64_t m = 0; m < count; m++) {
                const int64_t at = (first + m) * N + n;
                finish(sums + m * BLOCK, bias ? bias + n : nullptr, other + at, out + at, width, ending);
            }
        }
}

static int64_t tiles_from = INT64_MAX;  // rows from which products of bfloat16 use the processor's tiles

// out = ending(x w^T + bias); w: packed, N outputs, padded to whole blocks. other: [rows, N], the factor or the addend;
// bias and other may be null. For a team of threads, each of which does the same outputs of every product of N: none
// waits for the others at the end.
template <typename T, typename Out>
static void multiply(const T *x, const T *w, const T *bias, const T *other, Out *out, int64_t rows, int64_t N, int64_t K,
                     int64_t ending) {
    if constexpr (sizeof(T) == 2)
        if (rows >= tiles_from && K % TileSums<ProcessorTiles>::INPUTS == 0)
            return multiply_by<TileSums<ProcessorTiles>>(x, w, bias, other, out, rows, N, K, ending);
    multiply_by<PlainSums<T>>(x, w, bias, other, out, rows, N, K, ending);
}

// How many rows `multiply` is for: beyond, and where this is 0, oneDNN's products are faster (measured; on a processor
// with tiles, where these may not be used, oneDNN uses them).
template <typename T>
static int64_t most_rows() {
    if (sizeof(T) == 4) return 16;
#ifdef __AVX512BF16__
    return processor_has_tiles() && tiles_from == INT64_MAX ? 8 : INT64_MAX;
#else
    return 0;
#endif
}
