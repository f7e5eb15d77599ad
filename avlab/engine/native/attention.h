// Attention of a batch's rows over each request's own cached positions.
#pragma once

#include <atomic>

#include "attention_pairs.h"

// Attention of n queries, at most MOST_QUERIES, to one key head: query r to the first seen[r] positions, seen rising.
// key, value: [positions, D]; queries, mixed: [n, D]; scores: scratch memory. What is read next stays unused here.
template <int D, typename T>
static void attend_head(const T *key, const T *value, const T *queries, int n, const int64_t *seen, float scale,
                        std::vector<float> &scores, float *mixed, const T *, int64_t) {
    const int64_t last = seen[n - 1];
    scores.resize(n * last);
    float row[D];
    for (int64_t j = 0; j < last; j++) {
#pragma omp simd
        for (int i = 0; i < D; i++) row[i] = widen(key[j * D + i]);
        for (int r = 0; r < n; r++) {
            float dot = 0;
#pragma omp simd reduction(+ : dot)
            for (int i = 0; i < D; i++) dot += widen(queries[r * D + i]) * row[i];
            scores[r * last + j] = dot;
        }
    }
    std::fill(mixed, mixed + n * D, 0.0f);
    for (int r = 0; r < n; r++) {
        float *s = &scores[r * last];
        const float whole = 1 / exponentials(s, seen[r], scale);
#pragma omp simd
        for (int64_t j = 0; j < seen[r]; j++) s[j] *= whole;
        std::fill(s + seen[r], s + last, 0.0f);
    }
    for (int64_t j = 0; j < last; j++) {
#pragma omp simd
        for (int i = 0; i < D; i++) row[i] = widen(value[j * D + i]);
        for (int r = 0; r < n; r++) {
            const float p = scores[r * last + j];
#pragma omp simd
            for (int i = 0; i < D; i++) mixed[r * D + i] += p * row[i];
        }
    }
}

// A part of a batch's attention: rows of one request, from its query `first` on, at one key head. Queries count a row's
// query heads of that key head, then the next row's.
struct Part {
    int64_t run, head, first;
};

// The parts of a batch: run i holds counts[i] rows. They are small enough that threads end together also where one
// request has a whole prompt; those of the same keys follow each other.
static std::vector<Part> parts_of(const int64_t *counts, int64_t runs, int64_t kv_heads, int64_t share) {
    std::vector<Part> parts;
    for (int64_t run = 0; run < runs; run++)
        for (int64_t head = 0; head < kv_heads; head++)
            for (int64_t first = 0; first < counts[run] * share; first += MOST_QUERIES) parts.push_back({run, head, first});
    return parts;
}

// Attention of a batch's requests, rows causal among themselves. Run i holds counts[i] rows from begins[i] on, at
// consecutive positions of one cache row. qkv: [rows, heads + 2 * kv_heads, D]; out: [rows, heads, D]. For a team, which
// takes the parts in turn: each thread takes one part ahead, so that it knows what it reads next. taken: 0.
template <typename T, int D>
static void attend(const T *qkv, const T *keys, const T *values, T *out, const int64_t *cache_rows, const int64_t *positions,
                   const int64_t *begins, const int64_t *counts, const std::vector<Part> &parts,
                   std::atomic<int64_t> &taken, int64_t heads, int64_t kv_heads, int64_t length) {
    const int64_t share = heads / kv_heads, stride = (heads + 2 * kv_heads) * D, all = parts.size();
    const float scale = 1 / std::sqrt(float(D));
    const auto cached = [=, &parts](int64_t i) {
        return (cache_rows[begins[parts[i].run]] * kv_heads + parts[i].head) * length * D;
    };
    std::vector<float> scores;
    for (int64_t i = taken++, next; i < all; i = next) {
        next = taken++;
        const Part &part = parts[i];
        const int64_t first = begins[part.run];
        const int n = int(std::min<int64_t>(MOST_QUERIES, counts[part.run] * share - part.first));
        T queries[MOST_QUERIES * D];
        float mixed[MOST_QUERIES * D];
        int64_t seen[MOST_QUERIES], place[MOST_QUERIES];
        for (int r = 0; r < n; r++) {
            const int64_t row = first + (part.first + r) / share, query = part.head * share + (part.first + r) % share;
            seen[r] = positions[row] + 1, place[r] = (row * heads + query) * D;
            std::memcpy(queries + r * D, qkv + row * stride + query * D, D * sizeof(T));
        }
        const bool moves_on = next < all && cached(next) != cached(i);
        attend_head<D>(keys + cached(i), values + cached(i), queries, n, seen, scale, scores, mixed,
                       moves_on ? keys + cached(next) : nullptr,
                       moves_on ? positions[begins[parts[next].run]] + 1 : 0);
        for (int r = 0; r < n; r++)
#pragma omp simd
            for (int d = 0; d < D; d++) narrow(mixed[r * D + d], out[place[r] + d]);
    }
#pragma omp barrier
}
