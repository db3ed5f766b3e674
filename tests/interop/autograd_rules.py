"""What learning does with gradients: first values, schedules, optimizers, moving statistics; each written from its paper and the text of the contract alone.

One rule serves rows and layers: tensors are [rows, d] (a layer's parameter is one row), s is the summed gradient, k (kappa) the units of time it stands for: the
trained occurrences of a row; of a layer n / batch_size, and then s is the sum over the batch's n samples divided by batch_size. g = s / k is the mean gradient.
"""
import math
import struct

import torch
import xxhash

M64 = (1 << 64) - 1


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


# ---- counter-based random numbers: part of the format ----

def mix(z):
    """The SplitMix finalizer (Stafford's variant 13)."""
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9 & M64
    z = (z ^ z >> 27) * 0x94d049bb133111eb & M64
    return z ^ z >> 31


def random_u64(seed, stream, key, index):
    start = mix(key + seed * 0xd1342543de82ef95 + stream * 0xaef17502108ef2d9 + 0x2545f4914f6cdd1d & M64)
    return mix(start + (index + 1) * 0x9e3779b97f4a7c15 & M64)


def uniform(seed, stream, key, index):
    return (random_u64(seed, stream, key, index) >> 11) * 2.0 ** -53


def normal(seed, stream, key, index):
    u = ((random_u64(seed, stream, key, 2 * index) >> 11) + 1) * 2.0 ** -53
    return math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * uniform(seed, stream, key, 2 * index + 1))


def truncated_normal(seed, stream, key, index):
    """Drawn again until within two deviations; the draw's number is above bit 32 of the index."""
    for draw in range(64):
        x = normal(seed, stream, key, index + (draw << 32))
        if -2 <= x <= 2:
            return x
    return 0.0


def weight(seed, stream, key, index):
    """Standard normal by Box and Muller, two of each draw: its upper half is the radius (in f32), its lower one the angle."""
    bits = random_u64(seed, stream, key, index // 2)
    radius, angle = math.sqrt(-2 * math.log(f32(((bits >> 32) + 1) * 2.0 ** -32))), math.pi * (bits & 0xffffffff) * 2.0 ** -31
    return radius * (math.sin(angle) if index % 2 else math.cos(angle))


def draw(init, fan_in, fan_out, seed, stream, key, index):
    kind, scale = next(iter(init.items())) if isinstance(init, dict) else (init, None)
    if kind == "zeros":
        return 0.0
    if kind == "default":
        kind, scale = "uniform", 1 / math.sqrt(fan_in)
    elif kind.startswith("xavier"):
        scale = math.sqrt((6 if kind.endswith("uniform") else 2) / (fan_in + fan_out))
    elif kind.startswith("kaiming"):
        scale = math.sqrt((6 if kind.endswith("uniform") else 2) / fan_in)
    if kind == "constant":
        return f32(scale)
    if kind.endswith("uniform"):
        return f32((2 * uniform(seed, stream, key, index) - 1) * scale)
    return f32((truncated_normal if kind == "truncated_normal" else weight)(seed, stream, key, index) * scale)


STREAM_LAYERS = 2


def first_parameter(parameter, seed):
    """First values of a layer's parameter; `begin`: a constant, or (init, fan_in, fan_out)."""
    size = math.prod(parameter.shape)
    if isinstance(parameter.begin, float):
        values = [parameter.begin] * size
    else:
        key = xxhash.xxh3_64_intdigest(parameter.name.encode())
        values = [draw(*parameter.begin, seed, STREAM_LAYERS, key, i) for i in range(size)]
    return torch.tensor(values, dtype=torch.float64).reshape(parameter.shape)


def first_row(table, init, offset, dim, seed, key):
    stream = xxhash.xxh3_64_intdigest(table.encode())
    return [draw(init, dim, dim, seed, stream, key, offset + j) for j in range(dim)]


STREAM_DROPOUT = 0x64726f70


def dropout_mask(seed, layer, steps, rate, shape):
    """Elements that stay: a function of (seed, layer, step, number of the sample, column)."""
    def mix32(x, high):
        x = (x ^ x >> 16) * 0x21f0aaad & 0xffffffff
        x = (x ^ x >> 15) * 0x735a2d97 & 0xffffffff
        x = (x ^ x >> 15) + high & 0xffffffff
        x = (x ^ x >> 16) * 0x21f0aaad & 0xffffffff
        x = (x ^ x >> 15) * 0x735a2d97 & 0xffffffff
        return x ^ x >> 15

    key = xxhash.xxh3_64_intdigest(layer.encode()) + steps & M64
    rows = [random_u64(seed, STREAM_DROPOUT, key, i) for i in range(shape[0])]
    threshold = int(f32(rate) * 4294967296.0)
    return torch.tensor([[mix32(row + j * 0x9e3779b9 & 0xffffffff, row >> 32) >= threshold for j in range(shape[1])] for row in rows]).reshape(shape)


# ---- optimizers ----

DEFAULTS = {
    "sgd": {"lr": 0.01}, "momentum": {"lr": 0.01, "momentum": 0.9}, "adagrad": {"lr": 0.05, "eps": 1e-8, "initial": 0, "half_life": 0},
    "adagrad_rowwise": {"lr": 0.05, "eps": 1e-8, "initial": 0, "half_life": 0}, "rmsprop": {"lr": 0.01, "rho": 0.99, "eps": 1e-8},
    "adam": {"lr": 0.001, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}, "adamw": {"lr": 0.001, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01},
    "adam_rowwise": {"lr": 0.001, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}, "ftrl": {"lr": 0.1, "beta": 1},
    "group_ftrl": {"lr": 0.1, "beta": 1, "l21": 0},
}
COMMON = {"l1": 0, "l2": 0, "clip_value": 0, "clip_norm": 0, "warmup_samples": 0, "decay_samples": 0, "decay_rate": 0.5, "decay_floor": 0.1, "decay_all": False}


OPTIONS = [name for name in COMMON if name != "decay_all"] + sorted({f"{kind}.{name}" for kind, options in DEFAULTS.items() for name in options})


class Optimizer:
    """A rule with its options as written: a name or {name: {options}}. mutation: (option, factor), a seeded error."""

    def __init__(self, written, mutation=None):
        self.kind, options = next(iter(written.items())) if isinstance(written, dict) else (written, {})
        self.o = {k: v if isinstance(v, bool) else f32(v) for k, v in {**COMMON, **DEFAULTS[self.kind], **options}.items()}
        what, factor = mutation or ("", 1)
        if what in self.options_in_effect():
            self.o[what.split(".")[-1]] *= factor

    def options_in_effect(self):
        """Names as in OPTIONS of those that do something."""
        own = [f"{self.kind}.{name}" for name in DEFAULTS[self.kind] if self.o[name]]
        return own + [name for name in COMMON if name != "decay_all" and self.o[name] and (not name.startswith("decay_") or self.o["decay_samples"])]

    def schedule(self, samples):
        """The factor of the learning rate after `samples` trained samples."""
        o, factor = self.o, 1.0
        if o["warmup_samples"]:
            factor = min(1.0, (samples + 1) / o["warmup_samples"])
        if o["decay_samples"]:
            factor *= max(o["decay_floor"], o["decay_rate"] ** (samples / o["decay_samples"]))
        return factor

    def start(self, w):
        """The state of the rule before the first step, in the order in which rows store it."""
        zeros, one = torch.zeros_like(w), torch.zeros_like(w[:, :1])
        return {"sgd": {}, "momentum": {"b": zeros}, "adagrad": {"a": zeros + self.o.get("initial", 0)},
                "adagrad_rowwise": {"a": one + self.o.get("initial", 0)}, "rmsprop": {"v": zeros}, "adam": {"m": zeros, "v": zeros, "t": one},
                "adamw": {"m": zeros, "v": zeros, "t": one}, "adam_rowwise": {"m": zeros, "v": one, "t": one},
                "ftrl": {"z": zeros, "n": zeros}, "group_ftrl": {"z": zeros, "n": zeros}}[self.kind]

    def shaped(self, g, w, penalties, scale):
        """The mean gradient of a unit of time as the rule gets it: first bounded, then with the penalties added."""
        o = self.o
        if o["clip_norm"]:
            norm = (g * g).sum(1, keepdim=True).sqrt()
            g = torch.where(norm > o["clip_norm"], g * (o["clip_norm"] / norm), g)
        g = g * scale
        if o["clip_value"]:
            g = g.clamp(-o["clip_value"], o["clip_value"])
        if penalties and self.kind not in ("ftrl", "group_ftrl"):
            g = g + o["l2"] * w + o["l1"] * torch.sign(w)
        return g

    def step(self, w, state, s, k, trained, is_row, penalties, samples, scale=1.0):
        """Returns (values, state) after a summed gradient s of k units of time. trained: the number of samples before the step; penalties: whether l1, l2 and weight
        decay apply; samples: the number of samples of the step; scale: the factor of the mean gradient by a bound on all mean gradients."""
        g = self.shaped(s / k, w, penalties, scale)
        return getattr(self, self.kind)(w, dict(state), g, k, self.o["lr"] * self.schedule(trained), is_row, penalties, samples)

    def damped(self, lr, k, is_row):
        """The damped rate of a row: one occurrence makes the step of the textbook, and no number of occurrences makes more than 4 mean gradients."""
        return lr / (1 + lr * (k - 1) / 4) if is_row else lr

    def sgd(self, w, state, g, k, lr, is_row, penalties, samples):
        return w - self.damped(lr, k, is_row) * k * g, state

    def momentum(self, w, state, g, k, lr, is_row, penalties, samples):
        mu = self.o["momentum"]
        keep = mu ** k
        state["b"] = keep * state["b"] + (1 - keep) / (1 - mu) * g
        return w - (1 - mu) * self.damped(lr / (1 - mu), k, is_row) * k * state["b"], state

    def adagrad(self, w, state, g, k, lr, is_row, penalties, samples):
        square = (k * g) ** 2
        if self.kind == "adagrad_rowwise":
            square = square.mean(1, keepdim=True)
        keep = 0.5 ** (samples / self.o["half_life"]) if self.o["half_life"] else 1.0
        state["a"] = keep * state["a"] + square
        return w - lr * k * g / (state["a"].sqrt() + self.o["eps"]), state

    adagrad_rowwise = adagrad

    def rmsprop(self, w, state, g, k, lr, is_row, penalties, samples):
        keep = self.o["rho"] ** k
        state["v"] = keep * state["v"] + (1 - keep) * k * g * g
        return w - lr * k * g / (state["v"].sqrt() + self.o["eps"]), state

    def adam(self, w, state, g, k, lr, is_row, penalties, samples):
        b1, b2 = self.o["beta1"], self.o["beta2"]
        square = g * g
        if self.kind == "adam_rowwise":
            square = square.mean(1, keepdim=True)
        state["m"] = b1 ** k * state["m"] + (1 - b1 ** k) * g
        state["v"] = b2 ** k * state["v"] + (1 - b2 ** k) * k * square
        state["t"] = t = state["t"] + k
        if self.kind == "adamw" and penalties:
            w = w * (1 - lr * k * self.o["weight_decay"]).clamp(min=0)
        return w - lr * k * (state["m"] / (1 - b1 ** t)) / ((state["v"] / (1 - b2 ** t)).sqrt() + self.o["eps"]), state

    adamw = adam_rowwise = adam

    def ftrl(self, w, state, g, k, lr, is_row, penalties, samples):
        o, s, bound = self.o, k * g, math.sqrt(w.shape[1]) * self.o.get("l21", 0)
        below = w * (o["beta"] / lr + o["l2"])
        norm = (below * below).sum(1, keepdim=True).sqrt()
        first = below * (1 + bound / torch.where(norm > 0, norm, 1.0)) + torch.sign(w) * o["l1"]
        z = torch.where(state["n"] == 0, -first, state["z"])  # so that first values survive
        n = state["n"] + s * s
        state["z"] = z + s - (n.sqrt() - state["n"].sqrt()) / lr * w
        state["n"] = n
        shrunk = torch.sign(state["z"]) * (state["z"].abs() - o["l1"]).clamp(min=0)
        if bound:
            norm = (shrunk * shrunk).sum(1, keepdim=True).sqrt()
            shrunk = torch.where(norm <= bound, 0.0, shrunk * (1 - bound / norm))
        below = (o["beta"] + n.sqrt()) / lr + o["l2"]
        return torch.where(shrunk == 0, 0.0, -shrunk / below), state

    group_ftrl = ftrl


ROW_KINDS = ("sgd", "adagrad", "adagrad_rowwise", "adam", "ftrl", "momentum", "rmsprop", "adam_rowwise", "group_ftrl")
LAYER_KINDS = ("sgd", "momentum", "adagrad", "adam", "adamw", "rmsprop", "ftrl")


# ---- statistics of trained samples ----

DICE_KEEP, DICE_VARIANCE_MIN = 0.99, 1e-6


class Dice:
    """Moving first and second moments, divided by the weight of what they hold; they begin with mean 0 and variance 1 of the weight of one full batch."""

    def __init__(self, width):
        self.weight = 1 - DICE_KEEP
        self.first, self.second = torch.zeros(width, dtype=torch.float64), torch.full((width,), self.weight, dtype=torch.float64)

    def add(self, x, k):
        """Adds rows [m, width] that trained samples read; they stand for k units of time."""
        keep, x = DICE_KEEP ** k, x.to(torch.float64)
        self.weight = keep * self.weight + 1 - keep
        self.first, self.second = keep * self.first + (1 - keep) * x.mean(0), keep * self.second + (1 - keep) * (x * x).mean(0)

    def moments(self):
        mean = self.first / self.weight
        return mean, (self.second / self.weight - mean * mean).clamp(min=DICE_VARIANCE_MIN)


STANDARDIZE_EPSILON, STANDARDIZE_COUNT_MIN, STANDARDIZE_LIMIT = 1e-6, 100, 10.0  # deviations


class Standardize:
    """Welford's moments of a slot's numbers over trained samples that have a value; once there are enough of them, a number enters cut to so many deviations."""

    def __init__(self, dim, limit=STANDARDIZE_LIMIT):
        self.count, self.limit = 0, limit
        self.mean, self.squares = torch.zeros(dim, dtype=torch.float64), torch.zeros(dim, dtype=torch.float64)

    def add(self, x):
        for row in x.to(torch.float64):
            if row.isnan().any():
                continue
            if self.count >= STANDARDIZE_COUNT_MIN:
                reach = self.limit * (self.squares / self.count + STANDARDIZE_EPSILON).sqrt()
                row = torch.maximum(torch.minimum(row, self.mean + reach), self.mean - reach)
            self.count += 1
            delta = row - self.mean
            self.mean = self.mean + delta / self.count
            self.squares = self.squares + delta * (row - self.mean)

    def published(self):
        """Returns mean, variance and the number of samples."""
        variance = self.squares / self.count if self.count else torch.ones_like(self.squares)
        return self.mean, variance, torch.tensor([float(self.count)], dtype=torch.float64)
