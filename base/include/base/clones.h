/* One body, compiled for three vector widths and chosen when the program starts. Elementwise loops
 * without fused operations give the same bits in each; a loop that reduces fixes its own order. The
 * sanitizers' start-up does not bear the resolver. */
#ifndef FR_BASE_CLONES_H
#define FR_BASE_CLONES_H

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FR_CLONES
#endif

#endif
