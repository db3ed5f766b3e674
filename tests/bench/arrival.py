"""How old samples are, since their Kafka timestamp, when they are trained, durable and published: at a steady rate, with `epoch: 100ms`.

Usage: arrival.py RATE SECONDS. It begins with 5 s that do not count. Figures are upper bounds of the buckets of freshet_arrival_age_seconds.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import confluent_kafka  # noqa: E402
import confluent_kafka.admin  # noqa: E402
import msgpack  # noqa: E402
from harness import *  # noqa: E402,F403

CONFIG = SOURCE / "tests/integration/operating.yaml"
STAGES = ("trained", "durable", "published")


def send(producer, rate, seconds, first):
    """Returns how many it sent: `rate` a second, late ones at once."""
    begin, count = time.monotonic(), 0
    while (now := time.monotonic() - begin) < seconds:
        while count < now * rate:
            i = first + count
            producer.produce("arrival", msgpack.packb({"t": int(time.time() * 1000), "y": {"click": i % 2},
                                                       "f": {"sample": i % 100000, "user_id": i % 5000, "price": 1.0}}))
            count += 1
        producer.poll(0.002)
    assert producer.flush(PATIENCE) == 0
    return count


def ages(daemon):
    """stage -> [(upper bound, samples up to it)]"""
    text = daemon.get("/metrics")[1]
    return {stage: [(float(le), int(n)) for le, n in re.findall(rf'^freshet_arrival_age_seconds_bucket{{model="arrival",stage="{stage}",le="(\S+)"}} (\d+)$', text, re.M)]
            for stage in STAGES}


def bound(before, after, q):
    counts = [(le, n - m) for (le, n), (_, m) in zip(after, before)]
    return next(le for le, n in counts if n >= q * counts[-1][1])


with Workspace() as work, Kafka(own=True) as kafka:
    rate, seconds = int(sys.argv[1]), int(sys.argv[2])
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": kafka.address})
    admin.create_topics([confluent_kafka.admin.NewTopic("arrival", 2, 1)])["arrival"].result(PATIENCE)
    daemon = work.daemon(CONFIG, work.path / "log", [f"ingest.brokers={kafka.address}", "ingest.topic=arrival", "model=arrival", f"state_dir={work.path / 'state'}",
                                                     "export.topic=arrival.delta", "epoch=100ms", "ingest.batch_size=256"])
    wait_until(lambda: daemon.get("/readyz")[0] == 200, "ready")
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.address, "linger.ms": 2})
    count = send(producer, rate, 5, 0)
    before = ages(daemon)
    count += send(producer, rate, seconds, count)
    wait_until(lambda: ages(daemon)["published"][-1][1] == count, "all published")
    after = ages(daemon)
    for stage in STAGES:
        print(f"{stage}: p50 {bound(before[stage], after[stage], 0.5) * 1000:.0f} ms, p90 {bound(before[stage], after[stage], 0.9) * 1000:.0f} ms, "
              f"p99 {bound(before[stage], after[stage], 0.99) * 1000:.0f} ms")
    daemon.drain()
