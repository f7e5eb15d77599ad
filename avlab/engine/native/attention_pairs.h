// Attention with products of bfloat16 pairs, 16 positions or 16 sums at a time, where the processor has them. Weights are
// rounded to bfloat16, as the plain form's.
#pragma once

#include "numbers.h"

constexpr int MOST_QUERIES = 24;  // that share a pass over keys and values: query heads of one row and of later ones

#ifdef __AVX512BF16__
constexpr int QUERIES = 6;  // whose sums are in registers together

// Asks for so many bytes from the memory into the second cache: a request's keys and values lie apart from the next
// one's, and where a piece begins the processor's own prefetching knows nothing of it. With it attention of cached
// positions that are in no cache takes a quarter less (measured).
static inline void expect(const bfloat16 *from, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 64) _mm_prefetch(reinterpret_cast<const char *>(from) + i, _MM_HINT_T1);
}

// 16 vectors of 16 words, as a matrix, transposed. out: [16 vectors].
static inline void transpose(const __m512i *in, __m512i *out) {
    __m512i corners[4][4];  // [of rows 4 g to 4 g + 3][the columns of this remainder by 4], by 128-bit lane
    for (int g = 0; g < 4; g++) {
        const __m512i *r = in + 4 * g;
        const __m512i a = _mm512_unpacklo_epi32(r[0], r[1]), b = _mm512_unpackhi_epi32(r[0], r[1]);
        const __m512i c = _mm512_unpacklo_epi32(r[2], r[3]), d = _mm512_unpackhi_epi32(r[2], r[3]);
        corners[g][0] = _mm512_unpacklo_epi64(a, c), corners[g][1] = _mm512_unpackhi_epi64(a, c);
        corners[g][2] = _mm512_unpacklo_epi64(b, d), corners[g][3] = _mm512_unpackhi_epi64(b, d);
    }
    for (int c = 0; c < 4; c++) {
        const __m512i a = _mm512_shuffle_i32x4(corners[0][c], corners[1][c], 0x44);
        const __m512i b = _mm512_shuffle_i32x4(corners[0][c], corners[1][c], 0xee);
        const __m512i d = _mm512_shuffle_i32x4(corners[2][c], corners[3][c], 0x44);
        const __m512i e = _mm512_shuffle_i32x4(corners[2][c], corners[3][c], 0xee);
        out[c] = _mm512_shuffle_i32x4(a, d, 0x88), out[4 + c] = _mm512_shuffle_i32x4(a, d, 0xdd);
        out[8 + c] = _mm512_shuffle_i32x4(b, e, 0x88), out[12 + c] = _mm512_shuffle_i32x4(b, e, 0xdd);
    }
}

static inline __m512bh pair_everywhere(const void *pair) {
    int32_t bits;
    std::memcpy(&bits, pair, 4);
    return (__m512bh)_mm512_set1_epi32(bits);
}

// Scores of R queries at 16 positions, at scores + r * stride. turned: the keys' pairs of entries, [D / 2, 16 positions].
template <int D, int R>
static void score(const __m512i *turned, const bfloat16 *queries, float *scores, int64_t stride) {
    __m512 even[R], odd[R];
    for (int r = 0; r < R; r++) even[r] = odd[r] = _mm512_setzero_ps();
    for (int i = 0; i < D / 2; i += 2)
        for (int r = 0; r < R; r++) {
            even[r] = _mm512_dpbf16_ps(even[r], (__m512bh)turned[i], pair_everywhere(queries + r * D + 2 * i));
            odd[r] = _mm512_dpbf16_ps(odd[r], (__m512bh)turned[i + 1], pair_everywhere(queries + r * D + 2 * i + 2));
        }
    for (int r = 0; r < R; r++) _mm512_storeu_ps(scores + r * stride, _mm512_add_ps(even[r], odd[r]));
}

// mixed[r] = factor[r] * sum of weight[j] value[j] over `last` positions. The weights of query r, bfloat16 in even
// number, at weights + 2 * r * stride. next: keys to expect meanwhile, of
// next_count positions.
template <int D, int R>
static void mix(const bfloat16 *value, const bfloat16 *weights, int64_t stride, int64_t last, const float *factors,
                float *mixed, const bfloat16 *next, int64_t next_count) {
    __m512 sums[R][D / 16];
    for (int r = 0; r < R; r++)
        for (int i = 0; i < D / 16; i++) sums[r][i] = _mm512_setzero_ps();
    for (int64_t j = 0; j < last; j += 2) {
        if (j < next_count) expect(next + j * D, 2 * D * sizeof(bfloat16));
#pragma GCC unroll 4
        for (int i = 0; i < D / 32; i++) {
            const __m512i one = _mm512_loadu_si512(value + j * D + i * 32);
            const __m512i other = j + 1 < last ? _mm512_loadu_si512(value + (j + 1) * D + i * 32) : _mm512_setzero_si512();
            const auto low = (__m512bh)_mm512_unpacklo_epi16(one, other), high = (__m512bh)_mm512_unpackhi_epi16(one, other);
            for (int r = 0; r < R; r++) {
                const __m512bh both = pair_everywhere(weights + 2 * r * stride + j);
                sums[r][2 * i] = _mm512_dpbf16_ps(sums[r][2 * i], low, both);
                sums[r][2 * i + 1] = _mm512_dpbf16_ps(sums[r][2 * i + 1], high, both);
            }
        }
    }
    // low and high hold the first and the second four of every eight entries
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    for (int r = 0; r < R; r++)
        for (int i = 0; i < D / 16; i += 2) {
            const __m512 factor = _mm512_set1_ps(factors[r]), low = sums[r][i], high = sums[r][i + 1];
            float *out = mixed + r * D + i * 16;
            _mm512_storeu_ps(out, _mm512_mul_ps(factor, _mm512_permutex2var_ps(low, first, high)));
            _mm512_storeu_ps(out + 16, _mm512_mul_ps(factor, _mm512_permutex2var_ps(low, second, high)));
        }
}

// As the plain form. next: the keys that are read after these, next_count positions.
template <int D>
static void attend_head(const bfloat16 *key, const bfloat16 *value, const bfloat16 *queries, int n, const int64_t *seen,
                        float scale, std::vector<float> &scores, float *mixed, const bfloat16 *next, int64_t next_count) {
    const int64_t last = seen[n - 1], stride = (last + 15) / 16 * 16;
    scores.resize(n * stride);
    __m512i rows[16], turned[D / 2];
    for (int64_t j = 0; j < last; j += 16) {
        expect(value + j * D, std::min<int64_t>(16, last - j) * D * sizeof(bfloat16));
        for (int i = 0; i < D / 32; i++) {
            for (int64_t k = 0; k < 16; k++)
                rows[k] = j + k < last ? _mm512_loadu_si512(key + (j + k) * D + i * 32) : _mm512_setzero_si512();
            transpose(rows, turned + i * 16);
        }
        for (int r = 0; r < n; r += QUERIES) {
            const bfloat16 *some = queries + r * D;
            float *to = &scores[r * stride + j];
            switch (std::min(QUERIES, n - r)) {
                case 1: score<D, 1>(turned, some, to, stride); break;
                case 2: score<D, 2>(turned, some, to, stride); break;
                case 3: score<D, 3>(turned, some, to, stride); break;
                case 4: score<D, 4>(turned, some, to, stride); break;
                case 5: score<D, 5>(turned, some, to, stride); break;
                default: score<D, 6>(turned, some, to, stride);
            }
        }
    }
    float factors[MOST_QUERIES];
    for (int r = 0; r < n; r++) {
        float *s = &scores[r * stride];
        factors[r] = 1 / exponentials(s, seen[r], scale);
        std::fill(s + seen[r], s + stride, 0.0f);
        for (int64_t j = 0; j < stride; j += 16) {  // in place: a weight takes half of its exponential's room
            const __m256bh narrow = _mm512_cvtneps_pbh(_mm512_loadu_ps(s + j));
            std::memcpy(reinterpret_cast<char *>(s) + 2 * j, &narrow, 32);
        }
    }
    for (int r = 0; r < n; r += QUERIES) {
        const auto weights = reinterpret_cast<const bfloat16 *>(&scores[r * stride]);
        const float *some = factors + r;
        float *to = mixed + r * D;
        switch (std::min(QUERIES, n - r)) {
            case 1: mix<D, 1>(value, weights, stride, last, some, to, next, r ? 0 : next_count); break;
            case 2: mix<D, 2>(value, weights, stride, last, some, to, next, r ? 0 : next_count); break;
            case 3: mix<D, 3>(value, weights, stride, last, some, to, next, r ? 0 : next_count); break;
            case 4: mix<D, 4>(value, weights, stride, last, some, to, next, r ? 0 : next_count); break;
            case 5: mix<D, 5>(value, weights, stride, last, some, to, next, r ? 0 : next_count); break;
            default: mix<D, 6>(value, weights, stride, last, some, to, next, r ? 0 : next_count);
        }
    }
}
#endif
