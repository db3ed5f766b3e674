"""An independent reader of the delta topic, written from docs/formats/deltas.md alone: it never calls Freshet's code.

read_topic() gives the raw records; Replica applies them by the replica rules; dump_lines() writes the public dump. check_form() is what only a writer must keep:
every key in its place, shortest encodings, bins of the right size; readers take any encoding.
"""
import hashlib
import itertools
import json
import math
import pathlib
import re
import struct

import confluent_kafka
import crc32c
import msgpack
import xxhash

CRC_TAIL = b"\xa3crc\xce"
PATIENCE = 300  # seconds for an answer; no load makes a sound topic need so long


ENVELOPE = ["v", "k", "m", "fp", "tl", "e", "from", "dig", "p", "np", "i"]
FIELDS = {"rows": ["tb", "keys", "seg"], "drop": ["tb", "keys", "why"], "dense": ["name", "shape", "q", "off", "vals"], "model": ["cfg", "kernel"],
          "rewind": ["to", "snap"], "commit": ["n", "rows", "drops", "prev", "wm", "samples", "auc", "off", "t", "snap"]}
TYPES = {"tb": str, "keys": bytes, "seg": list, "why": bytes, "name": str, "shape": list, "q": str, "off": (int, dict), "vals": bytes, "cfg": str, "kernel": str,
         "to": int, "snap": (str, dict, type(None)), "n": int, "rows": int, "drops": int, "prev": int, "wm": int, "samples": int, "auc": dict, "t": int,
         "k": str, "m": str}


FORMAT = (pathlib.Path(__file__).resolve().parents[2] / "docs/formats/deltas.md").read_text()
REASONS = {int(number) for number in re.findall(r"\d+", re.search(r"<!--kinds:removals-->(.*?)<!--/kinds-->", FORMAT, re.S)[1])}


class Bad(Exception):
    """The bytes are no valid record."""


class Stop(Bad):
    """The replica stops at this record."""


class Gap(Stop):
    """Pieces, epochs or the model are missing: the replica continues from a newer snapshot or an epoch from 1."""


class Rewound(Stop):
    """A later timeline began with less than the whole state: the replica continues from its snapshot or an epoch from 1."""


class TwoWriters(Stop):
    """Two writers were seen: nothing lets this replica continue."""


def canonical(value):
    """Returns the value as JSON with sorted keys, no spaces and %.9g numbers."""
    if isinstance(value, dict):
        return "{%s}" % ",".join("%s:%s" % (json.dumps(key), canonical(value[key])) for key in sorted(value))
    if isinstance(value, list):
        return "[%s]" % ",".join(map(canonical, value))
    return "%.9g" % value if isinstance(value, float) else json.dumps(value)


def check_form(value, piece_max):
    """Checks what a writer must keep in a record; returns the parsed record."""
    record = parse(value)
    assert len(value) <= piece_max, f"{len(value)} bytes, over piece_max"
    assert list(record) == ENVELOPE + FIELDS[record["k"]] + ["crc"], f"keys of a {record['k']} record: {list(record)}"
    assert msgpack.packb({**record, "crc": 0xffffffff})[:-4] == value[:-4], "not the shortest encodings"
    for key, field in record.items():
        assert isinstance(field, TYPES.get(key, int)) and (not isinstance(field, int) or field >= 0), f"{key}: {field!r}"
    if record["k"] in ("model", "dense"):
        assert record["p"] == 0, f"{record['k']} in partition {record['p']}"
    if record["k"] == "model":
        assert record["cfg"] == canonical(json.loads(record["cfg"])), "cfg is not canonical"
        assert record["fp"] == int.from_bytes(hashlib.sha256(record["cfg"].encode()).digest()[:8], "big"), "fp"
    for segment in record.get("seg", []):
        assert list(segment) == ["part", "dim", "q", "vals"] + ["sc"] * (segment["q"] == "i8"), f"keys of a segment: {list(segment)}"
    return record


def parse(value):
    """Returns the map of a record; checks the crc over all bytes before the crc."""
    if len(value) < 9 or value[-9:-4] != CRC_TAIL:
        raise Bad("no crc field at the end")
    if crc32c.crc32c(value[:-9]) != struct.unpack(">I", value[-4:])[0]:
        raise Bad("crc differs")
    record = msgpack.unpackb(value, raw=False, strict_map_key=False)
    if record["v"] != 1:
        raise Bad("version %r" % record["v"])
    return record


def read_topic(address, topic, config=None, see=lambda message: None):
    """Returns the records that the topic has now: per partition a list of (offset, value bytes). see() gets every whole message."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "interop", "enable.auto.commit": False,
                                         "auto.offset.reset": "error", "isolation.level": "read_uncommitted", "fetch.wait.max.ms": 20,
                                         "enable.partition.eof": True, **(config or {})})
    partitions = sorted(consumer.list_topics(topic, PATIENCE).topics[topic].partitions)
    ends = {}
    assignment = []
    for partition in partitions:
        low, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, partition), PATIENCE)
        ends[partition] = high
        assignment.append(confluent_kafka.TopicPartition(topic, partition, low))
    consumer.assign(assignment)
    records = {partition: [] for partition in partitions}
    waiting = {partition for partition in partitions if ends[partition] > assignment[partition].offset}
    while waiting:
        message = consumer.poll(PATIENCE)
        if message is None:
            raise Bad("the topic is not read to its end")
        if message.error() and message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:  # markers may be the last
            waiting.discard(message.partition())
            continue
        if message.error():
            raise Bad(str(message.error()))
        see(message)
        records[message.partition()].append((message.offset(), message.value()))
        if message.offset() + 1 >= ends[message.partition()]:
            waiting.discard(message.partition())
    consumer.close()
    return records


def read_snapshot(directory):
    """(manifest, its bytes, [(partition, record bytes)] in the order to be read); sizes, sums and row counts are checked."""
    directory = pathlib.Path(directory)
    text = (directory / "MANIFEST.json").read_bytes()
    manifest = json.loads(text)
    assert list(manifest) == ["v", "model", "fp", "tl", "e", "dig", "t", "wm", "np", "topic", "off", "delta_offsets", "parent", "files", "sha256"], list(manifest)
    assert text.endswith(b',\n"sha256":"%s"}\n' % hashlib.sha256(text[:-len(b',\n"sha256":""}\n') - 64]).hexdigest().encode()), "the manifest's own sum"
    assert manifest["v"] == 1 and manifest["parent"] is None and directory.name == f"{manifest['model']}-{manifest['tl']}-{manifest['e']}"
    names = {file["name"] for file in manifest["files"]}
    assert names | {"MANIFEST.json"} == {path.name for path in directory.iterdir()}, "the files of the manifest and no others"
    records = []
    for file in manifest["files"]:
        data, at, rows = (directory / file["name"]).read_bytes(), 0, 0
        assert len(data) == file["bytes"] and hashlib.sha256(data).hexdigest() == file["sha256"], file["name"]
        while at < len(data):
            size, = struct.unpack_from("<I", data, at)
            value = data[at + 4:at + 4 + size]
            record = parse(value)
            assert (record["tl"], record["e"], record["from"]) == (manifest["tl"], manifest["e"], 1) and record["p"] == file["partition"]
            assert str(record["dig"]) == manifest["dig"] and str(record["fp"]) == manifest["fp"] and record.get("tb") == file["table"]
            rows += len(record["keys"]) // 8 if record["k"] == "rows" else 0
            records.append((file["partition"], value))
            at += 4 + size
        assert rows == file["rows"], file["name"]
    return manifest, text, records


def begins_all(record):
    """Is the record the first piece of an epoch that holds a whole state?"""
    return record["from"] == 1 and record["i"] == 0


def unpack_keys(data):
    return struct.unpack("<%dQ" % (len(data) // 8), data)


def single(value):
    """Returns the value rounded to f32."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def segment_values(segment, rows):
    dim, kind = segment["dim"], segment["q"]
    if kind == "f32":
        flat = struct.unpack("<%df" % (rows * dim), segment["vals"])
    elif kind == "f16":
        flat = struct.unpack("<%de" % (rows * dim), segment["vals"])
    elif kind == "bf16":
        bits = struct.unpack("<%dH" % (rows * dim), segment["vals"])
        flat = [struct.unpack("<f", struct.pack("<I", b << 16))[0] for b in bits]
    elif kind == "i8":
        scale = struct.unpack("<%df" % rows, segment["sc"])
        raw = struct.unpack("<%db" % (rows * dim), segment["vals"])
        flat = [single(raw[i] * scale[i // dim]) for i in range(rows * dim)]
    else:
        raise Bad("quantization " + kind)
    return [list(flat[i * dim:(i + 1) * dim]) for i in range(rows)]


class Replica:
    """The replica rules: an epoch is served only when every partition has completed it; what was had is passed over; gaps, second writers and a history that was
    rewound stop it, and it serves on what there is."""

    def __init__(self, np):
        self.np = np
        self.timeline = 0  # the timeline of the records that are fed; the served one is that of the last commit
        self.seen = 0      # the newest timeline of any record
        self.applied = 0
        self.digests = {0: 0}  # of applied epochs
        self.rows = {}   # table -> key -> part -> values
        self.dense = {}  # name -> (shape, values)
        self.dense_epoch = {}  # name -> the epoch of its values
        self.commit = None
        self.fp = None
        self.model = None
        self.stopped = None  # the Stop at which the replica waits for a record to continue from
        self.duplicates = 0
        self.tombstones = 0
        self.published = {}  # (table, epoch) -> keys of its rows and drops
        self._wait_for_nothing()

    def _wait_for_nothing(self):
        self.held = {}  # (epoch, from) -> partition -> piece -> record
        self.waiting = {}  # epoch -> the digest of its records there
        self.begun = set()  # partitions of which piece 0 of an epoch from 1 was seen
        self.reached = {}  # partition -> the newest epoch of which its commit came

    def begin(self, directory):
        """Begins or continues from a snapshot; returns the manifest of the snapshot."""
        manifest, _, records = read_snapshot(directory)
        assert (manifest["tl"], manifest["e"]) > (self.timeline, self.applied), "a newer one"
        self._begin_timeline(manifest["tl"])
        duplicates, self.stopped = self.duplicates, None
        for partition, value in records:
            self.feed(partition, value)
        assert self.applied == manifest["e"] and str(self.digests[self.applied]) == manifest["dig"] and self.duplicates == duplicates, "all of the snapshot and nothing else"
        self._wait_for_nothing()
        return manifest

    def feed(self, partition, value):
        """Returns what happened to the record: it "applied" an epoch, or was "taken", a "duplicate", or "passed" over. Raises Bad when the record is damaged, Stop when
        the replica stops at it; from then on every record raises Stop, except those from which the replica can continue."""
        try:
            record = parse(value)
        except Bad as problem:
            raise self.stopped or problem
        if record["p"] != partition or record["np"] != self.np:
            raise Bad("envelope says partition %d of %d" % (record["p"], record["np"]))
        if self.stopped and not self._leads_on(record):
            raise self.stopped
        try:
            return self._take(record)
        except Stop as problem:
            self.stopped = problem
            self._wait_for_nothing()
            raise

    def _leads_on(self, record):
        """Is the record the first of an epoch that holds a whole state, or one that comes behind such a record in its partition?"""
        if isinstance(self.stopped, TwoWriters) or record["tl"] < max(self.seen, self.timeline):
            return False
        return begins_all(record) or (record["p"] in self.begun and (record["tl"], record["e"]) > (self.timeline, self.applied))

    def _take(self, record):
        partition, self.seen = record["p"], max(self.seen, record["tl"])
        if record["tl"] > self.timeline:  # history was rewound
            if not begins_all(record) and (self.timeline > 0 or record["k"] == "rewind"):
                raise Rewound("timeline %d began: load its snapshot" % record["tl"])
            self._begin_timeline(record["tl"])
        if begins_all(record) and record["tl"] == self.timeline:
            self.begun.add(partition)
        if record["tl"] < self.timeline or record["e"] <= self.applied:
            if record["tl"] == self.timeline and self.digests.get(record["e"], record["dig"]) != record["dig"]:
                raise TwoWriters("another digest for epoch %d" % record["e"])
            self.duplicates += 1
            return "passed"
        if (self.applied == 0 or self.stopped) and partition not in self.begun:  # its beginning is gone: an epoch from 1 follows
            return "passed"
        if record["from"] > max(self.reached.get(partition, 0), self.applied) + 1:
            raise Gap("epochs before %d are missing in partition %d" % (record["from"], partition))
        if self.waiting.setdefault(record["e"], record["dig"]) != record["dig"]:
            raise TwoWriters("two digests for epoch %d" % record["e"])
        pieces = self.held.setdefault((record["e"], record["from"]), {}).setdefault(partition, {})
        if record["i"] in pieces:
            self.duplicates += 1
            return "duplicate"
        pieces[record["i"]] = record
        if record["k"] != "commit":
            return "taken"
        self._close(record, pieces)
        return "applied" if self._complete((record["e"], record["from"])) and self._advance() else "taken"

    def _begin_timeline(self, timeline):
        """Begins a timeline. The old state is served until an epoch from 1 is complete, which replaces it."""
        self.timeline, self.applied, self.digests = timeline, 0, {0: 0}
        self._wait_for_nothing()

    def _close(self, commit, pieces):
        """Checks that all pieces of the partition came before its commit, and that the commits of all partitions name one predecessor."""
        if set(pieces) != set(range(commit["n"] + 1)) or commit["i"] != commit["n"]:
            raise Gap("pieces of epoch %d are missing in partition %d" % (commit["e"], commit["p"]))
        commits = [piece for other in self.held[commit["e"], commit["from"]].values() for piece in other.values() if piece["k"] == "commit"]
        if any(other["prev"] != commit["prev"] for other in commits):
            raise TwoWriters("epoch %d has two predecessors" % commit["e"])
        self.reached[commit["p"]] = max(self.reached.get(commit["p"], 0), commit["e"])

    def _complete(self, key):
        partitions = self.held[key]
        return len(partitions) == self.np and all(any(piece["k"] == "commit" for piece in pieces.values()) for pieces in partitions.values())

    def _advance(self):
        """Applies complete epochs that continue the applied ones; returns how many."""
        for count in itertools.count():
            ready = [key for key in sorted(self.held) if key[1] <= self.applied + 1 <= key[0] and self._complete(key)]
            if not ready:
                return count
            self._apply(ready[0])
            self.held = {key: partitions for key, partitions in self.held.items() if key[0] > self.applied}
            self.waiting = {epoch: digest for epoch, digest in self.waiting.items() if epoch > self.applied}

    def _apply(self, key):
        epoch, first = key
        partitions = self.held[key]
        records = [piece for pieces in partitions.values() for piece in pieces.values()]
        commit = next(record for record in records if record["k"] == "commit")
        if commit["prev"] != self.digests.get(first - 1, commit["prev"]):
            raise TwoWriters("epoch %d does not follow: prev differs" % epoch)
        if (first == 1 or commit["fp"] != self.fp) and not any(record["k"] == "model" for record in records):
            raise Gap("epoch %d is of a model that is unknown here" % epoch)
        if first == 1:  # the epoch holds the whole state: what it does not hold is removed
            self.rows, self.dense, self.published, self.fp = {}, {}, {}, None
        order = {"rewind": 0, "model": 1, "rows": 2, "drop": 3, "dense": 4, "commit": 5}
        for partition in sorted(partitions):
            pieces = [partitions[partition][i] for i in range(len(partitions[partition]))]
            pieces = [piece for piece in pieces if piece["k"] in order]  # a piece of an unknown kind is counted and not read
            assert [order[r["k"]] for r in pieces] == sorted(order[r["k"]] for r in pieces), "order of kinds"
            counted = {"rows": 0, "drop": 0}
            for record in pieces:
                self._apply_record(record, counted)
            commit = pieces[-1]
            assert commit["rows"] == counted["rows"] and commit["drops"] == counted["drop"], "row counts of the commit"
        for shape, values in self.dense.values():
            assert len(values) == math.prod(shape), "a parameter is in an epoch completely or not at all"
        self.applied = epoch
        self.digests[epoch] = commit["dig"]
        self.commit, self.stopped = commit, None

    def _apply_record(self, record, counted):
        kind = record["k"]
        if kind == "model":
            if record["fp"] != self.fp:
                self.dense = {}  # all dense parameters follow
            self.model, self.fp = record["cfg"], record["fp"]
        assert record["fp"] == self.fp or kind == "rewind", "one fingerprint in an epoch"
        if kind in ("rows", "drop"):
            keys = unpack_keys(record["keys"])
            assert list(keys) == sorted(set(keys)), "keys ascend"
            assert all((((key >> 32) * self.np) >> 32) == record["p"] for key in keys), "partition of the keys"
            counted[kind] += len(keys)
            published = self.published.setdefault((record["tb"], record["e"]), set())
            assert published.isdisjoint(keys), "a key occurs at most once per table and epoch"
            published.update(keys)
            table = self.rows.setdefault(record["tb"], {})
            if kind == "drop":
                assert len(record["why"]) == len(keys) and set(record["why"]) <= REASONS
                self.tombstones += len(keys)
                for key in keys:
                    table.pop(key, None)
            else:
                values = {segment["part"]: segment_values(segment, len(keys)) for segment in record["seg"]}
                for i, key in enumerate(keys):
                    table[key] = {part: column[i] for part, column in values.items()}
        elif kind == "dense":
            size = {"f32": 4, "f16": 2, "bf16": 2}[record["q"]]
            values = segment_values({"dim": 1, "q": record["q"], "vals": record["vals"]}, len(record["vals"]) // size)
            values = [v[0] for v in values]
            total = 1
            for n in record["shape"]:
                total *= n
            if record["off"] == 0:
                self.dense[record["name"]] = (record["shape"], [])
                self.dense_epoch[record["name"]] = record["e"]
            shape, held = self.dense[record["name"]]
            assert shape == record["shape"] and self.dense_epoch[record["name"]] == record["e"], "chunks of one epoch"
            assert len(held) == record["off"] and record["off"] + len(values) <= total, "dense chunks ascend"
            held.extend(values)


def number(value):
    return "%.9g" % value


def dump_lines(replica):
    """The public dump (docs/commands.md, "freshet dump"), closing line included."""
    hasher = xxhash.xxh3_64()
    lines = []

    def add(line):
        hasher.update(line.encode() + b"\n")
        lines.append(line)

    for table in sorted(replica.rows):
        for key in sorted(replica.rows[table]):
            parts = ",".join('"%s":[%s]' % (part, ",".join(map(number, values))) for part, values in replica.rows[table][key].items())
            add('{"table":"%s","key":"%d","parts":{%s}}' % (table, key, parts))
    for name in sorted(replica.dense):
        shape, values = replica.dense[name]
        add('{"dense":"%s","shape":[%s],"values":[%s]}' % (name, ",".join(map(str, shape)), ",".join(map(number, values))))
    lines.append('{"tl":%d,"epoch":%d,"wm":%d,"samples":%d,"hash":"0x%016x"}' %
                 (replica.commit["tl"], replica.commit["e"], replica.commit["wm"], replica.commit["samples"], hasher.intdigest()))
    return lines
