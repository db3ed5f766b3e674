"""Python writes samples and reads deltas by the formats alone (docs/formats/samples.md, docs/formats/deltas.md), and ends with the rows of `freshet dump`. Every delta record is in the form
that the delta format asks of a writer, and so are its Kafka key, headers, timestamp and the producer."""
import pathlib
import random
import re
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import confluent_kafka  # noqa: E402
import confluent_kafka.admin  # noqa: E402
import msgpack  # noqa: E402
from harness import *  # noqa: E402,F403

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import delta  # noqa: E402
import keys  # noqa: E402

def samples(rng, count):
    for i in range(count):
        user = i // 4000 * 300 + rng.randrange(300)  # new users come, old ones expire
        yield {"t": 1700000000000 + i * 50, "y": {"click": rng.randrange(2)}, "u": 2 if i % 50 == 49 else 3, "w": 1 + i % 3,
               "f": {"sample": i, "user_id": rng.choice([user, str(user)]), "item_id": f"item-{rng.randrange(200)}",
                     "history": [f"item-{rng.randrange(200)}" for _ in range(rng.randrange(12))], "price": rng.random() * 9},
               "x_note": "ignored"}


def create_topic(address, topic):
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([confluent_kafka.admin.NewTopic(topic, 2, 1)]).values():
        future.result(PATIENCE)


def produce(address, topic, rng, written):
    """Single samples and arrays, on two partitions."""
    producer = confluent_kafka.Producer({"enable.idempotence": True, "bootstrap.servers": address, "linger.ms": 5})
    at = 0
    while at < len(written):
        size = rng.choice([1, 1, 7, 300])
        chunk = written[at:at + size]
        producer.produce(topic, msgpack.packb(chunk if size > 1 else chunk[0]), partition=rng.randrange(2))
        producer.poll(0)
        at += size
    assert producer.flush(PATIENCE) == 0


PIECE_MAX = 65536


class Seen:
    """Looks at every delta message as it is read: its form, and that all of an epoch carry the wall time of its cut."""

    def __init__(self):
        self.times, self.cuts, self.kinds, self.pieces = {}, {}, {}, 0

    def __call__(self, message):
        record = delta.check_form(message.value(), PIECE_MAX)
        assert message.key() is None and not message.headers(), f"key {message.key()}, headers {message.headers()}"
        self.times.setdefault(record["e"], set()).add(message.timestamp()[1])
        self.kinds.setdefault(record["e"], set()).add(record["k"])
        self.pieces = max(self.pieces, record["i"])
        if record["k"] == "commit":
            self.cuts.setdefault(record["e"], set()).add(record["t"])
            assert record["n"] == record["i"] and record["from"] == record["e"]

    def check(self, last_of_runs):
        assert self.times == self.cuts and all(len(times) == 1 for times in self.times.values()), "Kafka timestamp: wall time of the cut"
        assert [e for e in self.kinds if "model" in self.kinds[e]] == [1], "the model record is in epoch 1 and, without a change of fp, nowhere else"
        assert all("dense" in self.kinds[e] for e in (1, *last_of_runs)), "dense parameters in epoch 1 and the last epoch of a drain"
        assert self.pieces > 1, "an epoch of several pieces"


def producers(kafka, topic):
    """Producer ids in the record batches of the broker's log segments (Kafka protocol, record batch v2); -1: not idempotent."""
    found = set()
    for path in pathlib.Path(kafka.dir).rglob(f"{topic}-[0-9]/*.log"):
        data, at = path.read_bytes(), 0
        while at + 61 <= len(data):
            length, magic = struct.unpack_from(">i", data, at + 8)[0], data[at + 16]
            if length <= 0 or magic != 2:
                break  # preallocated zeros
            found.add(struct.unpack_from(">q", data, at + 43)[0])
            at += 12 + length
    return found


def what_is_fixed(work, kafka, config, sets):
    """Partitions and quantization are fixed for a timeline; a topic with finite retention is reported at start."""
    for change, word in (("export.partitions=4", "partitions"), ("export.quantize=f32", "quantize")):
        daemon = work.daemon(config, work.path / f"{word}.log", [*sets, change], ["--until", "end"], wait_http=False)
        daemon.expect_exit(3)
        assert word in daemon.log(), daemon.log()[-500:]
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": kafka.address})
    entry = confluent_kafka.admin.ConfigEntry("retention.ms", "86400000", incremental_operation=confluent_kafka.admin.AlterConfigOpType.SET)
    resource = confluent_kafka.admin.ConfigResource(confluent_kafka.admin.ConfigResource.Type.TOPIC, "interop.delta", incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(PATIENCE)
    daemon = work.daemon(config, work.path / "retention.log", sets, ["--until", "end"], wait_http=False)
    daemon.expect_exit(0)
    assert "topic_retention_finite" in daemon.log()


def main():
    rng = random.Random(5)
    with Workspace() as work, Kafka() as kafka:
        state = work.path / "state"
        sets = [f"ingest.brokers={kafka.address}", "ingest.topic=interop", f"state_dir={state}", "epoch=20ms", "ingest.batch_size=64",
                "tables.user.expire.idle=2m", "tables.user.expire.every=1", "export.topic=interop.delta", f"export.piece_max={PIECE_MAX}B", "export.dense_every=1h"]
        config = SOURCE / "tests/integration/live.yaml"
        written = list(samples(rng, 21000))
        create_topic(kafka.address, "interop")
        last_of_runs, seen = [], Seen()
        for part in range(0, len(written), 7000):  # each run continues where the one before was drained
            produce(kafka.address, "interop", rng, written[part:part + 7000])
            work.daemon(config, work.path / "live.log", sets, ["--until", "end"], wait_http=False).expect_exit(0)
            last_of_runs.append(int(re.search(r" epoch=(\d+)", tool("state", state)[1]).group(1)))

        replica = delta.Replica(3)
        for partition, records in delta.read_topic(kafka.address, "interop.delta", see=seen).items():
            for _, value in records:
                replica.feed(partition, value)
        mine = delta.dump_lines(replica)
        theirs = tool("dump", "--state-dir", state)[1].splitlines()
        for number, (a, b) in enumerate(zip(mine, theirs), 1):
            assert a == b, f"line {number} differs:\n{a[:300]}\n{b[:300]}"
        assert len(mine) == len(theirs), f"{len(mine)} lines here, {len(theirs)} there"

        trained = {s["f"]["sample"] for s in written if s["u"] != 2}
        ledger = set(replica.rows["ledger"])
        assert ledger == {keys.key_of(i, "ledger") for i in trained}, "keys of the ledger by our own hashing"
        items = {s["f"]["item_id"] for s in written if s["u"] != 2} | {h for s in written if s["u"] != 2 for h in s["f"]["history"][-8:]}
        assert set(replica.rows["item"]) == {keys.key_of(item, "item") for item in items}, "keys of the items"
        assert replica.applied >= 3 and replica.tombstones >= 100, f"{replica.applied} epochs, {replica.tombstones} tombstones"
        assert replica.commit["samples"] == len(trained)
        consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.address, "group.id": "ends"})
        ends = {p: consumer.get_watermark_offsets(confluent_kafka.TopicPartition("interop", p), PATIENCE)[1] for p in range(2)}
        consumer.close()
        assert replica.commit["off"] == {"interop": ends}, f"{replica.commit['off']}, the topic ends at {ends}"
        assert replica.commit["wm"] == max(s["t"] for s in written if s["u"] != 2), "watermark: the newest sample trained"
        lifetime = json.loads(tool("dump", "--state-dir", state, "--metrics")[1])["tasks"]["click"]["lifetime"]["auc"]
        assert abs(replica.commit["auc"]["click"] - lifetime) < 1e-6 and list(replica.commit["auc"]) == ["click"], f"{replica.commit['auc']}, {lifetime} measured"
        assert replica.commit["snap"] is None, "snapshots are not in this version"
        seen.check(last_of_runs)
        ids = producers(kafka, "interop.delta")
        assert ids and min(ids) >= 0, f"idempotent producers only: {ids}"
        what_is_fixed(work, kafka, config, sets)
        print(f"epoch {replica.applied}, {len(mine)} dump lines equal, {len(trained)} samples trained, {replica.tombstones} tombstones, keys recomputed")
    print("1 passed, 0 failed")


main()
