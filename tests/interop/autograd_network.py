"""The layer grammar of conf/OPTIONS.md in PyTorch: values of every layer over a batch, the losses, and what a loss reaches.

Written from the grammar's text and the papers it names, with none of Freshet's code. Vectors are [samples, n]. A sequence is [samples, T, n] with the newest step
at T - 1, so that joining sequences "aligned at the newest" is concatenation; `there` marks steps that exist and `masked` those of them without a row. Groups need
nothing: a sample holds the shared values of its group.
"""
import collections
import math

import torch

import autograd_inputs
import autograd_rules

Steps = collections.namedtuple("Steps", "values there masked")
Ref = collections.namedtuple("Ref", "kind name part pooling", defaults=(None, None))  # kinds: layer, number, pooled, steps
Layer = collections.namedtuple("Layer", "name op roles options")
POOLINGS = ("sum", "mean", "sqrtn", "max")
ROLES = {"attention": ("query", "keys"), "augru": ("query", "keys"), "mixture": ("gate", "experts")}
OPERATIONS = ("concat", "mlp", "dense", "bi_interaction", "sum", "add", "mean", "sqrtn", "max", "last", "multiply", "fm", "dot_interaction", "cross", "bias", "layer_norm",
              "dropout", "activate", "stop_gradient", "attention", "gru", "augru", "experts", "mixture")
LAYER_NORM_EPSILON, DICE_EPSILON = 1e-5, 1e-9


class ScaledGradient(torch.autograd.Function):
    """The value as it is, its gradient times a factor: a seeded error of a derivative."""

    @staticmethod
    def forward(context, x, factor):
        context.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        return gradient * context.factor, None


def largest(x, counts):
    """[n, k, d] -> [n, d]: the largest value of those that count, zeros where none does. Of equal values the first has the gradient."""
    most = torch.where(counts[..., None], x, -math.inf).max(1).values
    return torch.where(counts.any(1, keepdim=True), most, 0.0)


def as_list(x):
    return x if isinstance(x, list) else [x]


class Network:
    """A configuration's layers in evaluation order, their parameters, and which losses reach what.

    Losses are numbered: tasks, then auxiliary ones. reached[name] is the set that reaches a parameter, reached[slot, part] one that reaches a reader of rows,
    reached[slot, part, "pooled"] one that reaches a reader other than step by step."""

    def __init__(self, conf):
        self.conf, self.layers, self.width, self.sequence = conf, {}, {}, set()
        self.slots, self.tables = conf["slots"], conf["tables"]
        self.loss_refs = {}
        pending = [(layer, dict(layer)) for layer in conf["network"]["layers"]]
        self.raw = {layer["name"]: options for layer, options in pending}
        for name in list(self.raw):
            self.resolve_layer(name)
        for loss in conf.get("losses", []):
            count = [0]
            arguments = loss["mse"] if "mse" in loss else [loss["next_step"][role] for role in ("states", "positives", "negatives")]
            self.loss_refs[loss["name"]] = [self.ref(a, loss["name"], count) for a in arguments]
        self.parameters = {}
        for name in self.layers:
            self.make_parameters(self.layers[name])
        for slot, spec in self.slots.items():
            if autograd_inputs.of_network(spec)[0] == "standardize":
                self.parameters[slot + "/mean"] = self.parameters[slot + "/variance"] = self.parameters[slot + "/count"] = None
        self.find_reached()

    # ---- names to layers ----

    def parts_of(self, table):
        spec = self.tables[table]
        return {"v": spec} if "dim" in spec else spec["parts"]

    def ref(self, written, outer, count):
        """A reference; operations inside an argument become layers <outer>__0, <outer>__1 .."""
        if isinstance(written, dict):
            (op, argument), = written.items()
            if op in POOLINGS and isinstance(argument, str) and argument.split(".")[0] in self.slots:
                read = self.ref(argument, outer, count)
                return Ref("pooled", read.name, read.part, op)
            name = f"{outer}__{count[0]}"
            count[0] += 1
            self.raw[name] = {"name": name, op: argument}
            self.resolve_layer(name)
            return Ref("layer", name)
        name, _, part = written.partition(".")
        if name not in self.slots:
            self.resolve_layer(name)
            return Ref("layer", name)
        spec = self.slots[name]
        if spec.get("kind") == "dense":
            return Ref("number", name)
        part = part or next(iter(self.parts_of(spec["table"])))
        return Ref("steps", name, part) if spec.get("kind") == "sequence" else Ref("pooled", name, part, "sum")

    def resolve_layer(self, name):
        if name in self.layers:
            return
        options = self.raw[name]
        op, = [key for key in options if key in OPERATIONS]
        argument, count = options[op], [0]
        if op in ROLES:
            roles = [[self.ref(a, name, count) for a in as_list(argument[role])] for role in ROLES[op]]
        else:
            roles = [[self.ref(a, name, count) for a in as_list(argument)]]
            read = roles[0][0]
            if op in POOLINGS and len(roles[0]) == 1 and read.kind in ("steps", "pooled"):
                if isinstance(as_list(argument)[0], str):
                    roles = [[Ref("pooled", read.name, read.part, op)]]
                op = "sum"
        layer = Layer(name, op, roles, options)
        self.layers[name] = layer
        self.infer(layer)

    def ref_width(self, ref):
        if ref.kind == "layer":
            return self.width[ref.name]
        spec = self.slots[ref.name]
        if ref.kind == "number":
            return autograd_inputs.width_of(spec)
        return self.parts_of(spec["table"])[ref.part]["dim"]

    def is_sequence(self, ref):
        return ref.kind == "steps" or (ref.kind == "layer" and ref.name in self.sequence)

    def infer(self, layer):
        widths = [[self.ref_width(r) for r in role] for role in layer.roles]
        total, units = sum(widths[0]), as_list(layer.options.get("units", []))
        op = layer.op
        if op in ("mlp", "dense", "gru"):
            width = units[-1]
        elif op in ("bi_interaction", "sum", "add", "multiply", "mean", "sqrtn", "max", "last"):
            width = widths[0][0]
        elif op == "fm":
            width = 1
        elif op == "dot_interaction":
            width = len(widths[0]) * (len(widths[0]) - 1) // 2
        elif op in ("attention", "augru"):
            width = sum(widths[1])
        elif op == "experts":
            width = layer.options["count"] * units[-1]
        elif op == "mixture":
            width = widths[1][0] // self.layers[layer.roles[1][0].name].options["count"]
        else:
            width = total
        self.width[layer.name] = width
        if op == "gru" or (op in ("concat", "dense") and self.is_sequence(layer.roles[0][0])):
            self.sequence.add(layer.name)

    # ---- parameters: name -> (shape, how it begins, optimizer) ----

    def add(self, name, shape, begin, layer):
        optimizer = layer.options.get("optimizer") or self.conf["network"].get("optimizer", "adam")
        self.parameters[name] = Parameter(name, shape, begin, layer.name, optimizer)

    def add_linear(self, layer, prefix, rows, columns, fan_in=None, names=("kernel", "bias"), bias=True):
        init = layer.options.get("init") or self.conf["network"].get("init", "default")
        fan_in = fan_in or rows
        self.add(f"{prefix}/{names[0]}", (rows, columns), (init, fan_in if init == "default" else rows, columns), layer)
        if bias:
            self.add(f"{prefix}/{names[1]}", (columns,), (init, fan_in, columns) if init == "default" else 0.0, layer)

    def add_activation(self, layer, prefix, width):
        kind = self.activation_of(layer)
        if kind in ("prelu", "dice"):
            self.add(prefix + "/alpha", (width,), 0.25, layer)
        if kind == "dice":
            self.parameters[prefix + "/mean"] = self.parameters[prefix + "/variance"] = None

    def add_mlp(self, layer, prefix, width):
        for i, units in enumerate(as_list(layer.options.get("units", [16]))):
            self.add_linear(layer, f"{prefix}/{i}", width, units)
            self.add_activation(layer, f"{prefix}/{i}", units)
            width = units
        return width

    def add_gru(self, layer, width, units):
        standard = (layer.options.get("init") or self.conf["network"].get("init", "default")) == "default"
        self.add_linear(layer, layer.name, width, 3 * units, units if standard else width)
        self.add_linear(layer, layer.name, units, 3 * units, names=("recurrent_kernel", "recurrent_bias"))

    def make_parameters(self, layer):
        name, op, options = layer.name, layer.op, layer.options
        width = sum(self.ref_width(r) for r in layer.roles[0])
        keys = sum(self.ref_width(r) for r in layer.roles[1]) if len(layer.roles) > 1 else 0
        if op == "mlp":
            self.add_mlp(layer, name, width)
        elif op == "dense":
            self.add_linear(layer, name, width, self.width[name])
            self.add_activation(layer, name, self.width[name])
        elif op == "cross":
            for i in range(options.get("depth", 1)):
                rank = options.get("rank", 0)
                if rank:
                    self.add_linear(layer, f"{name}/{i}", width, rank, names=("down", ""), bias=False)
                    self.add_linear(layer, f"{name}/{i}", rank, width, names=("up", "bias"))
                else:
                    self.add_linear(layer, f"{name}/{i}", width, width)
        elif op == "bias":
            init = options.get("init") or self.conf["network"].get("init", "default")
            self.add(name + "/bias", (width,), init["constant"] if "constant" in init else 0.0, layer)
        elif op == "layer_norm":
            self.add(name + "/scale", (width,), 1.0, layer)
            self.add(name + "/bias", (width,), 0.0, layer)
        elif op == "activate":
            self.add_activation(layer, name, width)
        elif op == "attention":
            last = self.add_mlp(layer, name, 4 * keys)
            self.add_linear(layer, name + "/score", last, 1, bias=not options.get("softmax"))
        elif op == "gru":
            self.add_gru(layer, width, options["units"])
        elif op == "augru":
            self.add_gru(layer, keys, keys)
            self.add_linear(layer, name, keys, width, names=("attention", ""), bias=False)
        elif op == "experts":
            for e in range(options["count"]):
                self.add_mlp(layer, f"{name}/{e}", width)
        elif op == "mixture":
            self.add_linear(layer, name, width, keys // self.width[name], bias=False)

    # ---- what a loss reaches ----

    def loss_roots(self):
        """Yields the number of every loss that trains, and the references that it reads."""
        tasks = self.conf["tasks"]
        named = {task["name"]: task for task in tasks}
        for k, task in enumerate(tasks):
            if task.get("loss") != "none" and task.get("weight", 1) > 0:
                yield k, [Ref("layer", named[t]["logit"]) for t in task["prob"]] if "prob" in task else [Ref("layer", task["logit"])]
        for i, loss in enumerate(self.conf.get("losses", [])):
            if loss.get("weight", 1) > 0:
                yield len(tasks) + i, self.loss_refs[loss["name"]]

    def find_reached(self):
        self.reached = collections.defaultdict(set)
        for k, refs in self.loss_roots():
            seen, walk = set(), list(refs)
            while walk:
                ref = walk.pop()
                if ref in seen:
                    continue
                seen.add(ref)
                if ref.kind in ("pooled", "steps"):
                    self.reached[ref.name, ref.part].add(k)
                    if ref.kind == "pooled":
                        self.reached[ref.name, ref.part, "pooled"].add(k)
                elif ref.kind == "layer":
                    layer = self.layers[ref.name]
                    self.reached[ref.name].add(k)
                    if layer.op != "stop_gradient":
                        walk += [r for role in layer.roles for r in role]
        for name, parameter in self.parameters.items():
            if parameter:
                self.reached["parameter", name] = self.reached[parameter.layer]

    def live_layers(self):
        """Returns the layers that a task or a loss reads, also a task without a loss: the others have no values."""
        seen, walk = set(), [Ref("layer", task["logit"]) for task in self.conf["tasks"] if "logit" in task]
        walk += [ref for refs in self.loss_refs.values() for ref in refs]
        while walk:
            ref = walk.pop()
            if ref.kind == "layer" and ref.name not in seen:
                seen.add(ref.name)
                walk += [r for role in self.layers[ref.name].roles for r in role]
        return seen

    def activation_of(self, layer):
        return layer.options.get("activation", "none" if layer.op == "dense" else "relu")


class Parameter(collections.namedtuple("Parameter", "name shape begin layer optimizer")):
    @property
    def is_kernel(self):
        return len(self.shape) == 2


class Forward:
    """Values of one batch. `values`: parameter name -> tensor; `rows`: (table, part) -> tensor [keys, dim], zeros where there is no row."""

    def __init__(self, network, batch, values, rows, dropout, mutation):
        self.network, self.batch, self.values, self.rows = network, batch, values, rows
        self.draw_dropout, self.mutation = dropout, mutation
        self.cache, self.dice = {}, {}

    def mutated(self, what, x):
        """A seeded error of 2 % in the derivative of `what`."""
        return ScaledGradient.apply(x, self.mutation[1]) if self.mutation and self.mutation[0] == what else x

    def parameter(self, name):
        return self.values[name]

    # ---- references ----

    def vector(self, ref):
        if ref.kind == "layer":
            return self.layer(ref.name)
        if ref.kind == "number":
            return self.number(ref.name)
        column = self.batch.columns[ref.name]
        rows = self.rows[self.network.slots[ref.name]["table"], ref.part]
        weights = torch.where(column.there, column.weights, 0.0)
        if ref.pooling == "max":
            return self.mutated("pool max", largest(weights[..., None] * rows[column.keys], column.there & ~column.masked))
        summed = torch.einsum("nk,nkd->nd", weights, rows[column.keys])
        if ref.pooling == "sum":
            return self.mutated("pool sum", summed)
        norm = weights.sum(1) if ref.pooling == "mean" else (weights * weights).sum(1).sqrt()
        empty = norm == 0
        return self.mutated("pool " + ref.pooling, torch.where(empty, 0.0, 1 / torch.where(empty, 1.0, norm))[:, None] * summed)

    def steps(self, ref):
        if ref.kind == "layer":
            return self.layer(ref.name)
        column = self.batch.columns[ref.name]
        rows = self.rows[self.network.slots[ref.name]["table"], ref.part]
        weights = torch.where(column.there & ~column.masked, column.weights, 0.0)  # no gradient reaches a masked step's row
        return Steps(self.mutated("steps", weights[..., None] * rows[column.keys]), column.there, column.masked)

    def wrong(self, what):
        """The factor of a seeded error of a value."""
        return self.mutation[1] if self.mutation and self.mutation[0] == what else 1.0

    def number(self, slot):
        spec, (x, missing) = self.network.slots[slot], self.batch.numbers[slot]
        kind, boundaries = autograd_inputs.of_network(spec)
        if kind == "standardize":
            known = float(self.values[slot + "/count"][0]) >= autograd_rules.STANDARDIZE_COUNT_MIN
            limit = autograd_rules.STANDARDIZE_LIMIT * self.wrong("limit of what is read")
            x = (x - self.values[slot + "/mean"]) / (self.values[slot + "/variance"] + autograd_rules.STANDARDIZE_EPSILON).sqrt()
            x = (x.clamp(-limit, limit).nan_to_num(0) if known else torch.zeros_like(x)) * self.wrong("transform standardize")
        elif kind == "bucketize":
            place = (torch.tensor([autograd_rules.f32(b) for b in boundaries], dtype=x.dtype) <= x[..., None]).sum(-1)
            x = torch.nn.functional.one_hot(place, len(boundaries) + 1).to(x.dtype).flatten(1) * self.wrong("transform bucketize")
        return torch.cat([x, missing[:, None] * self.wrong("indicator")], 1) if spec.get("indicator") else x

    def joined(self, refs):
        """References one after the other; sequences step by step, aligned at the newest, as long as the first."""
        if not self.network.is_sequence(refs[0]):
            return torch.cat([self.vector(r) for r in refs], 1)
        sequences = [self.steps(r) for r in refs]
        first, length = sequences[0], sequences[0].values.shape[1]
        parts = [first.values]
        for other in sequences[1:]:
            x = other.values[:, max(0, other.values.shape[1] - length):]
            x = torch.nn.functional.pad(x, (0, 0, length - x.shape[1], 0))
            parts.append(torch.where(first.there[..., None], x, 0.0))
        return Steps(torch.cat(parts, 2), first.there, first.masked)

    # ---- layers ----

    def layer(self, name):
        if name not in self.cache:
            layer = self.network.layers[name]
            out = getattr(self, "op_" + layer.op)(layer)
            values = self.mutated("layer " + layer.op, out.values if isinstance(out, Steps) else out)
            self.cache[name] = out._replace(values=values) if isinstance(out, Steps) else values
        return self.cache[name]

    def activate(self, x, kind, prefix, there=None):
        """`there`: of the steps of a sequence, those that statistics look at."""
        if kind == "none":
            return x
        if kind == "gelu":
            x = torch.nn.functional.gelu(x, approximate="tanh")
        elif kind == "leaky_relu":
            x = torch.nn.functional.leaky_relu(x, 0.01)
        elif kind == "prelu":
            x = torch.where(x > 0, x, self.parameter(prefix + "/alpha") * x)
        elif kind == "dice":
            self.dice[prefix] = (x.detach(), there)
            spread = (self.values[prefix + "/variance"] + DICE_EPSILON).sqrt()
            p = torch.sigmoid((x - self.values[prefix + "/mean"]) / spread)
            x = p * x + (1 - p) * self.parameter(prefix + "/alpha") * x
        else:
            x = {"relu": torch.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh}[kind](x)
        return self.mutated("activation " + kind, x)

    def linear(self, x, prefix, kernel="kernel", bias="bias"):
        x = x @ self.parameter(f"{prefix}/{kernel}")
        return x + self.parameter(f"{prefix}/{bias}") if bias and f"{prefix}/{bias}" in self.values else x

    def mlp(self, x, layer, prefix, there=None):
        for i in range(len(as_list(layer.options.get("units", [16])))):
            x = self.activate(self.linear(x, f"{prefix}/{i}"), self.network.activation_of(layer), f"{prefix}/{i}", there)
        return x

    def op_concat(self, layer):
        return self.joined(layer.roles[0])

    def op_mlp(self, layer):
        return self.mlp(self.joined(layer.roles[0]), layer, layer.name)

    def op_dense(self, layer):
        x, kind = self.joined(layer.roles[0]), self.network.activation_of(layer)
        if not isinstance(x, Steps):
            return self.activate(self.linear(x, layer.name), kind, layer.name)
        y = self.activate(self.linear(x.values, layer.name), kind, layer.name, x.there & ~x.masked)
        return x._replace(values=torch.where(x.there[..., None], y, 0.0))

    def several(self, layer):
        return torch.stack([self.vector(r) for r in layer.roles[0]])

    def op_bi_interaction(self, layer):
        v = self.several(layer)
        return (v.sum(0) ** 2 - (v * v).sum(0)) / 2

    def op_fm(self, layer):
        return self.op_bi_interaction(layer).sum(1, keepdim=True)

    def op_add(self, layer):
        return self.several(layer).sum(0)

    def op_multiply(self, layer):
        return self.several(layer).prod(0)

    def op_dot_interaction(self, layer):
        v = self.several(layer)
        return torch.stack([(v[a] * v[b]).sum(1) for b in range(len(v)) for a in range(b)], 1)

    def op_sum(self, layer):
        return self.pool(layer) if self.network.is_sequence(layer.roles[0][0]) else self.op_add(layer)

    def pool(self, layer):
        x = self.steps(layer.roles[0][0])
        if layer.op == "last":
            return x.values[:, -1]
        if layer.op == "max":
            return largest(x.values, x.there & ~x.masked)
        summed = torch.where((x.there & ~x.masked)[..., None], x.values, 0.0).sum(1)
        length = x.there.sum(1, keepdim=True).clamp(min=1).to(summed.dtype)
        return summed / {"sum": 1, "mean": length, "sqrtn": length.sqrt()}[layer.op]

    op_mean = op_sqrtn = op_max = op_last = pool

    def op_cross(self, layer):
        x0 = x = self.joined(layer.roles[0])
        for i in range(layer.options.get("depth", 1)):
            prefix = f"{layer.name}/{i}"
            down = self.linear(x, prefix, "down", None) if layer.options.get("rank") else x
            x = x0 * self.linear(down, prefix, "up" if layer.options.get("rank") else "kernel") + x
        return x

    def op_bias(self, layer):
        return self.joined(layer.roles[0]) + self.parameter(layer.name + "/bias")

    def op_layer_norm(self, layer):
        x = self.joined(layer.roles[0])
        return torch.nn.functional.layer_norm(x, x.shape[1:], self.parameter(layer.name + "/scale"), self.parameter(layer.name + "/bias"), LAYER_NORM_EPSILON)

    def op_dropout(self, layer):
        x, rate = self.joined(layer.roles[0]), layer.options["rate"]
        if rate == 0:
            return x
        return torch.where(self.draw_dropout(layer.name, rate, x.shape), x / (1 - rate), 0.0)

    def op_activate(self, layer):
        return self.activate(self.joined(layer.roles[0]), self.network.activation_of(layer), layer.name)

    def op_stop_gradient(self, layer):
        x = self.joined(layer.roles[0])
        leak = self.mutation[1] - 1 if self.mutation and self.mutation[0] == "layer stop_gradient" else 0
        return x.detach() + leak * (x - x.detach()) if leak else x.detach()

    def softmax(self, scores, counts):
        """The softmax over the steps that count; zeros where no step counts."""
        largest = torch.where(counts, scores, -math.inf).max(1, keepdim=True).values.detach()
        e = torch.where(counts, torch.where(counts, scores - largest, 0.0).exp(), 0.0)
        return e / torch.where(counts.any(1, keepdim=True), e.sum(1, keepdim=True), 1.0)

    def op_attention(self, layer):
        query, keys = self.joined(layer.roles[0]), self.joined(layer.roles[1])
        counts = keys.there & ~keys.masked
        q = query[:, None].expand_as(keys.values)
        x = torch.cat([q, keys.values, q - keys.values, q * keys.values], 2)
        scores = self.linear(self.mlp(x, layer, layer.name, counts), layer.name + "/score")[..., 0]
        scores = self.softmax(scores, counts) if layer.options.get("softmax") else torch.where(counts, scores, 0.0)
        return (scores[..., None] * torch.where(counts[..., None], keys.values, 0.0)).sum(1)

    def recurrence(self, x, name, units, scores=None):
        """PyTorch's form of the GRU; with scores DIEN's: the update gate times the step's score. A masked step keeps the state."""
        inputs = self.linear(x.values, name)
        state, states = torch.zeros(len(inputs), units, dtype=inputs.dtype), []
        for t in range(inputs.shape[1]):
            own, past = inputs[:, t], self.linear(state, name, "recurrent_kernel", "recurrent_bias")
            r = torch.sigmoid(own[:, :units] + past[:, :units])
            z = torch.sigmoid(own[:, units:2 * units] + past[:, units:2 * units])
            n = torch.tanh(own[:, 2 * units:] + r * past[:, 2 * units:])
            update = (1 - z) if scores is None else (1 - z) * scores[:, t:t + 1]
            counts = (x.there & ~x.masked)[:, t:t + 1]
            state = torch.where(counts, state + update * (n - state), state)
            states.append(state)
        return Steps(torch.stack(states, 1) if states else torch.zeros(len(inputs), 0, units, dtype=inputs.dtype), x.there, x.masked)

    def op_gru(self, layer):
        return self.recurrence(self.joined(layer.roles[0]), layer.name, layer.options["units"])

    def op_augru(self, layer):
        query, keys = self.joined(layer.roles[0]), self.joined(layer.roles[1])
        scores = torch.einsum("ntd,nd->nt", self.linear(keys.values, layer.name, "attention", None), query)
        scores = self.softmax(scores, keys.there & ~keys.masked)
        return self.recurrence(keys, layer.name, keys.values.shape[2], scores).values[:, -1]

    def op_experts(self, layer):
        x = self.joined(layer.roles[0])
        return torch.cat([self.mlp(x, layer, f"{layer.name}/{e}") for e in range(layer.options["count"])], 1)

    def op_mixture(self, layer):
        gates = torch.softmax(self.linear(self.joined(layer.roles[0]), layer.name), 1)
        experts = self.vector(layer.roles[1][0]).unflatten(1, (gates.shape[1], -1))
        return (gates[..., None] * experts).sum(1)


# ---- losses: sums over samples; and which samples count ----

def logit_of_product(factors):
    """Returns -log and the logit of a product of probabilities whose logits are `factors` [samples, k]."""
    surprise = torch.nn.functional.softplus(-factors).sum(1)
    return surprise, -torch.log(torch.expm1(surprise))


def task_loss(forward, task, named, y, a, counts, group):
    """Returns the sum of the loss over the samples that count, and the mask of those samples."""
    softplus = torch.nn.functional.softplus
    safe = torch.where(counts, y, 0.0)
    kind = task.get("loss", "logloss")
    focal = {"gamma": 2, "alpha": 0.25, **(kind["focal"] if isinstance(kind, dict) else {})}
    if "prob" in task:
        factors = torch.cat([forward.layer(named[t]["logit"]) for t in task["prob"]], 1)
        surprise = softplus(-factors).sum(1)
        terms = safe * surprise - (1 - safe) * torch.log(-torch.expm1(-surprise))
        return torch.where(counts, a * terms, 0.0).sum(), counts
    z = forward.layer(task["logit"])[:, 0]
    if kind == "pairwise":
        return pairwise_loss(z, y, a, counts, group)
    if kind == "mse":
        terms = (z - safe) ** 2 / 2
    elif kind == "logloss":
        terms = softplus(z) - safe * z
    else:
        p, q = torch.sigmoid(z), torch.sigmoid(-z)
        terms = focal["alpha"] * safe * q ** focal["gamma"] * softplus(-z) + (1 - focal["alpha"]) * (1 - safe) * p ** focal["gamma"] * softplus(z)
    return torch.where(counts, a * terms, 0.0).sum(), counts


def pairwise_loss(z, y, a, counts, group):
    usable = counts & (a > 0)
    better = (y[:, None] > y[None]) & usable[:, None] & usable[None] & (group[:, None] == group[None])
    terms = torch.where(better, a[:, None] * a[None] * torch.nn.functional.softplus(-(z[:, None] - z[None])), 0.0).sum(1)
    stands = better.any(1) | better.any(0)
    members = (group[:, None] == group[None]).to(z.dtype)
    pairs, m = members @ better.sum(1).to(z.dtype), members @ stands.to(z.dtype)
    return (terms * m / pairs.clamp(min=1)).sum(), stands


def auxiliary_loss(forward, loss, refs, trained):
    if "mse" in loss:
        a, b = (forward.vector(r) for r in refs)
        return torch.where(trained, ((a - b) ** 2).sum(1) / 2, 0.0).sum(), trained
    states, positives, negatives = (forward.steps(r) for r in refs)
    length = states.values.shape[1]
    if length < 2:
        return states.values.sum() * 0, torch.zeros_like(trained)

    def next_of(x):
        """What follows step t of the states is as many steps before the newest: [samples, length - 1, n] and whether it is there."""
        pad = max(0, length - x.values.shape[1])
        values = torch.nn.functional.pad(x.values, (0, 0, pad, 0))[:, -(length - 1):]
        there = torch.nn.functional.pad(x.there & ~x.masked, (pad, 0))[:, -(length - 1):]
        return values, there

    h, counts = states.values[:, :-1], (states.there & ~states.masked)[:, :-1] & trained[:, None]
    (p, p_there), (n, n_there) = next_of(positives), next_of(negatives)
    counts = counts & p_there & n_there
    terms = torch.nn.functional.softplus(-(h * p).sum(2)) + torch.nn.functional.softplus((h * n).sum(2))
    steps = counts.sum(1)
    return (torch.where(counts, terms, 0.0).sum(1) / steps.clamp(min=1)).sum(), steps > 0

