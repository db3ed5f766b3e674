#!/usr/bin/env python3
"""Seeds for fuzz_decode: `seeds.py DIR` writes the golden malformed records and valid ones of every form into DIR, a file each. Needs msgpack."""
import json
import pathlib
import struct
import sys

import msgpack

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def valid():
    sample = {"f": {"user_id": [1, "2"], "item_id": "a", "history": [3, 4, 5], "price": 2.5, "vec": [1, 2, 3], "context": {"i": [7], "w": [0.5]}},
              "y": {"click": 1, "buy": 0}, "t": 1700000000000, "w": {"buy": 2}, "u": 3, "s": 0.5, "p": {"buy_rate": 0.25}, "id": 1}
    item = {"f": {"item_id": 5}, "y": [1]}
    group = {"shared": {"user_id": 1, "vec": [1, 2, 3]}, "items": [item, {**item, "f": {"history": [1, 2], "price": 1}}], "t": 1700000000000}
    block = {"n": 3, "cols": {"item_id": [1, None, "x"], "price": [1, 2, None], "history": [[1], [], {"i": [2], "w": [1]}]}, "y": {"click": [0, 1, None]},
             "t": [1700000000000] * 3, "w": [1, {"buy": 2}, 0], "u": [1, 2, 3], "s": [1, 0.5, 0.25], "g": [2, 1], "shared": {"user_id": [1, [2, 3]]}}
    for value in (sample, group, [sample, group, sample], block):
        yield json.dumps(value, separators=(",", ":")).encode()
        yield msgpack.packb(value)

    def bin_(form, *values):
        return {"b": struct.pack(f"<{len(values)}{form}", *values)}
    yield msgpack.packb({
        "n": 3, "g": bin_("I", 2, 1), "t": bin_("q", *[1700000000000] * 3), "u": bin_("B", 1, 2, 3), "w": bin_("f", 1, 2, 0), "s": bin_("f", 1, 0.5, 0.25),
        "y": {"click": bin_("f", 0, 1, float("nan"))}, "shared": {"user_id": bin_("Q", 1, 2), "vec": bin_("f", 1, 2, 3, 4, 5, 6)},
        "cols": {"price": bin_("f", 1, 2, 3), "history": {**bin_("Q", 1, 2, 3, 4, 5, 6, 7), "l": struct.pack("<3I", 6, 0, 1), "w": struct.pack("<7f", *range(7))},
                 "item_id": {"s": b"abc", "sl": struct.pack("<3I", 1, 0, 2)}}})


def main():
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    seeds = list(valid())
    for line in open(ROOT / "tests/golden/malformed.jsonl"):
        case = json.loads(line)
        seeds.append(bytes.fromhex(case["hex"]) if "hex" in case else case["text"].encode("utf-8", "surrogatepass"))
    for i, seed in enumerate(seeds):
        (directory / f"seed-{i:04}").write_bytes(seed)
    print(f"{len(seeds)} seeds")


main()
