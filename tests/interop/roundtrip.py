"""Python writes samples and reads deltas by the formats alone (DESIGN sections 6 and 7), and ends with the rows of `freshet dump`."""
import pathlib
import random
import re
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
        future.result(30)


def produce(address, topic, rng, written):
    """Single samples and arrays, on two partitions."""
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 5})
    at = 0
    while at < len(written):
        size = rng.choice([1, 1, 7, 300])
        chunk = written[at:at + size]
        producer.produce(topic, msgpack.packb(chunk if size > 1 else chunk[0]), partition=rng.randrange(2))
        producer.poll(0)
        at += size
    assert producer.flush(60) == 0


def main():
    rng = random.Random(5)
    with Workspace() as work, Kafka() as kafka:
        state = work.path / "state"
        sets = [f"ingest.brokers={kafka.address}", "ingest.topic=interop", f"state_dir={state}", "epoch=20ms", "ingest.batch_size=64",
                "tables.user.expire.idle=2m", "export.topic=interop.delta"]
        config = work.path / "live.yaml"
        text = (SOURCE / "tests/fault/kill.yaml").read_text()
        config.write_text(re.sub(r", lockstep: \{[^}]*\}", "", text))
        written = list(samples(rng, 21000))
        create_topic(kafka.address, "interop")
        for part in range(0, len(written), 7000):  # each run goes on where the one before was drained
            produce(kafka.address, "interop", rng, written[part:part + 7000])
            work.daemon(config, work.path / "live.log", sets, ["--until", "end"], wait_http=False).expect_exit(0, 300)

        replica = delta.Replica(3)
        for partition, records in delta.read_topic(kafka.address, "interop.delta").items():
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
        assert sum(replica.commit["off"]["interop"].values()) > 0
        print(f"epoch {replica.applied}, {len(mine)} dump lines equal, {len(trained)} samples trained, {replica.tombstones} tombstones, keys recomputed")
    print("1 passed, 0 failed")


main()
