// The sequential part of a block drafter: each position's distribution from the tokens drawn before it.
#pragma once

#include "products.h"
#include "rows.h"

// Weights and inputs of B requests and K positions; products packed. See BlockDrafter.position.
template <typename T>
struct Recurrence {
    const T *base, *drive;                                        // [K, B, Q] and [K, B, M]: the parallel pass's part
    const T *token_drive, *carry, *carry_bias, *out, *out_bias;  // [V, M]; M to M; M to Q
    const int64_t *ids, *newest;                                  // [Q] the draft vocabulary; [B] the tokens before
    const float *temperatures;                                    // [B]
    const double *uniforms;                                       // [B, K], rows `uniform_stride` apart
    float *q, *weights;                                           // [B, K, Q]; weights may be null, see draw
    double *features;                                             // [B, K]
    int64_t *columns;                                             // [B, K]
    T *states;                                                    // [K, B, M]
    int64_t B, K, Q, M, uniform_stride;
};

// Draws K tokens for each request, by one team of threads. Writes q, features, columns and states.
template <typename T>
static void recur(const Recurrence<T> &r) {
    const int64_t B = r.B, Q = r.Q, M = r.M;
    const std::unique_ptr<T[]> memory(new T[2 * B * M + B * Q]);
    T *input = memory.get(), *zero = input + B * M, *logits = zero + B * M;
    std::fill_n(reinterpret_cast<char *>(zero), B * M * sizeof(T), 0);
#pragma omp parallel
    for (int64_t k = 0; k < r.K; k++) {
        T *state = r.states + k * B * M;
#pragma omp for
        for (int64_t b = 0; b < B; b++) {
            const int64_t before = k ? r.ids[r.columns[b * r.K + k - 1]] : r.newest[b];
            for (int64_t i = 0; i < M; i++)
                narrow(widen(r.drive[(k * B + b) * M + i]) + widen(r.token_drive[before * M + i]), input[b * M + i]);
        }
        multiply<T, T>(k ? state - B * M : zero, r.carry, r.carry_bias, input, state, B, M, M, PLUS);
#pragma omp barrier
#pragma omp for
        for (int64_t i = 0; i < B * M; i++) narrow(silu(widen(state[i])), state[i]);
        multiply<T, T>(state, r.out, r.out_bias, r.base + k * B * Q, logits, B, Q, M, PLUS);
#pragma omp barrier
        draw(logits, r.temperatures, r.uniforms + k, r.q + k * Q, r.weights ? r.weights + k * Q : nullptr,
             r.features + k, r.columns + k, B, Q, r.K * Q, r.uniform_stride, r.K);
    }
}
