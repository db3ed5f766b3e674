"""The library and the independent Python replica agree on every replica rule of docs/formats/deltas.md, "Replica rules": both are fed the same records, and after each of them what it did,
the epoch that is served and the dump are the same. Histories by hand, one or more for each rule, and drawn ones; `agree.py SEED` repeats a drawn one. Needs no Kafka."""
import hashlib
import json
import os
import pathlib
import random
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import *  # noqa: E402,F403

os.environ["FRESHET_REPLICA"] = str(BUILD / "libfreshet_replica.so")
sys.path.insert(0, str(SOURCE / "replica/python"))
import crc32c  # noqa: E402
import delta  # noqa: E402
import freshet  # noqa: E402
import msgpack  # noqa: E402

NP, KEYS, DRAWN = 3, 12, 40
PARTS = {"user": {"v": 2}, "item": {"w": 1, "v": 2}}
DENSE = {"z/bias": [1], "z/kernel": [7, 1]}
SLOT = {"id": "auto", "max_ids": 1024}
CFG = {"chunk_rows": 128, "labels": [{"name": "click"}], "quantize": "f16", "version": 1,
       "layers": [{"name": "x", "concat": [{"sum": "user_id.v"}, {"sum": "item_id.v"}, {"mean": "history.v"}, "price"]},
                  {"name": "z", "dense": ["x"], "units": [1], "activation": "none"}, {"name": "wide", "sum": [{"sum": "item_id.w"}]}, {"name": "out", "add": ["z", "wide"]}],
       "slots": [{**SLOT, "kind": "sparse", "name": "user_id", "namespace": "user", "table": "user"}, {**SLOT, "kind": "sparse", "name": "item_id", "namespace": "item", "table": "item"},
                 {"id": "auto", "kind": "sequence", "max_len": 5, "name": "history", "namespace": "item", "table": "item"},
                 {"default": 0, "dim": 1, "indicator": False, "kind": "dense", "name": "price", "transform": "none"}],
       "tables": [{"name": table, "parts": [{"dim": dim, "name": part} for part, dim in parts.items()]} for table, parts in PARTS.items()],
       "tasks": [{"label": "click", "logit": "out", "loss": "logloss", "name": "click"}]}


def number_of(text):
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def sealed(record):
    body = msgpack.packb({**record, "crc": 0xffffffff})[:-9]
    return body + delta.CRC_TAIL + struct.pack(">I", crc32c.crc32c(body))


class Writer:
    """A history of one timeline, and its epochs as records: {partition: [bytes]}."""

    def __init__(self, rng, timeline=1, salt=""):
        self.rng, self.timeline, self.salt, self.newest = rng, timeline, salt, 0
        self.changes, self.states = {}, {0: {}}  # epoch -> (table, key) or name -> what it is then; None: gone
        self.model(5)

    def model(self, max_len):
        """Changes the model from the next epoch on; another length of the history makes another fingerprint."""
        slots = [{**slot, "max_len": max_len} if "max_len" in slot else slot for slot in CFG["slots"]]
        self.cfg = delta.canonical({**CFG, "slots": slots})
        self.announced = False

    def digest(self, epoch):
        return number_of(f"{self.timeline} {epoch} {self.salt}") if epoch else 0

    def cut(self):
        """Draws the changes of the next epoch; returns its number."""
        held, changes = self.states[self.newest], {}
        for _ in range(self.rng.randrange(1, 9)):
            table = self.rng.choice(list(PARTS))
            key = number_of(f"{table} {self.rng.randrange(KEYS)}")
            gone = (table, key) in held and self.rng.random() < 0.3
            changes[table, key] = None if gone else {part: self.values(dim) for part, dim in PARTS[table].items()}
        if not self.announced or self.rng.random() < 0.3:
            changes.update({name: self.values(sum(shape) - len(shape) + 1) for name, shape in DENSE.items()})
        self.newest += 1
        self.changes[self.newest] = (changes, None if self.announced else self.cfg)
        self.announced = True
        self.states[self.newest] = {name: value for name, value in {**held, **changes}.items() if value is not None}
        return self.newest

    def values(self, n):
        return [self.rng.randrange(-64, 64) / 8 for _ in range(n)]

    def epoch(self, epoch=None, first=None, rewind=None, everything=False, **fields):
        """Returns the records of an epoch, by default of the next one. first: merged with the epochs from `first` on; everything: as a whole state; rewind: (epoch, snapshot) in piece 0."""
        epoch = epoch or self.cut()
        first = 1 if everything else first or epoch
        model, net = None, {}
        for e in range(first, epoch + 1):
            net.update(self.changes[e][0])
            model = self.changes[e][1] or model
        if everything:
            net = self.states[epoch]
        envelope = {"v": 1, "k": "", "m": "agree", "fp": number_of(self.cfg), "tl": self.timeline, "e": epoch, "from": first, "dig": self.digest(epoch), "p": 0, "np": NP, "i": 0, **fields}
        lists = {p: [{"k": "rewind", "to": rewind[0], "snap": rewind[1]}] if rewind else [] for p in range(NP)}
        if model:
            lists[0].append({"k": "model", "cfg": model, "kernel": "none"})
        counts = {p: {"rows": 0, "drop": 0} for p in range(NP)}
        for kind in ("rows", "drop"):
            for table, p in ((table, p) for table in PARTS for p in range(NP)):
                keys = sorted(k[1] for k in net if k[0] == table and ((k[1] >> 32) * NP) >> 32 == p and (net[k] is None) == (kind == "drop"))
                counts[p][kind] += len(keys)
                for at in range(0, len(keys), 2):  # several pieces
                    lists[p].append(self.piece(kind, table, keys[at:at + 2], net))
        for name in (name for name in DENSE if name in net):
            for at in range(0, len(net[name]), 4):
                chunk = net[name][at:at + 4]
                lists[0].append({"k": "dense", "name": name, "shape": DENSE[name], "q": "f16", "off": at, "vals": struct.pack(f"<{len(chunk)}e", *chunk)})
        commit = {"k": "commit", "prev": self.digest(first - 1), "wm": 1700000000000 + epoch, "samples": epoch * 10, "auc": {}, "off": {}, "t": 1700000000000, "snap": None}
        return {p: [sealed({**envelope, **record, "p": p, "i": i, **fields}) for i, record in enumerate(
            [*lists[p], {**commit, "n": len(lists[p]), "rows": counts[p]["rows"], "drops": counts[p]["drop"]}])] for p in range(NP)}

    def piece(self, kind, table, keys, net):
        packed = {"k": kind, "tb": table, "keys": struct.pack(f"<{len(keys)}Q", *keys)}
        if kind == "drop":
            return {**packed, "why": bytes([1] * len(keys))}
        columns = {part: sum((net[table, key][part] for key in keys), []) for part in PARTS[table]}
        return {**packed, "seg": [{"part": part, "dim": PARTS[table][part], "q": "f16", "vals": struct.pack(f"<{len(column)}e", *column)} for part, column in columns.items()]}

    def snapshot(self, folder, epoch):
        """Writes a snapshot of an epoch; returns its directory."""
        directory = folder / f"agree-{self.timeline}-{epoch}"
        directory.mkdir(parents=True)
        files, order = {}, {"model": 0, "rows": 1, "dense": 2, "commit": 3}
        for p, values in self.epoch(epoch, everything=True).items():
            for value in values:
                record = delta.parse(value)
                files.setdefault((order[record["k"]], list(PARTS).index(record["tb"]) if "tb" in record else 0, p), []).append((record, value))
        listed = []
        for (kind, table, p), pieces in sorted(files.items()):
            data = b"".join(struct.pack("<I", len(value)) + value for _, value in pieces)
            name = f"{kind}.{table}.{p}"
            (directory / name).write_bytes(data)
            rows = sum(len(record.get("keys", b"")) // 8 for record, _ in pieces)
            listed.append({"name": name, "table": pieces[0][0].get("tb"), "partition": p, "rows": rows, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})
        manifest = {"v": 1, "model": "agree", "fp": str(number_of(self.cfg)), "tl": self.timeline, "e": epoch, "dig": str(self.digest(epoch)), "t": 0, "wm": 1700000000000 + epoch, "np": NP,
                    "topic": "agree.delta", "off": {}, "delta_offsets": [], "parent": None, "files": listed}
        text = json.dumps(manifest)[:-1]
        (directory / "MANIFEST.json").write_text('%s,\n"sha256":"%s"}\n' % (text, hashlib.sha256(text.encode()).hexdigest()))
        return directory


def in_order(*epochs):
    return [(p, value) for epoch in epochs for p in sorted(epoch) for value in epoch[p]]


def shuffled(rng, records):
    """Returns the records with the partitions interleaved in another way, each of them in its order."""
    waiting = {p: [value for q, value in records if q == p] for p in range(NP)}
    order = [p for p, _ in records]
    rng.shuffle(order)
    return [(p, waiting[p].pop(0)) for p in order]


def without(records, kind, partition, epoch=None):
    """Returns the records without the first one of this kind, partition and epoch."""
    for at, (p, value) in enumerate(records):
        record = delta.parse(value)
        if (record["k"], p) == (kind, partition) and epoch in (None, record["e"]):
            return records[:at] + records[at + 1:]
    raise AssertionError(f"no {kind} in partition {partition}")


def nameless(records):
    """Returns the records as they were if the model record had not been written."""
    kept = []
    for p, value in records:
        record = delta.parse(value)
        if record["k"] == "model":
            continue
        del record["crc"]
        for number in ("i", "n") if p == 0 else ():
            if number in record:
                record[number] -= 1
        kept.append((p, sealed(record)))
    return kept


def damaged(value, at=-20):
    value = bytearray(value)
    value[at] ^= 0x10
    return bytes(value)


class Both:
    """The two replicas, compared after every record."""
    ERRORS = {freshet.Rewound: "rewound", freshet.Gap: "gap", freshet.Mismatch: "two writers", freshet.BadInput: "damaged"}
    STOPS = {delta.Rewound: "rewound", delta.Gap: "gap", delta.TwoWriters: "two writers", delta.Bad: "damaged"}

    def __init__(self, path):
        self.path, self.library, self.mine, self.did, self.fed = path, freshet.Replica(), delta.Replica(NP), [], 0

    def library_feeds(self, partition, value):
        try:
            fed = self.library.feed(partition, value)
        except freshet.FreshetError as error:
            return self.ERRORS[type(error)], str(error)
        assert not fed.again
        return "applied" if fed.applied else "duplicate" if fed.duplicate else "passed" if fed.stale else "taken", ""

    def mine_feeds(self, partition, value):
        try:
            return self.mine.feed(partition, value), ""
        except delta.Bad as problem:
            return self.STOPS[type(problem)], str(problem)

    def compare(self, what):
        info, commit = self.library.info, self.mine.commit
        served = (info.timeline, info.epoch, info.digest)
        assert served == ((commit["tl"], commit["e"], commit["dig"]) if commit else (0, 0, 0)), f"{what}: served {served} and {commit}"
        if commit:
            self.library.dump(self.path)
            assert self.path.read_text().splitlines() == delta.dump_lines(self.mine), f"{what}: the dumps differ"

    def feed(self, records):
        """Feeds both replicas; returns the set of what happened to the records."""
        begin = len(self.did)
        for partition, value in records:
            theirs, mine = self.library_feeds(partition, value), self.mine_feeds(partition, value)
            self.fed += 1
            what = f"record {self.fed} of partition {partition}"
            assert theirs[0] == mine[0], f"{what}: the library {theirs}, the other {mine}; {msgpack.unpackb(value, strict_map_key=False) if mine[0] != 'damaged' else value}"
            self.did.append(mine[0])
            self.compare(what)
        return set(self.did[begin:])

    def load(self, directory):
        self.library.load(directory)
        self.mine.begin(directory)
        self.compare(f"loaded {directory.name}")

    @property
    def epoch(self):
        return self.library.info.timeline, self.library.info.epoch


class Cases:
    def __init__(self, path):
        self.path, self.rng = path, random.Random(3)

    def both(self):
        return Both(self.path / "dump")

    def started(self, epochs=3):
        both, writer = self.both(), Writer(self.rng)
        both.feed(in_order(*(writer.epoch() for _ in range(epochs))))
        assert both.epoch == (1, epochs)
        return both, writer

    def an_epoch_is_served_when_every_partition_has_it(self):
        for _ in range(6):
            both, writer = self.both(), Writer(self.rng)
            did = both.feed(shuffled(self.rng, in_order(*(writer.epoch() for _ in range(6)))))
            assert did == {"taken", "applied"} and both.epoch == (1, 6), did

    def what_was_had_is_passed_over(self):
        both, writer = self.started()
        records = in_order(writer.epoch())
        assert both.feed(value for record in records for value in (record, record)) == {"taken", "duplicate", "applied", "passed"} and both.did.count("applied") == 4
        assert both.feed(records) == {"passed"} and both.epoch == (1, 4)

    def an_epoch_that_was_cut_off_is_sent_again(self):
        both, writer = self.started()
        records = in_order(writer.epoch())
        assert "duplicate" in both.feed(records[:-2] + records) and both.epoch == (1, 4)

    def a_missing_epoch_is_a_gap_until_all_comes(self):
        both, writer = self.started()
        writer.epoch()  # epoch 4 is lost
        assert both.feed(in_order(writer.epoch(), writer.epoch())) == {"gap"}, both.did
        assert both.feed(shuffled(self.rng, in_order(writer.epoch(everything=True), writer.epoch()))) == {"taken", "applied"} and both.epoch == (1, 8)

    def a_gap_ends_when_the_topic_is_read_again_from_its_beginning(self):
        """The beginning may be that of another topic of the same name: with an epoch merged from the first that was applied, or without."""
        for everything in (1, 3, 4, 6):
            both, writer = self.both(), Writer(self.rng)
            topic = [in_order(writer.epoch(everything=e == everything)) for e in range(1, 9)]
            both.feed(record for records in topic[:4] for record in records)
            assert both.epoch == (1, 4)
            assert both.feed(record for records in topic[6:] for record in records) == {"gap"}
            both.feed(record for records in topic[everything - 1:] for record in records)
            assert both.epoch == (1, 8)

    def a_partition_that_lacks_an_epoch_is_a_gap(self):
        both, writer = self.started()
        lost, then = in_order(writer.epoch()), in_order(writer.epoch())
        assert both.feed([record for record in lost if record[0] != 1]) == {"taken"}
        assert both.feed(then) == {"taken", "gap"} and both.epoch == (1, 3)

    def a_missing_piece_is_a_gap_at_the_commit(self):
        for kind, partition in (("rows", 0), ("rows", 1), ("drop", 2)):
            both, writer = self.started()
            records = in_order(writer.epoch())
            while not any(delta.parse(value)["k"] == kind and p == partition for p, value in records):
                both.feed(records)
                records = in_order(writer.epoch())
            served = both.epoch
            assert "gap" in both.feed(without(records, kind, partition)) and both.epoch == served
            assert both.feed(in_order(writer.epoch(), writer.epoch())) == {"gap"} and both.epoch == served
            assert both.feed(in_order(writer.epoch(everything=True))) == {"taken", "applied"} and both.epoch == (1, writer.newest)

    def a_partition_without_the_beginning_of_all_is_passed_over(self):
        both, writer = self.both(), Writer(self.rng)
        first = writer.epoch()
        first[1] = first[1][1:]
        assert both.feed(in_order(first, writer.epoch())) == {"taken", "passed"} and both.epoch == (0, 0)
        assert both.feed(in_order(writer.epoch(everything=True))) == {"taken", "applied"} and both.epoch == (1, 3)

    def a_lost_commit_is_a_gap_at_the_next_epoch(self):
        both, writer = self.started()
        assert both.feed(without(in_order(writer.epoch()), "commit", 2)) == {"taken"}
        assert "gap" in both.feed(in_order(writer.epoch())) and both.epoch == (1, 3)

    def a_gap_ends_with_a_newer_snapshot(self):
        both, writer = self.started()
        lost = [writer.epoch() for _ in range(3)]
        assert both.feed(in_order(lost[2])) == {"gap"}
        both.load(writer.snapshot(self.path / "gap", 5))
        assert both.epoch == (1, 5)
        assert both.feed(in_order(*lost, writer.epoch())) == {"passed", "taken", "applied"} and both.epoch == (1, 7)

    def what_comes_before_the_beginning_is_passed_over(self):
        both, writer = self.both(), Writer(self.rng)
        late = [writer.epoch() for _ in range(4)]
        assert both.feed(in_order(*late[1:3])) == {"passed"}
        assert both.feed(in_order(late[3])) == {"passed"}
        assert both.feed(shuffled(self.rng, in_order(writer.epoch(4, everything=True), writer.epoch()))) == {"taken", "applied"} and both.epoch == (1, 5)

    def all_of_a_state_replaces_what_there_is(self):
        both, writer = self.started()
        assert both.feed(in_order(writer.epoch(everything=True))) == {"taken", "applied"} and both.epoch == (1, 4)

    def one_that_was_cut_off_is_made_again_of_a_later_epoch(self):
        both, writer = self.both(), Writer(self.rng)
        [writer.epoch() for _ in range(3)]
        cut_off = in_order(writer.epoch(3, everything=True))
        assert both.feed(cut_off[:len(cut_off) // 2]) == {"taken"}
        assert both.feed(in_order(writer.epoch(everything=True), writer.epoch())) == {"taken", "applied"} and both.epoch == (1, 5)

    def a_merged_epoch_may_overlap_what_is_applied(self):
        both, writer = self.started()
        part = in_order(writer.epoch())
        assert both.feed(part[:len(part) // 2]) == {"taken"}
        [writer.cut() for _ in range(2)]
        assert both.feed(in_order(writer.epoch(6, first=3))) == {"taken", "applied"} and both.epoch == (1, 6)
        assert both.feed(in_order(writer.epoch(6, first=5), writer.epoch(5))) == {"passed"}
        writer.cut()
        assert both.feed(shuffled(self.rng, in_order(writer.epoch(first=7), writer.epoch()))) == {"taken", "applied"} and both.epoch == (1, 9)
        [writer.cut() for _ in range(3)]
        assert both.feed(in_order(writer.epoch(12, first=11))) == {"gap"} and both.epoch == (1, 9)

    def pieces_of_another_from_are_another_epochs(self):
        """One epoch with one digest, merged in two ways and as a whole state: the one that is complete is applied, and no piece of the others is taken for one of its own."""
        for _ in range(12):
            both, writer = self.started()
            [writer.cut() for _ in range(3)]
            merged, alone, whole = (in_order(records) for records in (writer.epoch(6, first=3), writer.epoch(6, first=4), writer.epoch(6, everything=True)))
            ways = self.rng.sample((merged, alone, whole), 2)
            cut = self.rng.randrange(1, len(ways[0]) - 1)
            did = both.feed(shuffled(self.rng, ways[0][:cut]) if cut < 3 else ways[0][:cut])
            assert did == {"taken"} and both.epoch == (1, 3)
            assert both.feed(shuffled(self.rng, ways[1])) == {"taken", "applied"} and both.epoch == (1, 6), "not a piece of it was held already"
            assert both.feed(ways[0][cut:] + ways[0]) == {"passed"}
            assert both.feed(in_order(writer.epoch())) == {"taken", "applied"} and both.epoch == (1, 7)

    def the_epoch_of_a_snapshot_and_the_ordinary_one_do_not_mix(self):
        both, writer = self.started()
        ordinary = in_order(writer.epoch())
        assert both.feed(ordinary[:-1]) == {"taken"} and both.epoch == (1, 3)
        both.load(writer.snapshot(self.path / "mixed", 4))
        assert both.epoch == (1, 4) and both.feed(ordinary) == {"passed"}
        assert both.feed(in_order(writer.epoch())) == {"taken", "applied"} and both.epoch == (1, 5)

    def a_merged_epoch_that_begins_elsewhere_in_what_is_applied_has_its_predecessor(self):
        both, writer = self.started()
        writer.cut()
        other = Writer(self.rng, salt="other")
        other.changes, other.newest = writer.changes, 4
        other.digest = lambda epoch: Writer.digest(other, epoch) if epoch == 2 else writer.digest(epoch)
        assert both.feed(in_order(other.epoch(4, first=3))) == {"taken", "two writers"} and both.epoch == (1, 3)

    def two_writers_stop_for_good(self):
        both, writer = self.started()
        other = Writer(self.rng, salt="other")
        theirs = [other.epoch() for _ in range(5)]
        assert both.feed(in_order(theirs[2])) == {"two writers"} and both.epoch == (1, 3)
        assert both.feed(in_order(writer.epoch(), writer.epoch(everything=True), Writer(self.rng, 2).epoch(rewind=(0, "")))) == {"two writers"}
        both, writer = self.started()
        assert both.feed(in_order(writer.epoch())[:2] + in_order(theirs[3])) == {"taken", "two writers"}
        both, writer = self.started()
        assert both.feed(in_order(theirs[3])) == {"taken", "two writers"} and both.epoch == (1, 3)

    def a_record_with_a_bad_crc_never_applies(self):
        both, writer = self.started()
        (p, value), *rest = in_order(writer.epoch())
        assert both.feed([(p, damaged(value)), (p, value[:-1]), (p, b""), (p, value), *rest]) == {"damaged", "taken", "applied"} and both.epoch == (1, 4)
        (p, value), *rest = in_order(writer.epoch())
        assert both.feed([(p, damaged(value)), *rest]) >= {"damaged", "gap"} and both.epoch == (1, 4)
        assert both.feed([(p, damaged(value))]) == {"gap"}

    def an_unknown_fingerprint_needs_its_model(self):
        both, writer = self.started()
        writer.model(6)
        assert both.feed(in_order(writer.epoch())) == {"taken", "applied"} and both.epoch == (1, 4)
        writer.model(7)
        assert both.feed(nameless(in_order(writer.epoch()))) == {"taken", "gap"} and both.epoch == (1, 4)
        assert both.feed(in_order(writer.epoch())) == {"gap"}
        both, writer = self.started()
        assert both.feed(nameless(in_order(writer.epoch(everything=True)))) == {"taken", "gap"} and both.epoch == (1, 3), "all there is has its model"

    def an_older_timeline_is_ignored(self):
        both, old = self.started()
        new = Writer(self.rng, 2)
        begin = shuffled(self.rng, in_order(new.epoch(rewind=(0, ""))))
        late = in_order(old.epoch(), old.epoch(everything=True))
        assert both.feed(begin[:3]) == {"taken"} and both.epoch == (1, 3), "what there is is served on"
        assert both.feed(late) == {"passed"}
        assert both.feed(begin[3:]) == {"taken", "applied"} and both.epoch == (2, 1)
        assert both.feed(late + in_order(new.epoch())) == {"passed", "taken", "applied"} and both.epoch == (2, 2)

    def a_later_timeline_begins_with_all_of_a_state(self):
        for rewind in ((0, ""), None):
            both, old = self.started()
            new = Writer(self.rng, 7)
            [new.cut() for _ in range(5)]
            records = in_order(new.epoch(5, everything=True, rewind=rewind), new.epoch())
            assert both.feed(shuffled(self.rng, records)) == {"taken", "applied"} and both.epoch == (7, 6)

    def a_commit_whose_number_another_record_has_is_a_repetition(self):
        """The same epoch written without its rewind: each record of it has the number of the one before it."""
        for _ in range(20):
            both, old = self.started()
            new = Writer(self.rng, 2)
            records = in_order(new.epoch(everything=True, rewind=(0, "")))
            both.feed(without(records, "commit", 0))
            assert both.feed([record for record in in_order(new.epoch(1)) if record[0] == 0]) == {"duplicate"} and both.epoch == (1, old.newest)
            assert both.feed(records) == {"duplicate", "applied", "passed"} and both.epoch == (2, 1)

    def a_rewind_to_an_epoch_needs_its_snapshot(self):
        both, old = self.started()
        new = Writer(self.rng, 2)
        new.changes, new.states, new.newest, new.announced = old.changes, old.states, 2, True
        assert both.feed(in_order(new.epoch(rewind=(2, "agree-1-2")))) == {"rewound"} and both.epoch == (1, 3)
        assert both.feed(in_order(old.epoch(), old.epoch(everything=True))) == {"rewound"}, "what an older timeline still sends"
        both.load(new.snapshot(self.path / "rewound", 3))
        assert both.feed(in_order(new.epoch(3), new.epoch())) == {"passed", "taken", "applied"} and both.epoch == (2, 4)
        both, old = self.started()
        assert both.feed(in_order(new.epoch())) == {"rewound"}
        assert both.feed(in_order(new.epoch(everything=True), new.epoch())) == {"taken", "applied"} and both.epoch == (2, 7)


# ---- drawn ----

def drawn(seed, path):
    """Feeds a history with losses, repetitions, damage, merges, other writers and rewinds, at the end the whole newest timeline; returns the kinds that were seen."""
    rng, both = random.Random(seed), Both(path)
    writer = Writer(rng)
    older = []
    for step in range(rng.randrange(3, 10)):
        draw = rng.random()
        if draw < 0.12:
            rewind = rng.choice([(0, ""), None])
            older += in_order(writer.epoch())
            writer = Writer(rng, writer.timeline + rng.randrange(1, 3))
            [writer.cut() for _ in range(rng.randrange(3))]
            records = in_order(writer.epoch(everything=True, rewind=rewind))
        elif draw < 0.25 and writer.newest:
            [writer.cut() for _ in range(rng.randrange(3))]
            last = writer.cut()
            records = in_order(writer.epoch(last, first=max(1, last - rng.randrange(5))))
        elif draw < 0.35:
            records = in_order(writer.epoch(everything=True))
        else:
            records = in_order(*(writer.epoch() for _ in range(rng.randrange(1, 4))))
        records = shuffled(rng, records) if rng.random() < 0.7 else records
        for _ in range(rng.choice([0, 0, 0, 1, 2])):
            at = rng.randrange(len(records))
            p, value = records[at]
            other = Writer(rng, writer.timeline, salt="other")
            other.cut()
            fault = [lambda: records.pop(at), lambda: records.insert(at, (p, value)), lambda: records.insert(at, (p, damaged(value))), lambda: records.extend(older),
                     lambda: records.extend(records[:at]), lambda: records.extend(in_order(writer.epoch(rng.randrange(1, writer.newest + 1)))),
                     lambda: records.insert(at, rng.choice(in_order(other.epoch()))) if rng.random() < 0.2 else None]
            rng.choice(fault)()
        both.feed(records)
    both.feed(in_order(writer.epoch(everything=True), writer.epoch()))
    assert "two writers" in both.did or both.epoch == (writer.timeline, writer.newest), (both.epoch, writer.timeline, writer.newest)
    return both


def main():
    with Workspace() as work:
        if sys.argv[1:]:
            print(drawn(int(sys.argv[1]), work.path / "dump").did)
            return
        cases = Cases(work.path)
        names = [name for name in vars(Cases) if name.startswith(("a_", "an_", "all_", "one_", "two_", "what_"))]
        for name in names:
            getattr(cases, name)()
            print("ok", name, flush=True)
        begin, kinds, fed = random.randrange(1 << 32), {}, 0
        for seed in range(begin, begin + DRAWN):
            try:
                both = drawn(seed, work.path / "dump")
            except Exception:
                print(f"repeat with: tests/interop/agree.py {seed}")
                raise
            fed += both.fed
            for kind in both.did:
                kinds[kind] = kinds.get(kind, 0) + 1
        print(f"{DRAWN} drawn histories from seed {begin}, {fed} records: {kinds}")
        assert {"applied", "taken", "passed", "gap"} <= set(kinds), kinds
        print(f"{len(names) + 1} passed, 0 failed")


main()
