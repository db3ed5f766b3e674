"""A cluster of two brokers, of which one ends: a partition whose only replica was there has no leader. This partition delays neither the start of
freshetd nor training on the other partition, and is read when its broker is back."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import confluent_kafka  # noqa: E402
import confluent_kafka.admin  # noqa: E402
import msgpack  # noqa: E402
from harness import *  # noqa: E402,F403

EACH = 1000


def produce(address, partition, begin):
    producer = confluent_kafka.Producer({"enable.idempotence": True, "bootstrap.servers": address})
    for i in range(begin, begin + EACH):
        sample = {"t": 1700000000000 + i, "y": {"click": i % 2}, "f": {"sample": i, "user_id": i % 50, "price": 1.0}}
        producer.produce("samples", msgpack.packb(sample), partition=partition)
    assert producer.flush(PATIENCE) == 0


def trained(daemon):
    return daemon.json("/status").get("samples", {}).get("trained")


def waits(daemon):
    return [p["waits"] for p in sorted(daemon.json("/status")["partitions"], key=lambda p: p["partition"])]


with Workspace() as work, Kafka(own=True) as first, Kafka("--join", first.dir) as second:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": first.address})
    leaders = lambda: [p.leader for _, p in sorted(admin.list_topics("samples", timeout=PATIENCE).topics["samples"].partitions.items())]
    other = int(second.address.split(":")[1])
    wait_until(lambda: set(admin.list_topics(timeout=PATIENCE).brokers) == {1, other}, "a cluster of two brokers")
    topic = confluent_kafka.admin.NewTopic("samples", 2, replica_assignment=[[1], [other]], config={"retention.ms": "-1"})
    deltas = confluent_kafka.admin.NewTopic("empty.delta", 2, replica_assignment=[[1], [other]])
    for future in admin.create_topics([topic, deltas]).values():
        future.result(PATIENCE)
    wait_until(lambda: leaders() == [1, other], "both partitions have a leader")
    for partition in (0, 1):
        produce(f"{first.address},{second.address}", partition, partition * EACH)
    second.stop()
    wait_until(lambda: leaders() == [1, -1], "partition 1 has no leader")

    daemon = work.daemon(SOURCE / "tests/integration/operating.yaml", work.path / "log",
                         [f"ingest.brokers={first.address}", "ingest.topic=samples", "model=leaderless", f"state_dir={work.path / 'state'}",
                          "export.topic=leaderless.delta", "ingest.ready_lag=1h"])  # on a loaded machine a broker may need a minute to end
    wait_until(lambda: trained(daemon) == EACH, "the partition with a leader is trained")
    wait_until(lambda: waits(daemon) == [False, True], "/status says which one waits")
    ready = wait_until(lambda: (lambda answer: answer if answer[0] == 200 else None)(daemon.get("/readyz")), "ready without the partition")
    assert "samples/1: no offsets" in ready[1] and "1 of 2 partitions wait" in ready[1], ready
    produce(first.address, 0, 2 * EACH)
    wait_until(lambda: trained(daemon) == 2 * EACH, "what comes to the partition with a leader is trained")
    print("ok a start without one leader", flush=True)

    said = work.path / "score"
    (work.path / "one.jsonl").write_text("{}\n")
    def start_score():
        with open(said, "wb") as file:
            return subprocess.Popen([BUILD / "tool/freshet", "score", "--brokers", first.address, "--topic", "empty.delta", "--file", work.path / "one.jsonl"], stderr=file)
    score = start_score()
    wait_until(lambda: "event=waiting" in said.read_text() or score.poll() is not None, "the tool asks again")
    second.start()
    for _ in range(2):
        if score.wait(PATIENCE) == 1 and "no epoch of empty.delta was served" not in said.read_text():
            score = start_score()  # the tool waits 30 s, which ended while the broker started
    assert score.wait(PATIENCE) == 1 and "no epoch of empty.delta was served" in said.read_text(), "it read both partitions, to their ends: " + said.read_text()
    print("ok a command waits for the leader", flush=True)
    wait_until(lambda: trained(daemon) == 3 * EACH, "the partition that waited is trained")
    wait_until(lambda: waits(daemon) == [False, False] and "wait" not in daemon.get("/readyz")[1], "nothing waits")
    daemon.drain()
    print("ok its leader is back", flush=True)
print("3 passed, 0 failed")
