/* See zipf.h. Columns above and below the mean share are paired until each holds exactly one
 * mean. */
#include "samples/zipf.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"

void fr_tool_zipf_init(struct fr_tool_zipf *zipf, uint32_t count, double exponent)
{
    FR_CHECK(count >= 1);
    zipf->count = count;
    zipf->cells = fr_alloc(count, sizeof(*zipf->cells));
    double *share = fr_alloc(count, sizeof(*share));
    /* small columns from the front, large ones from the back */
    uint32_t *order = fr_alloc(count, sizeof(*order));
    double sum = 0.0;
    for (uint32_t i = 0; i < count; i++)
        sum += share[i] = pow((double)i + 1.0, -exponent);
    uint32_t small = 0, large = count;
    for (uint32_t i = 0; i < count; i++) {
        share[i] *= (double)count / sum;
        order[share[i] < 1.0 ? small++ : --large] = i;
    }
    uint32_t at = 0; /* order[at .. small) small, order[small .. count) large */
    while (at < small && small < count) {
        uint32_t low = order[at++], high = order[small];
        zipf->cells[low] = (struct fr_tool_zipf_cell){(float)share[low], high};
        share[high] -= 1.0 - share[low];
        if (share[high] < 1.0)
            small++; /* this column is small now and comes directly after the others */
    }
    for (; at < count; at++) /* columns that are left over by rounding */
        zipf->cells[order[at]] = (struct fr_tool_zipf_cell){1.0f, order[at]};
    free(order);
    free(share);
}

void fr_tool_zipf_release(struct fr_tool_zipf *zipf)
{
    free(zipf->cells);
    *zipf = (struct fr_tool_zipf){0};
}
