// A Llama layer over rows of several requests.
#pragma once

#include "products.h"

// out = x / rms(x) * weight, row by row, for a team of threads. x, out: [rows, width].
template <typename T>
static void rms_norm(const T *x, const T *weight, T *out, int64_t rows, int64_t width, float epsilon) {
#pragma omp for
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

// Rotates the queries of qkv in place; writes rotated keys, and values, where they belong in the cache. For a team.
// qkv: [rows, heads + 2 * kv_heads, D]; turns: [rows, D / 2] complex; keys, values: [slots, kv_heads, length, D].
template <typename T>
static void rotate(T *qkv, const float *turns, const int64_t *slots, const int64_t *positions, T *keys, T *values,
                   int64_t rows, int64_t heads, int64_t kv_heads, int64_t D, int64_t length) {
#pragma omp for
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
// Run i holds counts[i] rows from begins[i] on, at consecutive positions of one slot. out: [rows, heads, D]. For a team.
template <typename T, int D>
static void attend(const T *qkv, const T *keys, const T *values, T *out, const int64_t *slots, const int64_t *positions,
                   const int64_t *begins, const int64_t *counts, int64_t runs, int64_t heads, int64_t kv_heads,
                   int64_t length) {
    const int64_t share = heads / kv_heads, stride = (heads + 2 * kv_heads) * D;
    const float scale = 1 / std::sqrt(float(D));
    constexpr int TILE = 4;
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

// One layer's weights, the products packed, and its part of the cache. Biases may be null.
template <typename T>
struct Layer {
    const T *attention_norm, *qkv, *qkv_bias, *out, *out_bias;
    const T *mlp_norm, *gate, *gate_bias, *up, *up_bias, *down, *down_bias;
    T *keys, *values;
};

// Of a step's rows: where each belongs in the cache, and which of them are one request's, as `rotate` and `attend` take
// it. A layer has `heads` query heads of D, and `length` positions a slot.
struct Places {
    const float *turns;
    const int64_t *slots, *positions, *begins, *counts;
    int64_t rows, runs, heads, kv_heads, D, length;
};

// x through all layers, in place, by one team of threads: at a few rows, sending threads out for each operation would
// cost a third of the time. x: [rows, hidden].
template <typename T>
static void forward(const Layer<T> *layers, int64_t count, T *x, const Places &at, int64_t hidden, int64_t intermediate,
                    float epsilon) {
    const auto attention = at.D == 64 ? attend<T, 64> : attend<T, 128>;
    const int64_t rows = at.rows, wide = at.heads * at.D, joined = wide + 2 * at.kv_heads * at.D;
    const std::unique_ptr<T[]> memory(new T[rows * (hidden + joined + wide + intermediate)]);
    T *h = memory.get(), *qkv = h + rows * hidden, *mixed = qkv + rows * joined, *gated = mixed + rows * wide;
#pragma omp parallel
    for (int64_t i = 0; i < count; i++) {
        const Layer<T> &l = layers[i];
        rms_norm(x, l.attention_norm, h, rows, hidden, epsilon);
        multiply<T, T>(h, l.qkv, l.qkv_bias, nullptr, qkv, rows, joined, hidden, NONE);
#pragma omp barrier
        rotate(qkv, at.turns, at.slots, at.positions, l.keys, l.values, rows, at.heads, at.kv_heads, at.D, at.length);
        attention(qkv, l.keys, l.values, mixed, at.slots, at.positions, at.begins, at.counts, at.runs, at.heads,
                  at.kv_heads, at.length);
        multiply<T, T>(mixed, l.out, l.out_bias, x, x, rows, hidden, wide, PLUS);
#pragma omp barrier
        rms_norm(x, l.mlp_norm, h, rows, hidden, epsilon);
        multiply<T, T>(h, l.gate, l.gate_bias, nullptr, gated, rows, intermediate, hidden, SILU);
        multiply<T, T>(h, l.up, l.up_bias, gated, gated, rows, intermediate, hidden, TIMES);
#pragma omp barrier
        multiply<T, T>(gated, l.down, l.down_bias, x, x, rows, hidden, intermediate, PLUS);
#pragma omp barrier
    }
}
