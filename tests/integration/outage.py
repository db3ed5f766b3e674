"""What /metrics and /readyz say while something is away, and after it (docs/http.md): a Kafka that stops and comes back, one that hangs, a daemon
that is killed.

An unknown value is NaN, the text names who is away, and counters of the history are never seen to fall, which Prometheus would take for a reset.
"""
import math
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import confluent_kafka  # noqa: E402
import confluent_kafka.admin  # noqa: E402
import msgpack  # noqa: E402
from harness import *  # noqa: E402,F403

CONFIG = SOURCE / "tests/integration/operating.yaml"


def produce(address, begin, count):
    producer = confluent_kafka.Producer({"enable.idempotence": True, "bootstrap.servers": address})
    for i in range(begin, begin + count):
        producer.produce("outage", msgpack.packb({"t": 1700000000000 + i, "y": {"click": i % 2}, "f": {"sample": i, "user_id": i % 50, "price": 1.0}}), partition=0)
    assert producer.flush(PATIENCE) == 0


def series(daemon):
    """Returns the value of every series, and the names of the counters of the history."""
    text = daemon.get("/metrics")[1]
    values = {name + labels.replace('model="outage",', "").replace('{model="outage"}', ""): float(value)
              for name, labels, value in re.findall(r"^(\w+)(\{.*\}) (\S+)$", text, re.M)}
    history = {name for name, help in re.findall(r"^# HELP (\w+_total) (.*)$", text, re.M) if "this history" in help or "as of the last durable epoch" in help}
    return values, history


def wait_for(daemon, what, **wanted):
    """Waits until each series has its value; a keyword is what the name begins or ends with."""
    def all_there():
        values = series(daemon)[0]
        return values if all(values.get("freshet_" + name) == value for name, value in wanted.items()) else None
    return wait_until(all_there, what)


with Workspace() as work, Kafka(own=True) as kafka:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": kafka.address})
    admin.create_topics([confluent_kafka.admin.NewTopic("outage", 1, 1)])["outage"].result(PATIENCE)
    start = lambda *sets: work.daemon(CONFIG, work.path / "log", [f"ingest.brokers={kafka.address}", "ingest.topic=outage", "model=outage", f"state_dir={work.path / 'state'}",
                                                              "export.topic=outage.delta", *sets])
    daemon = start()
    produce(kafka.address, 0, 1000)
    before = wait_for(daemon, "1000 samples, all well", samples_trained_total=1000, ready=1, connected=1, live=1)
    partition = '{topic="outage",partition="0"}'
    before = wait_until(lambda: (lambda v: v if v[f"freshet_partition_offset{partition}"] == 1000 else None)(series(daemon)[0]), "durable positions")
    assert before[f"freshet_partition_lag_records{partition}"] == 0 and before["freshet_lag_seconds"] == 0, before
    degraded = {name: value for name, value in before.items() if name.startswith("freshet_degraded")}
    assert len(degraded) >= 7 and not any(degraded.values()), degraded
    paused = [value for name, value in before.items() if name.startswith("freshet_paused")]
    assert len(paused) >= 5 and not any(paused), before
    for name in ("memory_limit", "journal_max", "unfolded_max", "epoch_max", "disk_free", "cold"):
        assert before[f"freshet_{name}_bytes"] >= 0, name
    now = time.time()
    for name in ("process_start_time_seconds", "freshet_last_durable_timestamp_seconds", "freshet_last_published_timestamp_seconds"):
        assert now - 600 < before[name] <= now + 1, (name, before[name], now)
    # the disk is checked once a second, also before there is a store
    before = wait_until(lambda: (lambda v: v if v["process_open_fds"] > 20 else None)(series(daemon)[0]), "descriptors of a store and of clients")
    assert 1e6 < before["process_resident_memory_bytes"] < 1e10 and before["process_open_fds"] < before["process_max_fds"]
    status = dict(re.findall(r"(\w+):\s+(\d+)", pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text()))
    assert abs(before["process_resident_memory_bytes"] / 1024 / int(status["VmRSS"]) - 1) < 0.5, "resident memory as the kernel has it"
    assert any(name.startswith("freshet_build_info") and "version=" in name and "kernel=" in name for name in before)
    timings = ("batch_samples", "step_duration_seconds", "cut_duration_seconds", "append_duration_seconds", "durable_delay_seconds", "publish_delay_seconds")
    wait_until(lambda: (lambda v: all(v[f"freshet_{name}_count"] > 0 for name in timings))(series(daemon)[0]), "an epoch timed from its batches to its publication")
    print("ok a healthy daemon", flush=True)

    kafka.stop()
    during = wait_for(daemon, "Kafka is away", connected=0, ready=0)
    assert math.isnan(during["freshet_lag_seconds"]) and math.isnan(during[f"freshet_partition_lag_records{partition}"]), during
    assert during[f"freshet_partition_offset{partition}"] == 1000 and during["freshet_samples_trained_total"] == 1000
    during = wait_for(daemon, "and who says so", **{'degraded{source="stream"}': 1})
    assert daemon.json("/status")["ingest"]["lag_ms"] is None, "a lag that nobody knows"
    assert daemon.get("/readyz")[0] == 503 and daemon.get("/healthz")[0] == 200
    last = during["freshet_last_published_timestamp_seconds"]
    kafka.start()
    produce(kafka.address, 1000, 1000)
    after = wait_for(daemon, "all well again", samples_trained_total=2000, ready=1, connected=1, **{'degraded{source="stream"}': 0})
    wait_until(lambda: series(daemon)[0]["freshet_last_published_timestamp_seconds"] > last, "published again")
    print("ok a Kafka that stops and comes back", flush=True)

    # A broker that hangs keeps its connections: librdkafka alone would notice after a minute.
    broker = kafka.pid()
    os.kill(broker, signal.SIGSTOP)
    begin = time.monotonic()
    try:
        during = wait_for(daemon, "Kafka hangs", connected=0, ready=0)
        took = time.monotonic() - begin
        assert math.isnan(during["freshet_lag_seconds"]), during
        reason = daemon.json("/readyz")["reason"]
        assert re.search(r"hangs; check the brokers' processes .* \(since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ;", reason), reason
    finally:
        os.kill(broker, signal.SIGCONT)
    wait_for(daemon, "it does no more", ready=1, connected=1)
    print(f"ok a Kafka that hangs (seen after {took:.1f} s)", flush=True)

    seen, shown = {}, 0

    def look():
        """Checks that no counter of the history falls from one scrape to the next, whichever process answers."""
        global shown
        values, history = series(daemon)
        assert "freshet_samples_trained_total" not in values or values["freshet_recovery_progress"] == 1, "a history before it is recovered"
        for name, value in values.items():
            if name.split("{")[0] in history:
                assert value >= seen.get(name, 0), f"{name} fell from {seen[name]} to {value}"
                seen[name] = value
        shown += "freshet_samples_trained_total" in values
        return values

    # With small batches and long epochs much is trained that is not durable; after a kill, training it again takes longer than a scrape.
    slowly = ("ingest.batch_size=1", "epoch=1s")
    daemon.drain()
    daemon, total = start(*slowly), 2000
    for kill in range(4):
        produce(kafka.address, total, 20000)
        total += 20000
        begin = daemon.json("/status")["samples"]["trained"]
        wait_until(lambda: look() and daemon.json("/status")["samples"]["trained"] > begin + 3000 + 1000 * kill, "some of them are trained")
        look()
        daemon.kill()
        daemon = start(*slowly)
    wait_until(lambda: "freshet_samples_trained_total" in look(), "recovered")
    daemon.drain()
    daemon = start()
    wait_until(lambda: look().get("freshet_samples_trained_total", 0) == total, f"{total} samples")
    names = {name.split("{")[0] for name in seen}
    assert {"freshet_samples_trained_total", "freshet_batches_total", "freshet_rows_admitted_total", "freshet_task_samples_total", "freshet_records_delivered_total"} <= names, names
    assert shown > 10
    daemon.drain()
    print(f"ok counters of the history over four kills ({shown} looks)", flush=True)
print("4 passed, 0 failed")
