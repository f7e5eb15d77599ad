// Products with packed weights.
#pragma once

#include "numbers.h"

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

// out = ending(x w^T + bias); w: packed, N outputs, padded to whole blocks. other: [rows, N], the factor or the addend;
// bias and other may be null. For a team of threads, each of which does the same outputs of every product of N: none
// waits for the others at the end.
template <typename T, typename Out>
static void multiply(const T *x, const T *w, const T *bias, const T *other, Out *out, int64_t rows, int64_t N, int64_t K,
                     int64_t ending) {
    const int64_t tiles = (rows + TILE - 1) / TILE;  // of about as many rows each: 13 rows are 6 and 7
#pragma omp for schedule(static) nowait
    for (int64_t n = 0; n < N; n += BLOCK)
        for (int64_t i = 0; i < tiles; i++) {
            float sums[TILE * BLOCK];
            const int64_t first = rows * i / tiles, count = rows * (i + 1) / tiles - first, width = std::min(BLOCK, N - n);
            tile(count, x + first * K, w + n * K, K, sums);
            for (int64_t m = 0; m < count; m++) {
                const int64_t at = (first + m) * N + n;
                finish(sums + m * BLOCK, bias ? bias + n : nullptr, other + at, out + at, width, ending);
            }
        }
}

// How many rows `multiply` is for: beyond, and where this is 0, oneDNN's products are faster (measured, or AMX).
template <typename T>
static int64_t most_rows() {
    if (sizeof(T) == 4) return 16;
#if defined(__AVX512BF16__) && defined(__AMX_BF16__)
    return 8;
#elif defined(__AVX512BF16__)
    return INT64_MAX;
#else
    return 0;
#endif
}

