/* One call's memory on its way to the device and back. Private to the shim. */
#ifndef FR_SHIM_STAGING_H
#define FR_SHIM_STAGING_H

#include "shim/shim.h"

struct shim_span {
    const char *begin, *end; /* on the host */
    char *device;
    bool written;
};

struct shim_reference {
    void *slot; /* where the pointer stands, in a copy of the call */
    size_t bytes;
    bool written;
};

struct shim_staging {
    struct shim_reference *references;
    size_t n_references, capacity;
    struct shim_span *spans;
    size_t n_spans;
    void **owned; /* copies of arrays that hold pointers */
    size_t n_owned;
};

enum shim_use { SHIM_READ, SHIM_WRITTEN };

/* `slot` is the address of a pointer to `bytes` bytes; NULL, or to none: left alone. */
void fr_shim_memory(struct shim_staging *s, void *slot, size_t bytes, enum shim_use use);
void fr_shim_view(struct shim_staging *s, struct fr_view *view, size_t rows, size_t columns, enum shim_use use);
/* Puts a copy of the `bytes` bytes that *slot points to in its place, to be changed; the copy is
 * read by the device. */
void *fr_shim_array(struct shim_staging *s, void *slot, size_t bytes);
/* [n] row pointers, each to `floats` floats or NULL. */
void fr_shim_rows(struct shim_staging *s, void *slot, size_t n, size_t floats, enum shim_use use);
/* [n] views of rows x columns. */
void fr_shim_views(struct shim_staging *s, void *slot, size_t n, size_t rows, size_t columns, enum shim_use use);
/* Copies everything to the device and turns the pointers; then back, and forgets it. */
void fr_shim_enter(struct shim_staging *s);
void fr_shim_leave(struct shim_staging *s);

/* The device's word for a call's number. */
double *fr_shim_sum(void);
double fr_shim_sum_of(void);
uint32_t *fr_shim_bits(void); /* 0 now */
uint32_t fr_shim_bits_of(void);

#define SHIM_ARRAY(s, field, n, use) fr_shim_memory(s, &(field), (size_t)(n) * sizeof(*(field)), use)

#define SHIM_DECLARE(result, name, arguments) result fr_shim_##name arguments;
FR_OPS_SHARED(SHIM_DECLARE)
void fr_shim_gru(const struct fr_gru *call);
void fr_shim_gru_backward(const struct fr_gru *call);
void fr_shim_attention_dense(const struct fr_attention_dense *call);
void fr_shim_attention_dense_backward(const struct fr_attention_dense *call);

#endif
