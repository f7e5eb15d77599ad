// A Llama layer over rows of several requests.
#pragma once

#include "attention.h"
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
// qkv: [rows, heads + 2 * kv_heads, D]; turns: [rows, D / 2] complex; keys, values: [cache rows, kv_heads, length, D].
template <typename T>
static void rotate(T *qkv, const float *turns, const int64_t *cache_rows, const int64_t *positions, T *keys, T *values,
                   int64_t rows, int64_t heads, int64_t kv_heads, int64_t D, int64_t length) {
#pragma omp for
    for (int64_t r = 0; r < rows; r++) {
        T *row = qkv + r * (heads + 2 * kv_heads) * D;
        const float *turn = turns + r * D;
        for (int64_t h = 0; h < heads + kv_heads; h++) {
            const T *in = row + h * D;
            T *out = h < heads ? row + h * D
                               : keys + ((cache_rows[r] * kv_heads + h - heads) * length + positions[r]) * D;
#pragma omp simd
            for (int64_t i = 0; i < D; i += 2) {
                const float a = widen(in[i]), b = widen(in[i + 1]);
                narrow(a * turn[i] - b * turn[i + 1], out[i]);
                narrow(a * turn[i + 1] + b * turn[i], out[i + 1]);
            }
        }
        for (int64_t h = 0; h < kv_heads; h++)
            std::memcpy(values + ((cache_rows[r] * kv_heads + h) * length + positions[r]) * D,
                        row + (heads + kv_heads + h) * D, D * sizeof(T));
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
// it. A layer has `heads` query heads of D, and `length` positions a cache row.
struct Places {
    const float *turns;
    const int64_t *cache_rows, *positions, *begins, *counts;
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
    const std::vector<Part> parts = parts_of(at.counts, at.runs, at.kv_heads, at.heads / at.kv_heads);
    std::vector<std::atomic<int64_t>> taken(count);  // of each layer's parts
    T *h = memory.get(), *qkv = h + rows * hidden, *mixed = qkv + rows * joined, *gated = mixed + rows * wide;
#pragma omp parallel
    for (int64_t i = 0; i < count; i++) {
        const Layer<T> &l = layers[i];
        rms_norm(x, l.attention_norm, h, rows, hidden, epsilon);
        multiply<T, T>(h, l.qkv, l.qkv_bias, nullptr, qkv, rows, joined, hidden, NONE);
#pragma omp barrier
        rotate(qkv, at.turns, at.cache_rows, at.positions, l.keys, l.values, rows, at.heads, at.kv_heads, at.D, at.length);
        attention(qkv, l.keys, l.values, mixed, at.cache_rows, at.positions, at.begins, at.counts, parts, taken[i],
                  at.heads, at.kv_heads, at.length);
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
