// Passes along rows as long as a vocabulary.
#pragma once

#include "numbers.h"

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

// The cut of top-k, then top-p, for each named row of x, logits over temperature: the kept columns by rank at
// columns + m * width, their masses, not yet divided by their sum, at masses + m * width, and how many. top_k: 0 for all. Only columns
// above a small probability are looked at, e^first of the whole; where those do not hold the mass to keep, or k columns,
// the bound falls, beyond e^last down to every column. Columns rank by entry, equals by number.
static void nucleus(const float *x, const int64_t *rows, const float *normalisers, const int64_t *top_k, const float *top_p,
                    float first, float last, int64_t *counts, int32_t *columns, float *masses, int64_t count,
                    int64_t width) {
    constexpr int64_t PART = 64;
#pragma omp parallel
    {
        std::vector<std::pair<float, int32_t>> found;
#pragma omp for schedule(dynamic, 1)
        for (int64_t m = 0; m < count; m++) {
            const float *in = x + rows[m] * width, normaliser = normalisers[rows[m]];
            const int64_t wanted = top_k[m] > 0 ? std::min(top_k[m], width) : width;
            for (float bound = first;; bound = bound > last ? bound - std::log(8.0f) : -INFINITY) {
                const float floor = normaliser + bound;
                double mass = 0;
                found.clear();
                for (int64_t begin = 0; begin < width; begin += PART) {
                    const int64_t end = std::min(width, begin + PART);
                    float most = -INFINITY;
#pragma omp simd reduction(max : most)
                    for (int64_t i = begin; i < end; i++) most = std::max(most, in[i]);
                    if (!(most > floor)) continue;
                    for (int64_t i = begin; i < end; i++)
                        if (in[i] > floor) {
                            found.emplace_back(in[i], int32_t(i));
                            mass += std::exp(double(in[i] - normaliser));
                        }
                }
                const bool is_short = wanted < width ? int64_t(found.size()) < wanted : mass < top_p[m];
                if (!is_short || std::isinf(bound)) break;
            }
            std::sort(found.begin(), found.end(),
                      [](auto a, auto b) { return a.first > b.first || (a.first == b.first && a.second < b.second); });
            found.resize(std::min<int64_t>(found.size(), wanted));
            double whole = 1, running = 0;
            if (wanted < width) {
                whole = 0;
                for (auto [entry, column] : found) whole += std::exp(double(entry - normaliser));
            }
            int64_t kept = 0;
            for (auto [entry, column] : found) {  // the column that crosses top-p is kept, and there is always one
                if (kept && top_p[m] < 1 && running >= top_p[m] * whole) break;
                const double mass = std::exp(double(entry - normaliser));
                if (kept && mass == 0) break;
                running += mass, columns[m * width + kept] = column, masses[m * width + kept++] = float(mass);
            }
            for (int64_t i = 0; i < kept; i++) masses[m * width + i] = float(masses[m * width + i] / running);
            counts[m] = kept;
        }
    }
}

// A draft token and its distribution from each row of logits. q = softmax(logits / temperature); feature: the log-odds
// of q's maximum, clamped; column: q's inverse transform at the row's uniform. Temperature 0: q is certain of the first
// maximum, and the feature is that of the unscaled row. weights: null, or where q is kept as it is before a greedy
// request's row is made certain. Their rows lie `q_stride` apart, uniforms `uniform_stride`, features and columns
// `stride`. For a team.
template <typename T>
static void draw(const T *logits, const float *temperatures, const double *uniforms, float *q, float *weights,
                 double *features, int64_t *columns, int64_t rows, int64_t width, int64_t q_stride,
                 int64_t uniform_stride, int64_t stride) {
#pragma omp for
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
        features[r * stride] = std::min(40.0, std::max(-40.0, -std::log(double(others))));
        const float whole = 1 / (1 + others);
        if (weights) std::transform(row, row + width, weights + r * q_stride, [=](float w) { return w * whole; });
        if (greedy) {
            std::fill(row, row + width, 0.0f);
            row[top] = 1, columns[r * stride] = top;
            continue;
        }
#pragma omp simd
        for (int64_t i = 0; i < width; i++) row[i] *= whole;
        columns[r * stride] = inverse_transform([=](int64_t i) { return row[i]; }, width, uniforms[r * uniform_stride]);
    }
}

