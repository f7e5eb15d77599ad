// The small operations of a decode step on a CPU, each in one pass: between two matrix products every further call of a
// library operation costs what these do in all. `native.py` builds and calls them; a test holds each to its plain form.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

struct bfloat16 {
    uint16_t bits;
};

static inline float widen(float x) { return x; }
static inline float widen(bfloat16 x) {
    uint32_t bits = uint32_t(x.bits) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}
static inline void narrow(float value, float &out) { out = value; }
static inline void narrow(float value, bfloat16 &out) {  // to the nearest, ties to even
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    out.bits = (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// exp(x) for x <= 0, within two units in the last place: 2^n by its exponent bits, the rest by a polynomial. 0 below -87.
static inline float exponential(float x) {
    const float t = std::max(x * 1.44269504f, -126.0f), n = std::floor(t + 0.5f), f = (t - n) * 0.693147181f;
    const float fraction =
        1 + f * (1 + f * (0.5f + f * (1 / 6.0f + f * (1 / 24.0f + f * (1 / 120.0f + f * (1 / 720.0f))))));
    const int32_t bits = (int32_t(n) + 127) << 23;
    float power;
    std::memcpy(&power, &bits, 4);
    return x < -87 ? 0 : power * fraction;
}

// Products read their weight in blocks of 32 outputs, all inputs of a block in a row, in the order they are used.
constexpr int64_t BLOCK = 32, TILE = 8;
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

template <int M>
static void tile(const bfloat16 *x, const bfloat16 *w, int64_t K, float *sums) {
#ifdef __AVX512BF16__
    __m512 low[M], high[M];
    for (int m = 0; m < M; m++) low[m] = high[m] = _mm512_setzero_ps();
    for (int64_t k = 0; k < K; k += 2) {
        const auto first = (__m512bh)_mm512_loadu_si512(w + k * BLOCK);
        const auto second = (__m512bh)_mm512_loadu_si512(w + k * BLOCK + BLOCK);
        for (int m = 0; m < M; m++) {
            int32_t pair;
            std::memcpy(&pair, x + m * K + k, 4);
            const auto both = (__m512bh)_mm512_set1_epi32(pair);
            low[m] = _mm512_dpbf16_ps(low[m], first, both);
            high[m] = _mm512_dpbf16_ps(high[m], second, both);
        }
    }
    for (int m = 0; m < M; m++) {
        _mm512_storeu_ps(sums + m * BLOCK, low[m]);
        _mm512_storeu_ps(sums + m * BLOCK + 16, high[m]);
    }
#endif
}

enum Ending { NONE, SILU, TIMES, PLUS };

// out = ending(y + bias), `width` entries of a row.
template <typename T, typename Out>
static inline void finish(float *y, const T *bias, const T *other, Out *out, int64_t width, int64_t ending) {
    if (bias)
        for (int64_t i = 0; i < width; i++) y[i] += widen(bias[i]);
    if (ending == SILU)
        for (int64_t i = 0; i < width; i++) {
            const float e = exponential(-std::fabs(y[i]));
            y[i] *= (y[i] < 0 ? e : 1) / (1 + e);
        }
    if (ending == TIMES)
        for (int64_t i = 0; i < width; i++) y[i] *= widen(other[i]);
    if (ending == PLUS)
        for (int64_t i = 0; i < width; i++) y[i] += widen(other[i]);
    for (int64_t i = 0; i < width; i++) narrow(y[i], out[i]);
}

// out = ending(x w^T + bias); w: packed, N outputs, padded to whole blocks. other: [rows, N], the factor or the addend;
// bias and other may be null.
template <typename T, typename Out>
static void multiply(const T *x, const T *w, const T *bias, const T *other, Out *out, int64_t rows, int64_t N, int64_t K,
                     int64_t ending) {
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < N; n += BLOCK)
        for (int64_t first = 0; first < rows; first += TILE) {
            float sums[TILE * BLOCK];
            const int64_t count = std::min(TILE, rows - first), width = std::min(BLOCK, N - n);
            const T *some = x + first * K, *block = w + n * K;
            switch (count) {
                case 1: tile<1>(some, block, K, sums); break;
                case 2: tile<2>(some, block, K, sums); break;
                case 3: tile<3>(some, block, K, sums); break;
                case 4: tile<4>(some, block, K, sums); break;
                case 5: tile<5>(some, block, K, sums); break;
                case 6: tile<6>(some, block, K, sums); break;
                case 7: tile<7>(some, block, K, sums); break;
                default: tile<8>(some, block, K, sums);
            }
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

// out = x / rms(x) * weight, row by row. x, out: [rows, width].
template <typename T>
static void rms_norm(const T *x, const T *weight, T *out, int64_t rows, int64_t width, float epsilon) {
#pragma omp parallel for if (rows * width > 65536)
    for (int64_t r = 0; r < rows; r++) {
        const T *in = x + r * width;
        float squares = 0;
#pragma omp simd reduction(+ : squares)
        for (int64_t i = 0; i < width; i++) squares += widen(in[i]) * widen(in[i]);
        const float scale = 1 / std::sqrt(squares / width + epsilon);
#pragma omp simd
        for (int64_t i = 0; i < width; i++) narrow(widen(in[i]) * scale * widen(weight[i]), out[r * width + i]);
    }
}

// Rotates the queries of qkv in place; writes rotated keys, and values, where they belong in the cache.
// qkv: [rows, heads + 2 * kv_heads, D]; turns: [rows, D / 2] complex; keys, values: [slots, kv_heads, length, D].
template <typename T>
static void rotate(T *qkv, const float *turns, const int64_t *slots, const int64_t *positions, T *keys, T *values,
                   int64_t rows, int64_t heads, int64_t kv_heads, int64_t D, int64_t length) {
#pragma omp parallel for if (rows > 64)
    for (int64_t r = 0; r < rows; r++) {
        T *row = qkv + r * (heads + 2 * kv_heads) * D;
        const float *turn = turns + r * D;
        for (int64_t h = 0; h < heads + kv_heads; h++) {
            const T *in = row + h * D;
            T *out = h < heads ? row + h * D
                               : keys + ((slots[r] * kv_heads + h - heads) * length + positions[r]) * D;
#pragma omp simd
            for (int64_t i = 0; i < D; i += 2) {
                const float a = widen(in[i]), b = widen(in[i + 1]);
                narrow(a * turn[i] - b * turn[i + 1], out[i]);
                narrow(a * turn[i + 1] + b * turn[i], out[i + 1]);
            }
        }
        for (int64_t h = 0; h < kv_heads; h++)
            std::memcpy(values + ((slots[r] * kv_heads + h) * length + positions[r]) * D,
                        row + (heads + kv_heads + h) * D, D * sizeof(T));
    }
}

// scores[r * last + j] = queries[r] . key[j] for R queries and `last` positions. key: [last, D]; queries: [R, D].
template <int D, int R>
static inline void score(const float *key, const float *queries, int64_t last, float *scores) {
    for (int64_t j = 0; j < last; j++)
        for (int r = 0; r < R; r++) {
            float dot = 0;
#pragma omp simd reduction(+ : dot)
            for (int i = 0; i < D; i++) dot += queries[r * D + i] * key[j * D + i];
            scores[r * last + j] = dot;
        }
}

template <int D, int R>
static inline void score(const bfloat16 *key, const bfloat16 *queries, int64_t last, float *scores) {
#ifdef __AVX512BF16__
    __m512bh q[R][D / 32];
    for (int r = 0; r < R; r++)
        for (int i = 0; i < D / 32; i++) q[r][i] = (__m512bh)_mm512_loadu_si512(queries + r * D + i * 32);
    for (int64_t j = 0; j < last; j++) {
        __m256 half[4] = {};  // the four queries' sums are added up together
        for (int r = 0; r < R; r++) {
            __m512 parts = _mm512_setzero_ps();
            for (int i = 0; i < D / 32; i++)
                parts = _mm512_dpbf16_ps(parts, (__m512bh)_mm512_loadu_si512(key + j * D + i * 32), q[r][i]);
            half[r] = _mm256_add_ps(_mm512_castps512_ps256(parts), _mm512_extractf32x8_ps(parts, 1));
        }
        const __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(half[0], half[1]), _mm256_hadd_ps(half[2], half[3]));
        float dots[4];
        _mm_storeu_ps(dots, _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1)));
        for (int r = 0; r < R; r++) scores[r * last + j] = dots[r];
    }
#else
    float row[D];
    for (int64_t j = 0; j < last; j++) {
        for (int i = 0; i < D; i++) row[i] = widen(key[j * D + i]);
        for (int r = 0; r < R; r++) {
            float dot = 0;
#pragma omp simd reduction(+ : dot)
            for (int i = 0; i < D; i++) dot += widen(queries[r * D + i]) * row[i];
            scores[r * last + j] = dot;
        }
    }
#endif
}

// R queries, at most four, of one key head over its positions: query r sees the first seen[r] of them, seen rising.
// key, value: [positions, D]; queries, mixed: [R, D]; scores: room for R * seen[R - 1] numbers.
template <typename T, int D, int R>
static void attend_rows(const T *key, const T *value, const T *queries, const int64_t *seen, float scale, float *scores,
                        float *mixed) {
    const int64_t last = seen[R - 1];
    float row[D], sums[R][D] = {};
    score<D, R>(key, queries, last, scores);
    for (int r = 0; r < R; r++) {
        float *s = scores + r * last, most = s[0], sum = 0;
#pragma omp simd reduction(max : most)
        for (int64_t j = 0; j < seen[r]; j++) most = std::max(most, s[j]);
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < seen[r]; j++) {
            s[j] = exponential((s[j] - most) * scale);
            sum += s[j];
        }
        const float whole = 1 / sum;
#pragma omp simd
        for (int64_t j = 0; j < seen[r]; j++) s[j] *= whole;
        std::fill(s + seen[r], s + last, 0.0f);
    }
    for (int64_t j = 0; j < last; j++) {
#pragma omp simd
        for (int i = 0; i < D; i++) row[i] = widen(value[j * D + i]);
        for (int r = 0; r < R; r++) {
            const float p = scores[r * last + j];
#pragma omp simd
            for (int i = 0; i < D; i++) sums[r][i] += p * row[i];
        }
    }
    std::memcpy(mixed, sums, sizeof sums);
}

// Attention of a few rows a request over the request's own cached positions, its rows causal among themselves.
// Run i holds counts[i] rows from begins[i] on, at consecutive positions of one slot. out: [rows, heads, D].
template <typename T, int D>
static void attend(const T *qkv, const T *keys, const T *values, T *out, const int64_t *slots, const int64_t *positions,
                   const int64_t *begins, const int64_t *counts, int64_t runs, int64_t heads, int64_t kv_heads,
                   int64_t length) {
    const int64_t share = heads / kv_heads, stride = (heads + 2 * kv_heads) * D;
    const float scale = 1 / std::sqrt(float(D));
    constexpr int TILE = 4;
#pragma omp parallel
    {
        std::vector<float> scores;
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < runs * kv_heads; task++) {
            const int64_t first = begins[task / kv_heads], R = counts[task / kv_heads] * share, head = task % kv_heads;
            const int64_t cached = (slots[first] * kv_heads + head) * length * D;
            for (int64_t r0 = 0; r0 < R; r0 += TILE) {  // query heads of the same row and of later ones
                const int n = int(std::min<int64_t>(TILE, R - r0));
                T queries[TILE * D];
                float mixed[TILE * D];
                int64_t seen[TILE], place[TILE];
                for (int r = 0; r < n; r++) {
                    const int64_t query = first + (r0 + r) / share;
                    place[r] = head * share + (r0 + r) % share, seen[r] = positions[query] + 1;
                    const T *q = qkv + query * stride + place[r] * D;
                    place[r] = (query * heads + place[r]) * D;
                    std::memcpy(queries + r * D, q, D * sizeof(T));
                }
                scores.resize(n * seen[n - 1]);
                const auto rows = n == 4   ? attend_rows<T, D, 4>
                                  : n == 3 ? attend_rows<T, D, 3>
                                  : n == 2 ? attend_rows<T, D, 2>
                                           : attend_rows<T, D, 1>;
                rows(keys + cached, values + cached, queries, seen, scale, scores.data(), mixed);
                for (int r = 0; r < n; r++)
#pragma omp simd
                    for (int i = 0; i < D; i++) narrow(mixed[r * D + i], out[place[r] + i]);
            }
        }
    }
}

// log of the sum of exp(x) over each row. x: [rows, width].
static void log_sum_exp(const float *x, float *out, int64_t rows, int64_t width) {
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t r = 0; r < rows; r++) {
        const float *in = x + r * width;
        float most = -INFINITY, sum = 0;
#pragma omp simd reduction(max : most)
        for (int64_t i = 0; i < width; i++) most = std::max(most, in[i]);
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < width; i++) sum += exponential(in[i] - most);
        out[r] = most + std::log(sum);
    }
}

// The column in which the running sum of a row's weights first exceeds `uniform` of their whole sum. weight(i) gives the
// weights, not negative; sums in float inside blocks and in double over them, so that light columns keep their share.
template <typename Weight>
static int64_t inverse_transform(const Weight &weight, int64_t width, double uniform) {
    constexpr int64_t PART = 256;
    std::vector<double> sums((width + PART - 1) / PART);
    double sum = 0;
    for (size_t b = 0; b < sums.size(); b++) {
        float part = 0;
#pragma omp simd reduction(+ : part)
        for (int64_t i = b * PART; i < std::min<int64_t>(width, (b + 1) * PART); i++) part += weight(i);
        sums[b] = sum += part;
    }
    const double at = uniform * sum;
    const size_t b = std::min<size_t>(std::upper_bound(sums.begin(), sums.end(), at) - sums.begin(), sums.size() - 1);
    double running = b ? sums[b - 1] : 0;
    int64_t chosen = 0;
    for (int64_t i = b * PART; i < std::min<int64_t>(width, (b + 1) * PART); i++) {
        const float w = weight(i);
        if (w > 0) chosen = i;  // the last of any weight, where rounding left `at` beyond the block
        if ((running += w) > at) break;
    }
    return chosen;
}

// A column of each named row of x by inverse transform of exp(x - normaliser). rows: [count] row numbers.
static void draw_rows(const float *x, const int64_t *rows, const float *normalisers, const double *uniforms,
                      int64_t *columns, int64_t count, int64_t width) {
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t m = 0; m < count; m++) {
        const float *in = x + rows[m] * width, normaliser = normalisers[rows[m]];
        columns[m] = inverse_transform([=](int64_t i) { return exponential(in[i] - normaliser); }, width, uniforms[m]);
    }
}

// The columns of each named row whose entries are above the row's floor, rising, at columns + m * width; how many.
static void above(const float *x, const int64_t *rows, const float *floors, int64_t *counts, int32_t *columns,
                  int64_t count, int64_t width) {
    constexpr int64_t PART = 64;
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t m = 0; m < count; m++) {
        const float *in = x + rows[m] * width;
        int64_t found = 0;
        for (int64_t first = 0; first < width; first += PART) {
            const int64_t end = std::min(width, first + PART);
            float most = -INFINITY;
#pragma omp simd reduction(max : most)
            for (int64_t i = first; i < end; i++) most = std::max(most, in[i]);
            if (!(most > floors[m])) continue;
            for (int64_t i = first; i < end; i++)
                if (in[i] > floors[m]) columns[m * width + found++] = int32_t(i);
        }
        counts[m] = found;
    }
}

// A draft token and its distribution from each row of logits. q = softmax(logits / temperature); feature: the log-odds
// of q's maximum, clamped; column: q's inverse transform at the row's uniform. Temperature 0: q is certain of the first
// maximum, and the feature is that of the unscaled row. q's rows lie `q_stride` apart, uniforms `uniform_stride`.
template <typename T>
static void draw(const T *logits, const float *temperatures, const double *uniforms, float *q, double *features,
                 int64_t *columns, int64_t rows, int64_t width, int64_t q_stride, int64_t uniform_stride) {
#pragma omp parallel for if (rows * width > 65536)
    for (int64_t r = 0; r < rows; r++) {
        const bool greedy = temperatures[r] == 0;
        const float heat = greedy ? 1 : 1 / temperatures[r];
        const T *in = logits + r * width;
        float *row = q + r * q_stride, most = -INFINITY, others = 0;
#pragma omp simd reduction(max : most)
        for (int64_t i = 0; i < width; i++) {
            row[i] = widen(in[i]) * heat;
            most = std::max(most, row[i]);
        }
        const int64_t top = std::min<int64_t>(std::find(row, row + width, most) - row, width - 1);  // not a number: last
#pragma omp simd
        for (int64_t i = 0; i < width; i++) row[i] = exponential(row[i] - most);
        row[top] = 0;  // summed apart, so that nothing is lost near certainty; its equals count among the others
#pragma omp simd reduction(+ : others)
        for (int64_t i = 0; i < width; i++) others += row[i];
        row[top] = 1;
        features[r] = std::min(40.0, std::max(-40.0, -std::log(double(others))));
        if (greedy) {
            std::fill(row, row + width, 0.0f);
            row[top] = 1, columns[r] = top;
            continue;
        }
        const float whole = 1 / (1 + others);
#pragma omp simd
        for (int64_t i = 0; i < width; i++) row[i] *= whole;
        columns[r] = inverse_transform([=](int64_t i) { return row[i]; }, width, uniforms[r * uniform_stride]);
    }
}

#define EXPORT(T, suffix)                                                                                              \
    int64_t most_rows_##suffix() { return most_rows<T>(); }                                                            \
    void pack_##suffix(const T *w, T *packed, int64_t N, int64_t K) { pack(w, packed, N, K); }                         \
    void multiply_##suffix(const T *x, const T *w, const T *bias, const T *other, T *out, int64_t rows, int64_t N,     \
                           int64_t K, int64_t ending) {                                                                \
        multiply(x, w, bias, other, out, rows, N, K, ending);                                                          \
    }                                                                                                                  \
    void logits_##suffix(const T *x, const T *w, float *out, int64_t rows, int64_t N, int64_t K) {                     \
        multiply<T, float>(x, w, nullptr, nullptr, out, rows, N, K, NONE);                                             \
    }                                                                                                                  \
    void rms_norm_##suffix(const T *x, const T *w, T *out, int64_t rows, int64_t width, float epsilon) {               \
        rms_norm(x, w, out, rows, width, epsilon);                                                                     \
    }                                                                                                                  \
    void rotate_##suffix(T *qkv, const float *turns, const int64_t *slots, const int64_t *positions, T *keys,          \
                         T *values, int64_t rows, int64_t heads, int64_t kv_heads, int64_t D, int64_t length) {        \
        rotate(qkv, turns, slots, positions, keys, values, rows, heads, kv_heads, D, length);                          \
    }                                                                                                                  \
    void attend_##suffix(const T *qkv, const T *keys, const T *values, T *out, const int64_t *slots,                   \
                         const int64_t *positions, const int64_t *begins, const int64_t *counts, int64_t runs,         \
                         int64_t heads, int64_t kv_heads, int64_t D, int64_t length) {                                 \
        (D == 64 ? attend<T, 64> : attend<T, 128>)(qkv, keys, values, out, slots, positions, begins, counts, runs,     \
                                                   heads, kv_heads, length);                                           \
    }                                                                                                                  \
    void draw_##suffix(const T *logits, const float *temperatures, const double *uniforms, float *q, double *features, \
                       int64_t *columns, int64_t rows, int64_t width, int64_t q_stride, int64_t uniform_stride) {      \
        draw(logits, temperatures, uniforms, q, features, columns, rows, width, q_stride, uniform_stride);             \
    }

extern "C" {
EXPORT(float, float32)
EXPORT(bfloat16, bfloat16)
void log_sum_exp_float32(const float *x, float *out, int64_t rows, int64_t width) { log_sum_exp(x, out, rows, width); }
void draw_rows_float32(const float *x, const int64_t *rows, const float *normalisers, const double *uniforms,
                       int64_t *columns, int64_t count, int64_t width) {
    draw_rows(x, rows, normalisers, uniforms, columns, count, width);
}
void above_float32(const float *x, const int64_t *rows, const float *floors, int64_t *counts, int32_t *columns,
                   int64_t count, int64_t width) {
    above(x, rows, floors, counts, columns, count, width);
}
}
