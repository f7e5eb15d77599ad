// Matrix tiles: eight registers of 16 rows of 64 bytes, and the product of two of them. AMX has them; plain loops do the
// same, so that whatever is written for tiles is tested on every processor.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "numbers.h"

constexpr int TILES = 8, TILE_ROWS = 16, TILE_BYTES = 64;

// What LDTILECFG reads: Intel's manual, volume 1, chapter 18. A tile of no rows has no columns either.
struct alignas(64) TileShapes {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};

    void set(int tile, int64_t count) { rows[tile] = uint8_t(count), bytes[tile] = count ? TILE_BYTES : 0; }
};

// The operations in plain loops.
struct SoftwareTiles {
    alignas(64) char data[TILES][TILE_ROWS][TILE_BYTES];
    uint8_t rows[TILES];

    void configure(const TileShapes &shapes) {
        std::memcpy(rows, shapes.rows, TILES);
        std::memset(data, 0xff, sizeof data);  // what nobody has written is not a number
    }
    void release() {}
    template <int tile>
    void zero() {
        std::memset(data[tile], 0, sizeof data[tile]);
    }
    template <int tile>
    void load(const void *from, int64_t stride) {
        for (int r = 0; r < rows[tile]; r++)
            std::memcpy(data[tile][r], static_cast<const char *>(from) + r * stride, TILE_BYTES);
    }
    template <int tile>
    void store(void *to, int64_t stride) {
        for (int r = 0; r < rows[tile]; r++) std::memcpy(static_cast<char *>(to) + r * stride, data[tile][r], TILE_BYTES);
    }
    // sums += left right: left [rows, 16 pairs of bfloat16], right [16 pairs, 16 columns], sums [rows, 16] float
    template <int sums, int left, int right>
    void multiply() {
        for (int r = 0; r < rows[sums]; r++)
            for (int k = 0; k < rows[right]; k++)
                for (int c = 0; c < 16; c++) {
                    bfloat16 x[2], w[2];
                    float sum;
                    std::memcpy(x, data[left][r] + 4 * k, 4), std::memcpy(w, data[right][k] + 4 * c, 4);
                    std::memcpy(&sum, data[sums][r] + 4 * c, 4);
                    sum += widen(x[0]) * widen(w[0]) + widen(x[1]) * widen(w[1]);
                    std::memcpy(data[sums][r] + 4 * c, &sum, 4);
                }
    }
};

#ifdef __x86_64__
// The processor's own. The assembler knows these instructions whatever processor is compiled for.
struct ProcessorTiles {
    void configure(const TileShapes &shapes) { asm volatile("ldtilecfg %0" ::"m"(shapes)); }
    void release() { asm volatile("tilerelease"); }
    template <int tile>
    void zero() {
        asm volatile("tilezero %%tmm%c0" ::"i"(tile));
    }
    template <int tile>
    void load(const void *from, int64_t stride) {
        asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(tile), "r"(from), "r"(stride) : "memory");
    }
    template <int tile>
    void store(void *to, int64_t stride) {
        asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(tile), "r"(to), "r"(stride) : "memory");
    }
    template <int sums, int left, int right>
    void multiply() {
        asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(left), "i"(right));
    }
};

// Whether the processor has tiles of bfloat16.
static bool processor_has_tiles() {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1) && (d >> 24 & 1);  // AMX-BF16, AMX-TILE
}

// Whether the system lets this process use them; asks for it. Linux saves their contents only for who asked.
static bool may_use_tiles() {
    constexpr long ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18;
    return processor_has_tiles() && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}
#else
typedef SoftwareTiles ProcessorTiles;  // never used: the processor has none
static bool processor_has_tiles() { return false; }
static bool may_use_tiles() { return false; }
#endif
