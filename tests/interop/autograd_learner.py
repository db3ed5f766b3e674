"""Learns a case batch by batch as the contract says, in PyTorch: forward and backward by autograd, rules by autograd_rules."""
import collections
import math

import torch

import autograd_draw
import autograd_inputs
import autograd_network
import autograd_rules

PRIOR_SAMPLES = 1000  # labels after which an output bias no longer follows their log-odds

Column = collections.namedtuple("Column", "keys weights there masked")
Batch = collections.namedtuple("Batch", "columns numbers")


class Wild(Exception):
    """Numbers too large for f32 to be compared."""


def log_odds(prior):
    """The log-odds of a weighted mean of labels (Krichevsky and Trofimov 1981)."""
    return math.log((prior["positives"] + 0.5) / (prior["weight"] - prior["positives"] + 0.5))


def expanded(group):
    for item in group["items"]:
        yield {**item, "f": {**group["shared"], **item["f"]}}


class Learner:
    def __init__(self, case, dtype=torch.float64, mutation=None, values_max=60.0, noise=0.0, noise_seed=0):
        self.case, self.conf, self.dtype, self.mutation, self.values_max = case, case["conf"], dtype, mutation, values_max
        self.network = autograd_network.Network(self.conf)
        self.noise, self.random = noise, torch.Generator().manual_seed(1 + noise_seed)
        self.labels = self.order_labels()
        seed = self.conf["seed"]
        self.parameters = {n: self.first(n, p, seed) for n, p in self.network.parameters.items()}
        self.begin = dict(self.parameters)
        self.parameters = {n: self.with_noise(x) if self.network.parameters[n] else x for n, x in self.parameters.items()}
        option = (mutation[0].removeprefix("option "), mutation[1]) if mutation and mutation[0].startswith("option ") else None
        self.rules = {n: autograd_rules.Optimizer(p.optimizer, option) for n, p in self.network.parameters.items() if p}
        self.states = {n: rule.start(self.parameters[n].reshape(1, -1)) for n, rule in self.rules.items()}
        self.row_rules = {(t, p): autograd_rules.Optimizer(spec.get("optimizer", "adagrad"), option)
                          for t in self.conf["tables"] for p, spec in self.network.parts_of(t).items()}
        self.rows, self.counts, self.begin_rows = {}, collections.Counter(), {}
        self.trained, self.steps = 0, 0
        self.priors = self.make_priors()
        self.dices = {name.removesuffix("/mean"): autograd_rules.Dice(len(x)) for name, x in self.parameters.items()
                      if name.endswith("/mean") and name.removesuffix("/mean") not in self.conf["slots"]}
        limit = autograd_rules.STANDARDIZE_LIMIT * self.factor("limit of what is counted")
        self.standards = {s: autograd_rules.Standardize(spec.get("dim", 1), limit) for s, spec in self.conf["slots"].items()
                          if autograd_inputs.of_network(spec)[0] == "standardize"}

    def first(self, name, parameter, seed):
        if parameter:
            return autograd_rules.first_parameter(parameter, seed).to(self.dtype)
        prefix, what = name.rsplit("/", 1)
        width = 1 if what == "count" else self.conf["slots"][prefix].get("dim", 1) if prefix in self.conf["slots"] else self.network.parameters[prefix + "/alpha"].shape[0]
        return torch.full((width,), 1.0 if what == "variance" else 0.0, dtype=self.dtype)

    def factor(self, *what):
        return self.mutation[1] if self.mutation and self.mutation[0] in what else 1.0

    # ---- labels ----

    def order_labels(self):
        carried = [l for l, spec in self.conf["labels"].items() if "of" not in spec]
        return carried + [l for l, spec in self.conf["labels"].items() if "of" in spec]

    def labelled(self, sample):
        """Returns labels and weights of a sample; a masked label is None."""
        y, w, conf = {}, {}, self.conf["labels"]
        given = sample.get("w", 1)
        for label in self.labels:  # sources before what is derived from them: a chain of derived ones is not drawn
            spec = conf[label]
            source = spec.get("of")
            y[label] = sample["y"].get(label) if source is None else y[source]
            y[label] = None if y[label] is None else autograd_rules.f32(y[label])
            if source is not None and "min" in spec and y[label] is not None:
                y[label] = 1.0 if y[label] >= autograd_rules.f32(spec["min"]) else 0.0
            w[label] = w[source] if source else (given.get(label, 1) if isinstance(given, dict) else given) * (self.factor("sample weight") if "w" in sample else 1)
        masked = [l for l in self.labels if "given" in conf[l] and y[conf[l]["given"]] != 1]
        for label in masked:
            y[label] = None
        return y, w

    # ---- keys and columns ----

    def ids(self, slot, sample):
        return autograd_inputs.ids(self.conf["slots"], slot, sample["f"])

    def admit(self, samples, roles):
        """Counts keys of trained samples; returns the keys that get a row in this batch."""
        fresh, seen = [], collections.Counter()
        for sample, trains in zip(samples, roles):
            for slot, spec in self.conf["slots"].items():
                if trains and spec.get("kind") != "dense" and spec.get("admit") != "never":
                    seen.update((spec["table"], key) for key in self.ids(slot, sample)[0])
        for (table, key), n in seen.items():
            if (table, key) in self.rows:
                continue
            self.counts[table, key] += n
            if self.counts[table, key] >= self.conf["tables"][table].get("admit", {}).get("count", 1):
                fresh.append((table, key))
        return fresh

    def new_row(self, table, key):
        row, offset = {}, 0
        for part, spec in self.network.parts_of(table).items():
            init = spec.get("init") or {"normal": 0.01}
            w = self.with_noise(torch.tensor([autograd_rules.first_row(table, init, offset, spec["dim"], self.conf["seed"], key)], dtype=self.dtype))
            offset += spec["dim"]
            row[part] = (w, self.row_rules[table, part].start(w))
        return row

    def batch(self, samples, present):
        """Columns of the batch; its keys of every table. present: keys that have a row in the forward pass."""
        found = {table: {} for table in self.conf["tables"]}
        columns, numbers = {}, {}
        for slot, spec in self.conf["slots"].items():
            if spec.get("kind") == "dense":
                rows = [autograd_inputs.numbers(spec, sample["f"].get(slot), self.factor) for sample in samples]
                numbers[slot] = (torch.tensor([x for x, _ in rows], dtype=self.dtype), torch.tensor([missing for _, missing in rows]))
                continue
            number = found[spec["table"]]
            entries = [self.ids(slot, sample) for sample in samples]
            factor = self.factor("buckets" if "buckets" in spec else "crosses" if "cross" in spec else "")
            longest = max(1, max(len(ids) for ids, _ in entries))
            table = {"keys": [], "weights": [], "there": [], "masked": []}
            for ids, weights in entries:
                pad = longest - len(ids)
                table["keys"].append([0] * pad + [number.setdefault(key, len(number)) for key in ids])
                table["weights"].append([0.0] * pad + [autograd_rules.f32(w) * factor for w in weights])
                table["there"].append([False] * pad + [True] * len(ids))
                table["masked"].append([False] * pad + [(spec["table"], key) not in present for key in ids])
            columns[slot] = Column(torch.tensor(table["keys"]), torch.tensor(table["weights"], dtype=self.dtype), torch.tensor(table["there"]),
                                   torch.tensor(table["masked"]))
        return Batch(columns, numbers), found

    # ---- one batch ----

    def step(self, groups):
        samples = [sample for group in groups for sample in expanded(group)]
        group_of = torch.tensor([g for g, group in enumerate(groups) for _ in group["items"]])
        labelled = [self.labelled(sample) for sample in samples]
        seen_by_tasks = {task["label"] for task in self.conf["tasks"]}
        roles = [bool(sample.get("u", 3) & 1) and any(y[l] is not None for l in seen_by_tasks) for sample, (y, _) in zip(samples, labelled)]
        fresh = self.admit(samples, roles)
        present = set(self.rows)  # a key that this very batch admits is absent in its forward pass
        for table, key in fresh:
            self.rows[table, key] = self.new_row(table, key)
            self.begin_rows[table, key] = {part: w for part, (w, _) in self.rows[table, key].items()}
        batch, found = self.batch(samples, present)
        leaves = self.leaves(found, present)
        values = {n: x.clone().requires_grad_(self.network.parameters[n] is not None) for n, x in self.parameters.items()}
        forward = autograd_network.Forward(self.network, batch, values, leaves, self.dropout_mask, self.mutation)
        total, counted = self.losses(forward, samples, labelled, torch.tensor(roles), group_of)
        self.look(forward)
        if not any(bool(c.any()) for c in counted.values()):
            return
        inputs = {("parameter", n): values[n] for n in self.rules} | {("rows", *k): x for k, x in leaves.items()}
        gradients = dict(zip(inputs, torch.autograd.grad(total, list(inputs.values()), allow_unused=True)))
        if self.noise:
            self.add_noise(gradients)
        self.update_parameters(gradients, counted)
        self.update_rows(gradients, counted, batch, found)
        self.update_statistics(forward, batch, counted, torch.tensor(roles))
        self.follow_labels(counted, samples, labelled)
        self.trained += sum(roles)
        self.steps += 1

    def with_noise(self, x):
        """Changes first values by about a rounding, so that terms which cancel in the forward pass no longer cancel exactly."""
        return x * (1 + self.noise * torch.randn(x.shape, generator=self.random, dtype=x.dtype)) if self.noise else x

    def add_noise(self, gradients):
        """Adds to the gradients what rounding may add to a sum whose terms cancel: a share of the largest gradient."""
        largest = max(float(g.abs().max()) for g in gradients.values() if g is not None and g.numel())
        for g in gradients.values():
            if g is not None:
                g += self.noise * largest * torch.randn(g.shape, generator=self.random, dtype=g.dtype)

    def dropout_mask(self, layer, rate, shape):
        return autograd_rules.dropout_mask(self.conf["seed"], layer, self.steps, rate, shape)

    def leaves(self, found, present):
        leaves = {}
        for table, number in found.items():
            for part, spec in self.network.parts_of(table).items():
                rows = [self.rows[table, key][part][0] if (table, key) in present else torch.zeros(1, spec["dim"], dtype=self.dtype) for key in number]
                leaves[table, part] = torch.cat(rows or [torch.zeros(1, spec["dim"], dtype=self.dtype)]).requires_grad_(True)
        return leaves

    def look(self, forward):
        for name in self.network.live_layers():
            x = forward.layer(name)
            x = x.values if isinstance(x, autograd_network.Steps) else x
            if x.numel() and not float(x.detach().abs().max()) <= self.values_max:
                raise Wild(f"layer {name}")

    def losses(self, forward, samples, labelled, trained, group_of):
        """Returns the sum of all losses, and for each loss that trains the samples that counted in it."""
        tasks, total, counted = self.conf["tasks"], torch.zeros((), dtype=self.dtype), {}
        named = {task["name"]: task for task in tasks}
        roots = dict(self.network.loss_roots())
        for k, task in enumerate(tasks):
            if k not in roots:
                continue
            label = task["label"]
            y = torch.tensor([float("nan") if l[label] is None else l[label] for l, _ in labelled], dtype=self.dtype)
            a = torch.tensor([self.sample_weight(s, w[label]) for s, (_, w) in zip(samples, labelled)], dtype=self.dtype)
            loss, counts = autograd_network.task_loss(forward, task, named, y, a, trained & ~y.isnan(), group_of)
            what = "loss " + autograd_draw.loss_kind(task)
            total, counted[k] = total + task.get("weight", 1) * self.factor(what) * loss, counts
        for i, loss in enumerate(self.conf.get("losses", [])):
            if len(tasks) + i not in roots:
                continue
            value, counts = autograd_network.auxiliary_loss(forward, loss, self.network.loss_refs[loss["name"]], trained)
            what = "loss " + autograd_draw.auxiliary_kind(loss)
            total, counted[len(tasks) + i] = total + loss.get("weight", 1) * self.factor(what) * value, counts
        return total, counted

    def sample_weight(self, sample, w):
        keep = sample.get("s", 1) if self.case["ingest"]["sampling"] == "all" else 1
        return autograd_rules.f32(w) / (autograd_rules.f32(keep) * (self.factor("keep rate") if keep != 1 else 1))

    def counts_for(self, losses, counted):
        """Returns the mask of the samples that counted in at least one of the losses."""
        masks = [counted[k] for k in losses if k in counted]
        return torch.stack(masks).any(0) if masks else torch.zeros(len(next(iter(counted.values()))), dtype=torch.bool)

    def applied(self, what, rule, w, state, s, k, is_row, penalties, samples, scale=1.0):
        new, state = rule.step(w, state, s, k, self.trained, is_row, penalties, samples, scale)
        factor = self.factor(f"{what} by {rule.kind}")
        new = w + factor * (new - w) if factor != 1 else new
        if not float(new.abs().max()) <= self.values_max:
            raise Wild(f"{what} by {rule.kind}")
        return new, state

    def update_parameters(self, gradients, counted):
        size = self.case["ingest"]["batch_size"]
        reached = {name: int(self.counts_for(self.network.reached["parameter", name], counted).sum()) for name in self.rules}
        moved = {name: n for name, n in reached.items() if n > 0}  # a parameter that no counted sample reaches is left as it is
        sums = {}
        for name in moved:
            gradient, w = gradients["parameter", name], self.parameters[name]
            sums[name] = (torch.zeros_like(w) if gradient is None else gradient).reshape(1, -1) * self.factor("sum of layers")
        scale = self.global_scale({name: sums[name] / n for name, n in moved.items()})
        for name, n in moved.items():
            w, rule = self.parameters[name], self.rules[name]
            k = torch.full((1, 1), n / size * self.factor("time of layers"), dtype=self.dtype)
            penalties = self.network.parameters[name].is_kernel or rule.o["decay_all"]
            new, self.states[name] = self.applied("layers", rule, w.reshape(1, -1), self.states[name], sums[name] / size, k, False, penalties, n, scale)
            self.parameters[name] = new.reshape(w.shape)

    def global_scale(self, means):
        """The factor by which network.clip_global_norm scales all mean gradients of layers."""
        bound = self.conf["network"].get("clip_global_norm", 0) * self.factor("clip_global_norm")
        norm = float(sum((g * g).sum() for g in means.values())) ** 0.5
        return bound / norm if bound and norm > bound else 1.0

    def update_rows(self, gradients, counted, batch, found):
        for table, number in found.items():
            for part in self.network.parts_of(table):
                c = torch.zeros(max(1, len(number)), dtype=torch.int64)
                for slot, column in batch.columns.items():
                    if self.conf["slots"][slot]["table"] != table or not self.network.reached[slot, part]:
                        continue
                    trains = self.counts_for(self.network.reached[slot, part], counted)[:, None]
                    pooled = self.counts_for(self.network.reached[slot, part, "pooled"], counted)[:, None]  # a masked step counts in a pooled sum only
                    c.index_add_(0, column.keys.flatten(), (column.there & torch.where(column.masked, pooled, trains)).flatten().to(c.dtype))
                self.update_part(table, part, number, c, gradients["rows", table, part])

    def update_part(self, table, part, number, c, gradient):
        rule = self.row_rules[table, part]
        moved = [(key, i) for key, i in number.items() if (table, key) in self.rows and int(c[i]) > 0]
        if not moved:
            return
        at = torch.tensor([i for _, i in moved])
        w = torch.cat([self.rows[table, key][part][0] for key, _ in moved])
        state = [self.rows[table, key][part][1] for key, _ in moved]
        state = {name: torch.cat([s[name] for s in state]) for name in state[0]}
        gradient = torch.zeros_like(w) if gradient is None else gradient[at]
        k = c[at].to(self.dtype)[:, None] * self.factor("time of rows")
        new, state = self.applied("rows", rule, w, state, gradient * self.factor("sum of rows"), k, True, True, k)
        for j, (key, _) in enumerate(moved):
            self.rows[table, key][part] = (new[j:j + 1], {name: x[j:j + 1] for name, x in state.items()})

    def update_statistics(self, forward, batch, counted, roles):
        for prefix, (x, there) in forward.dice.items():
            trains = self.counts_for(self.network.reached["parameter", prefix + "/alpha"], counted)
            rows = x[trains] if there is None else x[there & trains[:, None]]
            if len(rows):
                self.dices[prefix].add(rows, int(trains.sum()) / self.case["ingest"]["batch_size"] * self.factor("statistics dice"))
                self.parameters[prefix + "/mean"], self.parameters[prefix + "/variance"] = (m.to(self.dtype) for m in self.dices[prefix].moments())
        for slot, standard in self.standards.items():
            standard.add(batch.numbers[slot][0][roles] * self.factor("statistics standardize"))
            for what, x in zip(("mean", "variance", "count"), standard.published()):
                self.parameters[f"{slot}/{what}"] = x.to(self.dtype)

    # ---- output biases begin at the log-odds of the first labels ----

    def bias_of(self, name):
        layer = self.network.layers[name]
        plain = self.network.activation_of(layer) == "none"
        last = len(autograd_network.as_list(layer.options.get("units", []))) - 1
        if layer.op == "add":
            return next((b for b in (self.bias_of(r.name) for r in layer.roles[0] if r.kind == "layer") if b), None)
        found = {"bias": f"{name}/bias", "dense": plain and f"{name}/bias", "mlp": plain and f"{name}/{last}/bias"}.get(layer.op)
        return found if found and self.network.parameters[found].shape == (1,) else None

    def make_priors(self):
        taken = {}
        for k, task in enumerate(self.conf["tasks"]):
            if "prob" in task or autograd_draw.loss_kind(task) not in ("logloss", "focal") or not task.get("bias_from_labels", True):
                continue
            bias = self.bias_of(task["logit"])
            if bias and bias not in taken:
                taken[bias] = k
        return {k: {"bias": bias, "samples": 0, "weight": 0.0, "positives": 0.0} for bias, k in taken.items()}

    def follow_labels(self, counted, samples, labelled):
        for k, prior in self.priors.items():
            counts = counted.get(k, torch.zeros(0)).nonzero().flatten().tolist()
            if not counts or prior["samples"] >= PRIOR_SAMPLES:
                continue
            first, before = prior["samples"] == 0, log_odds(prior)
            label = self.conf["tasks"][k]["label"]
            for i in counts:
                y, w = labelled[i]
                a = self.sample_weight(samples[i], w[label])
                prior["weight"], prior["positives"], prior["samples"] = prior["weight"] + a, prior["positives"] + a * y[label], prior["samples"] + 1
            w = self.parameters[prior["bias"]]
            odds = log_odds(prior) * self.factor("bias from labels")
            self.parameters[prior["bias"]] = torch.full_like(w, odds) if first else w + odds - before

    def run(self, batches=None):
        size, records = self.case["per_batch"], self.case["records"]
        for at in range(0, len(records), size):
            if batches is None or at // size < batches:
                self.step(records[at:at + size])
        return self

    # ---- the whole state ----

    def state(self):
        """name -> (numbers, numbers at the beginning or None): parameters, rows and the states of rows' rules."""
        out = {name: (x.flatten(), self.begin[name].flatten()) for name, x in self.parameters.items()}
        for (table, key), parts in self.rows.items():
            for part, (w, state) in parts.items():
                out[f"{table} {key} {part}"] = (w[0], self.begin_rows[table, key][part][0])
                for name, x in state.items():
                    out[f"{table} {key} {part} {name}"] = (x[0], torch.zeros_like(x[0]))
        return {name: (x.to(torch.float64), y.to(torch.float64)) for name, (x, y) in out.items()}
