#!/usr/bin/env python3
"""Writes keys.json and malformed.jsonl beside itself. Needs the packages xxhash and msgpack.

The keys are computed here from the text of DESIGN section 6 alone, with another implementation of XXH3 binding and a finalizer
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


def key(namespace, raw_id, raw):
    seed = xxhash.xxh3_64_intdigest(namespace.encode())
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
           2**64 - 1, -128, -129, -2**31, -2**63, 5.0, -7.0, 0.0, 2.0**53, 1e18, -2.0**63,
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
    text("JSON NaN", '{"f":{"price":NaN},"y":{}}', "$.f.price: not a JSON value")
    text("a lone surrogate", '{"f":{"user_id":"\\ud800"},"y":{}}', "$.f.user_id: string has a bad \\u escape")
    lines.append({"name": "JSON that is not UTF-8", "format": "json", "hex": b'{"f":{"user_id":"\xff"},"y":{}}'.hex(),
                  "reason": "$.f.user_id: string is not UTF-8"})
    raw("a string that is not UTF-8", f_raw("user_id", b"\xa2\xc3\x28"), "$.f.user_id: string is not UTF-8")
    raw("a key that is not UTF-8", b"\x81\xa1\xff\xc0", "$: string is not UTF-8")

    # Limits: depth, string.
    deep = 1
    for _ in range(8):
        deep = [deep]
    both("nine containers in an opaque value", {**GOOD, "id": deep}, "$.id: nested deeper than 8 containers")
    both("nine containers in an ignored value", {**GOOD, "x_deep": deep}, "nested deeper than 8 containers")
    both("nine containers in an unknown slot", {"f": {"zzz": deep}, "y": {}}, "$.f: nested deeper than 8 containers")
    both("an array of too deep samples", [{**GOOD, "id": deep[0]}], "$[0].id: nested deeper than 8 containers")
    slot("a string of 4097 bytes", "user_id", "s" * 4097, "$.f.user_id: string longer than the limit")
    both("a key of 4097 bytes", {**GOOD, "x_" + "k" * 4095: 1}, "$: string longer than the limit")

    # Envelope.
    both("an empty map", {}, "$: f is missing")
    both("no f", {"y": {"click": 1}}, "$: f is missing")
    both("no y", {"f": {"user_id": 1}}, "$: y is missing")
    both("an unknown envelope key", {**GOOD, "label": 1}, '$: unknown key "label"')
    both("an upper-case envelope key", {**GOOD, "F": {}}, '$: unknown key "F"')
    both("an empty envelope key", {**GOOD, "": 1}, '$: unknown key ""')
    both("x without its underscore", {**GOOD, "xtra": 1}, '$: unknown key "xtra"')
    both("a control character in a key", {**GOOD, "a\nb": 1}, '$: unknown key "a?b"')
    both("a long unknown key is cut", {**GOOD, "q" * 100: 1}, "q" * 64 + '"...')
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
    both("a group", {"shared": {"user_id": 1}, "items": [GOOD]}, "groups are not in this version")
    both("a group without shared", {"items": [GOOD]}, "groups are not in this version")
    both("a group in an array", [GOOD, {"shared": {"user_id": 1}, "items": [GOOD]}], "$[1]: groups are not in this version")
    both("a block", {"n": 2, "cols": {"user_id": [1, 2]}, "y": {"click": [0, 1]}}, "blocks are not in this version")
    both("a block whose labels come first", {"y": {"click": [0, 1]}, "n": 2, "cols": {"user_id": [1, 2]}},
         "blocks are not in this version")
    both("a block with groups", {"n": 2, "cols": {}, "y": {}, "g": [2], "shared": {"user_id": [1]}}, "blocks are not in this version")
    both("a block in an array", [{"n": 1, "cols": {}, "y": {}}], "$[0]: an array holds samples or groups, not blocks")
    both("keys of sample and group", {**GOOD, "items": []}, "$: keys of two forms")
    both("keys of sample and block", {**GOOD, "n": 1}, "$: keys of two forms")
    both("keys of sample and shared", {"shared": {}, **GOOD}, "$: keys of two forms")
    both("keys of group and block", {"items": [], "n": 1}, "$: keys of two forms")
    both("an array in an array", [[GOOD]], "$[0]: arrays of samples do not nest")
    both("a number in an array", [GOOD, 5], "$[1]: an integer where a sample was expected")
    both("nil in an array", [GOOD, GOOD, None], "$[2]: nil where a sample was expected")
    both("one bad sample spoils its array", [GOOD, GOOD, GOOD, {"f": {"price": "2"}, "y": {}}],
         "$[3].f.price: a string where a number was expected")
    both("an empty sample in an array", [GOOD, {}], "$[1]: f is missing")

    # Slot keys.
    text("duplicate slot", '{"f":{"user_id":1,"user_id":1},"y":{}}', "$.f.user_id: duplicate slot")
    raw("duplicate slot", packed_map([("f", packed_map([("user_id", 1), ("user_id", 1)])), ("y", {})]), "$.f.user_id: duplicate slot")
    text("duplicate slot, first nil", '{"f":{"price":null,"price":1},"y":{}}', "$.f.price: duplicate slot")
    text("duplicate slot by an escape", '{"f":{"price":1,"pr\\u0069ce":1},"y":{}}', "$.f.price: duplicate slot")
    text("duplicate unknown slot", '{"f":{"zzz":1,"user_id":2,"zzz":1},"y":{}}', '$.f: duplicate key "zzz"')
    raw("duplicate unknown slot", packed_map([("f", packed_map([("zzz", 1), ("zzz", 2)])), ("y", {})]), '$.f: duplicate key "zzz"')
    raw("one slot by name and by index", packed_map([("f", packed_map([("context", 1), (7, 1)])), ("y", {})]), "$.f.context: duplicate slot")
    raw("one slot by index and by name", packed_map([("f", packed_map([(7, 1), ("context", 1)])), ("y", {})]), "$.f.context: duplicate slot")
    raw("an index no slot declares", packed_map([("f", packed_map([(0, 1)])), ("y", {})]), "$.f: integer key 0 is no slot's declared index")
    raw("a negative index", packed_map([("f", packed_map([(-7, 1)])), ("y", {})]), "$.f: integer key -7 is no slot's declared index")
    raw("the largest index", packed_map([("f", packed_map([(2**64 - 1, 1)])), ("y", {})]), "$.f: integer key 18446744073709551615")
    raw("a float as slot key", packed_map([("f", packed_map([(7.0, 1)])), ("y", {})]), "$.f: a float as a slot key")
    raw("nil as slot key", packed_map([("f", packed_map([(None, 1)])), ("y", {})]), "$.f: nil as a slot key")
    raw("a bin as slot key", packed_map([("f", packed_map([(b"price", 1)])), ("y", {})]), "$.f: a bin as a slot key")
    both("an unknown slot under strict", {"f": {"zzz": 1}, "y": {}}, '$.f: unknown slot "zzz" (ingest.strict)', strict=True)

    # Sparse and sequence values.
    slot("a boolean id", "user_id", True, "$.f.user_id: a boolean is no id")
    slot("a fractional id", "user_id", 5.5, "$.f.user_id: 5.5 is not an integer")
    slot("an id of 2^64", "user_id", 2.0**64, "$.f.user_id: 1.8446744073709552e+19 is not an integer")
    slot("an id below -2^63", "user_id", -9.3e18, "$.f.user_id: -9.3e+18 is not an integer")
    slot("a huge float id", "item_id", 1e300, "$.f.item_id: ")
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
    slot("two numbers for dim 1", "price", [1, 2], "$.f.price: more than the 1 numbers expected")
    slot("no number for dim 1", "price", [], "$.f.price: 0 numbers where 1 were expected")
    slot("one number for dim 3", "vec", 1.5, "$.f.vec: 1 number where 3 were expected")
    slot("two numbers for dim 3", "vec", [1, 2], "$.f.vec: 2 numbers where 3 were expected")
    slot("four numbers for dim 3", "vec", [1, 2, 3, 4], "$.f.vec: more than the 3 numbers expected")
    slot("nil among numbers", "vec", [1, None, 3], "$.f.vec[1]: nil where a number was expected")
    slot("a nested array of numbers", "vec", [[1, 2, 3]], "$.f.vec[0]: an array where a number was expected")
    slot("a boolean among numbers", "vec", [1, 2, True], "$.f.vec[2]: a boolean where a number was expected")

    # Labels.
    def y(name, value, reason):
        both(name, {"f": {}, "y": value}, reason)
    y("a bare label where there are two", 1, "$.y: a bare number needs exactly one label, the config has 2")
    y("a bare boolean where there are two", True, "$.y: a bare number needs exactly one label")
    y("a string as labels", "1", "$.y: a string where labels were expected")
    y("an unknown label", {"clck": 1}, '$.y: "clck" is no label of the config')
    y("a task's name as label", {"click_rate": 1}, '$.y: "click_rate" is no label')
    y("a label above 1", {"click": 1.5}, "$.y.click: label 1.5 is not in [0,1]")
    y("a label just above 1", {"click": 1.0000000001}, "$.y.click: label")
    y("a label of 2", {"buy": 2}, "$.y.buy: label 2 is not in [0,1]")
    y("a negative label", {"click": -1}, "$.y.click: label -1 is not in [0,1]")
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
    def w(name, value, reason):
        both(name, {**GOOD, "w": value}, reason)
    w("a negative weight", -0.5, "$.w: weight -0.5 is below 0")
    w("a negative integer weight", -1, "$.w: weight -1 is below 0")
    w("a tiny negative weight", -1e-300, "$.w: weight -0 is below 0")
    w("a string weight", "1", "$.w: a string where a weight was expected")
    w("nil as weight", None, "$.w: nil where a weight was expected")
    w("a boolean weight", True, "$.w: a boolean where a weight was expected")
    w("an array of weights", [1, 1], "$.w: an array where a weight was expected")
    w("a weight beyond f32", 1e39, "$.w: weight is not finite")
    w("a weight of an unknown label", {"clck": 1}, '$.w: "clck" is no label of the config')
    w("a negative weight of a label", {"click": 1, "buy": -2}, "$.w.buy: weight -2 is below 0")
    w("nil as weight of a label", {"click": None}, "$.w.click: nil where a weight was expected")
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
    t("event time in microseconds", T0 * 1000, "more than ingest.future_max")
    t("the largest event time", 2**63 - 1, "more than ingest.future_max")
    t("event time beyond 64 bits signed", 2**63, "$.t: event time is beyond 64 bits")
    both("a future sample in an array", [GOOD, {**GOOD, "t": T0 + 7200000}], "$[1].t: event time is 7200000 ms after the Kafka timestamp")
    both("no event time and no Kafka timestamp", GOOD, "$: t is missing and the record has no Kafka timestamp", timestamp_ms=-1)

    # Fields this version checks only.
    for name, value in (("0", 0), ("above 1", 1.5), ("negative", -0.5), ("2", 2), ("a string", "0.5"), ("nil", None), ("a boolean", True)):
        both(f"keep rate is {name}", {**GOOD, "s": value}, "$.s: keep rate is not a number in (0,1]")
    raw("keep rate is NaN", packed_map([("f", {}), ("y", {}), ("s", float("nan"))]), "$.s: keep rate is not a number in (0,1]")
    both("scores that are no map", {**GOOD, "p": 0.5}, "$.p: a float where a map task -> score was expected")
    both("a score of an unknown task", {**GOOD, "p": {"click": 0.5}}, '$.p: "click" is no task of the config')
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
