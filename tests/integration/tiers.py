"""Tables larger than memory, against real Kafka.

Lockstep: one stream with memory for all rows, for about a third (and a memory_reserve) and for about a tenth of them, the last with a drain and a kill -9
on the way: rows leave memory, and the private hashes are equal. Live: a daemon whose rows are more than its memory_limit trains to the end of the stream, and
what it keeps resident stays within a tenth of the limit, with a memory_reserve and without. Damaged: bits turn in every block of the cold store under a daemon
that reads from it, and it ends with exit 3, the file's name and what to do, as often as it is started; with the bits turned back the run continues, and its
private hash is the same.
"""
import os
import pathlib
import random
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import confluent_kafka  # noqa: E402
import confluent_kafka.admin  # noqa: E402
from harness import *  # noqa: E402,F403

SAMPLES, USERS, ITEMS, WIDE = 40000, 30000, 40000, 220000
TABLE_MAGIC = (0x88E241B785F4CFF7).to_bytes(8, "little")
LOCKSTEP = """version: 1
model: tiers
state_dir: ./state
seed: 3
memory_limit: 1GiB
ingest: {brokers: "localhost:9092", topic: tiers, format: json, batch_size: 128, lockstep: {records: 128, epoch_batches: 4}}
tables:
  user: {dim: 16, admit: {count: 2}, expire: {idle: 3h, every: 1, slice_rows: 1024}, optimizer: {adagrad_rowwise: {lr: 0.05}}}
  item: {dim: 16, expire: {idle: 6h, every: 2, slice_rows: 2048}, optimizer: {adagrad_rowwise: {lr: 0.05}}}
  page: {dim: 4, admit: {sketch: {min: 2, half_life: 1h, bytes: 256KiB}}, optimizer: {adagrad: {lr: 0.05}}}
slots:
  user_id: {table: user}
  history: {table: item, kind: sequence, max_len: 4}
  page_id: {table: page}
labels: {click: {}}
network:
  layers:
    - {name: x, concat: [user_id, {mean: history}, page_id]}
    - {name: h, mlp: x, units: [8]}
    - {name: out, dense: h, units: 1}
tasks: [{name: click, label: click, logit: out}]
unfolded_max: 512KiB
export: {partitions: 1}
metrics: {listen: "127.0.0.1:0", auc_half_life: [1h]}
"""
LIVE = """version: 1
model: live
state_dir: ./state
memory_limit: 256MiB
epoch_bytes_max: 4MiB
unfolded_max: 16MiB
ingest: {brokers: "localhost:9092", topic: wide, format: json, batch_size: 256, batch_wait: 5ms}
tables: {wide: {dim: 256, optimizer: {adagrad_rowwise: {lr: 0.05}}}}
slots: {id: {table: wide}}
labels: {click: {}}
network: {layers: [{name: out, dense: id, units: 1}]}
tasks: [{name: click, label: click, logit: out}]
epoch: 200ms
export: {partitions: 1}
metrics: {listen: "127.0.0.1:0", auc_half_life: [1h]}
"""


def produce(address, topic, samples):
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([confluent_kafka.admin.NewTopic(topic, 1, 1)]).values():
        future.result(PATIENCE)
    producer = confluent_kafka.Producer({"enable.idempotence": True, "bootstrap.servers": address, "queue.buffering.max.messages": 1000000})
    for i, sample in enumerate(samples):
        producer.produce(topic, json.dumps(sample).encode(), partition=0)
        if i % 1000 == 0:
            producer.poll(0)
    assert producer.flush(PATIENCE) == 0


def stream():
    rng = random.Random(5)
    for i in range(SAMPLES):
        yield {"t": 1700000000000 + i * 1000, "y": {"click": int(rng.random() < 0.3)},
               "f": {"user_id": min(rng.randrange(USERS), rng.randrange(USERS)), "history": [rng.randrange(ITEMS) for _ in range(rng.randrange(5))],
                     "page_id": min(rng.randrange(9000), rng.randrange(9000))}}


def evicted(daemon):
    return sum(table["evictions"] for table in daemon.json("/status").get("tables", {}).values())


def lockstep(work, kafka, name, row_memory, disturbed=False, reserve=0):
    settings = [f"ingest.brokers={kafka.address}", f"state_dir={work.path / name}", f"export.topic={name}.delta", f"row_memory={row_memory}",
                f"memory_reserve={reserve}"]
    start = lambda **more: work.daemon(work.path / "lockstep.yaml", work.path / f"{name}.log", settings, **more)
    if disturbed:
        for stop, after in ((signal.SIGTERM, 20), (signal.SIGKILL, 40)):
            daemon = start()
            wait_until(lambda: daemon.json("/status").get("durable", 0) > after and evicted(daemon) > 0, f"epoch {after}, and rows that left memory")
            daemon.process.send_signal(stop)
            daemon.wait_exit()
    start(wait_http=False).expect_exit(0)
    return private_hash(work.path / name)


def turn_bits(files):
    """Flips one bit in each KiB; a second call restores the files."""
    for path in files:
        with open(path, "r+b") as file:
            content = bytearray(file.read())
            content[::1024] = bytes(byte ^ 16 for byte in content[::1024])
            file.seek(0)
            file.write(content)


def stop_between_merges(daemon, state):
    """Stops the daemon; returns its cold files, or continues it and returns [] if a merge is writing one (a whole file ends with RocksDB's number). A merge that read
    its inputs before the damage would replace the damaged files."""
    daemon.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: pathlib.Path(f"/proc/{daemon.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T", "the daemon stands still")
    files = sorted((state / "cold").glob("*.sst"))
    if files and all(path.read_bytes()[-8:] == TABLE_MAGIC for path in files):
        return files
    daemon.process.send_signal(signal.SIGCONT)
    return []


def damaged(work, kafka):
    state = work.path / "damaged"
    settings = [f"ingest.brokers={kafka.address}", f"state_dir={state}", "export.topic=damaged.delta", "row_memory=700KiB"]
    start = lambda **more: work.daemon(work.path / "lockstep.yaml", work.path / "damaged.log", settings, **more)
    daemon = start()
    wait_until(lambda: evicted(daemon) > 1000, "rows that left memory")
    files = []
    wait_until(lambda: files.extend(stop_between_merges(daemon, state)) or files, "folded, and no merge is writing")
    kept = work.path / "kept"
    kept.mkdir()

    def damage(paths):
        for path in paths:
            (kept / path.name).write_bytes(path.read_bytes())
        turn_bits(paths)

    damage(files)
    daemon.process.send_signal(signal.SIGCONT)
    for attempt in range(2):  # an operator starts the daemon once more
        daemon.expect_exit(3)
        errors = [line for line in daemon.log().splitlines() if "level=error" in line]
        assert any(".sst" in line and "--restore" in line and str(state / "cold") in line for line in errors), daemon.log()[-3000:]
        assert "event=drained" not in daemon.log(), "trained to the end beside a damaged store"
        if attempt == 0:
            damage([path for path in sorted((state / "cold").glob("*.sst")) if not (kept / path.name).exists()])  # of a fold or merge since
            daemon = start(wait_http=False)
    for path in kept.iterdir():
        (state / "cold" / path.name).write_bytes(path.read_bytes())
    start(wait_http=False).expect_exit(0)
    return private_hash(state)


def private_hash(state):
    return json.loads(tool("dump", "--private", "--state-dir", state)[1].strip().splitlines()[-1])["hash"]


def live(work, kafka, name, reserve):
    limit = 256 << 20
    settings = [f"ingest.brokers={kafka.address}", f"state_dir={work.path / name}", f"model={name}", f"export.topic={name}.delta", f"memory_reserve={reserve}"]
    daemon = work.daemon(work.path / "live.yaml", work.path / f"{name}.log", settings)
    most = 0

    def done():
        nonlocal most
        resident = int(pathlib.Path(f"/proc/{daemon.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
        most = max(most, resident)
        return daemon.json("/status").get("samples", {}).get("trained") == WIDE + WIDE // 8

    wait_until(done, "all samples trained, beyond memory_limit")
    tables = daemon.json("/status")["tables"]["wide"]
    print(f"at most {most >> 20} MiB of {limit >> 20}; {tables['evictions']} rows left memory, {tables['resident']} of {WIDE} are there")
    assert ("event=reserved bytes=100663296" in daemon.log()) == (reserve == "96MiB")
    assert tables["evictions"] > 0 and tables["resident"] < WIDE, tables
    assert most <= limit * 1.1, f"{most} bytes resident, memory_limit is {limit}"
    daemon.drain()
    out = tool("verify", "--state-dir", work.path / name, "--brokers", kafka.address, "--topic", f"{name}.delta")[1]
    assert out.strip().splitlines()[-1].startswith("verified:"), out


def main():
    with Workspace() as work, Kafka() as kafka:
        (work.path / "lockstep.yaml").write_text(LOCKSTEP)
        (work.path / "live.yaml").write_text(LIVE)
        produce(kafka.address, "tiers", stream())
        hashes = [lockstep(work, kafka, "all", 0), lockstep(work, kafka, "third", "2200KiB", reserve="4MiB"), lockstep(work, kafka, "tenth", "700KiB", disturbed=True)]
        assert len(set(hashes)) == 1, hashes
        print(f"ok lockstep: private hash {hashes[0]} with memory for all, a third and a tenth of the rows")
        assert damaged(work, kafka) == hashes[0]
        print("ok damaged: refused by name until it is mended, and nothing is lost")
        produce(kafka.address, "wide", ({"y": {"click": i % 2}, "f": {"id": i % WIDE}} for i in range(WIDE + WIDE // 8)))
        live(work, kafka, "live", 0)
        live(work, kafka, "reserved", "96MiB")
        print("ok live: memory_limit holds, with and without a reserve")
    print("3 passed, 0 failed")


main()
