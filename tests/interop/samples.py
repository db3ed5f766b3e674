"""Writes samples in every form of docs/formats/samples.md, by the text of that page alone.

A list of groups is the common source: {"shared": {slot: value}, "items": [sample]}; a sample is {"f", "y", "t", "w", "u", "s", "p"} with "y", "w" as maps. A plain
sample is a group of one with nothing shared. `records(groups, form, codec, pack)` yields record values in order; whatever the form, the samples are the same.
Values: None, an id, a list of ids, {"i": ids, "w": weights}, a number or a list of numbers.
"""
import json
import struct

import msgpack

FORMS = ("sample", "group", "array", "block", "packed")


def encode(value, codec):
    return msgpack.packb(value) if codec == "msgpack" else json.dumps(value, separators=(",", ":")).encode()


def decode(value, codec):
    return msgpack.unpackb(value) if codec == "msgpack" else json.loads(value)


def expanded(group):
    """The samples of a group, each with the shared values of its own."""
    for item in group["items"]:
        yield {**item, "f": {**group["shared"], **item["f"]}}


def as_group(group):
    """A group; of one without a shared part, a sample. The first item's time stands for all that have the same."""
    if not group["shared"] and len(group["items"]) == 1:
        return group["items"][0]
    t = group["items"][0]["t"]
    items = [{key: value for key, value in item.items() if key != "t" or value != t} for item in group["items"]]
    return {"shared": group["shared"], "items": items, "t": t, "id": "opaque"}


def _packed_ids(values):
    """Packed column of ids: {b, l?, w?} when all are integers, {s, sl, l?, w?} when all are strings; None where neither fits."""
    rows, weights, weighted = [], [], False
    for value in values:
        if isinstance(value, dict):
            ids, w, weighted = value["i"], value["w"], True
        else:
            ids = [] if value is None else value if isinstance(value, list) else [value]
            w = [1.0] * len(ids)
        rows.append(ids)
        weights += w
    flat = [i for ids in rows for i in ids]
    if all(isinstance(i, int) and 0 <= i < 1 << 64 for i in flat):
        column = {"b": struct.pack(f"<{len(flat)}Q", *flat)}
    elif all(isinstance(i, str) for i in flat):
        raw = [i.encode() for i in flat]
        column = {"s": b"".join(raw), "sl": struct.pack(f"<{len(raw)}I", *map(len, raw))}
    else:
        return None
    if any(len(ids) != 1 for ids in rows):
        column["l"] = struct.pack(f"<{len(rows)}I", *map(len, rows))
    if weighted:
        column["w"] = struct.pack(f"<{len(weights)}f", *weights)
    return column


def _packed_numbers(values):
    flat = [x for value in values for x in (value if isinstance(value, list) else [value])]
    return {"b": struct.pack(f"<{len(flat)}f", *flat)}


def _columns(rows, dense, packed):
    """Slot -> column of one entry per row. A slot absent or nil somewhere cannot be a packed dense column (it would lose the default)."""
    out = {}
    for slot in dict.fromkeys(slot for row in rows for slot in row):
        values = [row.get(slot) for row in rows]
        column = None
        if packed and slot in dense:
            column = _packed_numbers(values) if None not in values else None
        elif packed:
            column = _packed_ids(values)
        out[slot] = values if column is None else column
    return out


def _floats(values):
    return {"b": struct.pack(f"<{len(values)}f", *[float("nan") if v is None else v for v in values])}


def as_block(groups, dense, packed):
    """Form 4 of several groups; `g` and `shared` only where something is shared."""
    items = [item for group in groups for item in group["items"]]
    grouped = any(group["shared"] for group in groups)
    labels = list(dict.fromkeys(label for item in items for label in item["y"]))
    y = {label: [item["y"].get(label) for item in items] for label in labels}
    block = {"n": len(items), "cols": _columns([item["f"] for item in items], dense, packed),
             "y": {label: _floats(column) if packed else column for label, column in y.items()}}
    t = [item["t"] for item in items]
    block["t"] = t[0] if len(set(t)) == 1 else {"b": struct.pack(f"<{len(t)}q", *t)} if packed else t
    if any("u" in item for item in items):
        u = [item.get("u", 3) for item in items]
        block["u"] = {"b": bytes(u)} if packed else u
    for name in ("w", "s"):
        if any(name in item for item in items):
            column = [item.get(name, 1) for item in items]
            named = any(isinstance(value, dict) for value in column)  # weights by label have no packed form
            block[name] = _floats(column) if packed and not named else column
    if grouped:
        sizes = [len(group["items"]) for group in groups]
        block["g"] = {"b": struct.pack(f"<{len(sizes)}I", *sizes)} if packed else sizes
        block["shared"] = _columns([group["shared"] for group in groups], dense, packed)
    return block


def records(groups, form, codec, pack=16, dense=()):
    """Record values as bytes. array, block, packed: `pack` groups a record."""
    if form == "sample":
        for group in groups:
            for sample in expanded(group):
                yield encode(sample, codec)
    elif form == "group":
        for group in groups:
            yield encode(as_group(group), codec)
    else:
        assert form != "packed" or codec == "msgpack"
        for at in range(0, len(groups), pack):
            part = groups[at:at + pack]
            yield encode([as_group(g) for g in part] if form == "array" else as_block(part, dense, form == "packed"), codec)
