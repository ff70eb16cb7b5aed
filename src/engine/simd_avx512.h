/* Vectors of 16 floats (AVX-512 F), in the words that kernels_body.h is written in. */
#ifndef TM_ENGINE_SIMD_AVX512_H
#define TM_ENGINE_SIMD_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#define KERNEL(name) name##_avx512

enum { LANES = 16 };
typedef __m512 vf;
typedef __m512i vi;

static inline vf v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline void v_store(float *p, vf v)
{
    _mm512_storeu_ps(p, v);
}
static inline vf v_set(float x)
{
    return _mm512_set1_ps(x);
}
static inline __mmask16 v_first(int left) /* lanes 0 .. left - 1 */
{
    unsigned lanes = left >= LANES ? 0xFFFFU : left <= 0 ? 0U : (1U << left) - 1U;
    return (__mmask16)lanes;
}
static inline vf v_load_some(const float *p, int left) /* 0 behind the first `left` lanes */
{
    return _mm512_maskz_loadu_ps(v_first(left), p);
}
static inline void v_store_some(float *p, int left, vf v)
{
    _mm512_mask_storeu_ps(p, v_first(left), v);
}
static inline vf v_keep_first(vf v, int left, vf other) /* the first `left` lanes of v, the rest of other */
{
    return _mm512_mask_blend_ps(v_first(left), other, v);
}
static inline vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static inline vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
static inline vf v_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
static inline vf v_sqrt(vf a)
{
    return _mm512_sqrt_ps(a);
}
static inline vf v_abs(vf a)
{
    return _mm512_abs_ps(a);
}
static inline vi v_round(vf a) /* to the nearest, even on ties; 0x80000000 out of range */
{
    return _mm512_cvtps_epi32(a);
}
static inline vf v_float(vi a)
{
    return _mm512_cvtepi32_ps(a);
}
static inline vf v_power2(vi n) /* 2^n for n in [-126, 127] */
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
}
static inline int v_any_not_at_most(vf a, vf limit) /* also where a is no number */
{
    return _mm512_cmp_ps_mask(a, limit, _CMP_NLE_UQ) != 0;
}
static inline vi vi_load(const int32_t *p)
{
    return _mm512_loadu_si512(p);
}
static inline void vi_store(int32_t *p, vi v)
{
    _mm512_storeu_si512(p, v);
}
static inline vi vi_load_some(const int32_t *p, int left)
{
    return _mm512_maskz_loadu_epi32(v_first(left), p);
}
static inline void vi_store_some(int32_t *p, int left, vi v)
{
    _mm512_mask_storeu_epi32(p, v_first(left), v);
}
static inline vi vi_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}
static inline vi vi_xor(vi a, vi b)
{
    return _mm512_xor_si512(a, b);
}
static inline vi vi_set(uint32_t x)
{
    return _mm512_set1_epi32((int)x);
}
static inline vi vi_count(uint32_t first) /* first, first + 1, ... */
{
    return _mm512_add_epi32(_mm512_set1_epi32((int)first),
                            _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}
/* 32 x 32 -> 64 bit products of every lane: the high halves and the low halves. */
static inline vi vi_mul(vi a, vi b, vi *out_low)
{
    vi even = _mm512_mul_epu32(a, b);
    vi odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), _mm512_srli_epi64(b, 32));
    *out_low = _mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32));
    return _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd);
}
/* `scale` where the lane's low (or high) 16 bits are at least `threshold`, else 0. */
static inline vf v_scale_if_low(vi bits, uint32_t threshold, vf scale)
{
    vi low = _mm512_and_si512(bits, _mm512_set1_epi32(0xFFFF));
    return _mm512_maskz_mov_ps(_mm512_cmpgt_epi32_mask(low, _mm512_set1_epi32((int)threshold - 1)), scale);
}
static inline vf v_scale_if_high(vi bits, uint32_t threshold, vf scale)
{
    vi high = _mm512_srli_epi32(bits, 16);
    return _mm512_maskz_mov_ps(_mm512_cmpgt_epi32_mask(high, _mm512_set1_epi32((int)threshold - 1)), scale);
}
static inline float v_sum(vf a)
{
    __m256 upper = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1));
    __m256 part = _mm256_add_ps(_mm512_castps512_ps256(a), upper);
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(part), _mm256_extractf128_ps(part, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}
static inline float v_largest(vf a)
{
    __m256 upper = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1));
    __m256 part = _mm256_max_ps(_mm512_castps512_ps256(a), upper);
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(part), _mm256_extractf128_ps(part, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}

#endif
