"""Clocks that are wrong: a producer's, all producers', this host's.

A record from a host whose clock is a year ahead: event time and Kafka timestamp agree, and the topic accepts it (Kafka up to 3.9 does by default).

Live it is refused: counted, logged and dead-lettered with the reason; the watermark stays with the stream, no user expires and decayed AUC stays defined.
In lockstep, where no wall clock decides, `watermark_step_max` bounds the effect of that record: it is trained, and two runs over the log are equal.

This host's clock, set back by three hours in a running daemon and before a start (clock_shim.c): nothing is refused, reading pauses, says which clock is wrong,
and continues by itself. All producers two hours ahead: reading pauses, and a restart with `malformed_max: 1` passes over them. The ledger is exact each time.
"""
import pathlib
import random
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import confluent_kafka  # noqa: E402
import confluent_kafka.admin  # noqa: E402
from harness import *  # noqa: E402,F403

SAMPLES, USERS, YEAR, DAY = 4000, 200, 365 * 86400000, 86400000
CONFIG = """version: 1
model: clocks
state_dir: ./state
memory_limit: 256MiB
ingest: {brokers: "localhost:9092", topic: samples, format: json, batch_size: 64, batch_wait: 5ms}
tables:
  user: {dim: 4, expire: {idle: 1d, every: 4}}
slots:
  user_id: {table: user}
labels: {click: {}}
network: {layers: [{name: out, dense: user_id, units: 1}]}
tasks: [{name: click, label: click, logit: out}]
epoch: 200ms
export: {partitions: 1}
metrics: {listen: "127.0.0.1:0", auc_half_life: [1h, 1d]}
"""


def sample(i, t_ms):
    return json.dumps({"t": t_ms, "y": {"click": int(random.Random(i).random() < 0.3 + 0.4 * (i % 2))}, "f": {"user_id": i % USERS}}).encode()


def create_topic(kafka, topic):
    config = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2 ** 63 - 1)}
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": kafka.address})
    for future in admin.create_topics([confluent_kafka.admin.NewTopic(topic, 1, 1, config=config)]).values():
        future.result(PATIENCE)


def produce(kafka):
    """Produces one minute of samples that ends now, with the record that is a year ahead in the middle. Returns the time of the last good one."""
    create_topic(kafka, "samples")
    producer = confluent_kafka.Producer({"enable.idempotence": True, "bootstrap.servers": kafka.address})
    now = int(time.time() * 1000)
    for i in range(SAMPLES):
        t = now - (SAMPLES - i) * 15
        producer.produce("samples", sample(i, t), partition=0, timestamp=t)
        if i == SAMPLES // 2:
            producer.produce("samples", sample(0, now + YEAR), key=b"ahead", partition=0, timestamp=now + YEAR)
    assert producer.flush(PATIENCE) == 0
    return now - 15


def series(daemon, name):
    lines = [line for line in daemon.get("/metrics")[1].splitlines() if line.startswith(name)]
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}


def settings(work, kafka, name):
    return [f"ingest.brokers={kafka.address}", f"state_dir={work.path / name}", f"model={name}"]


def live(work, kafka, last_ms):
    daemon = work.daemon(work.path / "conf.yaml", work.path / "live.log", settings(work, kafka, "live"))
    wait_until(lambda: daemon.json("/status").get("samples", {}).get("trained") == SAMPLES, "all samples trained")
    wait_until(lambda: series(daemon, "freshet_records_dead_lettered_total") == {'freshet_records_dead_lettered_total{model="live"}': 1}, "a dead letter")
    future = series(daemon, "freshet_records_future_total")
    assert sorted(future.values()) == [0, 1] and next(name for name, n in future.items() if n == 1).find('than="clock"') > 0, future
    auc = daemon.json("/auc")
    assert auc["as_of_ms"] == last_ms, auc
    decayed = auc["tasks"]["click"]["decayed"]
    assert all(decayed[half]["auc"] is not None for half in ("1h", "1d")), decayed
    status = daemon.json("/status")
    assert status["tables"]["user"]["rows"]["ram"] == USERS and status["tables"]["user"]["expired"]["idle"] == 0, status["tables"]
    assert daemon.json("/healthz")["status"] == "ok", daemon.get("/healthz")
    line = next(line for line in daemon.log().splitlines() if "event=record_from_future" in line)
    assert f"topic=samples partition=0 offset={SAMPLES // 2 + 1}" in line and "of_clock=1" in line, line
    daemon.drain()

    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.address, "group.id": "dead", "auto.offset.reset": "earliest"})
    consumer.assign([confluent_kafka.TopicPartition("samples.dead", 0, 0)])
    letter = consumer.poll(PATIENCE)
    reason = dict(letter.headers())["__connect.errors.exception.message"].decode()
    assert letter.key() == b"ahead" and "after the clock of the host that read it, more than ingest.future_max (3600000 ms)" in reason, reason
    consumer.close()
    print(f"live: refused ({reason}), {USERS} users and decayed AUC are there", flush=True)


def lockstep(work, kafka, last_ms):
    ends, step = [], 60000
    for name in ("first", "second"):
        sets = [*settings(work, kafka, name), "ingest.lockstep={records: 64, epoch_batches: 16}", f"ingest.watermark_step_max={step}ms"]
        work.daemon(work.path / "conf.yaml", work.path / f"{name}.log", sets, wait_http=False).expect_exit(0)
        dump = tool("dump", "--state-dir", work.path / name)[1].splitlines()
        private = tool("dump", "--state-dir", work.path / name, "--private")[1].splitlines()
        ends.append({**json.loads(dump[-1]), "hash": json.loads(private[-1])["hash"]})
        assert sum(1 for line in dump if '"table":"user"' in line) == USERS
    assert ends[0]["hash"] == ends[1]["hash"], ends
    assert ends[0]["samples"] == SAMPLES + 1 and last_ms < ends[0]["wm"] <= last_ms + step, (ends[0], last_ms)
    print(f"lockstep: trained, the watermark rose by {ends[0]['wm'] - last_ms} ms beyond the stream, private hash {ends[0]['hash']} twice", flush=True)


def positions(daemon):
    """Returns how many records were delivered, samples trained and records dead-lettered."""
    status = daemon.json("/status")
    places = status.get("partitions", [])
    return sum(p["delivered"] for p in places), status.get("samples", {}).get("trained"), sum(p["dead_lettered"] for p in places)


def send(kafka, topic, first, n, ahead_ms=0):
    producer = confluent_kafka.Producer({"enable.idempotence": True, "bootstrap.servers": kafka.address})
    now = int(time.time() * 1000) + ahead_ms
    for i in range(first, first + n):
        producer.produce(topic, sample(i, now), partition=0, timestamp=now)
    assert producer.flush(PATIENCE) == 0


def set_clock(path, ms):
    with open(path, "r+b" if path.exists() else "w+b") as file:
        file.write(int(ms).to_bytes(8, sys.byteorder, signed=True))


def not_ready(daemon):
    reason = daemon.json("/readyz").get("reason", "")  # an answer that says ready has no reason
    return reason if reason.startswith("paused") else ""


def set_back(work, kafka):
    """This host's clock is three hours behind, in a running daemon and at a start."""
    offset, topic = work.path / "offset", "back"
    create_topic(kafka, topic)
    sets = [*settings(work, kafka, "back"), f"ingest.topic={topic}"]
    shim = {"LD_PRELOAD": BUILD / "tests/integration/libclock_shim.so", "FRESHET_CLOCK": offset}
    set_clock(offset, 0)
    send(kafka, topic, 0, 500)
    daemon = work.daemon(work.path / "conf.yaml", work.path / "back.log", sets, env=shim)
    wait_until(lambda: positions(daemon) == (500, 500, 0), "the first samples trained")
    for live, first in ((True, 500), (False, 3500)):
        if not live:
            daemon.drain()
        set_clock(offset, -3 * 3600000)
        send(kafka, topic, first, 3000)
        if not live:
            daemon = work.daemon(work.path / "conf.yaml", work.path / "back2.log", sets, env=shim)
        reason = wait_until(lambda: not_ready(daemon), "reading pauses")
        assert "is 3 h behind what it showed " + ("before" if live else "at the last epoch") in reason and "set the clock right (NTP)" in reason, reason
        assert positions(daemon) == (first, first, 0), positions(daemon)
        paused = 'freshet_paused{model="back",reason="clock"}'
        wait_until(lambda: series(daemon, paused) == {paused: 1}, "the pause is in /metrics")
        wait_until(lambda: "this host's clock" in str(daemon.json("/healthz")["reasons"]), "/healthz says it")
        set_clock(offset, 0)
        wait_until(lambda: positions(daemon) == (first + 3000, first + 3000, 0), "reading continues by itself")
        wait_until(lambda: daemon.json("/healthz")["status"] == "ok" and daemon.get("/readyz")[0] == 200, "all well")
    daemon.drain()
    print("this host's clock 3 h behind, live and at a start: reading pauses, 0 of 6000 samples refused, and continues by itself", flush=True)


def all_ahead(work, kafka):
    """This host's clock is right and all producers' are two hours ahead."""
    topic = "ahead"
    create_topic(kafka, topic)
    sets = [*settings(work, kafka, "ahead"), f"ingest.topic={topic}"]
    send(kafka, topic, 0, 500)
    daemon = work.daemon(work.path / "conf.yaml", work.path / "ahead.log", sets)
    wait_until(lambda: positions(daemon) == (500, 500, 0), "the first samples trained")
    send(kafka, topic, 500, 1500, 2 * 3600000)
    reason = wait_until(lambda: not_ready(daemon), "reading pauses")
    of_the_last = re.search(r"all of the last (\d+) records lie more than ingest.future_max after this host's clock", reason)
    # on a machine that stands still for seconds, fewer than 1500 are read before the pause; test_clocks.c has the exact numbers
    assert of_the_last and 1000 <= int(of_the_last[1]) <= 1500, reason
    delivered, trained, dead = positions(daemon)
    assert trained == 500 and delivered == 500 + dead and dead < 1000, (delivered, trained, dead)
    daemon.drain()
    send(kafka, topic, 2000, 500)
    daemon = work.daemon(work.path / "conf.yaml", work.path / "ahead2.log", [*sets, "ingest.malformed_max=1"])
    wait_until(lambda: positions(daemon) == (2500, 1000, 1500), "passed over")
    daemon.drain()
    print(f"all producers 2 h ahead: reading pauses with {dead} of 1500 dead-lettered; malformed_max 1 passes over them, 1000 trained", flush=True)


def main():
    with Workspace() as work, Kafka() as kafka:
        (work.path / "conf.yaml").write_text(CONFIG)
        last_ms = produce(kafka)
        live(work, kafka, last_ms)
        lockstep(work, kafka, last_ms)
        set_back(work, kafka)
        all_ahead(work, kafka)
    print("4 passed, 0 failed")


main()
