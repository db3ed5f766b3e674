#!/usr/bin/env python3
"""Seeds that need no code of ours: `seeds.py DIR` writes below DIR, a file each, decode (the golden malformed records and valid ones of every form), conf (the
repository's configurations), lines and http. Needs msgpack. What our own writers make is in seeds.c."""
import gzip
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


def decode():
    yield from valid()
    for line in open(ROOT / "tests/golden/malformed.jsonl"):
        case = json.loads(line)
        yield bytes.fromhex(case["hex"]) if "hex" in case else case["text"].encode("utf-8", "surrogatepass")


def conf():
    files = [*sorted((ROOT / "conf").glob("*.yaml")), *sorted((ROOT / "conf/samples").glob("*.yaml")), *sorted((ROOT / "tests").glob("*/*.yaml"))]
    for i, path in enumerate(files):
        text = path.read_bytes()
        yield text
        # without comments it is short enough for mutations to meet what matters
        bare = b"".join(line + b"\n" for line in text.split(b"\n") if line.strip() and not line.strip().startswith(b"#"))
        yield b"#--set ingest.batch_size=%d\n#--set kafka={security.protocol: ssl, sasl.password: x}\n" % (i + 1) + bare


def lines():
    text = b"".join(b'{"f":{"user_id":%d},"y":1}\n' % i for i in range(40)) + b"\n" * 3 + b"x" * 600 + b"\nend"
    for kind in (1, 2):
        for cut in (0, 1, 128, 255):
            yield bytes([kind, cut, cut, cut & 1]) + text
    member = gzip.compress(text, mtime=0)
    for data in (text, member, member * 3, member + bytes(512), member + gzip.compress(b""), member[:-1], member + member[:5], member[:60] + text):
        yield b"\0" + data
    frame = bytes.fromhex("28b52ffd") + bytes([0x20, len(text[:200])]) + (len(text[:200]) << 3 | 1).to_bytes(3, "little") + text[:200]  # one raw block
    for data in (frame, frame * 2, frame[:-1], bytes.fromhex("502a4d1803000000") + b"abc" + frame, "\ufeff{}\n".encode(), "{}".encode("utf-16"), b"\xfd7zXZ\0"):
        yield b"\0" + data


def http():
    host = b"Host: 127.0.0.1\r\n"
    for path in (b"/healthz", b"/health", b"/readyz", b"/metrics", b"/status", b"/auc", b"/status?x=1", b"/nothing", b"http://a/status", b"*", b"/%2e%2e/%00"):
        yield b"GET " + path + b" HTTP/1.1\r\n" + host + b"Connection: close\r\n\r\n"
    for method in (b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"TRACE", b"CONNECT", b"PATCH", b"FOO"):
        yield method + b" /status HTTP/1.1\r\n" + host + b"Content-Length: 3\r\n\r\nabc"
    get = b"GET /status HTTP/1.1\r\n" + host + b"\r\n"
    yield get * 3
    yield b"\xff".join(get[i:i + 5] for i in range(0, len(get), 5))
    yield b"GET /status HTTP/1.0\r\n\r\n"
    yield b"GET /status HTTP/1.1\r\n" + host + b"Host: b\r\nX: " + b"y" * 7000 + b"\r\n z\r\n\r\n"
    yield b"POST /status HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    yield b"GET /status HTTP/1.1\r\n" + host + b"Expect: 100-continue\r\nContent-Length: 99999999999999999999\r\n\r\n"


def main():
    for make in (decode, conf, lines, http):
        directory = pathlib.Path(sys.argv[1]) / make.__name__
        directory.mkdir(parents=True, exist_ok=True)
        for i, seed in enumerate(make()):
            (directory / f"seed-{i:04}").write_bytes(seed)


main()
