// CUDA's built-in types, arithmetic, loads and atomics, for g++. Threads of the emulator are never
// interrupted, so an atomic is a plain read and write.

#pragma once

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "races.hpp"

// ---- vector types, aligned as the device's vector loads ask ----

#define EMULATOR_VECTORS(type, scalar)                                                              \
    struct alignas(2 * sizeof(scalar)) type##2 {                                                    \
        scalar x, y;                                                                                \
    };                                                                                              \
    struct alignas(16) type##4                             {                                         \
        scalar x, y, z, w;                                                                          \
    };                                                                                              \
    inline type##2 make_##type##2(scalar x, scalar y) { return {x, y}; }                            \
    inline type##4 make_##type##4(scalar x, scalar y, scalar z, scalar w) { return {x, y, z, w}; }

EMULATOR_VECTORS(float, float)
EMULATOR_VECTORS(double, double)
EMULATOR_VECTORS(int, int)
EMULATOR_VECTORS(uint, unsigned int)

// ---- arithmetic ----

// Of mixed types as in C; of floating types the number where the other is NaN.
#define EMULATOR_MIN_MAX(type)                                \
    inline type min(type a, type b) { return b < a ? b : a; } \
    inline type max(type a, type b) { return a < b ? b : a; }

EMULATOR_MIN_MAX(int)
EMULATOR_MIN_MAX(unsigned int)
EMULATOR_MIN_MAX(long)
EMULATOR_MIN_MAX(unsigned long)
EMULATOR_MIN_MAX(long long)
EMULATOR_MIN_MAX(unsigned long long)
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float fdividef(float a, float b) { return a / b; }
inline float __saturatef(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

inline int __popc(unsigned int x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(uint64_t(x)) : 64; }
inline int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
inline unsigned int __umulhi(unsigned int a, unsigned int b) { return unsigned(uint64_t(a) * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

namespace emulator {

template <typename To, typename From>
To bits_as(From value)
{
    static_assert(sizeof(To) == sizeof(From), "the types of a reinterpretation have one size");
    To result;
    memcpy(&result, &value, sizeof result);
    return result;
}

}  // namespace emulator

inline int __float_as_int(float x) { return emulator::bits_as<int>(x); }
inline unsigned int __float_as_uint(float x) { return emulator::bits_as<unsigned int>(x); }
inline float __int_as_float(int x) { return emulator::bits_as<float>(x); }
inline float __uint_as_float(unsigned int x) { return emulator::bits_as<float>(x); }
inline long long __double_as_longlong(double x) { return emulator::bits_as<long long>(x); }
inline double __longlong_as_double(long long x) { return emulator::bits_as<double>(x); }

// ---- loads and stores with a cache hint ----

#define EMULATOR_LOAD(name)    \
    template <typename T>      \
    T name(const T* address)   \
    {                          \
        return *address;       \
    }
#define EMULATOR_STORE(name)            \
    template <typename T>               \
    void name(T* address, T value)      \
    {                                   \
        *address = value;               \
    }

EMULATOR_LOAD(__ldg)
EMULATOR_LOAD(__ldca)
EMULATOR_LOAD(__ldcg)
EMULATOR_LOAD(__ldcs)
EMULATOR_STORE(__stcg)
EMULATOR_STORE(__stcs)
EMULATOR_STORE(__stwt)

// ---- atomics ----

#define EMULATOR_ATOMIC(name, update)                            \
    template <typename T>                                        \
    T name(T* address, decltype(T() + T()) operand)              \
    {                                                            \
        emulator::races::Atomic atomic;                          \
        T old = *address, value = T(operand);                    \
        *address = T(update);                                    \
        return old;                                              \
    }

EMULATOR_ATOMIC(atomicAdd, old + value)
EMULATOR_ATOMIC(atomicSub, old - value)
EMULATOR_ATOMIC(atomicMin, value < old ? value : old)
EMULATOR_ATOMIC(atomicMax, old < value ? value : old)
EMULATOR_ATOMIC(atomicExch, value)
EMULATOR_ATOMIC(atomicAnd, old & value)
EMULATOR_ATOMIC(atomicOr, old | value)
EMULATOR_ATOMIC(atomicXor, old ^ value)

template <typename T>
T atomicCAS(T* address, decltype(T() + T()) compare, decltype(T() + T()) value)
{
    emulator::races::Atomic atomic;
    T old = *address;
    if (old == T(compare)) *address = T(value);
    return old;
}
