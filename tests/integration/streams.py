"""Samples of the small models of the integration tests (operating.yaml, tool.yaml), and how they get into a topic of two partitions."""
import random

import confluent_kafka
import msgpack

from harness import PATIENCE


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
