"""Ids that were chosen to meet, beside random ones: processor time of freshetd an id, real Kafka, new rows all of them.

Usage: flood.py [IDS]. Three runs each, alternately; ends with 1 when crafted ids cost more than twice what random ones cost. The crafted ones share the upper and the
lower 20 bits of the unkeyed hash, as an attacker who knows the source but no salt would choose them.
"""
import pathlib
import random
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import confluent_kafka  # noqa: E402
import confluent_kafka.admin  # noqa: E402
import msgpack  # noqa: E402
import xxhash  # noqa: E402
from harness import *  # noqa: E402,F403

CONFIG = SOURCE / "tests/integration/operating.yaml"
BLOCK, TURNS, RATIO_MAX = 256, 3, 2.0
WORD = (1 << 64) - 1
FIRST, SECOND = pow(0xFF51AFD7ED558CCD, -1, 1 << 64), pow(0xC4CEB9FE1A85EC53, -1, 1 << 64)


def unmixed(key):
    """The inverse of fmix64."""
    key ^= key >> 33
    key = key * SECOND & WORD
    key ^= key >> 33
    key = key * FIRST & WORD
    return key ^ key >> 33


def crafted(count):
    seed = xxhash.xxh3_64_intdigest(b"user_id")
    return [unmixed(unmixed(i << 20 | 0x5A5A5)) ^ seed for i in range(count)]


def drawn(count):
    draw = random.Random(1)
    return [draw.getrandbits(63) for _ in range(count)]


def send(address, topic, ids):
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": address})
    admin.create_topics([confluent_kafka.admin.NewTopic(topic, 1, 1)])[topic].result(PATIENCE)
    producer = confluent_kafka.Producer({"bootstrap.servers": address})
    for at in range(0, len(ids), BLOCK):
        block = ids[at:at + BLOCK]
        n = len(block)
        columns = {"user_id": {"b": struct.pack(f"<{n}Q", *block)}, "sample": {"b": struct.pack(f"<{n}Q", *[1] * n)}, "price": {"b": struct.pack(f"<{n}f", *[1.0] * n)}}
        producer.produce(topic, msgpack.packb({"n": n, "t": 1767226000000, "cols": columns, "y": {"click": {"b": struct.pack(f"<{n}f", *[0.0] * n)}}}))
        producer.poll(0)
    assert producer.flush(PATIENCE) == 0


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cost(work, address, topic, count, turn):
    name = f"{topic}{turn}"
    daemon = work.daemon(CONFIG, work.path / name, [f"ingest.brokers={address}", f"ingest.topic={topic}", f"model={name}", f"state_dir={work.path / (name + '-state')}",
                                                    f"export.topic={name}.delta", "ingest.batch_size=1024", "memory_limit=2GiB", "epoch=1s"])
    wait_until(lambda: daemon.json("/status").get("samples", {}).get("trained", 0) == count, "all trained")
    seconds = processor_seconds(daemon.process.pid)
    daemon.drain()
    return seconds / count * 1e6


with Workspace() as work, Kafka(own=True) as kafka:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
    for topic, ids in (("random", drawn(count)), ("crafted", crafted(count))):
        send(kafka.address, topic, ids)
    costs = {"random": [], "crafted": []}
    for turn in range(TURNS):
        for topic in costs:
            costs[topic].append(cost(work, kafka.address, topic, count, turn))
            print(f"{topic}: {costs[topic][-1]:.2f} us of processor time an id", flush=True)
    ratio = sorted(costs["crafted"])[TURNS // 2] / sorted(costs["random"])[TURNS // 2]
    print(f"crafted beside random ids, medians: {ratio:.2f}")
    sys.exit(ratio > RATIO_MAX)
