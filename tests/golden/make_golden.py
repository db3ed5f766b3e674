#!/usr/bin/env python3
"""Writes keys.json and malformed.jsonl beside itself. Needs the packages xxhash and msgpack.

The keys are computed here from the text of docs/formats/samples.md, "Ids and keys" alone, with another implementation of XXH3 binding and a finalizer
written down again, so that the C code is checked against the definition and not against itself."""
import json
import os
import re
import struct

import msgpack
import xxhash

HERE = os.path.dirname(os.path.abspath(__file__))
M64 = (1 << 64) - 1


# ---- keys ----

def fmix64(k):
    k ^= k >> 33
    k = k * 0xFF51AFD7ED558CCD & M64
    k ^= k >> 33
    k = k * 0xC4CEB9FE1A85EC53 & M64
    return k ^ k >> 33


def seed_of(namespace, key_seed=None):
    """A canonical integer is itself, with or without quotes; any other text is hashed."""
    if key_seed is None:
        return xxhash.xxh3_64_intdigest(namespace.encode())
    text = str(key_seed)
    number = int(text) if re.fullmatch(r"[1-9][0-9]*", text) and int(text) < 2**64 else xxhash.xxh3_64_intdigest(text.encode())
    return xxhash.xxh3_64_intdigest(namespace.encode(), seed=number)


def key(namespace, raw_id, raw, key_seed=None):
    seed = seed_of(namespace, key_seed)
    if isinstance(raw_id, float):
        assert raw_id == int(raw_id)
        raw_id = int(raw_id)
    if isinstance(raw_id, str) and not raw and re.fullmatch(r"0|-?[1-9][0-9]*", raw_id) and -2**63 <= int(raw_id) < 2**64:
        raw_id = int(raw_id)
    if isinstance(raw_id, int):
        assert -2**63 <= raw_id < 2**64
        return fmix64((raw_id & M64) ^ seed)
    return xxhash.xxh3_64_intdigest(raw_id.encode(), seed=seed)


def keys():
    ids = [0, 1, 5, -1, -7, 127, 128, 255, 256, 65535, 65536, 2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**63 - 1, 2**63,
           2**64 - 1, -128, -129, -2**31, -2**63, 5.0, -7.0, 0.0, 2.0**53 - 1, 1.0 - 2.0**53,
           "0", "1", "5", "-7", "-1", "-0", "05", "+5", "5.0", "5e0", " 5", "5 ", "-", "", "--5", "1_000", "0x5",
           "9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616",
           "-9223372036854775808", "-9223372036854775809", "99999999999999999999", "100000000000000000000",
           "a", "abc", "user-42", "d41d8cd98f00b204e9800998ecf8427e", "Grüße", "中文", "🙂", "٥", "x" * 16, "x" * 17,
           "y" * 128, "y" * 129, "z" * 240, "z" * 241, "w" * 1024, "w" * 4096]
    rows = []
    for namespace in ("user", "item", "gender"):
        for raw_id in ids:
            for raw in (False, True):
                rows.append({"namespace": namespace, "id": raw_id, "raw": raw, "key": str(key(namespace, raw_id, raw))})
    by = {(r["namespace"], r["id"], type(r["id"]), r["raw"]): r["key"] for r in rows}
    assert by["user", -1, int, False] == by["user", 2**64 - 1, int, False] == by["user", "-1", str, False]
    assert by["user", "5", str, False] == by["user", 5, int, True] != by["user", "5", str, True]
    return rows + crosses() + seeded(ids)


def seeded(ids):
    """Keys with the option key_seed."""
    rows = []
    for key_seed in (1, "1", 2**64 - 1, "18446744073709551616", "007", "correct horse battery staple"):
        for raw_id in ids[:4] + [5.0, "5", "05", "abc", "w" * 1024]:
            rows.append({"namespace": "user", "id": raw_id, "raw": False, "key_seed": key_seed, "key": str(key("user", raw_id, False, key_seed))})
    by = {(r["key_seed"], type(r["key_seed"]), r["id"], type(r["id"])): r["key"] for r in rows}
    assert by[1, int, 5, int] == by["1", str, "5", str] != key("user", 5, False)
    folded = seed_of("pair", "007")
    for part in (key("user", 5, False, "007"), key("item", "abc", False, "007")):
        folded = fmix64(folded ^ part)
    return rows + [{"namespace": "pair", "cross": [str(key("user", 5, False, "007")), str(key("item", "abc", False, "007"))], "key_seed": "007",
                    "key": str(folded)}]


def crosses():
    """Keys folded in the order of the slots."""
    def cross(namespace, parts):
        folded = xxhash.xxh3_64_intdigest(namespace.encode())
        for part in parts:
            folded = fmix64(folded ^ part)
        return {"namespace": namespace, "cross": [str(part) for part in parts], "key": str(folded)}
    a, b, c = key("user", 5, False), key("item", "abc", False), key("price_bucket", 2, False)
    rows = [cross(namespace, parts) for namespace in ("pair", "user_x_item")
            for parts in ((a, b), (b, a), (a, a), (a, b, c), (c, b, a), (a, b, c, a), (0, 0), (0, M64), (M64, 0, 1))]
    assert len({row["key"] for row in rows}) == len(rows), "order and namespace matter"
    return rows


# ---- malformed records, against malformed.yaml ----

T0 = 1700000000000
GOOD = {"f": {"user_id": 1, "item_id": "a", "price": 2.5}, "y": {"click": 1}}
lines = []


def add(name, form, payload, reason, **more):
    line = {"name": name, "format": form}
    line["text" if form == "json" else "hex"] = payload if form == "json" else payload.hex()
    lines.append({**line, "reason": reason, **more})


def both(name, value, reason, **more):
    add(name, "json", json.dumps(value, separators=(",", ":")), reason, **more)
    add(name, "msgpack", msgpack.packb(value), reason, **more)


def text(name, payload, reason, **more):
    add(name, "json", payload, reason, **more)


def raw(name, payload, reason, **more):
    add(name, "msgpack", payload, reason, **more)


def slot(name, slot_name, value, reason, **more):
    both(name, {"f": {slot_name: value}, "y": {"click": 1}}, reason, **more)


def packed_map(pairs):
    """MessagePack map with any keys, also equal ones."""
    return bytes([0x80 | len(pairs)]) + b"".join(msgpack.packb(k) + (v if isinstance(v, bytes) else msgpack.packb(v))
                                                 for k, v in pairs)


def f_raw(slot_name, value_bytes):
    return packed_map([("f", packed_map([(slot_name, value_bytes)])), ("y", 0xc0.to_bytes(1, "big"))])


def groups():
    """Form 2."""
    item = {"f": {"item_id": "a"}, "y": {"click": 1}}
    group = {"shared": {"user_id": 1}, "items": [item, item]}

    def change(name, more, reason, **extra):
        both("group: " + name, {**group, **more}, reason, **extra)
    both("group: no shared", {"items": [item]}, "$: shared is missing")
    both("group: no items", {"shared": {"user_id": 1}}, "$: items is missing")
    both("group: no items, in an array", [GOOD, {"shared": {}}], "$[1]: items is missing")
    for name, value in (("nil", None), ("an array", []), ("an integer", 1)):
        change(f"shared is {name}", {"shared": value}, f"$.shared: {name} where a map slot -> value was expected")
    for name, value in (("nil", None), ("a map", {}), ("a string", "x")):
        change(f"items is {name}", {"items": value}, f"$.items: {name} where an array of samples was expected")
    change("no item", {"items": []}, "$.items: a group has at least one sample")
    change("an item is a number", {"items": [item, 5]}, "$.items[1]: an integer where a sample was expected")
    change("an item is an array", {"items": [[item]]}, "$.items[0]: an array where a sample was expected")
    change("an item is a group", {"items": [group]}, '$.items[0]: key "shared" in an item of a group')
    change("an item is a block", {"items": [{"n": 1, "cols": {}, "y": {}}]}, '$.items[0]: key "n" in an item of a group')
    change("an item without f", {"items": [item, {"y": {}}]}, "$.items[1]: f is missing")
    change("an item without y", {"items": [{"f": {}}]}, "$.items[0]: y is missing")
    change("an item with an unknown key under strict", {"items": [{**item, "z": 1}]}, '$.items[0]: unknown key "z" (ingest.strict)', strict=True)
    change("an item with a bad value", {"items": [item, item, {"f": {"price": "2"}, "y": {}}]},
           "$.items[2].f.price: a string where a number was expected")
    both("group: a bad value in an array", [GOOD, GOOD, GOOD, {**group, "items": [item, item, {"f": {"price": [1, 2]}, "y": {}}]}],
         "$[3].items[2].f.price: more than the 1 numbers expected")
    change("an item with a bad label", {"items": [{"f": {}, "y": {"click": 2}}]}, "$.items[0].y.click: label 2 is not in [0,1]")
    change("a bad shared value", {"shared": {"vec": [1]}}, "$.shared.vec: 1 numbers where 3 were expected")
    change("a bad shared id", {"shared": {"history": [1, None]}}, "$.shared.history[1]: nil is no id")
    change("a slot in both places", {"items": [item, {"f": {"user_id": 2}, "y": {}}]},
           "$.items[1].f.user_id: the slot is in the shared part and below it")
    change("a slot in both places, as nil", {"items": [{"f": {"user_id": None}, "y": {}}]},
           "$.items[0].f.user_id: the slot is in the shared part and below it")
    both("group: a slot in both places, items first", {"items": [item], "shared": {"item_id": 1}},
         "$.shared.item_id: the slot is in the shared part and below it")
    raw("group: a slot in both places, by name and by index",
        packed_map([("shared", {"context": 1}), ("items", msgpack.packb([{"f": {7: 1}, "y": {}}]))]),
        "$.items[0].f.context: the slot is in the shared part and below it")
    text("group: a slot twice in shared", '{"shared":{"user_id":1,"user_id":1},"items":[{"f":{},"y":{}}]}', "$.shared.user_id: duplicate slot")
    text("group: an unknown slot twice in shared", '{"shared":{"zzz":1,"zzz":1},"items":[{"f":{},"y":{}}]}', '$.shared: duplicate key "zzz"')
    change("an unknown shared slot under strict", {"shared": {"zzz": 1}}, '$.shared: unknown slot "zzz" (ingest.strict)', strict=True)
    raw("group: an index no slot declares, under strict", packed_map([("shared", packed_map([(0, 1)])), ("items", [item])]),
        "$.shared: unknown slot 0 (ingest.strict)", strict=True)
    for k, v in (("y", {}), ("w", 1), ("u", 3), ("s", 1), ("p", {}), ("f", {}), ("g", [1]), ("cols", {})):
        change(f"key {k}", {k: v}, "$: keys of two forms")
    change("an unknown key under strict", {"label": 1}, '$: unknown key "label" (ingest.strict)', strict=True)
    good = json.dumps(item)
    for k, v in (("shared", "{}"), ("items", f"[{good}]"), ("t", str(T0)), ("id", "1"), ("x_a", "1")):
        text(f"group: duplicate key {k}", f'{{"x_b":0,"{k}":{v},"items":[{good}],"shared":{{}},"{k}":{v}}}' if k not in ("items", "shared")
             else f'{{"{k}":{v},"items":[{good}],"shared":{{}}}}' if k == "items" else f'{{"shared":{{}},"items":[{good}],"shared":{{}}}}',
             f'$: duplicate key "{k}"')
    change("event time in seconds", {"t": 1700000000}, "$.t: 1700000000 is seconds, not ms")
    change("event time beyond future_max", {"t": T0 + 3600001}, "$.t: event time is 3600001 ms after the Kafka timestamp")
    change("a float event time", {"t": 1.5}, "$.t: a float where an integer (Unix ms) was expected")
    change("an item's event time in seconds", {"t": T0, "items": [{**item, "t": 5}]}, "$.items[0].t: 5 is seconds, not ms")
    change("no event time and no Kafka timestamp", {}, "$: t is missing and the record has no Kafka timestamp", timestamp_ms=-1)
    change("more than group_max samples", {"items": [item] * 7}, "$.items[6]: more than the 6 samples of ingest.group_max")
    change("nine containers", {"items": [{**item, "f": {"history": [[[[[1]]]]]}}]}, "$.items[0].f.history[0]: an array is no id")
    deep = 1
    for _ in range(62):
        deep = [deep]
    change("65 containers in an opaque value", {"items": [{**item, "id": deep}]}, "$.items[0].id: nested deeper than 64 containers")
    raw("group: cut short", msgpack.packb(group)[:-1], "the input ends inside a value")


def blocks():
    """Form 4 with array columns."""
    block = {"n": 2, "cols": {"user_id": [1, 2]}, "y": {"click": [0, 1]}}
    grouped = {**block, "g": [2], "shared": {"context": [5]}}

    def change(name, more, reason, base=block, **extra):
        both("block: " + name, {**base, **more}, reason, **extra)

    def without(name, key, reason, base=block):
        both("block: " + name, {k: v for k, v in base.items() if k != key}, reason)

    def column(name, slot_name, value, reason):
        both("block: " + name, {**block, "cols": {slot_name: value}}, reason)
    both("a block in an array", [block], "$[0]: an array holds samples or groups, not blocks")
    without("no n", "n", "$: n is missing")
    without("no cols", "cols", "$: cols is missing")
    without("no y", "y", "$: y is missing")
    for name, value, kind in (("nil", None, "nil"), ("a string", "2", "a string"), ("a float", 2.0, "a float"), ("a boolean", True, "a boolean"),
                              ("negative", -1, "an integer"), ("an array", [2], "an array")):
        change(f"n is {name}", {"n": value}, f"$.n: {kind} where a count was expected")
    change("n beyond the record", {"n": 1000}, "$.n: 1000 entries in a record of ")
    change("n beyond 64 bits unsigned halves", {"n": 2**64 - 1}, "$.n: 18446744073709551615 entries in a record of ")
    text("block: duplicate n", '{"n":1,"n":1,"cols":{},"y":{}}', '$: duplicate key "n"')
    text("block: duplicate cols", '{"n":0,"cols":{},"y":{},"cols":{}}', '$: duplicate key "cols"')
    text("block: duplicate x_ key", '{"x_a":1,"n":0,"cols":{},"y":{},"x_a":1}', '$: duplicate key "x_a"')
    for k, v in (("p", {}), ("id", 1), ("f", {}), ("items", [])):
        change(f"key {k}", {k: v}, "$: keys of two forms")
    change("an unknown key under strict", {"label": 1}, '$: unknown key "label" (ingest.strict)', strict=True)
    for name, value in (("nil", None), ("an array", []), ("an integer", 1)):
        change(f"cols is {name}", {"cols": value}, f"$.cols: {name} where a map slot -> column was expected")
        change(f"y is {name}", {"y": value}, f"$.y: {name} where a map label -> column was expected")
    for name, value in (("nil", None), ("an integer", 1), ("a string", "x"), ("a boolean", True)):
        column(f"a column is {name}", "user_id", value, f"$.cols.user_id: {name} where a column was expected")
    text("block: a packed column in JSON", '{"n":1,"cols":{"user_id":{"b":"AAAAAAAAAAA="}},"y":{}}',
         "$.cols.user_id: a map where an array was expected: JSON has no packed columns")
    text("block: packed labels in JSON", '{"n":1,"cols":{},"y":{"click":{"b":[1]}}}', "$.y.click: a map where an array was expected")
    column("a short column", "user_id", [1], "$.cols.user_id: 1 entries where 2 were expected")
    column("an empty column", "price", [], "$.cols.price: 0 entries where 2 were expected")
    column("a long column", "user_id", [1, 2, 3], "$.cols.user_id: more than 2 entries")
    column("a boolean id", "user_id", [1, True], "$.cols.user_id[1]: a boolean is no id")
    column("a fractional id in an array", "history", [[1], [1, 2, 0.5]], "$.cols.history[1][2]: 0.5 is not an integer")
    column("weights without ids", "user_id", [{"w": [1]}, 1], "$.cols.user_id[0]: i is missing beside w")
    column("a string as id weight", "user_id", [1, {"i": [1], "w": ["1"]}], "$.cols.user_id[1].w[0]: a string is no weight")
    column("a string as number", "price", [1, "2"], "$.cols.price[1]: a string where a number was expected")
    column("log1p of -1", "price", [1, -1], "$.cols.price[1]: log1p needs a value above -1, not -1")
    column("two numbers for dim 3", "vec", [[1, 2], [1, 2, 3]], "$.cols.vec[0]: 2 numbers where 3 were expected")
    column("numbers not grouped by entry", "vec", [1, 2, 3, 4, 5, 6], "$.cols.vec[0]: 1 number where 3 were expected")
    column("a number beyond f32", "vec", [[1, 2, 3], [1, 1e39, 3]], "$.cols.vec[1][1]: dense value is not finite")
    text("block: a slot twice", '{"n":1,"cols":{"user_id":[1],"user_id":[1]},"y":{}}', "$.cols.user_id: duplicate slot")
    text("block: an unknown slot twice", '{"n":1,"cols":{"zzz":[1],"zzz":[1]},"y":{}}', '$.cols: duplicate key "zzz"')
    change("an unknown slot under strict", {"cols": {"zzz": [1, 2]}}, '$.cols: unknown slot "zzz" (ingest.strict)', strict=True)
    raw("block: an index no slot declares, under strict", packed_map([("n", 1), ("cols", packed_map([(0, [1])])), ("y", {})]),
        "$.cols: unknown slot 0 (ingest.strict)", strict=True)
    raw("block: one slot by name and by index", packed_map([("n", 1), ("cols", packed_map([("context", [1]), (7, [1])])), ("y", {})]),
        "$.cols.context: duplicate slot")

    change("an unknown label under strict", {"y": {"clck": [1, 1]}}, '$.y: "clck" is no label of the config (ingest.strict)', strict=True)
    text("block: an unknown label twice", '{"n":1,"cols":{"user_id":[1]},"y":{"clck":[1],"clck":7}}', '$.y: duplicate key "clck"')
    change("a derived label", {"y": {"bought": [1, 1]}}, '$.y: "bought" is derived')
    change("a short label column", {"y": {"click": [1]}}, "$.y.click: 1 entries where 2 were expected")
    change("a long label column", {"y": {"click": [1, 0, 1]}}, "$.y.click: more than 2 entries")
    change("a label column that is nil", {"y": {"click": None}}, "$.y.click: nil where a column was expected")
    change("a label above 1", {"y": {"click": [1, 0], "buy": [0, 2]}}, "$.y.buy[1]: label 2 is not in [0,1]")
    change("a string label", {"y": {"click": ["1", 0]}}, "$.y.click[0]: a string where a label was expected")
    change("an array label", {"y": {"click": [[1], [0]]}}, "$.y.click[0]: an array where a label was expected")

    change("event times that are one float", {"t": T0 + 0.5}, "$.t: a float where an integer (Unix ms) was expected")
    change("event times that are nil", {"t": None}, "$.t: nil where an integer (Unix ms) was expected")
    change("one event time in seconds", {"t": 1700000000}, "$.t: 1700000000 is seconds, not ms")
    change("an event time in seconds", {"t": [T0, 1700000000]}, "$.t[1]: 1700000000 is seconds, not ms")
    change("an event time of nil", {"t": [None, T0]}, "$.t[0]: nil where an integer (Unix ms) was expected")
    change("an event time beyond future_max", {"t": [T0, T0 + 3600001]}, "$.t[1]: event time is 3600001 ms after the Kafka timestamp")
    change("a negative event time", {"t": [-5, T0]}, "$.t[0]: event time is not above 0")
    change("too few event times", {"t": [T0]}, "$.t: 1 entries where 2 were expected")
    change("too many event times", {"t": [T0] * 3}, "$.t: more than 2 entries")
    change("no event time and no Kafka timestamp", {}, "$: t is missing and the record has no Kafka timestamp", timestamp_ms=-1)
    change("one weight for all", {"w": 1}, "$.w: an integer where a column was expected")
    change("a negative weight", {"w": [1, -1]}, "$.w[1]: weight -1 is below 0")
    change("a weight above weight_max", {"w": [1, 10001]}, "$.w[1]: weight 10001 is above ingest.weight_max (10000)")
    change("a nil weight", {"w": [None, 1]}, "$.w[0]: nil where a weight was expected")
    change("a weight of an unknown label under strict", {"w": [1, {"clck": 1}]}, '$.w[1]: "clck" is no label', strict=True)
    change("too few weights", {"w": [1]}, "$.w: 1 entries where 2 were expected")
    change("one use for all", {"u": 3}, "$.u: an integer where a column was expected")
    change("use is 0", {"u": [1, 0]}, "$.u[1]: use is 1 (train), 2 (metrics) or 3 (both)")
    change("too many uses", {"u": [1, 1, 1]}, "$.u: more than 2 entries")
    change("one keep rate for all", {"s": 1}, "$.s: an integer where a column was expected")
    change("keep rate is 0", {"s": [0, 1]}, "$.s[0]: keep rate is not a number in (0,1]")
    change("too few keep rates", {"s": [1]}, "$.s: 1 entries where 2 were expected")

    without("g without shared", "shared", "$: shared is missing: g and shared come together", grouped)
    without("shared without g", "g", "$: g is missing: g and shared come together", grouped)

    def g(name, more, reason):
        change(name, more, reason, grouped)
    g("a group of 0", {"g": [2, 0]}, "$.g[1]: a group has at least one sample")
    g("groups short of n", {"g": [1]}, "$.g: the sizes of the groups add up to 1, n is 2")
    g("groups over n", {"g": [1, 2]}, "$.g[1]: the sizes of the groups exceed n (2)")
    g("no groups", {"g": []}, "$.g: the sizes of the groups add up to 0, n is 2")
    g("a negative group", {"g": [-1, 3]}, "$.g[0]: an integer where a group's size was expected")
    g("a float group", {"g": [2.0]}, "$.g[0]: a float where a group's size was expected")
    g("a huge group", {"g": [2**64 - 1]}, "$.g[0]: 18446744073709551615 samples, more than ingest.group_max (6)")
    g("g is a number", {"g": 2}, "$.g: an integer where a column was expected")
    change("a group over group_max", {"n": 7, "cols": {}, "y": {}, "g": [7], "shared": {"context": [1]}},
           "$.g[0]: 7 samples, more than ingest.group_max (6)")
    g("a short shared column", {"g": [1, 1]}, "$.shared.context: 1 entries where 2 were expected")
    g("a long shared column", {"shared": {"context": [1, 2]}}, "$.shared.context: 2 entries where 1 were expected")
    g("a shared column over n", {"shared": {"context": [1, 2, 3]}}, "$.shared.context: more than 2 entries")
    both("block: a long shared column before g", {"n": 2, "shared": {"context": [1, 2]}, "g": [2], "cols": {}, "y": {}},
         "$.shared.context: 2 entries where 1 were expected")
    g("shared is nil", {"shared": None}, "$.shared: nil where a map slot -> column was expected")
    g("a bad shared value", {"shared": {"vec": [[1, 2]]}}, "$.shared.vec[0]: 2 numbers where 3 were expected")
    g("a slot in both places", {"shared": {"user_id": [1]}}, "$.shared.user_id: the slot is in the shared part and below it")
    both("block: a slot in both places, shared first", {"n": 2, "g": [2], "shared": {"user_id": [1]}, "cols": {"user_id": [1, 2]}, "y": {}},
         "$.cols.user_id: the slot is in the shared part and below it")
    raw("block: cut short", msgpack.packb(block)[:-1], "$.y.click: container counts more values than the input can hold")
    raw("block: cut before its n", msgpack.packb({"cols": {"user_id": [1, 2]}, "n": 2})[:-1], "the input ends inside a value")


def packed_blocks():
    """Form 4 with packed columns."""
    def column(name, slot_name, value, reason, **more):
        raw("packed: " + name, msgpack.packb({"n": 2, "cols": {slot_name: value}, "y": {"click": [0, 1]}, **more}), reason)

    def field(name, more, reason):
        raw("packed: " + name, msgpack.packb({"n": 2, "cols": {}, "y": {}, **more}), reason)

    def u64(*v):
        return struct.pack(f"<{len(v)}Q", *v)

    def u32(*v):
        return struct.pack(f"<{len(v)}I", *v)

    def f32(*v):
        return struct.pack(f"<{len(v)}f", *v)
    nan, inf = float("nan"), float("inf")
    column("a bare bin", "user_id", u64(1, 2), "$.cols.user_id: a bin where a column was expected")
    column("an empty map", "user_id", {}, "$.cols.user_id: neither b nor s")
    column("an empty dense map", "price", {}, "$.cols.price: b is missing")
    column("both b and s", "user_id", {"b": u64(1, 2), "s": b"ab", "sl": u32(1, 1)}, "$.cols.user_id: both b and s")
    column("s without sl", "user_id", {"s": b"ab"}, "$.cols.user_id: sl is missing")
    column("sl without s", "user_id", {"sl": u32(1, 1)}, "$.cols.user_id: s is missing")
    column("sl beside b", "user_id", {"b": u64(1, 2), "sl": u32(1, 1)}, "$.cols.user_id: both b and s")
    for name, value in (("an array", [1, 2]), ("a string", "abcdefgh"), ("nil", None), ("an integer", 1)):
        column(f"b is {name}", "user_id", {"b": value}, f"$.cols.user_id.b: {name} where a bin was expected")
    column("s is a string", "user_id", {"s": "ab", "sl": u32(1, 1)}, "$.cols.user_id.s: a string where a bin was expected")
    column("an unknown key", "user_id", {"b": u64(1, 2), "i": b""}, '$.cols.user_id: key "i" in a packed column of this kind')
    raw("packed: an integer key", packed_map([("n", 2), ("cols", packed_map([("user_id", packed_map([(1, b"")]))])), ("y", {})]),
        "$.cols.user_id: key 1 in a packed column of this kind")
    raw("packed: a duplicate key", packed_map([("n", 1), ("cols", packed_map([("user_id", packed_map([("b", msgpack.packb(u64(1))),
                                                                                                 ("b", msgpack.packb(u64(1)))]))])), ("y", {})]),
        "$.cols.user_id: duplicate key b")
    column("ids of 9 bytes", "user_id", {"b": u64(1) + b"x"}, "$.cols.user_id.b: 9 bytes are no whole number of elements of 8")
    column("too few ids", "user_id", {"b": u64(1)}, "$.cols.user_id: 1 entries where 2 were expected")
    column("too many ids", "user_id", {"b": u64(1, 2, 3)}, "$.cols.user_id: 3 entries where 2 were expected")
    column("no ids", "user_id", {"b": b""}, "$.cols.user_id: 0 entries where 2 were expected")
    column("l of 3 bytes", "user_id", {"b": u64(1, 2), "l": b"abc"}, "$.cols.user_id.l: 3 bytes are no whole number of elements of 4")
    column("too few lengths", "user_id", {"b": u64(1, 2), "l": u32(2)}, "$.cols.user_id: 1 entries where 2 were expected")
    column("too many lengths", "user_id", {"b": u64(1, 2), "l": u32(1, 1, 0)}, "$.cols.user_id: 3 entries where 2 were expected")
    column("lengths beyond the ids", "user_id", {"b": u64(1, 2), "l": u32(1, 2)}, "$.cols.user_id.l: 3 ids, the column has 2")
    column("lengths short of the ids", "user_id", {"b": u64(1, 2), "l": u32(1, 0)}, "$.cols.user_id.l: 1 ids, the column has 2")
    column("lengths that wrap in 32 bits", "user_id", {"b": u64(1, 2), "l": u32(2**32 - 1, 3)}, "$.cols.user_id.l: 4294967298 ids, the column has 2")
    column("too few weights", "user_id", {"b": u64(1, 2), "w": f32(1)}, "$.cols.user_id.w: 4 bytes of weights for 2 ids")
    column("too many weights", "history", {"b": u64(1, 2), "w": f32(1, 1, 1)}, "$.cols.history.w: 12 bytes of weights for 2 ids")
    column("weights of 7 bytes", "history", {"b": u64(1, 2), "w": b"1234567"}, "$.cols.history.w: 7 bytes of weights for 2 ids")
    column("a NaN weight", "user_id", {"b": u64(1, 2), "w": f32(1, nan)}, "$.cols.user_id.w[1]: weight of an id is not finite")
    column("an infinite weight", "user_id", {"b": u64(1, 2), "w": f32(-inf, 1)}, "$.cols.user_id.w[0]: weight of an id is not finite")
    column("string lengths beyond the bytes", "item_id", {"s": b"abc", "sl": u32(2, 2)}, "$.cols.item_id.sl: 4 bytes of strings, s has 3")
    column("string lengths short of the bytes", "item_id", {"s": b"abcde", "sl": u32(2, 2)}, "$.cols.item_id.sl: 4 bytes of strings, s has 5")
    column("string lengths that wrap", "item_id", {"s": b"abc", "sl": u32(2**32 - 1, 4)}, "$.cols.item_id.sl: 4294967299 bytes of strings, s has 3")
    column("sl of 5 bytes", "item_id", {"s": b"abc", "sl": b"12345"}, "$.cols.item_id.sl: 5 bytes are no whole number of elements of 4")
    column("a string that is not UTF-8", "item_id", {"s": b"ab\xff", "sl": u32(2, 1)}, "$.cols.item_id.s[1]: string is not UTF-8")
    column("a character cut by two strings", "item_id", {"s": "aü".encode(), "sl": u32(2, 1)}, "$.cols.item_id.s[0]: string is not UTF-8")
    column("a string of 4097 bytes", "item_id", {"s": b"s" * 4098, "sl": u32(1, 4097)}, "$.cols.item_id.s[1]: string longer than the limit")
    for key in ("s", "sl", "l", "w"):
        column(f"{key} in a dense column", "price", {"b": f32(1, 2), key: u32(1, 1)}, f'$.cols.price: key "{key}" in a packed column of this kind')
    column("numbers of 5 bytes", "price", {"b": b"12345"}, "$.cols.price.b: 5 bytes are no whole number of elements of 4")
    column("numbers short of dim", "vec", {"b": f32(1, 2, 3, 4)}, "$.cols.vec.b: 16 bytes are no whole number of elements of 12")
    column("too few numbers", "vec", {"b": f32(1, 2, 3)}, "$.cols.vec: 1 entries where 2 were expected")
    column("a NaN number", "vec", {"b": f32(1, 2, 3, 4, nan, 6)}, "$.cols.vec.b[4]: dense value is not finite")
    column("an infinite number", "price", {"b": f32(1, inf)}, "$.cols.price.b[1]: dense value is not finite")
    column("a number beyond dense_max", "vec", {"b": f32(1, 2, 3, 4, 2e10, 6)}, "$.cols.vec.b[4]: 2e+10 is beyond ingest.dense_max (1e+10)")
    column("log1p of -1", "price", {"b": f32(-1, 1)}, "$.cols.price.b[0]: log1p needs a value above -1, not -1")
    raw("packed: a slot index no slot declares, under strict", msgpack.packb({"n": 2, "cols": {0: {"b": u64(1, 2)}}, "y": {"click": [0, 1]}}),
        "$.cols: unknown slot 0 (ingest.strict)", strict=True)
    column("a weight of an id of 10^5", "context", {"b": u64(1, 2), "w": f32(1, 1e5)}, "$.cols.context.w[1]: weight 100000 of an id is beyond ingest.weight_max")
    column("weights of ids that nearly cancel in a mean", "history", {"b": u64(1, 2, 3), "l": u32(1, 2), "w": f32(1, 1, -0.99995)},
           "$.cols.history[1]: weights of ids add up to ")

    field("labels of 3 bytes", {"y": {"click": {"b": b"abc"}}}, "$.y.click.b: 3 bytes are no whole number of elements of 4")
    field("too few labels", {"y": {"click": {"b": f32(1)}}}, "$.y.click.b: 1 entries where 2 were expected")
    field("labels without b", {"y": {"click": {}}}, "$.y.click: b is missing")
    field("labels with s", {"y": {"click": {"s": b""}}}, '$.y.click: key "s" in a packed column of this kind')
    field("labels in a bare bin", {"y": {"click": f32(0, 1)}}, "$.y.click: a bin where a column was expected")
    field("an infinite label", {"y": {"click": {"b": f32(0, inf)}}}, "$.y.click.b[1]: label is not finite")
    field("a label above 1", {"y": {"click": {"b": f32(nan, 1.5)}}}, "$.y.click.b[1]: label 1.5 is not in [0,1]")
    field("event times of 12 bytes", {"t": {"b": b"x" * 12}}, "$.t.b: 12 bytes are no whole number of elements of 8")
    field("too many event times", {"t": {"b": struct.pack("<3q", T0, T0, T0)}}, "$.t.b: 3 entries where 2 were expected")
    field("an event time of 0", {"t": {"b": struct.pack("<2q", T0, 0)}}, "$.t.b[1]: event time is not above 0")
    field("a negative event time", {"t": {"b": struct.pack("<2q", -T0, T0)}}, "$.t.b[0]: event time is not above 0")
    field("an event time in seconds", {"t": {"b": struct.pack("<2q", T0, 1700000000)}}, "$.t.b[1]: 1700000000 is seconds, not ms")
    field("an event time beyond future_max", {"t": {"b": struct.pack("<2q", T0, T0 + 3600001)}}, "$.t.b[1]: event time is ")
    field("a negative weight", {"w": {"b": f32(1, -0.5)}}, "$.w.b[1]: weight -0.5 is below 0")
    field("a weight above weight_max by its keep rate", {"w": {"b": f32(1, 2)}, "s": {"b": f32(1, 0.0001)}}, "$.w[1]: weight by keep rate (w / s) 20000")
    field("a NaN weight of a sample", {"w": {"b": f32(nan, 1)}}, "$.w.b[0]: weight is not finite")
    field("too few weights of samples", {"w": {"b": f32(1)}}, "$.w.b: 1 entries where 2 were expected")
    field("use is 0", {"u": {"b": b"\x01\x00"}}, "$.u.b[1]: use is 1 (train), 2 (metrics) or 3 (both)")
    field("use is 4", {"u": {"b": b"\x04\x03"}}, "$.u.b[0]: use is 1 (train), 2 (metrics) or 3 (both)")
    field("too many uses", {"u": {"b": b"\x01\x01\x01"}}, "$.u.b: 3 entries where 2 were expected")
    field("keep rate is 0", {"s": {"b": f32(0, 1)}}, "$.s.b[0]: keep rate is not a number in (0,1]")
    field("keep rate is NaN", {"s": {"b": f32(1, nan)}}, "$.s.b[1]: keep rate is not a number in (0,1]")

    def g(name, sizes, reason, **shared):
        field(name, {"g": {"b": sizes}, "shared": shared}, reason)
    g("a group of 0", u32(0, 2), "$.g.b[0]: a group has at least one sample")
    g("groups short of n", u32(1), "$.g.b: the sizes of the groups add up to 1, n is 2")
    g("groups that wrap in 32 bits", u32(1, 2**32 - 1, 2), "$.g.b[1]: 4294967295 samples, more than ingest.group_max (6)")
    g("groups over n", u32(1, 1, 1), "$.g.b[2]: the sizes of the groups exceed n (2)")
    g("groups of 6 bytes", b"123456", "$.g.b: 6 bytes are no whole number of elements of 4")
    g("a short shared column", u32(1, 1), "$.shared.user_id: 1 entries where 2 were expected", user_id={"b": u64(1)})
    g("a long shared column", u32(2), "$.shared.user_id: 2 entries where 1 were expected", user_id={"b": u64(1, 2)})
    g("a shared column over n", u32(2), "$.shared.user_id: 3 entries where at most 2 were expected", user_id={"b": u64(1, 2, 3)})
    g("a bad shared weight", u32(2), "$.shared.user_id.w[0]: weight of an id is not finite", user_id={"b": u64(1), "w": f32(nan)})
    field("g in a bare bin", {"g": u32(2), "shared": {}}, "$.g: a bin where a column was expected")


def malformed():
    # The record: size, one value, syntax.
    for form in ("json", "msgpack"):
        add("an empty value", form, "" if form == "json" else b"", "$: the record is empty")
    text("only whitespace", " \n", "$: ")
    both("a record over record_max", {**GOOD, "x_pad": ["p" * 3000] * 3}, "more than ingest.record_max (8192)")
    for name, value in (("a number", 7), ("a string", "x"), ("nil", None), ("a boolean", True)):
        both("a record that is " + name, value, "$: " + ("an integer" if value == 7 else name) + "; a record is a map or an array")
    raw("a record that is a bin", msgpack.packb(b"xyz"), "$: a bin; a record is a map or an array")
    raw("a record that is a float", msgpack.packb(1.5), "$: a float; a record is a map or an array")
    text("trailing bytes", json.dumps(GOOD) + "{}", "bytes after the value")
    raw("trailing bytes", msgpack.packb(GOOD) + b"\xc0", "bytes after the value")
    text("trailing bytes after an array", "[]x", "bytes after the value")
    raw("trailing bytes after an array", b"\x90\x90", "bytes after the value")
    text("a record cut short", json.dumps(GOOD)[:-1], "the input ends inside a value")
    raw("a record cut short", msgpack.packb(GOOD)[:-1], "the input")
    raw("a count beyond the bytes that remain", b"\xdd\xff\xff\xff\xff\x80", "counts more values than the input can hold")
    raw("a map count beyond the bytes that remain", b"\x82\xa1f\xdf\x7f\xff\xff\xff", "counts more values than the input can hold")
    raw("a string length beyond the bytes that remain", b"\x81\xa1f\x81\xdb\xff\xff\xff\xffab", "ends inside a value")
    raw("the byte that is no MessagePack", b"\x81\xa1f\xc1", "0xc1")
    text("JSON that is not JSON", "{'f':{}}", "expected a string as key")
    text("a trailing comma", '{"f":{},"y":{},}', "$: expected a string as key")
    text("JSON NaN", '{"f":{"price":NaN},"y":{}}', "$.f.price: not a JSON value: JSON has no NaN and no Infinity; send null, or leave the value out")
    text("JSON Infinity", '{"f":{"price":Infinity},"y":{}}', "$.f.price: not a JSON value: JSON has no NaN and no Infinity")
    text("JSON -Infinity", '{"f":{"price":-Infinity},"y":{}}', "$.f.price: not a JSON value: JSON has no NaN and no Infinity")
    lines.append({"name": "UTF-16", "format": "json", "hex": json.dumps(GOOD).encode("utf-16").hex(), "reason": "$: UTF-16, which is not JSON here: write UTF-8"})
    text("a lone surrogate", '{"f":{"user_id":"\\ud800"},"y":{}}', "$.f.user_id: string has a bad \\u escape")
    lines.append({"name": "JSON that is not UTF-8", "format": "json", "hex": b'{"f":{"user_id":"\xff"},"y":{}}'.hex(),
                  "reason": "$.f.user_id: string is not UTF-8"})
    raw("a string that is not UTF-8", f_raw("user_id", b"\xa2\xc3\x28"), "$.f.user_id: string is not UTF-8")
    raw("a key that is not UTF-8", b"\x81\xa1\xff\xc0", "$: string is not UTF-8")

    # Limits: depth, string.
    deep = 1
    for _ in range(64):
        deep = [deep]
    both("65 containers in an opaque value", {**GOOD, "id": deep}, "$.id: nested deeper than 64 containers")
    both("65 containers in an ignored value", {**GOOD, "x_deep": deep}, "nested deeper than 64 containers")
    both("65 containers in an unknown slot", {"f": {"zzz": deep}, "y": {}}, "$.f: nested deeper than 64 containers")
    both("65 containers in an unknown label", {**GOOD, "y": {"zzz": deep}}, "$.y: nested deeper than 64 containers")
    both("an array of too deep samples", [{**GOOD, "id": deep[0]}], "$[0].id: nested deeper than 64 containers")
    slot("a string of 4097 bytes", "user_id", "s" * 4097, "$.f.user_id: string longer than the limit")
    both("a key of 4097 bytes", {**GOOD, "x_" + "k" * 4095: 1}, "$: string longer than the limit")

    # Envelope.
    both("an empty map", {}, "$: f is missing")
    both("no f", {"y": {"click": 1}}, "$: f is missing")
    both("no y", {"f": {"user_id": 1}}, "$: y is missing")
    both("an unknown envelope key under strict", {**GOOD, "label": 1}, '$: unknown key "label" (ingest.strict)', strict=True)
    both("an upper-case envelope key under strict", {**GOOD, "F": {}}, '$: unknown key "F" (ingest.strict)', strict=True)
    both("an empty envelope key under strict", {**GOOD, "": 1}, '$: unknown key "" (ingest.strict)', strict=True)
    both("x without its underscore under strict", {**GOOD, "xtra": 1}, '$: unknown key "xtra" (ingest.strict)', strict=True)
    both("a control character in a key under strict", {**GOOD, "a\nb": 1}, '$: unknown key "a?b" (ingest.strict)', strict=True)
    both("a long unknown key is cut under strict", {**GOOD, "q" * 100: 1}, "q" * 64 + '"...', strict=True)
    text("duplicate unknown key", '{"f":{},"request":1,"y":{},"request":2}', '$: duplicate key "request"')
    text("duplicate unknown label", '{"f":{},"y":{"zzz":1,"zzz":null}}', '$.y: duplicate key "zzz"')
    raw("duplicate unknown index", packed_map([("f", packed_map([(0, 1), (0, 1)])), ("y", {})]), "$.f: duplicate key 0")
    raw("an integer envelope key", packed_map([("f", {}), (5, 1)]), "$: an integer as an envelope key")
    raw("a nil envelope key", packed_map([("f", {}), (None, 1)]), "$: nil as an envelope key")
    raw("a bin envelope key", packed_map([(b"f", {})]), "$: a bin as an envelope key")
    raw("an array as envelope key", b"\x81\x90\xc0", "$: an array as an envelope key")
    for k, v in (("f", {}), ("y", {}), ("t", T0), ("w", 1), ("u", 3), ("s", 0.5), ("p", {}), ("id", 1), ("x_a", 1)):
        body = json.dumps(v)
        text(f"duplicate key {k}", f'{{"f":{{}},"{k}":{body},"y":{{}},"{k}":{body}}}',
             f'$: duplicate key "{k}"')
        raw(f"duplicate key {k}", packed_map([(k, v), ("x_b", 1), (k, v)]), f'$: duplicate key "{k}"')
    both("f is nil", {"f": None, "y": {}}, "$.f: nil where a map slot -> value was expected")
    both("f is an array", {"f": [1], "y": {}}, "$.f: an array where a map slot -> value was expected")
    both("f is a number", {"f": 1, "y": {}}, "$.f: an integer where a map slot -> value was expected")

    # Forms.
    both("keys of sample and group", {**GOOD, "items": []}, "$: keys of two forms")
    both("keys of sample and block", {**GOOD, "n": 1}, "$: keys of two forms")
    both("keys of sample and shared", {"shared": {}, **GOOD}, "$: keys of two forms")
    both("keys of block and sample", {"n": 1, **GOOD}, "$: keys of two forms")
    both("keys of group and block", {"items": [GOOD], "n": 1}, "$: keys of two forms")
    both("keys of group and sample, y first", {"y": {"click": 1}, "shared": {}, "items": [GOOD]}, '$: keys of two forms ("y")')
    both("an array in an array", [[GOOD]], "$[0]: arrays of samples do not nest")
    both("a number in an array", [GOOD, 5], "$[1]: an integer where a sample or group was expected")
    both("nil in an array", [GOOD, GOOD, None], "$[2]: nil where a sample or group was expected")
    both("one bad sample spoils its array", [GOOD, GOOD, GOOD, {"f": {"price": "2"}, "y": {}}],
         "$[3].f.price: a string where a number was expected")
    both("an empty sample in an array", [GOOD, {}], "$[1]: f is missing")
    groups()
    blocks()
    packed_blocks()

    # Slot keys.
    text("duplicate slot", '{"f":{"user_id":1,"user_id":1},"y":{}}', "$.f.user_id: duplicate slot")
    raw("duplicate slot", packed_map([("f", packed_map([("user_id", 1), ("user_id", 1)])), ("y", {})]), "$.f.user_id: duplicate slot")
    text("duplicate slot, first nil", '{"f":{"price":null,"price":1},"y":{}}', "$.f.price: duplicate slot")
    text("duplicate slot by an escape", '{"f":{"price":1,"pr\\u0069ce":1},"y":{}}', "$.f.price: duplicate slot")
    text("duplicate unknown slot", '{"f":{"zzz":1,"user_id":2,"zzz":1},"y":{}}', '$.f: duplicate key "zzz"')
    raw("duplicate unknown slot", packed_map([("f", packed_map([("zzz", 1), ("zzz", 2)])), ("y", {})]), '$.f: duplicate key "zzz"')
    raw("one slot by name and by index", packed_map([("f", packed_map([("context", 1), (7, 1)])), ("y", {})]), "$.f.context: duplicate slot")
    raw("one slot by index and by name", packed_map([("f", packed_map([(7, 1), ("context", 1)])), ("y", {})]), "$.f.context: duplicate slot")
    raw("an index no slot declares, under strict", packed_map([("f", packed_map([(0, 1)])), ("y", {})]), "$.f: unknown slot 0 (ingest.strict)", strict=True)
    raw("a negative index", packed_map([("f", packed_map([(-7, 1)])), ("y", {})]), "$.f: integer key -7: an index is not below 0")
    raw("the largest index under strict", packed_map([("f", packed_map([(2**64 - 1, 1)])), ("y", {})]), "$.f: unknown slot 18446744073709551615", strict=True)
    raw("a float as slot key", packed_map([("f", packed_map([(7.0, 1)])), ("y", {})]), "$.f: a float as a slot key")
    raw("nil as slot key", packed_map([("f", packed_map([(None, 1)])), ("y", {})]), "$.f: nil as a slot key")
    raw("a bin as slot key", packed_map([("f", packed_map([(b"price", 1)])), ("y", {})]), "$.f: a bin as a slot key")
    both("an unknown slot under strict", {"f": {"zzz": 1}, "y": {}}, '$.f: unknown slot "zzz" (ingest.strict)', strict=True)

    # Sparse and sequence values.
    slot("a boolean id", "user_id", True, "$.f.user_id: a boolean is no id")
    slot("a fractional id", "user_id", 5.5, "$.f.user_id: 5.5 is not an integer")
    slot("an id of 2^64", "user_id", 2.0**64, "$.f.user_id: 1.8446744073709552e+19 is a float of 2^53 or more")
    slot("an id below -2^63", "user_id", -9.3e18, "$.f.user_id: -9.3e+18 is a float of 2^53 or more")
    slot("a huge float id", "item_id", 1e300, "$.f.item_id: ")
    for name, value in (("2^53", 2.0**53), ("2^53 + 1", 9007199254740992.0), ("-2^53", -2.0**53), ("10^18", 1e18), ("-2^63", -2.0**63), ("10^19", 1e19)):
        slot(f"the float {name} as id", "user_id", value, "is a float of 2^53 or more, which stands for several integers: send ids as integers or strings")
        slot(f"the float {name} in an array of ids", "history", [1, value], "$.f.history[1]: ")
        slot(f"the float {name} beside weights", "user_id", {"i": [value], "w": [1]}, "$.f.user_id.i[0]: ")
    text("2^53 + 1 written as a float", '{"f":{"user_id":9007199254740993.0},"y":{}}', "$.f.user_id: 9007199254740992 is a float of 2^53 or more")
    raw("an f32 of 2^24 as id", f_raw("user_id", b"\xca" + struct.pack(">f", 2.0**24)), "$.f.user_id: 16777216 is a float of 2^24 or more")
    for name, value in (("2^64", 2**64), ("-2^63 - 1", -2**63 - 1), ("10^30", 10**30)):
        text(f"the integer {name} as id", f'{{"f":{{"user_id":{value}}},"y":{{}}}}',
             f"$.f.user_id: {value} is out of range: an integer id lies in -2^63 .. 2^64-1; send others as strings")
        text(f"the integer {name} in an array of ids", f'{{"f":{{"history":[{value}]}},"y":{{}}}}', f"$.f.history[0]: {value} is out of range")
    for name, value in (("10^4 + 1", 10001), ("-10^5", -1e5), ("10^12", 1e12)):
        slot(f"a weight of an id of {name}", "context", {"i": [1, 2], "w": [1, value]}, "$.f.context.w[1]: weight ")
    slot("weights of ids that nearly cancel in a mean", "history", {"i": [1, 2], "w": [1, -0.99995]}, "$.f.history: weights of ids add up to ")
    slot("weights of ids too small for a mean", "history", {"i": [1], "w": [1e-39]}, "$.f.history: weights of ids add up to ")
    both("weights of a cross beyond weight_max", {"f": {"user_id": {"i": [1], "w": [1e3]}, "context": {"i": [2], "w": [-1e2]}, "price": 5}, "y": {}},
         "$.pair: weights of ids multiply to -100000, beyond ingest.weight_max (10000)")
    for name, value in (("NaN", float("nan")), ("infinite", float("inf"))):
        raw(f"a {name} id", f_raw("user_id", msgpack.packb(value)), "$.f.user_id: ")
    raw("a bin id", f_raw("user_id", msgpack.packb(b"\x01")), "$.f.user_id: a bin is no id")
    raw("an extension id", f_raw("user_id", b"\xd4\x01\x00"), "$.f.user_id: an extension type is no id")
    raw("a timestamp extension id", f_raw("user_id", b"\xd6\xff\x00\x00\x00\x01"), "$.f.user_id: an extension type is no id")
    slot("nil among ids", "user_id", [1, None], "$.f.user_id[1]: nil is no id")
    slot("a nested array of ids", "user_id", [1, [2]], "$.f.user_id[1]: an array is no id")
    slot("a map among ids", "user_id", [{"i": [1], "w": [1]}], "$.f.user_id[0]: a map is no id")
    slot("a boolean in a history", "history", [1, 2, False], "$.f.history[2]: a boolean is no id")
    slot("a fraction in a history", "history", [0.5], "$.f.history[0]: 0.5 is not an integer")
    slot("ids without weights", "user_id", {"i": [1]}, "$.f.user_id: w is missing beside i")
    slot("weights without ids", "user_id", {"w": [1]}, "$.f.user_id: i is missing beside w")
    slot("an empty map of ids", "user_id", {}, "$.f.user_id: ")
    slot("an unknown key beside ids", "user_id", {"i": [1], "w": [1], "v": [1]}, '$.f.user_id: key "v" in a map of ids and weights')
    slot("a map that is no map of ids", "user_id", {"1": 2}, '$.f.user_id: key "1" in a map')
    slot("fewer weights than ids", "user_id", {"i": [1, 2], "w": [1]}, "$.f.user_id: 2 ids but 1 weights")
    slot("more weights than ids", "history", {"w": [1, 2], "i": [1]}, "$.f.history: 1 ids but 2 weights")
    slot("one id instead of an array", "user_id", {"i": 1, "w": [1]}, "$.f.user_id.i: an integer where an array was expected")
    slot("one weight instead of an array", "user_id", {"i": [1], "w": 1}, "$.f.user_id.w: an integer where an array was expected")
    slot("a boolean among weighted ids", "user_id", {"i": [1, True], "w": [1, 1]}, "$.f.user_id.i[1]: a boolean is no id")
    slot("a string as id weight", "user_id", {"i": [1], "w": ["1"]}, "$.f.user_id.w[0]: a string is no weight")
    slot("nil as id weight", "user_id", {"i": [1], "w": [None]}, "$.f.user_id.w[0]: nil is no weight")
    slot("a boolean as id weight", "user_id", {"i": [1], "w": [True]}, "$.f.user_id.w[0]: a boolean is no weight")
    slot("an id weight beyond f32", "user_id", {"i": [1, 2], "w": [1, 1e39]}, "$.f.user_id.w[1]: weight of an id is not finite")
    raw("a NaN id weight", f_raw("user_id", msgpack.packb({"i": [1], "w": [float("nan")]})), "$.f.user_id.w[0]: weight of an id is not finite")
    text("duplicate ids of an entry", '{"f":{"user_id":{"i":[1],"i":[1],"w":[1]}},"y":{}}', "$.f.user_id: duplicate key i")
    raw("duplicate weights of an entry", f_raw("user_id", packed_map([("w", [1]), ("w", [1])])), "$.f.user_id: duplicate key w")
    raw("an integer key beside ids", f_raw("user_id", packed_map([(1, [1])])), "$.f.user_id: key 1 in a map of ids and weights")

    # Dense values.
    slot("a string as number", "price", "2.5", "$.f.price: a string where a number was expected")
    slot("a boolean as number", "price", True, "$.f.price: a boolean where a number was expected")
    slot("a map as number", "price", {"v": 1}, "$.f.price: a map where a number was expected")
    slot("a number beyond f32", "price", 1e39, "$.f.price: dense value is not finite")
    text("a number beyond f64", '{"f":{"price":1e999},"y":{}}', "$.f.price: number is not finite")
    raw("a NaN number", f_raw("price", msgpack.packb(float("nan"))), "$.f.price: dense value is not finite")
    raw("a NaN f32 number", f_raw("price", b"\xca" + struct.pack(">f", float("nan"))), "$.f.price: dense value is not finite")
    raw("an infinite number", f_raw("vec", msgpack.packb([0.0, float("-inf"), 0.0])), "$.f.vec[1]: dense value is not finite")
    raw("a bin as number", f_raw("price", msgpack.packb(b"1234")), "$.f.price: a bin where a number was expected")
    raw("an extension as number", f_raw("price", b"\xd4\x01\x00"), "$.f.price: an extension type where a number was expected")
    slot("log1p of -1", "price", -1, "$.f.price: log1p needs a value above -1, not -1")
    slot("log1p of less than -1", "price", [-3.5], "$.f.price[0]: log1p needs a value above -1, not -3.5")
    slot("a number beyond dense_max", "vec", [1, 2, -2e10], "$.f.vec[2]: -2e+10 is beyond ingest.dense_max (1e+10); clip or standardize the slot, or raise the bound")
    slot("a slot that is computed from a number", "price_bucket", 1, '$.f: "price_bucket" is computed, not given')
    slot("a slot that is computed from others", "pair", None, '$.f: "pair" is computed, not given')
    slot("two numbers for dim 1", "price", [1, 2], "$.f.price: more than the 1 numbers expected")
    slot("no number for dim 1", "price", [], "$.f.price: 0 numbers where 1 were expected")
    slot("one number for dim 3", "vec", 1.5, "$.f.vec: 1 number where 3 were expected")
    slot("two numbers for dim 3", "vec", [1, 2], "$.f.vec: 2 numbers where 3 were expected")
    slot("four numbers for dim 3", "vec", [1, 2, 3, 4], "$.f.vec: more than the 3 numbers expected")
    slot("nil among numbers", "vec", [1, None, 3], "$.f.vec[1]: nil where a number was expected")
    slot("a nested array of numbers", "vec", [[1, 2, 3]], "$.f.vec[0]: an array where a number was expected")
    slot("a boolean among numbers", "vec", [1, 2, True], "$.f.vec[2]: a boolean where a number was expected")

    # Labels.
    def y(name, value, reason, **more):
        both(name, {"f": {}, "y": value}, reason, **more)
    y("a bare label where there are two", 1, "$.y: a bare number needs exactly one label, the config has 2")
    y("a bare boolean where there are two", True, "$.y: a bare number needs exactly one label")
    y("a string as labels", "1", "$.y: a string where labels were expected")
    y("an unknown label under strict", {"clck": 1}, '$.y: "clck" is no label of the config (ingest.strict)', strict=True)
    y("a derived label", {"bought": 1}, '$.y: "bought" is derived')
    y("a task's name as label under strict", {"click_rate": 1}, '$.y: "click_rate" is no label', strict=True)
    y("a label above 1", {"click": 1.5}, "$.y.click: label 1.5 is not in [0,1]")
    y("a label just above 1", {"click": 1.0000000001}, "$.y.click: label")
    y("a label of 2", {"buy": 2}, "$.y.buy: label 2 is not in [0,1]")
    y("a negative label", {"click": -1}, "$.y.click: label -1 is not in [0,1]: where labels are -1 and 1, map them to 0 and 1 with labels.click.negative: -1")
    y("a string label", {"click": "1"}, "$.y.click: a string where a label was expected")
    y("an array label", {"click": [1]}, "$.y.click: an array where a label was expected")
    y("a label beyond f32", {"click": 1e300}, "$.y.click: label is not finite")
    y("three labels for two", [0, 1, 1], "$.y: more than the 2 labels of the config")
    y("three nil labels for two", [None, None, None], "$.y: more than the 2 labels of the config")
    y("a bad label in an array", [0, -0.5], "$.y[1]: label -0.5 is not in [0,1]")
    y("a string in an array of labels", ["a"], "$.y[0]: a string where a label was expected")
    raw("a NaN label", packed_map([("f", {}), ("y", {"click": float("nan")})]), "$.y.click: label is not finite")
    raw("a bin as labels", packed_map([("f", {}), ("y", msgpack.packb(b"\x00\x01"))]), "$.y: a bin where labels were expected")
    raw("an integer as label key", packed_map([("f", {}), ("y", packed_map([(0, 1)]))]), "$.y: an integer as a key")
    text("duplicate label", '{"f":{},"y":{"click":1,"click":1}}', "$.y.click: duplicate key")
    raw("duplicate label", packed_map([("f", {}), ("y", packed_map([("buy", None), ("buy", 1)]))]), "$.y.buy: duplicate key")

    # Weights.
    def w(name, value, reason, **more):
        both(name, {**GOOD, "w": value}, reason, **more)
    w("a negative weight", -0.5, "$.w: weight -0.5 is below 0")
    w("a negative integer weight", -1, "$.w: weight -1 is below 0")
    w("a tiny negative weight", -1e-300, "$.w: weight -0 is below 0")
    w("a string weight", "1", "$.w: a string where a weight was expected")
    w("nil as weight", None, "$.w: nil where a weight was expected")
    w("a boolean weight", True, "$.w: a boolean where a weight was expected")
    w("an array of weights", [1, 1], "$.w: an array where a weight was expected")
    w("a weight beyond f32", 1e39, "$.w: weight is not finite")
    w("a weight of an unknown label under strict", {"clck": 1}, '$.w: "clck" is no label of the config (ingest.strict)', strict=True)
    w("a negative weight of a label", {"click": 1, "buy": -2}, "$.w.buy: weight -2 is below 0")
    w("nil as weight of a label", {"click": None}, "$.w.click: nil where a weight was expected")
    w("a weight above weight_max", 10001, "$.w: weight 10001 is above ingest.weight_max (10000); cut weights where they are made, or raise the bound")
    w("a weight of a label above weight_max", {"click": 1, "buy": 1 << 20}, "$.w: weight 1048576 is above ingest.weight_max (10000)")
    both("a weight above weight_max by its keep rate", {**GOOD, "w": 2, "s": 1e-4}, "$.w: weight by keep rate (w / s) 20000 is above ingest.weight_max (10000)")
    both("a weight above weight_max in an array", [GOOD, {**GOOD, "w": 1e5}], "$[1].w: weight 100000 is above")
    raw("an infinite weight", packed_map([("f", {}), ("y", {}), ("w", float("inf"))]), "$.w: weight is not finite")
    text("duplicate weight", '{"f":{},"y":{},"w":{"click":1,"click":1}}', "$.w.click: duplicate key")

    # Use, event time.
    for name, value in (("0", 0), ("4", 4), ("-1", -1), ("a float", 3.5), ("a string", "train"), ("nil", None), ("a boolean", True)):
        both(f"use is {name}", {**GOOD, "u": value}, "$.u: use is 1 (train), 2 (metrics) or 3 (both)")

    def t(name, value, reason, **more):
        both(name, {**GOOD, "t": value}, reason, **more)
    t("event time in seconds", 1700000000, "$.t: 1700000000 is seconds, not ms")
    t("event time just below 10^11", 10**11 - 1, "$.t: 99999999999 is seconds, not ms")
    t("event time of 1", 1, "$.t: 1 is seconds, not ms")
    t("event time of 0", 0, "$.t: event time is not above 0")
    t("a negative event time", -T0, "$.t: event time is not above 0")
    t("a float event time", T0 + 0.5, "$.t: a float where an integer (Unix ms) was expected")
    t("a string event time", str(T0), "$.t: a string where an integer (Unix ms) was expected")
    t("nil as event time", None, "$.t: nil where an integer (Unix ms) was expected")
    t("a boolean event time", True, "$.t: a boolean where an integer (Unix ms) was expected")
    t("event time beyond future_max", T0 + 3600001, "$.t: event time is 3600001 ms after the Kafka timestamp, more than ingest.future_max (3600000 ms)")
    t("event time in microseconds", T0 * 1000, "$.t: 1700000000000000 is micro- or nanoseconds, not ms")
    t("the largest event time", 2**63 - 1, "$.t: 9223372036854775807 is micro- or nanoseconds, not ms")
    for unit, stamp in (("seconds", T0 // 1000), ("seconds", 10**11 - 1), ("micro- or nanoseconds", 10**14), ("micro- or nanoseconds", T0 * 1000000)):
        for form, value in (("", GOOD), ("group: ", {"shared": {}, "items": [GOOD]}), ("array: ", [GOOD]), ("block: ", {"n": 1, "cols": {}, "y": {}})):
            both(f"{form}no event time and a Kafka timestamp of {stamp}", value, f".t: t is missing and the record's Kafka timestamp, {stamp}, is {unit}, not ms", timestamp_ms=stamp)
    t("event time beyond 64 bits signed", 2**63, "$.t: event time is beyond 64 bits")
    both("a future sample in an array", [GOOD, {**GOOD, "t": T0 + 7200000}], "$[1].t: event time is 7200000 ms after the Kafka timestamp")
    both("no event time and no Kafka timestamp", GOOD, "$: t is missing and the record has no Kafka timestamp", timestamp_ms=-1)

    # Keep rate, served scores.
    for name, value in (("0", 0), ("above 1", 1.5), ("negative", -0.5), ("2", 2), ("a string", "0.5"), ("nil", None), ("a boolean", True)):
        both(f"keep rate is {name}", {**GOOD, "s": value}, "$.s: keep rate is not a number in (0,1]")
    raw("keep rate is NaN", packed_map([("f", {}), ("y", {}), ("s", float("nan"))]), "$.s: keep rate is not a number in (0,1]")
    both("scores that are no map", {**GOOD, "p": 0.5}, "$.p: a float where a map task -> score was expected")
    both("a score of an unknown task under strict", {**GOOD, "p": {"click": 0.5}}, '$.p: "click" is no task of the config (ingest.strict)', strict=True)
    both("a score that is a string", {**GOOD, "p": {"click_rate": "0.5"}}, "$.p.click_rate: score is not a number")
    both("a score that is nil", {**GOOD, "p": {"buy_rate": None}}, "$.p.buy_rate: score is not a number")
    raw("a NaN score", packed_map([("f", {}), ("y", {}), ("p", {"buy_rate": float("nan")})]), "$.p.buy_rate: score is not finite")
    text("duplicate score", '{"f":{},"y":{},"p":{"buy_rate":1,"buy_rate":1}}', "$.p.buy_rate: duplicate key")


if __name__ == "__main__":
    with open(os.path.join(HERE, "keys.json"), "w", encoding="utf-8") as out:
        out.write("[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in keys()) + "\n]\n")
    malformed()
    seen = set()
    with open(os.path.join(HERE, "malformed.jsonl"), "w", encoding="utf-8") as out:
        for line in lines:
            assert (line["name"], line["format"]) not in seen, line["name"]
            seen.add((line["name"], line["format"]))
            out.write(json.dumps(line, ensure_ascii=False) + "\n")
    print(f"{len(lines)} malformed records")
