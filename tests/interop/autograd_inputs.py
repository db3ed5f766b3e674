"""From what samples carry to what the network reads: ids to keys, computed slots, numbers through their transforms. Written from conf/OPTIONS.md and
docs/formats/samples.md alone."""
import functools
import itertools
import math

import keys
from autograd_rules import f32

PERIODS = {"time_of_day": (86400, 0), "time_of_week": (604800, 3 * 86400)}  # seconds, and what to add: 1970-01-01 was a Thursday
SECONDS_MAX = 1e11  # below it a time is seconds, else milliseconds


# ---- numbers ----

def transforms(spec):
    """Returns the transforms of a slot as [(name, its argument, or None)]."""
    written = spec.get("transform", "none")
    pairs = [next(iter(t.items())) if isinstance(t, dict) else (t, None) for t in (written if isinstance(written, list) else [written])]
    return [(name, argument) for name, argument in pairs if name != "none"]


def of_network(spec):
    """Returns the last transform if it is standardize or bucketize, which the network does, with its argument; else (None, None)."""
    steps = transforms(spec)
    return steps[-1] if steps and steps[-1][0] in ("standardize", "bucketize") else (None, None)


def is_time(spec):
    return any(name in PERIODS for name, _ in transforms(spec))


def numbers_of(spec):
    return spec.get("dim", 1) * (2 if is_time(spec) else 1)


def width_of(spec):
    kind, boundaries = of_network(spec)
    return numbers_of(spec) * (len(boundaries) + 1 if kind == "bucketize" else 1) + bool(spec.get("indicator"))


def image(spec, x, factor=lambda what: 1.0):
    """Returns the numbers that the transforms before the network make of a number."""
    if is_time(spec):
        (name, _), = transforms(spec)
        period, shift = PERIODS[name]
        turn = 2 * math.pi * (((x if abs(x) < SECONDS_MAX else x / 1000) + shift) / period % 1.0)
        return [f32(math.sin(turn)) * factor("transform " + name), f32(math.cos(turn))]
    v = f32(x)
    for name, argument in transforms(spec):
        if name == "clip":
            v = min(max(v, f32(argument[0])), f32(argument[1])) * factor("transform clip")
        elif name == "log1p":
            v = f32(math.log1p(v)) * factor("transform log1p")
    return [v]


def missing_image(spec):
    """The image of one missing number. NaN: the number is left out of the statistics, and is 0 after standardize."""
    if "default" not in spec and is_time(spec):
        return [0.0, 0.0]
    if "default" not in spec and of_network(spec)[0] == "standardize":
        return [math.nan]
    return image(spec, spec.get("default", 0))


def numbers(spec, value, factor):
    """Returns (the numbers of a sample, whether they are missing)."""
    if value is None:
        return missing_image(spec) * spec.get("dim", 1), True
    return [v for x in (value if isinstance(value, list) else [value]) for v in image(spec, x, factor)], False


# ---- ids ----

def ids(slots, slot, features):
    """Returns (keys, weights) of a slot of a sample."""
    spec = slots[slot]
    namespace = spec.get("namespace", slot if "buckets" in spec or "cross" in spec else spec["table"])
    if "buckets" in spec:
        value = features.get(spec["buckets"]["of"])
        if value is None:
            return [], []
        x = f32(value[0] if isinstance(value, list) else value)
        return [keys.key_of(sum(f32(b) <= x for b in spec["buckets"]["boundaries"]), namespace)], [1.0]
    if "cross" in spec:
        every = list(itertools.product(*(list(zip(*ids(slots, source, features))) for source in spec["cross"])))[-spec.get("max_ids", 1024):]
        return ([keys.cross_of([key for key, _ in each], namespace) for each in every],
                [functools.reduce(lambda a, b: f32(a * f32(b)), (w for _, w in each), 1.0) for each in every])
    value = features.get(slot)
    if value is None:
        return [], []
    if isinstance(value, dict):
        given, weights = value["i"], value["w"]
    else:
        given = value if isinstance(value, list) else [value]
        weights = [1.0] * len(given)
    limit = spec.get("max_len", 50) if spec.get("kind") == "sequence" else spec.get("max_ids", 1024)
    return [keys.key_of(i, namespace) for i in given[-limit:]], weights[-limit:]
