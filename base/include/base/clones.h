/* Compiles a function for three vector widths; the program chooses one at start. Elementwise loops
 * without fused operations give the same bits in each version; a loop that reduces must fix its own
 * order. Sanitizer builds use no clones, because the resolver runs before the sanitizer is set
 * up. */
#ifndef FR_BASE_CLONES_H
#define FR_BASE_CLONES_H

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FR_CLONES
#endif

#endif
