"""Samples of the small models of the integration tests (operating.yaml, tool.yaml), and how they get into a topic of two partitions."""
import random

import confluent_kafka
import confluent_kafka.admin
import msgpack

from harness import PATIENCE, SOURCE, wait_until


def produce(address, topic, samples):
    producer = confluent_kafka.Producer({"enable.idempotence": True, "bootstrap.servers": address})
    for i, sample in samples:
        producer.produce(topic, msgpack.packb(sample), partition=i % 2)
        producer.poll(0)
    assert producer.flush(PATIENCE) == 0


def live_samples(begin, count):
    return [(i, {"t": 1700000000000 + i, "y": {"click": i % 2}, "f": {"sample": i, "user_id": i % 50, "price": 1.0}}) for i in range(begin, begin + count)]


def lockstep_samples(count, seed):
    rng = random.Random(seed)
    return [(i, {"t": 1700000000000 + i * 500, "y": {"click": rng.random() < 0.4, "buy": rng.random() < 0.2},
                 "f": {"user_id": int(rng.paretovariate(0.7)) % 900, "item_id": f"i{rng.randrange(300)}", "history": [f"i{rng.randrange(300)}"],
                       "price": rng.random() * 9}}) for i in range(count)]


class Live:
    """Daemons of operating.yaml, with SETS, on one topic `live`; samples are produced there in any number of portions."""

    SETS = []

    def __init__(self, work, kafka):
        self.work, self.kafka, self.produced = work, kafka, 0
        self.admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": kafka.address})
        for future in self.admin.create_topics([confluent_kafka.admin.NewTopic("live", 2, 1)]).values():
            future.result(PATIENCE)

    def daemon(self, name, sets=(), **options):
        return self.work.daemon(SOURCE / "tests/integration/operating.yaml", self.work.path / f"{name}.log",
                                [f"ingest.brokers={self.kafka.address}", "ingest.topic=live", "export.create=true", f"state_dir={self.work.path / name}",
                                 f"export.topic={name}.delta", *self.SETS, *sets], **options)

    def more(self, count):
        produce(self.kafka.address, "live", live_samples(self.produced, count))
        self.produced += count

    def trained(self, daemon):
        wait_until(lambda: daemon.json("/status").get("samples", {}).get("trained", 0) == self.produced, f"{self.produced} samples trained")
