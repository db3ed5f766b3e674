"""One malformed record for every clause of DESIGN section 6 that form 1 and arrays can break (tests/golden/malformed.jsonl), each between two good ones:
every bad one is dead-lettered with its reason and its original bytes, every good one is trained."""
import pathlib
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


def run_form(work, kafka, form, strict, cases):
    topic = f"bad-{form}{'-strict' if strict else ''}"
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": kafka.address})
    for future in admin.create_topics([confluent_kafka.admin.NewTopic(topic, 1, 1, config={"retention.ms": "-1"})]).values():
        future.result(30)
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.address, "message.max.bytes": 4000000})
    sent = []
    for i, case in enumerate(cases):
        value = bytes.fromhex(case["hex"]) if "hex" in case else case["text"].encode("utf-8", "surrogatepass")
        producer.produce(topic, good(i, form), partition=0, timestamp=TIME + 1000)
        producer.produce(topic, value, key=f"key-{i}".encode(), headers=[("trace", str(i).encode())], partition=0,
                         timestamp=case.get("timestamp_ms", TIME))
        sent.append((case, value))
    producer.produce(topic, good(len(cases), form), partition=0, timestamp=TIME + 1000)
    assert producer.flush(60) == 0

    state = work.path / topic
    daemon = work.daemon(SOURCE / "tests/golden/malformed.yaml", work.path / f"{topic}.log",
                         [f"ingest.brokers={kafka.address}", f"ingest.topic={topic}", f"ingest.format={form}", f"state_dir={state}", f"model={topic}",
                          f"export.topic={topic}.delta", f"ingest.dead_letter_topic={topic}.dead",
                          f"ingest.strict={'true' if strict else 'false'}"], ["--until", "end"], wait_http=False)
    daemon.expect_exit(0, 120)

    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.address, "group.id": "dead", "auto.offset.reset": "earliest"})
    letters = []
    low, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(f"{topic}.dead", 0), 10)
    consumer.assign([confluent_kafka.TopicPartition(f"{topic}.dead", 0, low)])
    while len(letters) < high - low:
        message = consumer.poll(10)
        assert message is not None and not message.error(), message and message.error()
        letters.append(message)
    consumer.close()
    assert len(letters) == len(sent), f"{len(letters)} dead letters for {len(sent)} bad records"
    wrong = []
    for i, ((case, value), letter) in enumerate(zip(sent, letters)):
        headers = {name: data.decode() for name, data in letter.headers()}
        assert letter.value() == value and letter.key() == f"key-{i}".encode() and headers["trace"] == str(i), f"{case['name']}: altered"
        assert headers["__connect.errors.topic"] == topic and headers["__connect.errors.partition"] == "0"
        assert headers["__connect.errors.offset"] == str(2 * i + 1), f"{case['name']}: offset header"
        if case["reason"] not in headers["__connect.errors.exception.message"]:
            wrong.append((case["name"], case["reason"], headers["__connect.errors.exception.message"]))
    assert not wrong, f"{len(wrong)} reasons differ, first: {wrong[0]}"
    replica = delta.Replica(4)
    for partition, records in delta.read_topic(kafka.address, f"{topic}.delta").items():
        for _, value in records:
            replica.feed(partition, value)
    assert replica.commit["samples"] == len(sent) + 1, f"{replica.commit['samples']} good samples trained of {len(sent) + 1}"
    print(f"{topic}: {len(sent)} malformed records dead-lettered with their reasons, {len(sent) + 1} good ones trained", flush=True)


def main():
    cases = [json.loads(line) for line in open(SOURCE / "tests/golden/malformed.jsonl")]
    assert len(cases) >= 60, f"only {len(cases)} cases"
    with Workspace() as work, Kafka() as kafka:
        runs = [(form, strict) for form in ("msgpack", "json") for strict in (False, True)]
        for form, strict in runs:
            run_form(work, kafka, form, strict, [case for case in cases if case["format"] == form and case.get("strict", False) == strict
                                                       and case.get("timestamp_ms", TIME) > 0])  # a Kafka record always has a timestamp
    print(f"{len(runs)} passed, 0 failed")


main()
