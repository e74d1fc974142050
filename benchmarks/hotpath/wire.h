/* What the load generator and the reference server share: big-endian numbers, varints and the CRC of a record batch. */
#pragma once
#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { API_PRODUCE = 0, API_FETCH = 1 };
enum { LENGTH_SIZE = 4 };

/* Positions in a record batch, format 2. */
enum {
    BATCH_LENGTH = 8,
    BATCH_LEADER_EPOCH = 12,
    BATCH_CRC = 17,
    BATCH_ATTRIBUTES = 21, /* the CRC covers the bytes from here on */
    BATCH_LAST_OFFSET_DELTA = 23,
    BATCH_BASE_SEQUENCE = 53,
    BATCH_RECORD_COUNT = 57,
    BATCH_HEADER_SIZE = 61,
    BATCH_OVERHEAD = 12, /* base offset and length, which the length does not count */
};

static inline uint16_t read16(const uint8_t *at) { uint16_t v; memcpy(&v, at, 2); return be16toh(v); }
static inline uint32_t read32(const uint8_t *at) { uint32_t v; memcpy(&v, at, 4); return be32toh(v); }
static inline uint64_t read64(const uint8_t *at) { uint64_t v; memcpy(&v, at, 8); return be64toh(v); }
static inline void write32(uint8_t *at, uint32_t value) { value = htobe32(value); memcpy(at, &value, 4); }
static inline void write64(uint8_t *at, uint64_t value) { value = htobe64(value); memcpy(at, &value, 8); }

static inline uint32_t read_varint(const uint8_t **at)
{
    uint32_t value = 0;
    for (int shift = 0;; shift += 7) {
        uint8_t byte = *(*at)++;
        value |= (byte & 0x7fu) << shift;
        if (byte < 0x80) return value;
    }
}

static inline uint8_t *write_varint(uint8_t *at, uint32_t value)
{
    for (; value >= 0x80; value >>= 7) *at++ = (uint8_t)(value | 0x80);
    *at++ = (uint8_t)value;
    return at;
}

#if defined(__SSE4_2__)
#include <nmmintrin.h>
static inline uint32_t crc32c(const uint8_t *at, size_t size)
{
    uint64_t crc = 0xffffffff;
    for (; size >= 8; at += 8, size -= 8) { uint64_t v; memcpy(&v, at, 8); crc = _mm_crc32_u64(crc, v); }
    while (size--) crc = _mm_crc32_u8((uint32_t)crc, *at++);
    return ~(uint32_t)crc;
}
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
static inline uint32_t crc32c(const uint8_t *at, size_t size)
{
    uint32_t crc = 0xffffffff;
    for (; size >= 8; at += 8, size -= 8) { uint64_t v; memcpy(&v, at, 8); crc = __crc32cd(crc, v); }
    while (size--) crc = __crc32cb(crc, *at++);
    return ~crc;
}
#else
#error "the hot-path benchmark needs a processor with CRC-32C instructions (cc -march=native)"
#endif

static inline uint32_t batch_crc(const uint8_t *batch, size_t size)
{
    return crc32c(batch + BATCH_ATTRIBUTES, size - BATCH_ATTRIBUTES);
}
