"""Draws a random model and stream: every operation of the layer grammar, optimizer, loss and sample field comes up. A function of the seed alone.

Numbers are kept small enough that f32 has five digits left: first values and rates of ordinary size, few layers one behind the other.
"""
import random

import autograd_inputs
import autograd_network
import autograd_rules

TIME_MS = 1700000000000
LONG = 0.6  # of networks with standardize


def case(seed):
    """{"conf": a configuration without ingest and paths, "ingest": .., "records": groups, "per_batch": records of a batch}"""
    r = random.Random(seed)
    return Drawing(r).case()


class Drawing:
    def __init__(self, r):
        self.r = r
        self.width = r.choice([2, 2, 3, 4])  # of most vectors, so that operations over equal widths find partners
        self.vectors, self.sequences, self.unused = {}, {}, []  # written reference -> width
        self.layers, self.optimizers, self.late = [], r.random() < 0.8, False

    def chance(self, p):
        return self.r.random() < p

    def number(self, low, high):
        return float(f"{self.r.uniform(low, high):.3g}")

    # ---- rules ----

    def optimizer(self, kinds):
        kind = self.r.choice(kinds)
        o = {"lr": self.number(*{"sgd": (0.02, 0.2), "momentum": (0.02, 0.1), "ftrl": (0.1, 0.5), "group_ftrl": (0.1, 0.5)}.get(kind, (0.01, 0.1)))}
        ftrl = kind in ("ftrl", "group_ftrl")
        known = autograd_rules.DEFAULTS[kind]
        if "eps" in known and self.chance(0.8):
            o["eps"] = self.r.choice([1e-6, 1e-4, 1e-2])
        if "initial" in known and self.chance(0.6):
            o["initial"] = self.number(0.001, 0.1)
        if "half_life" in known and self.chance(0.4):
            o["half_life"] = self.r.randrange(5, 100)
        if "beta1" in known and self.chance(0.5):
            o["beta1"], o["beta2"] = self.number(0.3, 0.9), self.number(0.6, 0.999)
        if "rho" in known and self.chance(0.5):
            o["rho"] = self.number(0.5, 0.99)
        if "momentum" in known and self.chance(0.5):
            o["momentum"] = self.number(0.3, 0.9)
        if "weight_decay" in known and self.chance(0.7):
            o["weight_decay"] = self.number(0.01, 2)
        if ftrl:
            o["beta"] = self.number(0.1, 1)
            o["l1"], o["l2"] = self.r.choice([0, 0.003, 0.03]), self.r.choice([0, 0.1])
            if kind == "group_ftrl":
                o["l21"] = self.r.choice([0, 0.01, 0.05])
        else:
            if self.chance(0.25):
                o["l1"] = self.number(0.001, 0.05)
            if self.chance(0.25):
                o["l2"] = self.number(0.01, 0.3)
            if self.chance(0.2):
                o["warmup_samples"] = self.r.randrange(4, 30)
            if self.chance(0.2):
                o.update(decay_samples=self.r.randrange(5, 40), decay_rate=self.number(0.2, 0.9), decay_floor=self.r.choice([0.1, 0.5, 0.9]))
            if (o.get("l1") or o.get("l2") or kind == "adamw") and kinds is autograd_rules.LAYER_KINDS and self.chance(0.4):
                o["decay_all"] = True
        if self.chance(0.2):
            o["clip_norm"] = self.number(0.02, 0.5)
        if self.chance(0.15):
            o["clip_value"] = self.number(0.01, 0.2)
        return {kind: o}

    def init(self):
        return self.r.choice([{"normal": 0.4}, {"uniform": 0.5}, {"truncated_normal": 0.4}, "xavier_uniform", "xavier_normal", "kaiming_uniform", "kaiming_normal", {"constant": 0.2}])

    def learning(self, layer, init=True):
        if self.optimizers and self.chance(0.4):
            layer["optimizer"] = self.optimizer(autograd_rules.LAYER_KINDS)
        if init and self.chance(0.3):
            layer["init"] = self.init()
        return layer

    # ---- inputs ----

    def part(self, dim):
        return {"dim": dim, "optimizer": self.optimizer(autograd_rules.ROW_KINDS), "init": self.init()}

    def tables(self):
        tables = {}
        for name in ("user", "item", "kind"):
            if self.chance(0.4):
                tables[name] = self.part(self.width)
            else:
                tables[name] = {"parts": {"w": self.part(1), "v": self.part(self.width)}}
                if self.chance(0.4):
                    tables[name]["parts"]["x"] = self.part(self.r.randrange(1, 5))
            if self.chance(0.5):
                tables[name]["admit"] = {"count": self.r.randrange(1, 5)}
        self.parts = {name: {"v": spec} if "dim" in spec else spec["parts"] for name, spec in tables.items()}
        return tables

    def transform(self, last):
        """One transform, or some before it."""
        if not self.chance(0.4):
            return last
        return self.r.choice([[{"clip": [-0.8, self.number(0.3, 1)]}], [{"clip": [-0.6, 1.2]}, "log1p"], ["log1p", {"clip": [0.1, 0.6]}], [{"clip": [-0.5, 0.5]}, {"clip": [-0.2, 1]}]]) + [last]

    def slots(self):
        slots = {"user_id": {"table": "user"}, "item_id": {"table": "item"}, "tags": {"table": "item"}, "kind_id": {"table": "kind"},
                 "hist": {"table": "item", "kind": "sequence"}, "kinds": {"table": "kind", "kind": "sequence"}, "users": {"table": "user", "kind": "sequence"},
                 "d": {"kind": "dense", "dim": self.r.randrange(1, 4)}, "e": {"kind": "dense", "dim": self.width}, "f": {"kind": "dense"}}
        if self.chance(0.4):
            slots["clock"] = {"kind": "dense", "dim": self.r.choice([1, 1, 2]), "transform": self.r.choice(["time_of_day", "time_of_week"])}
        if self.chance(0.4):
            slots["range"] = {"table": "kind", "buckets": {"of": "f", "boundaries": sorted({self.number(-1, 1) for _ in range(self.r.randrange(1, 5))})}}
        if self.chance(0.4):
            slots["both"] = {"table": self.r.choice(["item", "kind"]), "cross": self.r.sample([s for s in ("user_id", "tags", "kind_id", "range") if s in slots], self.r.randrange(2, 4))}
        for spec in slots.values():
            if spec.get("kind") == "dense":
                if self.chance(0.3):
                    spec["default"] = self.number(-0.5, 1) if not autograd_inputs.is_time(spec) else self.r.randrange(2 * 10 ** 9)
                if self.chance(0.2):
                    spec["indicator"] = True
                continue
            if self.chance(0.3):
                spec["namespace"] = self.r.choice(["one", "two", "user"])
            if self.chance(0.15):
                spec["admit"] = "never"
            if self.chance(0.15):
                spec["touch"] = False
            if spec.get("kind") == "sequence":
                if self.chance(0.5):
                    spec["max_len"] = self.r.randrange(1, 5)
            elif "buckets" not in spec and self.chance(0.2):
                spec["max_ids"] = self.r.randrange(1, 4)
        slots["f"]["transform"] = self.transform(self.r.choice(["log1p", "standardize", {"bucketize": [-0.3505, 0.2005, 0.7005]}]))
        if self.chance(0.3):
            slots["d"]["transform"] = self.transform("standardize")
        for name, spec in slots.items():
            if spec.get("kind") == "dense":
                self.vectors[name] = autograd_inputs.width_of(spec)
                self.unused += [name] if autograd_inputs.of_network(spec)[0] == "standardize" else []
                continue
            for part, p in self.parts[spec["table"]].items():
                short = len(self.parts[spec["table"]]) == 1 and self.chance(0.7)
                (self.sequences if spec.get("kind") == "sequence" else self.vectors)[name if short else f"{name}.{part}"] = p["dim"]
        self.slot_specs = slots
        return slots

    # ---- layers ----

    def pick(self, pool, width=None):
        """Layers that nobody reads yet come first."""
        fit = [x for x in pool if width is None or pool[x] == width]
        fresh = [x for x in fit if x in self.unused]
        return self.r.choice(fresh if fresh and self.chance(0.5) else fit)

    def take(self, pool, count, width=None):
        chosen = [self.pick(pool, width) for _ in range(count)]
        self.unused = [x for x in self.unused if x not in chosen]
        return chosen

    def dressed(self, refs):
        """Some references as operations inside the argument."""
        out = []
        for ref in refs:
            slot = self.slot_specs.get(ref.split(".")[0], {})
            if slot and slot.get("kind") != "dense" and self.chance(0.3):
                out.append({self.r.choice(autograd_network.POOLINGS): ref})
            elif self.chance(0.12):
                out.append({self.r.choice(["stop_gradient", "bias", "concat", "layer_norm"] if self.vectors.get(ref, 0) > 2 else ["stop_gradient", "bias"]): ref})
            else:
                out.append(ref)
        return out if len(out) > 1 or self.chance(0.5) else out[0]

    def activation(self):
        return self.r.choice(["relu", "sigmoid", "tanh", "gelu", "prelu", "dice", "leaky_relu", "none"])

    def total(self, refs):
        return sum(self.vectors[x] for x in refs)

    def units(self):
        return [self.r.randrange(1, 5) for _ in range(self.r.randrange(1, 3))]

    def add(self, name, width, layer, sequence=False):
        self.layers.append({"name": name, **layer})
        (self.sequences if sequence else self.vectors)[name] = width
        self.unused.append(name)

    def layer(self, name, op):
        r = self.r
        if op in ("concat", "bias", "activate", "stop_gradient", "dropout", "layer_norm"):
            refs = self.take(self.vectors, r.randrange(1, 4))
            if op == "layer_norm":
                refs += self.take(self.vectors, 2, self.width)
            layer = {op: self.dressed(refs)}
            if op == "activate":
                layer["activation"] = r.choice(["relu", "sigmoid", "tanh", "gelu", "prelu", "dice", "leaky_relu"])
            if op == "dropout":
                layer["rate"] = r.choice([0, 0.2, 0.5])
            if op in ("bias", "layer_norm", "activate"):
                self.learning(layer, init=op == "bias")
            self.add(name, self.total(refs), layer)
        elif op == "mlp":
            refs, units = self.take(self.vectors, r.randrange(1, 4)), self.units()
            layer = self.learning({op: self.dressed(refs), "units": units if len(units) > 1 or self.chance(0.5) else units[0]})
            if self.chance(0.8):
                layer["activation"] = self.activation()
            self.add(name, units[-1], layer)
        elif op == "dense":
            refs, units = self.take(self.vectors, r.randrange(1, 4)), r.choice([1, self.width, self.width])
            layer = self.learning({op: self.dressed(refs), "units": units})
            if self.chance(0.5):
                layer["activation"] = self.activation()
            self.add(name, units, layer)
        elif op in ("bi_interaction", "add", "multiply", "fm", "dot_interaction"):
            width = r.choice([self.width, self.width, self.vectors[self.pick(self.vectors)]])
            refs = self.take(self.vectors, r.randrange(2 if op in ("fm", "dot_interaction") else 1, 5), width)
            self.add(name, {"fm": 1, "dot_interaction": len(refs) * (len(refs) - 1) // 2}.get(op, width), {op: self.dressed(refs)})
        elif op == "cross":
            refs = self.take(self.vectors, r.randrange(1, 3))
            self.add(name, self.total(refs), self.learning({op: self.dressed(refs), "depth": r.randrange(1, 3), "rank": r.choice([0, 0, 2])}))
        elif op == "sum":
            slots = {x: w for x, w in self.vectors.items() if self.slot_specs.get(x.split(".")[0], {}).get("kind", "sparse") == "sparse" and x.split(".")[0] in self.slot_specs}
            width = r.choice(list(slots.values()))
            refs = self.take(slots, r.randrange(1, 4), width)
            poolable = [x for x, w in self.sequences.items() if w == width and x.split(".")[0] in self.slot_specs]
            written = [{r.choice(["sum", "mean"]): x} if self.chance(0.3) else x for x in refs]
            if poolable and self.chance(0.4):
                written.append({r.choice(autograd_network.POOLINGS): r.choice(poolable)})
            self.add(name, width, {op: written})
        elif op in ("pool", "last"):
            read, = self.take(self.sequences, 1)
            self.add(name, self.sequences[read], {r.choice(autograd_network.POOLINGS) if op == "pool" else "last": read})
        elif op == "sequence concat":
            refs = self.take(self.sequences, r.randrange(1, 4))
            self.add(name, sum(self.sequences[x] for x in refs), {"concat": refs}, sequence=True)
        elif op == "sequence dense":
            refs = self.take(self.sequences, r.randrange(1, 3))
            layer = self.learning({"dense": refs, "units": self.width})
            if self.chance(0.6):
                layer["activation"] = self.activation()
            self.add(name, self.width, layer, sequence=True)
        elif op == "gru":
            refs = self.take(self.sequences, r.randrange(1, 3))
            self.add(name, self.width, self.learning({op: refs, "units": self.width}), sequence=True)
        elif op == "attention":
            keys = self.take(self.sequences, r.choice([1, 1, 2]))
            width = sum(self.sequences[x] for x in keys)
            if width not in self.vectors.values():
                query = self.take(self.vectors, 1)
                self.add(name + "q", width, self.learning({"dense": query, "units": width}))
                self.unused.remove(name + "q")
                query = [name + "q"]
            else:
                query = self.take(self.vectors, 1, width)
            layer = self.learning({op: {"query": self.dressed(query), "keys": keys}, "softmax": self.chance(0.5)})
            if self.chance(0.8):
                layer["units"] = self.units()
            if self.chance(0.8):
                layer["activation"] = self.activation()
            self.add(name, width, layer)
        elif op == "augru":
            keys, query = self.take(self.sequences, 1), self.take(self.vectors, r.randrange(1, 3))
            self.add(name, self.sequences[keys[0]], self.learning({op: {"query": self.dressed(query), "keys": keys}}))
        elif op == "experts":
            refs, units, count = self.take(self.vectors, r.randrange(1, 3)), self.units(), r.randrange(2, 4)
            layer = self.learning({op: self.dressed(refs), "units": units, "count": count})
            if self.chance(0.6):
                layer["activation"] = self.activation()
            self.add(name, count * units[-1], layer)
            self.unused.remove(name)
            for gate in range(r.randrange(1, 3)):
                gates = self.take(self.vectors, r.randrange(1, 3))
                self.add(f"{name}m{gate}", units[-1], self.learning({"mixture": {"gate": self.dressed(gates), "experts": name}}))

    OPERATIONS = ("concat", "mlp", "dense", "bi_interaction", "sum", "add", "pool", "pool", "last", "multiply", "fm", "dot_interaction", "cross", "bias", "layer_norm",
                  "dropout", "activate", "stop_gradient", "attention", "attention", "gru", "augru", "experts", "sequence concat", "sequence dense")

    def network(self):
        for i in range(self.r.randrange(4, 10)):
            self.layer(f"l{i}", self.r.choice(self.OPERATIONS))
        for name in [x for x in self.unused if x in self.sequences]:  # what nobody read is read by the tasks
            self.unused.remove(name)
            self.add(name + "p", self.sequences[name], {self.r.choice([*autograd_network.POOLINGS, "last"]): name})
        network = {"layers": self.layers}
        if self.optimizers or self.chance(0.5):
            network["optimizer"] = self.optimizer(autograd_rules.LAYER_KINDS)
        if self.chance(0.2):
            network["init"] = self.init()
        if self.chance(0.25):
            network["clip_global_norm"] = self.number(0.05, 0.5)
        return network

    # ---- tasks ----

    def labels(self):
        labels = {"click": {}, "buy": {}, "value": {}}
        if self.chance(0.5):
            labels["buy"] = {"given": "click"}
        if self.chance(0.6):
            labels["dear"] = {"of": "value", "min": 0.2, **({"given": "click"} if self.chance(0.5) else {})}
        if self.chance(0.3):
            labels["again"] = {"of": "click"}
        return labels

    def tasks(self, labels):
        r, tasks, unused = self.r, [], list(self.unused)
        r.shuffle(unused)
        count = r.randrange(1, 4)
        binary = [x for x in labels if x != "value"]
        for i in range(count):
            reads = unused[i::count] + [self.pick(self.vectors) for _ in range(r.randrange(1, 3))]
            layer = self.learning({"name": f"out{i}", "dense": self.dressed(reads), "units": 1})
            self.layers.append(layer)
            loss = r.choice(["logloss", "logloss", None, "mse", "pairwise", "focal", {"focal": {"gamma": self.number(0.5, 3), "alpha": self.number(0.1, 0.9)}}])
            if i > 0 and self.chance(0.12):
                loss = "none"
            task = {"name": f"t{i}", "label": r.choice(list(labels) if loss in ("mse", "pairwise", "none") else binary), "logit": f"out{i}"}
            if loss:
                task["loss"] = loss
            if self.chance(0.6):
                task["bias_from_labels"] = False
            if self.chance(0.5):
                task["weight"] = self.number(0.2, 2)
            tasks.append(task)
        factors = [t["name"] for t in tasks if t.get("loss") != "mse"]
        if len(factors) > 1 and self.chance(0.6):
            tasks.append({"name": "joint", "label": r.choice(binary), "prob": r.sample(factors, r.randrange(2, len(factors) + 1)), "weight": self.number(0.5, 1.5)})
        return tasks

    def losses(self):
        r, losses = self.r, []
        pairs = [(a, b) for a in self.vectors for b in self.vectors if a != b and self.vectors[a] == self.vectors[b] and (a[0] == "l" or b[0] == "l")]
        if pairs and self.chance(0.4):
            losses.append({"name": "near", "mse": list(r.choice(pairs)), "weight": self.number(0.1, 0.5)})
        if self.chance(0.5):
            width = self.sequences[r.choice(list(self.sequences))]
            three = [self.pick(self.sequences, width) for _ in range(3)]
            losses.append({"name": "next", "next_step": dict(zip(("states", "positives", "negatives"), three)), "weight": self.number(0.1, 0.5)})
        return losses

    # ---- samples ----

    def value(self, slot):
        r, spec = self.r, self.slot_specs[slot]
        kind = spec.get("kind", "sparse")
        if kind == "dense":
            if autograd_inputs.is_time(spec):
                times = [r.randrange(-10 ** 9, 2 * 10 ** 9) for _ in range(spec["dim"])]
                return [t if self.chance(0.5) else t * 1000 + r.randrange(1000) if abs(t) > 10 ** 8 else t + 0.5 for t in times]
            first = [name for name, _ in autograd_inputs.transforms(spec)][:1]
            low, high = 0 if first == ["log1p"] else -1.5, 200 if self.late and self.chance(0.02) else 1.5
            numbers = [round(r.uniform(low, high), 3) for _ in range(spec.get("dim", 1))]
            return numbers if len(numbers) > 1 or self.chance(0.5) else numbers[0]
        ids = 8 if spec["table"] == "kind" else 12
        if kind == "sequence":
            value = [r.randrange(ids) for _ in range(r.randrange(6))]
        elif slot == "tags":
            value = [r.randrange(ids) for _ in range(r.randrange(4))]
        else:
            return r.randrange(ids)
        return {"i": value, "w": [round(r.uniform(0.3, 2), 2) for _ in value]} if self.chance(0.4) else value

    def sample(self, slots, labels, t):
        r = self.r
        features = {s: self.value(s) for s in slots if not self.chance(0.2 if self.slot_specs[s].get("indicator") else 0.05)}
        y = {}
        for label, spec in labels.items():
            if "of" in spec or self.chance(0.15):
                continue
            y[label] = None if self.chance(0.1) else round(r.uniform(-1, 1), 2) if label == "value" else r.choice([0, 1, 1, 0, 1, 0.3])
        sample = {"t": t, "f": features, "y": y}
        if self.chance(0.3):
            sample["w"] = round(r.uniform(0, 2), 2) if self.chance(0.6) else {label: round(r.uniform(0, 2), 2) for label in labels if "of" not in labels[label] and self.chance(0.7)}
        if self.chance(0.3):
            sample["s"] = r.choice([0.25, 0.5, 0.8])
        if self.chance(0.15):
            sample["u"] = r.choice([1, 2])
        return sample

    def case(self):
        tables, slots = self.tables(), self.slots()
        network, labels = self.network(), self.labels()
        conf = {"tables": tables, "slots": slots, "labels": labels, "network": network, "tasks": self.tasks(labels)}
        losses = self.losses()
        if losses:
            conf["losses"] = losses
        conf["seed"] = self.r.randrange(1 << 32)
        carried = [s for s in slots if "buckets" not in slots[s] and "cross" not in slots[s]]
        per_batch, shared = self.r.randrange(2, 5), [s for s in carried if self.chance(0.4)]
        if self.chance(0.2):
            shared = []
        standard = any(autograd_inputs.of_network(spec)[0] == "standardize" for spec in slots.values())
        long = standard and self.chance(LONG)  # enough samples for standardize to do something
        per_batch, batches = (self.r.randrange(45, 60), 3) if long else (per_batch, 3)
        records = []
        for g in range(batches * per_batch):
            size, self.late = self.r.randrange(1, 5), g >= per_batch and long
            items = [self.sample([s for s in carried if s not in shared], labels, TIME_MS + 10 * g + i) for i in range(size)]
            records.append({"shared": {s: self.value(s) for s in shared if not self.chance(0.05)}, "items": items})
        ingest = {"sampling": self.r.choice(["all", "all", "metrics", "none"]), "batch_size": self.r.choice([100, 150, 300] if long else [5, 8, 16, 40])}
        return {"conf": conf, "ingest": ingest, "records": records, "per_batch": per_batch}


# ---- what a case contains: terms in which an error may be seeded ----

ACTIVATIONS = ("relu", "sigmoid", "tanh", "gelu", "prelu", "dice", "leaky_relu")
LOSSES = ("logloss", "mse", "pairwise", "focal", "product", "mse of two vectors", "next_step")
TERMS = ([f"layer {op}" for op in autograd_network.OPERATIONS] + [f"activation {kind}" for kind in ACTIVATIONS] + [f"pool {kind}" for kind in autograd_network.POOLINGS] +
         [f"loss {kind}" for kind in LOSSES] + [f"rows by {kind}" for kind in autograd_rules.ROW_KINDS] + [f"layers by {kind}" for kind in autograd_rules.LAYER_KINDS] +
         [f"option {name}" for name in autograd_rules.OPTIONS] +
         [f"transform {kind}" for kind in ("clip", "log1p", "time_of_day", "time_of_week", "standardize", "bucketize")] +
         ["steps", "indicator", "buckets", "crosses", "limit of what is read", "limit of what is counted", "sum of rows", "time of rows", "sum of layers", "time of layers", "statistics dice", "statistics standardize", "sample weight", "keep rate", "clip_global_norm",
          "bias from labels"])


def mentions(drawing):
    """The terms of a case that a loss reaches."""
    conf, network = drawing["conf"], autograd_network.Network(drawing["conf"])
    found = {"sum of layers", "time of layers", "sum of rows", "time of rows"}
    for name, layer in network.layers.items():
        if not network.reached[name]:
            continue
        found.add("layer " + layer.op)
        if layer.op in ("mlp", "dense", "experts", "attention", "activate"):
            found.add("activation " + network.activation_of(layer))
        for ref in [ref for role in layer.roles for ref in role]:
            found.update({"pooled": [f"pool {ref.pooling}"], "steps": ["steps"]}.get(ref.kind, []))
            spec = conf["slots"].get(ref.name, {})
            found.update(term for option, term in (("indicator", "indicator"), ("buckets", "buckets"), ("cross", "crosses")) if spec.get(option))
            found.update("transform " + kind for kind, _ in autograd_inputs.transforms(spec))
    rules = {"layers by ": [p.optimizer for n, p in network.parameters.items() if p and network.reached["parameter", n]],
             "rows by ": [network.parts_of(conf["slots"][k[0]]["table"])[k[1]]["optimizer"] for k, losses in network.reached.items() if k[0] in conf["slots"] and losses]}
    for where, written in rules.items():
        for rule in map(autograd_rules.Optimizer, written):
            found.add(where + rule.kind)
            found.update(f"option {name}" for name in rule.options_in_effect())
    found.update("loss " + loss_kind(task) for task in conf["tasks"])
    found.update("loss " + auxiliary_kind(loss) for loss in conf.get("losses", []))
    found.update("statistics dice" for name in ["activation dice"] if name in found)
    long = len(drawing["records"]) > 100
    standards = [spec for spec in conf["slots"].values() if autograd_inputs.of_network(spec)[0] == "standardize"]
    whole = any(len(autograd_inputs.transforms(spec)) == 1 for spec in standards) and long  # some numbers are far off
    found.update(["statistics standardize"] if standards else [])
    found.update(["limit of what is counted"] if whole else [])
    found.update(["limit of what is read"] if whole and "transform standardize" in found else [])
    found -= set() if long else {"transform standardize"}
    found.update(["clip_global_norm"] if "clip_global_norm" in conf["network"] else [])
    found.update("bias from labels" for task in conf["tasks"] if "prob" not in task and loss_kind(task) in ("logloss", "focal") and task.get("bias_from_labels", True))
    items = [item for group in drawing["records"] for item in group["items"]]
    found.update(term for field, term in (("w", "sample weight"), ("s", "keep rate")) if any(field in item for item in items))
    return found - {"activation none", "loss none"} - ({"keep rate"} if drawing["ingest"]["sampling"] != "all" else set())


def loss_kind(task):
    loss = task.get("loss", "logloss")
    return "product" if "prob" in task else loss if isinstance(loss, str) else "focal"


def auxiliary_kind(loss):
    return "mse of two vectors" if "mse" in loss else "next_step"
