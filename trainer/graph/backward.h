/* Gradients of one batch, between fr_graph_forward and the updates. Private to the module. See backward.c. */
#ifndef FR_GRAPH_BACKWARD_H
#define FR_GRAPH_BACKWARD_H

#include "network.h"

/* Notes which samples train and counts unmasked ones per task; false when there are none. */
bool fr_graph_trained_samples(struct graph_run *run);
/* Loss and all gradients but those of rows, which are summed while they are applied. */
void fr_graph_backward(struct graph_run *run);
double fr_graph_loss(const struct fr_graph *graph);

#endif
