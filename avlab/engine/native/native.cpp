// The operations of a step on a CPU that are C++, as C functions: between two matrix products every further call of a
// library operation costs what these do in all. `__init__.py` builds and calls them; tests hold each to its plain form.

#include "layers.h"
#include "recurrence.h"

#define EXPORT(T, suffix)                                                                                              \
    int64_t most_rows_##suffix() { return most_rows<T>(); }                                                            \
    void pack_##suffix(const T *w, T *packed, int64_t N, int64_t K) { pack(w, packed, N, K); }                         \
    void multiply_##suffix(const T *x, const T *w, const T *bias, const T *other, T *out, int64_t rows, int64_t N,     \
                           int64_t K, int64_t ending) {                                                                \
        _Pragma("omp parallel") multiply(x, w, bias, other, out, rows, N, K, ending);                                  \
    }                                                                                                                  \
    void logits_##suffix(const T *x, const T *w, float *out, int64_t rows, int64_t N, int64_t K) {                     \
        _Pragma("omp parallel") multiply<T, float>(x, w, nullptr, nullptr, out, rows, N, K, NONE);                     \
    }                                                                                                                  \
    void rms_norm_##suffix(const T *x, const T *w, T *out, int64_t rows, int64_t width, float epsilon) {               \
        _Pragma("omp parallel if (rows * width > 65536)") rms_norm(x, w, out, rows, width, epsilon);                   \
    }                                                                                                                  \
    void rotate_##suffix(T *qkv, const float *turns, const int64_t *cache_rows, const int64_t *positions, T *keys,          \
                         T *values, int64_t rows, int64_t heads, int64_t kv_heads, int64_t D, int64_t length) {        \
        _Pragma("omp parallel if (rows > 64)")                                                                         \
            rotate(qkv, turns, cache_rows, positions, keys, values, rows, heads, kv_heads, D, length);                      \
    }                                                                                                                  \
    void attend_##suffix(const T *qkv, const T *keys, const T *values, T *out, const int64_t *cache_rows,                   \
                         const int64_t *positions, const int64_t *begins, const int64_t *counts, int64_t runs,         \
                         int64_t heads, int64_t kv_heads, int64_t D, int64_t length) {                                 \
        const auto attention = D == 64 ? attend<T, 64> : attend<T, 128>;                                               \
        const std::vector<Part> parts = parts_of(counts, runs, kv_heads, heads / kv_heads);                            \
        std::atomic<int64_t> taken(0);                                                                                 \
        _Pragma("omp parallel") attention(qkv, keys, values, out, cache_rows, positions, begins, counts, parts, taken, \
                                          heads, kv_heads, length);                                                    \
    }                                                                                                                  \
    void forward_##suffix(const Layer<T> *layers, int64_t count, T *x, const Places *at, int64_t hidden,               \
                          int64_t intermediate, float epsilon) {                                                       \
        forward(layers, count, x, *at, hidden, intermediate, epsilon);                                                 \
    }                                                                                                                  \
    void draw_##suffix(const T *logits, const float *temperatures, const double *uniforms, float *q, float *weights,   \
                       double *features, int64_t *columns, int64_t rows, int64_t width, int64_t q_stride,              \
                       int64_t uniform_stride) {                                                                       \
        _Pragma("omp parallel if (rows * width > 65536)") draw(logits, temperatures, uniforms, q, weights, features,   \
                                                               columns, rows, width, q_stride, uniform_stride, 1);     \
    }                                                                                                                  \
    void recur_##suffix(const Recurrence<T> *r) { recur(*r);                                                           \
    }

extern "C" {
EXPORT(float, float32)
EXPORT(bfloat16, bfloat16)
int64_t has_tiles_bfloat16() { return processor_has_tiles(); }
int64_t may_use_tiles_bfloat16() { return may_use_tiles(); }
void use_tiles_bfloat16(int64_t from) { tiles_from = from; }
void multiply_in_software_tiles_bfloat16(const bfloat16 *x, const bfloat16 *w, const bfloat16 *bias, const bfloat16 *other,
                                         bfloat16 *out, int64_t rows, int64_t N, int64_t K, int64_t ending) {
    _Pragma("omp parallel") multiply_by<TileSums<SoftwareTiles>>(x, w, bias, other, out, rows, N, K, ending);
}
void log_sum_exp_float32(const float *x, float *out, int64_t rows, int64_t width) { log_sum_exp(x, out, rows, width); }
void draw_rows_float32(const float *x, const int64_t *rows, const float *normalisers, const double *uniforms,
                       int64_t *columns, int64_t count, int64_t width) {
    draw_rows(x, rows, normalisers, uniforms, columns, count, width);
}
void nucleus_float32(const float *x, const int64_t *rows, const float *normalisers, const int64_t *top_k,
                     const float *top_p, float first, float last, int64_t *counts, int32_t *columns, float *masses,
                     int64_t count, int64_t width) {
    nucleus(x, rows, normalisers, top_k, top_p, first, last, counts, columns, masses, count, width);
}
}
