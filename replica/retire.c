/* The list of retired items: see retire.h. Items are added with ascending numbers, so those that
 * can be released are at its beginning. */
#include "retire.h"

#include <stdlib.h>

void fr_retired_init(struct fr_retirement *retirement)
{
    *retirement = (struct fr_retirement){.last = &retirement->first};
}

void fr_retired_add(struct fr_retirement *retirement, struct fr_retired *item, void (*release)(struct fr_retired *self))
{
    *item = (struct fr_retired){.number = retirement->number, .release = release};
    *retirement->last = item;
    retirement->last = &item->next;
}

void fr_retired_release(struct fr_retirement *retirement, uint64_t number)
{
    while (retirement->first && retirement->first->number < number) {
        struct fr_retired *item = retirement->first;
        retirement->first = item->next;
        if (!retirement->first)
            retirement->last = &retirement->first;
        item->release(item);
    }
}

void fr_retired_free(struct fr_retired *self)
{
    free(self);
}
