/* Networks for tests: every operation of the layer grammar in at least one of them, smooth
 * activations (finite differences), small widths. */
#ifndef FR_TESTS_GRAPH_NETWORKS_H
#define FR_TESTS_GRAPH_NETWORKS_H

#include "vocabulary/loss.h"

/* Slots 0 user_id, 1 item_id, 2 history, 3 clicks, 4 noise (sequences), 5 price, 6 age (dense), 7
 * hour, 8 copy (dense). */
#define NX_HEAD                                                                                                        \
    "version: 1\n"                                                                                                     \
    "model: test\n"                                                                                                    \
    "state_dir: nowhere\n"                                                                                             \
    "ingest: {brokers: 'localhost:9092', topic: t}\n"                                                                  \
    "tables:\n"                                                                                                        \
    "  user: {dim: 4, optimizer: {sgd: {lr: 0.05}}}\n"                                                                 \
    "  item:\n"                                                                                                        \
    "    parts: {w: {dim: 1, optimizer: {sgd: {lr: 0.05}}}, v: {dim: 4, optimizer: {sgd: {lr: 0.05}}}}\n"              \
    "slots:\n"                                                                                                         \
    "  user_id: {table: user}\n"                                                                                       \
    "  item_id: {table: item}\n"                                                                                       \
    "  history: {table: item, kind: sequence}\n"                                                                       \
    "  clicks: {table: item, kind: sequence}\n"                                                                        \
    "  noise: {table: item, kind: sequence}\n"                                                                         \
    "  price: {kind: dense, dim: 2}\n"                                                                                 \
    "  age: {kind: dense, dim: 2, transform: standardize}\n"                                                           \
    "  hour: {kind: dense, dim: 1, transform: {bucketize: [-0.5, 0.0, 0.4]}}\n"                                        \
    "  copy: {kind: dense, dim: 4}\n"                                                                                  \
    "labels: {click: {}, buy: {}}\n"

#define NX_ONE_TASK "tasks: [{name: click, label: click, logit: out}]\n"

/* One task with the loss of the row. */
#define NX_TASK_OF_LOSS(name, text, ...) "  - {name: of_" text ", label: click, logit: out, loss: " text "}\n"

struct network {
    const char *name, *text;
    bool stops; /* the network stops gradients, so that they are not the slopes of the loss */
};

static const struct network nx_networks[] = {
    {"concatenations",
     NX_HEAD
     "network:\n"
     "  layers:\n"
     "    - {name: x, concat: [user_id, price, item_id.v, {mean: history.v}, age, {sqrtn: clicks.v}, {max: clicks.v}, hour]}\n"
     "    - {name: y, concat: [x, price, {last: clicks.v}]}\n"
     "    - {name: h, mlp: [y], units: [9, 5], activation: tanh}\n"
     "    - {name: g, dense: [x, user_id], units: 3, activation: sigmoid}\n"
     "    - {name: z, dense: [h, g], units: 1}\n"
     "    - {name: wide, sum: [item_id.w, {sum: history.w}]}\n"
     "    - {name: out, add: [z, wide]}\n" NX_ONE_TASK,
     false},
    {"interactions",
     NX_HEAD "network:\n"
             "  layers:\n"
             "    - {name: fm, fm: [user_id, item_id.v, {sum: history.v}]}\n"
             "    - {name: bi, bi_interaction: [user_id, item_id.v, {mean: clicks.v}]}\n"
             "    - {name: pair, multiply: [user_id, item_id.v, bi]}\n"
             "    - {name: dots, dot_interaction: [user_id, item_id.v, bi, {sum: history.v}]}\n"
             "    - {name: x, concat: [fm, bi, pair, dots]}\n"
             "    - {name: out, dense: x, units: 1}\n" NX_ONE_TASK,
     false},
    {"cross",
     NX_HEAD "network:\n"
             "  layers:\n"
             "    - {name: x, concat: [user_id, item_id.v, price]}\n"
             "    - {name: full, cross: x, depth: 2}\n"
             "    - {name: low, cross: x, depth: 2, rank: 3}\n"
             "    - {name: out, dense: [full, low], units: 1}\n" NX_ONE_TASK,
     false},
    {"activations",
     NX_HEAD "network:\n"
             "  layers:\n"
             "    - {name: a, dense: [user_id, price], units: 6, activation: gelu}\n"
             "    - {name: b, bias: user_id}\n"
             "    - {name: n, layer_norm: [user_id, price, b, item_id.v]}\n"
             "    - {name: t, activate: n, activation: tanh}\n"
             "    - {name: h, mlp: [a, t], units: [6, 5], activation: dice}\n"
             "    - {name: out, dense: h, units: 1}\n" NX_ONE_TASK,
     false},
    {"slopes",
     NX_HEAD "network:\n"
             "  layers:\n"
             "    - {name: h, mlp: [user_id, item_id.v, price], units: [8], activation: prelu}\n"
             "    - {name: l, activate: h, activation: leaky_relu}\n"
             "    - {name: g, dense: [user_id, price], units: 4, activation: dice}\n"
             "    - {name: out, dense: [l, g], units: 1}\n" NX_ONE_TASK,
     false},
    {"attention",
     NX_HEAD "network:\n"
             "  layers:\n"
             "    - {name: q, dense: [item_id.v, price], units: 8}\n"
             "    - {name: a, attention: {query: q, keys: [history.v, clicks.v]}, units: [5], activation: sigmoid}\n"
             "    - {name: s, attention: {query: item_id.v, keys: history.v}, activation: tanh, softmax: true}\n"
             "    - {name: u, attention: {query: user_id, keys: clicks.v}, units: [3, 4], activation: gelu}\n"
             "    - {name: out, dense: [a, s, u, user_id], units: 1}\n" NX_ONE_TASK,
     false},
    {"recurrence",
     NX_HEAD "network:\n"
             "  layers:\n"
             "    - {name: g, gru: [history.v, clicks.v], units: 4}\n"
             "    - {name: d, dense: [g, history.v], units: 5, activation: tanh}\n"
             "    - {name: e, augru: {query: [item_id.v, price], keys: g}}\n"
             "    - {name: l, last: g}\n"
             "    - {name: m, mean: d}\n"
             "    - {name: r, sqrtn: d}\n"
             "    - {name: k, max: d}\n"
             "    - {name: t, sum: d}\n"
             "    - {name: out, dense: [e, k, l, m, r, t, user_id], units: 1}\n" NX_ONE_TASK "losses:\n"
             "  - {name: next, next_step: {states: g, positives: clicks.v, negatives: noise.v}, weight: 0.3}\n",
     false},
    {"experts",
     NX_HEAD "network:\n"
             "  layers:\n"
             "    - {name: x, concat: [user_id, item_id.v, price]}\n"
             "    - {name: e, experts: x, count: 3, units: [6, 4], activation: tanh}\n"
             "    - {name: a, mixture: {gate: x, experts: e}}\n"
             "    - {name: b, mixture: {gate: user_id, experts: e}}\n"
             "    - {name: za, dense: a, units: 1}\n"
             "    - {name: zb, dense: b, units: 1}\n"
             "tasks:\n"
             "  - {name: click, label: click, logit: za}\n"
             "  - {name: buy, label: buy, logit: zb, weight: 0.5}\n",
     false},
    {"stopped",
     NX_HEAD "network:\n"
             "  layers:\n"
             "    - {name: h, dense: [user_id, price], units: 4, activation: tanh}\n"
             "    - {name: s, stop_gradient: [h, user_id]}\n"
             "    - {name: i, dense: [item_id.v, s], units: 4, activation: tanh}\n"
             "    - {name: j, concat: [s, i, h]}\n"
             "    - {name: out, dense: j, units: 1}\n" NX_ONE_TASK "losses:\n"
             "  - {name: near, mse: [i, {stop_gradient: h}], weight: 0.4}\n",
     true},
    {"products",
     NX_HEAD "network:\n"
             "  layers:\n"
             "    - {name: h, mlp: [user_id, item_id.v], units: [6], activation: sigmoid}\n"
             "    - {name: z, dense: h, units: 1}\n"
             "    - {name: v, dense: [h, price], units: 1}\n"
             "    - {name: alone, dense: [user_id], units: 1}\n"
             "tasks:\n"
             "  - {name: click, label: click, logit: z}\n"
             "  - {name: then, label: buy, logit: v, loss: none}\n"
             "  - {name: both, label: buy, prob: [click, then]}\n"
             "  - {name: amount, label: buy, logit: v, loss: mse, weight: 0.2}\n"
             "  - {name: rank, label: click, logit: alone, loss: pairwise}\n"
             "  - {name: hard, label: click, logit: alone, loss: focal, weight: 0.7}\n",
     false},
    {"losses",
     NX_HEAD "network:\n"
             "  layers:\n"
             "    - {name: out, dense: [user_id, price], units: 1}\n"
             "tasks:\n" FR_TASK_LOSSES(NX_TASK_OF_LOSS),
     false},
    {"dropout",
     NX_HEAD "network:\n"
             "  layers:\n"
             "    - {name: h, dense: [user_id, {mean: history.v}], units: 6, activation: tanh}\n"
             "    - {name: d, dropout: h, rate: 0.4}\n"
             "    - {name: x, concat: [d, item_id.v]}\n"
             "    - {name: e, dropout: x, rate: 0.2}\n"
             "    - {name: out, dense: [e, user_id], units: 1}\n" NX_ONE_TASK,
     false},
};

#endif
