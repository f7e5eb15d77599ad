// The two number formats of a model, and the exponential.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
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

// x = exp((x - max x) * scale) in place; their sum. x: [count], at least one.
static inline float exponentials(float *x, int64_t count, float scale) {
    float most = x[0], sum = 0;
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < count; i++) most = std::max(most, x[i]);
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++) {
        x[i] = exponential((x[i] - most) * scale);
        sum += x[i];
    }
    return sum;
}
