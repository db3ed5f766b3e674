"""Malformed records for every clause of docs/formats/samples.md, of all four forms in both formats (tests/golden/malformed.jsonl), each between two good ones: every
bad record is dead-lettered with its reason and its original bytes, every good one is trained. Then the whole set is sent many times, and memory stays flat."""
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import confluent_kafka  # noqa: E402
import confluent_kafka.admin  # noqa: E402
import msgpack  # noqa: E402
from harness import *  # noqa: E402,F403

sys.path.insert(0, str(SOURCE / "tests/interop"))
import delta  # noqa: E402


def good(i, form):
    sample = {"t": 1700000000000 + i, "y": {"click": i % 2}, "f": {"user_id": i, "item_id": f"i{i % 7}", "price": 1.5}}
    return msgpack.packb(sample) if form == "msgpack" else json.dumps(sample).encode()


TIME = 1700000000000
ROUNDS, WARM_TURNS, FLAT_TURNS = 2, 3, 12
# Between the first and the last third of the flat turns come 4900 or 6500 malformed records. A block of the heap has at least 24 bytes, so a leak of one block per
# record adds 115 KiB; buffers that happen to be there or not add up to 40. Memory outside the heap (tables, arenas by pages) shows in resident memory, which an
# allocator moves by megabytes.
HEAP_MAX, RESIDENT_MAX = 64 << 10, 8 << 20

def create_topic(kafka, topic):
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": kafka.address})
    for future in admin.create_topics([confluent_kafka.admin.NewTopic(topic, 1, 1, config={"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)})]).values():
        future.result(PATIENCE)


def bytes_of(case):
    return bytes.fromhex(case["hex"]) if "hex" in case else case["text"].encode("utf-8", "surrogatepass")


def settings(work, kafka, topic, form, strict=False):
    return [f"ingest.brokers={kafka.address}", f"ingest.topic={topic}", f"ingest.format={form}", f"state_dir={work.path / topic}", f"model={topic}",
            f"export.topic={topic}.delta", f"ingest.dead_letter_topic={topic}.dead", f"ingest.strict={'true' if strict else 'false'}"]


def read_letters(kafka, topic):
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.address, "group.id": "dead", "auto.offset.reset": "earliest"})
    letters = []
    low, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(f"{topic}.dead", 0), PATIENCE)
    consumer.assign([confluent_kafka.TopicPartition(f"{topic}.dead", 0, low)])
    while len(letters) < high - low:
        message = consumer.poll(PATIENCE)
        assert message is not None and not message.error(), message and message.error()
        letters.append(message)
    consumer.close()
    return letters


def run_form(work, kafka, form, strict, cases):
    """Sends each case between two good samples; its letter, and nothing else, must say why it was refused."""
    topic = f"bad-{form}{'-strict' if strict else ''}"
    create_topic(kafka, topic)
    producer = confluent_kafka.Producer({"enable.idempotence": True, "bootstrap.servers": kafka.address, "message.max.bytes": 4000000})
    for i, case in enumerate(cases):
        producer.produce(topic, good(i, form), partition=0, timestamp=TIME + 1000)
        producer.produce(topic, bytes_of(case), key=f"key-{i}".encode(), headers=[("trace", str(i).encode())], partition=0,
                         timestamp=case.get("timestamp_ms", TIME))
    producer.produce(topic, good(len(cases), form), partition=0, timestamp=TIME + 1000)
    assert producer.flush(PATIENCE) == 0

    work.daemon(SOURCE / "tests/golden/malformed.yaml", work.path / f"{topic}.log", settings(work, kafka, topic, form, strict), ["--until", "end"],
                wait_http=False).expect_exit(0)
    letters = read_letters(kafka, topic)
    assert len(letters) == len(cases), f"{len(letters)} dead letters for {len(cases)} bad records"
    wrong = []
    for i, (case, letter) in enumerate(zip(cases, letters)):
        headers = {name: data.decode() for name, data in letter.headers()}
        assert letter.value() == bytes_of(case) and letter.key() == f"key-{i}".encode() and headers["trace"] == str(i), f"{case['name']}: altered"
        assert headers["__connect.errors.topic"] == topic and headers["__connect.errors.partition"] == "0"
        assert headers["__connect.errors.offset"] == str(2 * i + 1), f"{case['name']}: offset header"
        if case["reason"] not in headers["__connect.errors.exception.message"]:
            wrong.append((case["name"], case["reason"], headers["__connect.errors.exception.message"]))
    assert not wrong, f"{len(wrong)} reasons differ, first: {wrong[0]}"
    replica = delta.Replica(4)
    for partition, records in delta.read_topic(kafka.address, f"{topic}.delta").items():
        for _, value in records:
            replica.feed(partition, value)
    assert replica.commit["samples"] == len(cases) + 1, f"{replica.commit['samples']} good samples trained of {len(cases) + 1}"
    print(f"{topic}: {len(cases)} malformed records dead-lettered with their reasons, {len(cases) + 1} good ones trained", flush=True)


def run_all_bad(work, kafka, lockstep):
    """A bounded run of nothing but malformed records ends with exit 2, sends no letter and leaves none in the producer."""
    topic = "all-bad-lockstep" if lockstep else "all-bad"
    create_topic(kafka, topic)
    producer = confluent_kafka.Producer({"enable.idempotence": True, "bootstrap.servers": kafka.address})
    for i in range(1500):
        producer.produce(topic, json.dumps({"ts": TIME + i, "clicked": 1}).encode(), partition=0)
    assert producer.flush(PATIENCE) == 0
    sets = settings(work, kafka, topic, "json") + (["ingest.lockstep={records: 64, epoch_batches: 16}"] if lockstep else [])
    daemon = work.daemon(SOURCE / "tests/golden/malformed.yaml", work.path / f"{topic}.log", sets, [] if lockstep else ["--until", "end"], wait_http=False)
    daemon.expect_exit(2)
    log = daemon.log()
    assert "all 1000 records since the start are malformed" in log and "a sample is a map with `f`, `y` and `t`, see docs/formats/samples.md" in log, log
    assert "none became a dead letter" in log and "still in queue" not in log and "correct ingest.format" not in log, log
    assert not read_letters(kafka, topic), "letters of records that will be read again"
    print(f"{topic}: exit 2, the shape is named, 0 letters of 1000 malformed records", flush=True)


def resident_bytes(pid):
    return 1024 * int(re.search(r"VmRSS:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1))


def heap_bytes(path):
    """Returns the bytes of all heap blocks in use (heap_shim.c)."""
    return int.from_bytes(path.read_bytes(), sys.byteorder)


def counts(daemon):
    status = daemon.json("/status")
    return status.get("ingest", {}).get("dead_sent"), status.get("samples", {}).get("trained")


# The model does not move, because moving scores would fill new bins of the AUC, which are memory too, though bounded. Epochs are bounded as well: they stay in
# memory until they are folded, within epoch_bytes_max (store/durable/kept.c), and the good samples of a turn make 40 KiB of them.
STILL = ["epoch_bytes_max=64KiB", "network.optimizer={sgd: {lr: 1e-30}}", "tables.user.optimizer={sgd: {lr: 1e-30}}", "tables.item.optimizer={sgd: {lr: 1e-30}}"]


def run_flat(work, kafka, form, cases):
    """The same records again and again, in rounds of equal backlog: after the first rounds memory no longer grows."""
    topic = f"flat-{form}"
    heap = work.path / f"{topic}.heap"
    create_topic(kafka, topic)
    daemon = work.daemon(SOURCE / "tests/golden/malformed.yaml", work.path / f"{topic}.log", settings(work, kafka, topic, form) + STILL,
                         env={"LD_PRELOAD": BUILD / "tests/integration/libheap_shim.so", "FRESHET_HEAP": heap})
    producer = confluent_kafka.Producer({"enable.idempotence": True, "bootstrap.servers": kafka.address, "message.max.bytes": 4000000})

    def turn(number):
        for _ in range(ROUNDS):
            for i, case in enumerate(cases):
                producer.produce(topic, good(i, form), partition=0, timestamp=TIME + 1000)
                producer.produce(topic, bytes_of(case), partition=0, timestamp=case.get("timestamp_ms", TIME))
                producer.poll(0)
        assert producer.flush(PATIENCE) == 0
        n = number * ROUNDS * len(cases)
        wait_until(lambda: counts(daemon) == (n, n), f"{n} letters and {n} trained samples")
        return heap_bytes(heap), resident_bytes(daemon.process.pid)

    sizes = [turn(1 + i) for i in range(WARM_TURNS + FLAT_TURNS)][WARM_TURNS:]
    third = FLAT_TURNS // 3
    first, last = ([statistics.median(column) for column in zip(*part)] for part in (sizes[:third], sizes[-third:]))
    grown = [int(b - a) for a, b in zip(first, last)]
    said = f"turn by turn in KiB: {[(h >> 10, r >> 10) for h, r in sizes]}"
    assert first[0] > 1 << 20, "the heap was not counted"
    assert grown[0] <= HEAP_MAX, f"in {2 * third * ROUNDS * len(cases)} malformed records the heap grows by {grown[0]} bytes; {said}"
    assert grown[1] <= RESIDENT_MAX, f"in {2 * third * ROUNDS * len(cases)} malformed records resident memory grows by {grown[1]} bytes; {said}"
    daemon.drain()
    letters = read_letters(kafka, topic)
    assert len(letters) == (WARM_TURNS + FLAT_TURNS) * ROUNDS * len(cases) and letters[-1].value() == bytes_of(cases[-1])
    print(f"{topic}: {2 * third * ROUNDS * len(cases)} malformed records more change the heap by {grown[0] / 1024:+.0f} KiB of {int(first[0]) >> 20} MiB, "
          f"resident memory by {grown[1] / 1024:+.0f}", flush=True)


def main():
    every = [json.loads(line) for line in open(SOURCE / "tests/golden/malformed.jsonl")]
    assert len(every) >= 200, f"only {len(every)} cases"

    def cases(form, strict):  # a Kafka record always has a timestamp
        return [case for case in every if case["format"] == form and case.get("strict", False) == strict and case.get("timestamp_ms", TIME) > 0]

    with Workspace() as work, Kafka() as kafka:
        for form in ("msgpack", "json"):
            run_form(work, kafka, form, False, cases(form, False))
            run_form(work, kafka, form, True, cases(form, True))
            run_flat(work, kafka, form, cases(form, False))
        for lockstep in (False, True):
            run_all_bad(work, kafka, lockstep)
    print("8 passed, 0 failed")


main()
