"""The golden files read by an independent implementation: the keys of keys.json are computed again from docs/formats/samples.md, "Ids and keys", and the records of
delta_epoch.jsonl give exactly the epoch that tests/golden/README.md describes in words. Needs neither Kafka nor any of our programs."""
import hashlib
import json
import pathlib
import struct
import sys

import crc32c
import msgpack

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import delta  # noqa: E402
import keys  # noqa: E402

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"
CFG = '{"layers":[],"tables":[{"name":"user"},{"name":"item"}]}'


def f16(value):
    """Half to even, saturating at the largest finite value."""
    rounded = struct.unpack("<f", struct.pack("<f", value))[0]
    if abs(rounded) >= 65520:
        return 65504.0 if rounded > 0 else -65504.0
    return struct.unpack("<e", struct.pack("<e", rounded))[0]


def keys_are_those_of_the_text():
    vectors = json.loads((GOLDEN / "keys.json").read_text())
    assert len(vectors) >= 100, f"only {len(vectors)} vectors"
    for vector in vectors:
        mine = (keys.cross_of([int(part) for part in vector["cross"]], vector["namespace"], vector.get("key_seed")) if "cross" in vector
                else keys.key_of(vector["id"], vector["namespace"], vector["raw"], vector.get("key_seed")))
        assert mine == int(vector["key"]), f"{vector}: {mine}"
    integers = {(v["namespace"], v["id"] & keys.MASK): v["key"] for v in vectors if isinstance(v.get("id"), int) and "key_seed" not in v}
    assert len({(namespace, key) for (namespace, _), key in integers.items()}) == len(integers), "integers never collide"
    return f"{len(vectors)} keys recomputed"


def golden_rows():
    """table -> key -> part -> published values, from the words of tests/golden/README.md."""
    rows = {"user": {}, "item": {}}
    for j in range(60):
        values = [((7 * j + 3 * d) % 64 - 32) / 8 for d in range(4)]
        if j == 1:
            values[0], values[1] = 65520.0, -1e-8
        elif j == 2:
            values[2] = 1 + 2 ** -11
        elif j == 3:
            values[1] = 2.0 ** -24
        values = [f16(value) for value in values]
        if j % 3 == 0:
            rows["user"][keys.fmix64(j + 1)] = {"v": values[:2]}
        else:
            rows["item"][keys.fmix64(j + 1)] = {"w": values[:1], "v": values[1:]}
    return rows


def golden_drops():
    return {("item" if j % 2 else "user", keys.fmix64(j + 1001)): 1 + j % 5 for j in range(12)}


def the_golden_epoch_is_what_its_description_says():
    records = [json.loads(line) for line in open(GOLDEN / "delta_epoch.jsonl")]
    fingerprint = int.from_bytes(hashlib.sha256(CFG.encode()).digest()[:8], "big")
    replica = delta.Replica(2)
    replica.timeline, replica.applied, replica.digests = 2, 6, {6: 0xfedcba9876543210}
    victims = golden_drops()
    for table, key in victims:  # a replica that holds what the epoch removes
        replica.rows.setdefault(table, {})[key] = {}
    removed = {}
    for record in records:
        value = bytes.fromhex(record["hex"])
        parsed = delta.check_form(value, 400)
        assert (parsed["p"], parsed["i"], parsed["np"]) == (record["partition"], record["piece"], 2)
        assert (parsed["m"], parsed["tl"], parsed["e"], parsed["from"], parsed["dig"], parsed["fp"]) == ("golden", 2, 7, 7, 0x0123456789abcdef, fingerprint)
        if parsed["k"] == "drop":
            removed.update({(parsed["tb"], key): why for key, why in zip(delta.unpack_keys(parsed["keys"]), parsed["why"])})
        elif parsed["k"] == "rewind":
            assert parsed["i"] == 0 and parsed["to"] == 6 and parsed["snap"] == "golden-1-6"
        elif parsed["k"] == "commit":
            assert (parsed["wm"], parsed["samples"], parsed["t"], parsed["snap"]) == (1700000000000, 123456789, 1700000001234, None)
            assert parsed["auc"] == {"click": 0.75, "buy": None} and parsed["off"] == {"samples": {0: 5, 1: 1 << 33}, "zeta": {3: 0}}
        replica.feed(record["partition"], value)
        replica.feed(record["partition"], value)  # twice is harmless
    assert replica.applied == 7 and replica.duplicates == len(records)
    assert replica.rows == golden_rows()
    negative_zero = replica.rows["item"][keys.fmix64(2)]["v"][0]
    assert struct.pack("<f", negative_zero) == struct.pack("<f", -0.0), "-1e-8 rounds to -0"
    assert removed == victims
    assert replica.dense == {"h/kernel": ([3, 80], [(i % 17 - 8) / 16 for i in range(240)]), "h/bias": ([80], [i / 64 for i in range(80)])}
    assert replica.model == CFG and replica.fp == fingerprint
    return f"{len(records)} records give the described epoch"


def a_damaged_record_is_refused():
    """Any bit of a record, flipped, is seen."""
    value = bytearray(bytes.fromhex(json.loads(open(GOLDEN / "delta_epoch.jsonl").readline())["hex"]))
    for bit in range(8 * len(value)):
        value[bit // 8] ^= 1 << bit % 8
        try:
            delta.parse(bytes(value))
        except delta.Bad:
            pass
        else:
            raise AssertionError(f"bit {bit} flipped and not noticed")
        value[bit // 8] ^= 1 << bit % 8
    return f"{8 * len(value)} flipped bits refused"


def sealed(record):
    """A record of ours: the map with its crc."""
    body = msgpack.packb({**record, "crc": 0xffffffff})[:-9]
    return body + delta.CRC_TAIL + struct.pack(">I", crc32c.crc32c(body))


def every_quantization_is_read():
    """f32, f16, bf16 and i8 segments in one record, with the `seen` and `st` of another writer."""
    envelope = {"v": 1, "m": "golden", "fp": 7, "tl": 1, "e": 1, "from": 1, "dig": 9, "p": 0, "np": 1}
    values = [[1.0, -0.5], [3.140625, 0.0]]
    flat = sum(values, [])
    bf16 = b"".join(struct.pack("<f", x)[2:] for x in flat)
    scales = [1 / 127, 3.140625 / 127]
    i8 = struct.pack("<4b", *[round(x / scales[i // 2]) for i, x in enumerate(flat)])
    segments = [{"part": "a", "dim": 2, "q": "f32", "vals": struct.pack("<4f", *flat)}, {"part": "b", "dim": 2, "q": "f16", "vals": struct.pack("<4e", *flat)},
                {"part": "c", "dim": 2, "q": "bf16", "vals": bf16}, {"part": "d", "dim": 2, "q": "i8", "vals": i8, "sc": struct.pack("<2f", *scales)}]
    model = {**envelope, "i": 0, "k": "model", "cfg": CFG, "kernel": ""}
    rows = {**envelope, "i": 1, "k": "rows", "tb": "t", "keys": struct.pack("<2Q", 5, 6), "seg": segments, "seen": struct.pack("<2I", 1, 2), "st": {"show": bytes(8)}}
    commit = {**envelope, "i": 2, "k": "commit", "n": 2, "rows": 2, "drops": 0, "prev": 0, "wm": 1, "samples": 1, "auc": {}, "off": {}, "t": 1,
              "snap": {"name": "golden-1-1", "bytes": 5, "sha256": bytes(32)}}
    replica = delta.Replica(1)
    replica.feed(0, sealed(model))
    replica.feed(0, sealed(rows))
    replica.feed(0, sealed(commit))
    assert replica.applied == 1
    for i, row in enumerate((replica.rows["t"][5], replica.rows["t"][6])):
        assert row["a"] == row["b"] == row["c"] == values[i], row
        assert all(abs(x - y) <= max(map(abs, values[i])) / 254 * 1.001 for x, y in zip(row["d"], values[i])), row
    return "f32, f16, bf16, i8"


def main():
    cases = (every_quantization_is_read, keys_are_those_of_the_text, the_golden_epoch_is_what_its_description_says, a_damaged_record_is_refused)
    for case in cases:
        print(f"ok {case.__name__}: {case()}")
    print(f"{len(cases)} passed, 0 failed")


main()
