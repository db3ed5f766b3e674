"""Scores samples by docs/formats/deltas.md and docs/formats/samples.md alone, in NumPy: it never calls Freshet's code, and shares none with it.

One sample at a time, in double precision over the published f32 values. A vector is an array [n]; a sequence is Steps. Names of parameters, shapes and constants are
those of the page's tables "Slots", "Layers" and "Formulas and parameters".
"""
import collections
import functools
import itertools
import json
import math

import numpy as np

import keys

Steps = collections.namedtuple("Steps", "values masked")  # [T, n], the newest last; bool [T]: the row is absent
TIMES = {"time_of_day": (0, 86400), "time_of_week": (259200, 604800)}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max()) if len(x) else x
    return e / e.sum() if len(x) else x


def single(x):
    return float(np.float32(x))


class Scorer:
    """`cfg`: the model record's JSON; `rows`: table -> key -> part -> values; `dense`: name -> (shape, values), as delta.Replica has them."""

    def __init__(self, cfg, rows, dense):
        self.cfg, self.rows = json.loads(cfg), rows
        self.dense = {name: np.array(values, np.float64).reshape(shape) for name, (shape, values) in dense.items()}
        self.slots = {slot["name"]: slot for slot in self.cfg["slots"]}
        self.dims = {(table["name"], part["name"]): part["dim"] for table in self.cfg["tables"] for part in table["parts"]}

    def score(self, features):
        """A sample's `f` -> task -> score."""
        self.f, self.values, scores = features, {}, {}
        for layer in self.cfg["layers"]:
            op, = (key for key in layer if hasattr(self, "op_" + key))
            self.values[layer["name"]] = getattr(self, "op_" + op)(layer, layer[op])
        for task in self.cfg["tasks"]:
            if "prob" in task:
                scores[task["name"]] = math.prod(scores[other] for other in task["prob"])
            else:
                logit, = self.values[task["logit"]]
                scores[task["name"]] = logit if task["loss"] == "mse" else sigmoid(logit)
        return scores

    # ---- slots ----

    def ids(self, name):
        """[(key, weight)], cut as the slot says."""
        slot, value = self.slots[name], self.f.get(name)
        key_seed = self.cfg.get("key_seed")
        if "buckets" in slot:
            number = self.f.get(slot["buckets"]["of"])
            number = number[0] if isinstance(number, list) else number
            place = None if number is None else sum(single(b) <= single(number) for b in slot["buckets"]["boundaries"])
            return [] if place is None else [(keys.key_of(place, slot["namespace"], key_seed=key_seed), 1.0)]
        if "cross" in slot:
            combinations = itertools.product(*(self.ids(other) for other in slot["cross"]))
            return [(keys.cross_of([key for key, _ in each], slot["namespace"], key_seed), math.prod(weight for _, weight in each))
                    for each in combinations][-slot["max_ids"]:]
        if value is None:
            return []
        value = value if isinstance(value, (list, dict)) else [value]
        ids, weights = (value["i"], value["w"]) if isinstance(value, dict) else (value, [1.0] * len(value))
        limit = slot["max_len" if slot["kind"] == "sequence" else "max_ids"]
        return [(keys.key_of(i, slot["namespace"], slot["id"] == "raw", key_seed), single(w)) for i, w in zip(ids, weights)][-limit:]

    def read(self, ref):
        """"slot.part" -> [(row or None, weight)], dim"""
        slot, part = ref.split(".")
        table = self.slots[slot]["table"]
        held = self.rows.get(table, {})
        return [(held[key][part] if key in held else None, weight) for key, weight in self.ids(slot)], self.dims[table, part]

    def pooled(self, pooling, ref):
        rows, dim = self.read(ref)
        weights = np.array([weight for _, weight in rows])
        if pooling == "max":
            return np.max([weight * np.array(row) for row, weight in rows if row is not None] or [np.zeros(dim)], 0)
        total = sum((weight * np.array(row) for row, weight in rows if row is not None), np.zeros(dim))
        below = {"sum": 1.0, "mean": weights.sum(), "sqrtn": math.sqrt((weights ** 2).sum())}[pooling]
        return total / below if len(rows) and below else np.zeros(dim)

    def numbers(self, slot):
        value = self.f.get(slot["name"])
        steps = slot["transform"] if isinstance(slot["transform"], list) else [slot["transform"]]
        missing, is_time = [1.0 if value is None else 0.0] * slot["indicator"], str(steps[0]) in TIMES
        if value is None and "default" not in slot:
            width = slot["dim"] * (2 if is_time else 1)
            return np.array([0.0] * width + missing)
        given = [slot["default"]] * slot["dim"] if value is None else value if isinstance(value, list) else [value]
        out = []
        for i, x in enumerate(given):
            numbers = [x if is_time else single(x)]
            for step in steps:
                numbers = self.transformed(slot["name"], i, step, numbers[0])
            out += numbers
        return np.array(out + missing)

    def transformed(self, name, i, step, x):
        if isinstance(step, dict):
            (kind, argument), = step.items()
            boundaries = [single(b) for b in argument]
            if kind == "clip":
                return [min(max(x, boundaries[0]), boundaries[1])]
            assert kind == "bucketize", step
            place = sum(b <= x for b in boundaries)
            return [float(k == place) for k in range(len(boundaries) + 1)]
        if step in TIMES:
            add, period = TIMES[step]
            turn = 2 * math.pi * (((x if abs(x) < 1e11 else x / 1000) + add) / period % 1)
            return [math.sin(turn), math.cos(turn)]
        if step == "log1p":
            return [single(math.log1p(x))]
        if step == "standardize":
            if self.dense[name + "/count"][0] < 100:
                return [0.0]
            x = (x - self.dense[name + "/mean"][i]) / math.sqrt(self.dense[name + "/variance"][i] + 1e-6)
            return [min(max(x, -10), 10)]
        assert step == "none", step
        return [x]

    # ---- refs ----

    @staticmethod
    def is_steps(value):
        return isinstance(value, Steps)

    def value(self, ref):
        if isinstance(ref, dict):
            (pooling, of), = ref.items()
            return self.pooled(pooling, of)
        if "." in ref:
            rows, dim = self.read(ref)
            values = [np.zeros(dim) if row is None else weight * np.array(row) for row, weight in rows]
            return Steps(np.array(values).reshape(len(rows), dim), np.array([row is None for row, _ in rows], bool))
        return self.values[ref] if ref in self.values else self.numbers(self.slots[ref])

    def joined(self, refs):
        first, *others = [self.value(ref) for ref in refs]
        if not self.is_steps(first):
            return np.concatenate([first, *others])
        values, n = [first.values], len(first.values)
        for other in others:  # aligned at the newest step
            aligned = np.zeros((n, other.values.shape[1]))
            shared = min(n, len(other.values))
            if shared:
                aligned[n - shared:] = other.values[-shared:]
            values.append(aligned)
        return Steps(np.concatenate(values, 1), first.masked)

    def vectors(self, refs):
        return [self.value(ref) for ref in refs]

    # ---- layers ----

    def f_of(self, x, kind, prefix):
        p = functools.partial(self.parameter, prefix)
        if kind == "none":
            return x
        if kind == "relu":
            return np.maximum(x, 0)
        if kind in ("leaky_relu", "prelu"):
            return np.where(x > 0, x, (p("alpha") if kind == "prelu" else 0.01) * x)
        if kind == "gelu":
            return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))
        if kind == "dice":
            share = sigmoid((x - p("mean")) / np.sqrt(p("variance") + 1e-9))
            return share * x + (1 - share) * p("alpha") * x
        return {"sigmoid": sigmoid, "tanh": np.tanh}[kind](x)

    def parameter(self, prefix, name):
        return self.dense[f"{prefix}/{name}"]

    def linear(self, x, prefix, kernel="kernel", bias="bias"):
        y = x @ self.parameter(prefix, kernel)
        return y + self.parameter(prefix, bias) if bias else y

    def mlp(self, x, layer, prefix):
        for i in range(len(layer["units"])):
            x = self.f_of(self.linear(x, f"{prefix}/{i}"), layer["activation"], f"{prefix}/{i}")
        return x

    def op_concat(self, layer, refs):
        return self.joined(refs)

    op_dropout = op_stop_gradient = op_concat

    def op_mlp(self, layer, refs):
        return self.mlp(self.joined(refs), layer, layer["name"])

    def op_dense(self, layer, refs):
        x, name = self.joined(refs), layer["name"]
        if not self.is_steps(x):
            return self.f_of(self.linear(x, name), layer["activation"], name)
        return x._replace(values=self.f_of(self.linear(x.values, name), layer["activation"], name))

    def op_add(self, layer, refs):
        return np.sum(self.vectors(refs), 0)

    def op_multiply(self, layer, refs):
        return np.prod(self.vectors(refs), 0)

    def op_sum(self, layer, refs):
        x = self.value(refs[0])
        return x.values[~x.masked].sum(0) if self.is_steps(x) else self.op_add(layer, refs)

    def op_mean(self, layer, refs):
        x = self.value(refs[0])
        return self.op_sum(layer, refs) / max(len(x.values), 1)

    def op_sqrtn(self, layer, refs):
        x = self.value(refs[0])
        return self.op_sum(layer, refs) / math.sqrt(max(len(x.values), 1))

    def op_max(self, layer, refs):
        x = self.value(refs[0])
        return x.values[~x.masked].max(0) if (~x.masked).any() else np.zeros(x.values.shape[1])

    def op_last(self, layer, refs):
        x = self.value(refs[0])
        return x.values[-1] if len(x.values) else np.zeros(x.values.shape[1])

    def op_bi_interaction(self, layer, refs):
        v = np.array(self.vectors(refs))
        return (v.sum(0) ** 2 - (v * v).sum(0)) / 2

    def op_fm(self, layer, refs):
        return self.op_bi_interaction(layer, refs).sum(keepdims=True)

    def op_dot_interaction(self, layer, refs):
        v = self.vectors(refs)
        return np.array([v[a] @ v[b] for b in range(len(v)) for a in range(b)])

    def op_cross(self, layer, refs):
        first = x = self.joined(refs)
        for i in range(layer["depth"]):
            prefix = f"{layer['name']}/{i}"
            read = self.linear(x, prefix, "down", None) if layer["rank"] else x
            x = first * self.linear(read, prefix, "up" if layer["rank"] else "kernel") + x
        return x

    def op_bias(self, layer, refs):
        return self.joined(refs) + self.parameter(layer["name"], "bias")

    def op_layer_norm(self, layer, refs):
        x = self.joined(refs)
        normal = (x - x.mean()) / math.sqrt(x.var() + 1e-5)
        return self.parameter(layer["name"], "scale") * normal + self.parameter(layer["name"], "bias")

    def op_activate(self, layer, refs):
        return self.f_of(self.joined(refs), layer["activation"], layer["name"])

    def op_attention(self, layer, roles):
        query, keyed, name = self.joined(roles["query"]), self.joined(roles["keys"]), layer["name"]
        k = keyed.values[~keyed.masked]
        q = np.broadcast_to(query, k.shape)
        hidden = self.mlp(np.concatenate([q, k, q - k, q * k], 1), layer, name)
        scores = self.linear(hidden, name + "/score", bias=None if layer["softmax"] else "bias")[:, 0]
        return (softmax(scores) if layer["softmax"] else scores) @ k

    def recurrence(self, x, name, units, scores):
        h, states = np.zeros(units), []
        for values, masked, score in zip(x.values, x.masked, scores):
            if not masked:
                a_r, a_z, a_n = np.split(self.linear(values, name), 3)
                b_r, b_z, b_n = np.split(self.linear(h, name, "recurrent_kernel", "recurrent_bias"), 3)
                r, z = sigmoid(a_r + b_r), sigmoid(a_z + b_z)
                h = h + score * (1 - z) * (np.tanh(a_n + r * b_n) - h)
            states.append(h)
        return Steps(np.array(states).reshape(len(x.values), units), x.masked)

    def op_gru(self, layer, refs):
        x = self.joined(refs)
        return self.recurrence(x, layer["name"], layer["units"][0], np.ones(len(x.values)))

    def op_augru(self, layer, roles):
        query, x, name = self.joined(roles["query"]), self.joined(roles["keys"]), layer["name"]
        scores = np.zeros(len(x.values))
        scores[~x.masked] = softmax(self.linear(x.values[~x.masked], name, "attention", None) @ query)
        states = self.recurrence(x, name, x.values.shape[1], scores).values
        return states[-1] if len(states) else np.zeros(x.values.shape[1])

    def op_experts(self, layer, refs):
        x = self.joined(refs)
        return np.concatenate([self.mlp(x, layer, f"{layer['name']}/{e}") for e in range(layer["count"])])

    def op_mixture(self, layer, roles):
        gates = softmax(self.linear(self.joined(roles["gate"]), layer["name"], bias=None))
        experts = self.joined(roles["experts"])
        return gates @ experts.reshape(len(gates), -1)
