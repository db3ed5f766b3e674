"""States of several domains (scale.domains), against real Kafka: nothing that they hold depends on workers, memory or restarts, and learning does not suffer.

One lockstep log with everything that sums over samples or has a limit: groups with a shared part, sequences with attention and a GRU, two tasks, every gate and every rule of
expiry, samples that are quarantined, malformed records, biases from labels, standardized numbers, dice, clip_global_norm, an averaged export; from two topics of 12 and 5
partitions and a file. With 12 domains: one worker, two, and memory for a part of the rows with a drain and a kill -9 on the way. Equal: private hash, model, metrics, ledger
and dead letters. A replica of the delta topic verifies. Another number of domains is refused over the state.

learning: conf/samples/general.yaml on public streams, 8 partitions, batches of one size, with 1 and with 8 domains: AUC within MARGIN.
"""
import pathlib
import random
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import confluent_kafka  # noqa: E402
import confluent_kafka.admin  # noqa: E402
import out_of_box  # noqa: E402
from harness import *  # noqa: E402,F403

MARGIN, DOMAINS, LARGEST, T0 = 0.001, 12, 3.4e38, 1700000000000
RECORDS = {"clicks": 5000, "views": 1500}
PARTITIONS = {"clicks": 12, "views": 5}
FILE_RECORDS = 800
CONFIG = """version: 1
model: domains
state_dir: ./state
seed: 9
memory_limit: 1GiB
unfolded_max: 1MiB
scale: {domains: 12}
ingest:
  brokers: "localhost:9092"
  topics: [clicks, views]
  dead_letter_topic: domains.dead
  format: json
  batch_size: 256
  batch_warmup: {first: 24, growth: 8}
  dense_max: 3.402e38
  malformed_max: 1
  lockstep: {records: 16, epoch_batches: 3}
tables:
  user: {dim: 8, admit: {count: 2, count_max: 300, idle: 30m}, expire: {idle: 40m, every: 1, slice_rows: 512}, optimizer: {adagrad_rowwise: {lr: 0.05}}}
  item:
    parts: {w: {dim: 1, optimizer: {ftrl: {l1: 0.0001}}}, v: {dim: 8, optimizer: {adam: {lr: 0.01}}}}
    admit: {sketch: {min: 2, half_life: 20m, bytes: 768KiB}}
    expire: {rows_max: 1500, every: 1, slice_rows: 512}
  tag: {dim: 4, admit: {probability: 0.5}, expire: {weak: 0.012, score: {min: 0.15, half_life: 20m}, every: 1, slice_rows: 512}, optimizer: {adagrad: {lr: 0.05}}}
slots:
  user_id: {table: user}
  item_id: {table: item}
  history: {table: item, kind: sequence, max_len: 5}
  tags: {table: tag, max_ids: 4}
  price: {kind: dense, transform: [log1p, standardize]}
  size: {kind: dense, dim: 2}
labels: {click: {}, buy: {}}
network:
  layers:
    - {name: interest, attention: {query: item_id.v, keys: history.v}, units: [8], activation: dice}
    - {name: states, gru: history.v, units: 6}
    - {name: latest, last: states}
    - {name: person, mlp: [user_id, price], units: [12]}
    - {name: h, mlp: [person, interest, latest, item_id.v, {mean: tags}, size], units: [16, 8], activation: dice}
    - {name: wide, sum: [item_id.w, {sum: history.w}]}
    - {name: deep, dense: h, units: 1}
    - {name: out, add: [deep, wide]}
    - {name: buys, dense: h, units: 1}
  optimizer: {adam: {lr: 0.005}}
  clip_global_norm: 3
tasks:
  - {name: click, label: click, logit: out}
  - {name: buy, label: buy, logit: buys, loss: {focal: {gamma: 1, alpha: 0.4}}}
export: {partitions: 12, average: {half_life: 2000}}
metrics: {listen: "127.0.0.1:0", auc_half_life: [10m, 1h], gauc_by: user_id, gauc_groups_max: 128}
"""


def item(rng, i):
    f = {"item_id": min(rng.randrange(3000), rng.randrange(3000)), "tags": [rng.randrange(400) for _ in range(rng.randrange(4))],
         "size": [round(rng.gauss(0, 1), 3), LARGEST if i % 257 == 100 else round(rng.gauss(0, 1), 3)]}
    return {"f": f, "y": {"click": int(rng.random() < 0.3), "buy": rng.choice([0, 1, None])}}


def record(rng, i, groups):
    """A plain sample, or a group of one to four that share user, history and price."""
    shared = {"user_id": min(rng.randrange(2500), rng.randrange(2500)), "history": [rng.randrange(3000) for _ in range(rng.randrange(6))]}
    if rng.random() < 0.9:
        shared["price"] = round(rng.expovariate(0.1), 2)
    if groups and i % 2 == 0:
        return {"shared": shared, "items": [item(rng, i + k) for k in range(rng.randrange(1, 5))]}
    plain = item(rng, i)
    return {**plain, "f": {**shared, **plain["f"]}}


def produce(kafka, folder):
    """Uneven partitions, some of them empty; records of the topics are at the same times, which are long past: they must not expire. Returns the path of the file."""
    rng = random.Random(12)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": kafka.address})
    for future in admin.create_topics([confluent_kafka.admin.NewTopic(name, PARTITIONS[name], 1, config={"retention.ms": "-1"}) for name in RECORDS]).values():
        future.result(PATIENCE)
    producer = confluent_kafka.Producer({"enable.idempotence": True, "bootstrap.servers": kafka.address})
    for name, count in RECORDS.items():
        for i in range(count):
            value = {"t": T0 + i * 1500, **record(rng, i, name == "clicks")}
            text = "{broken" if i % 499 == 30 else json.dumps(value)
            partition = min(rng.randrange(PARTITIONS[name]), rng.randrange(PARTITIONS[name] + 2)) if name == "clicks" else rng.choice([0, 2, 3])
            producer.produce(name, text.encode(), partition=partition, timestamp=T0 + i * 1500)
    assert producer.flush(PATIENCE) == 0
    path = folder / "old.jsonl"
    path.write_text("".join(json.dumps({"t": T0 - 3600000 + i * 1000, **record(rng, i, False)}) + "\n" for i in range(FILE_RECORDS)))
    return path


def read_letters(kafka, topic):
    """Source and reason of each letter, without repeats, sorted: a kill may repeat one."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.address, "group.id": topic, "auto.offset.reset": "earliest"})
    letters = set()
    for partition in consumer.list_topics(topic, PATIENCE).topics[topic].partitions:
        low, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, partition), PATIENCE)
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, low)])
        for _ in range(high - low):
            message = consumer.poll(PATIENCE)
            assert message is not None and not message.error(), message and message.error()
            headers = {name.removeprefix("__connect.errors."): data.decode() for name, data in message.headers()}
            letters.add((headers["topic"], headers["partition"], headers["offset"], headers["exception.message"]))
    consumer.close()
    return sorted(letters)


class Cases:
    def __init__(self, work, kafka):
        self.work, self.kafka = work, kafka
        self.config = work.path / "domains.yaml"
        self.config.write_text(CONFIG)
        self.file = produce(kafka, work.path)

    def start(self, name, *sets, **options):
        settings = [f"ingest.brokers={self.kafka.address}", f"ingest.files=[{self.file}]", f"model={name}", f"state_dir={self.work.path / name}",
                    f"export.topic={name}.delta", f"ingest.dead_letter_topic={name}.dead", *sets]
        return self.work.daemon(self.config, self.work.path / f"{name}.log", settings, **options)

    def result(self, name):
        """Everything that must be equal; also that replicas of the delta topic agree with the state."""
        state = self.work.path / name
        verified = tool("verify", "--state-dir", state, "--brokers", self.kafka.address, "--topic", f"{name}.delta")[1]
        assert verified.strip().splitlines()[-1].startswith("verified:"), verified
        end = json.loads(tool("dump", "--private", "--state-dir", state)[1].splitlines()[-1])
        model = json.loads(tool("dump", "--state-dir", state)[1].splitlines()[-1])
        metrics = json.loads(tool("dump", "--state-dir", state, "--metrics")[1])["tasks"]
        described = tool("state", state)[1].splitlines()
        return {"private": end["hash"], "model": model["hash"], "samples": model["samples"], "metrics": metrics, "letters": read_letters(self.kafka, f"{name}.dead"),
                "ledger": [line for line in described if line.startswith("position ")],
                "tables": [line for line in described if line.startswith("table ")]}

    def twelve(self):
        results = {}
        for name, sets in (("one", ["threads=1"]), ("two", ["threads=2"])):
            self.start(name, *sets, wait_http=False).expect_exit(0)
            results[name] = self.result(name)
        small = ["threads=2", "row_memory=600KiB"]
        for stop, after in ((signal.SIGTERM, 4), (signal.SIGKILL, 9)):
            daemon = self.start("small", *small)
            wait_until(lambda: daemon.json("/status").get("durable", 0) > after, f"epoch {after}")
            daemon.process.send_signal(stop)
            daemon.wait_exit()
        self.start("small", *small, wait_http=False).expect_exit(0)
        results["small"] = self.result("small")
        first = results["one"]
        for name, result in results.items():
            for key, value in result.items():
                assert value == first[key], f"{key} of {name}: {value}, of one: {first[key]}"
        letters = [reason for *_, reason in first["letters"]]
        quarantined = sum("quarantined" in reason for reason in letters)
        tables = {table["name"]: {key: int(value) for key, value in table.items() if key != "name"}
                  for table in (dict(pair.split("=") for pair in line.split()[1:]) for line in first["tables"])}
        assert quarantined > 15 and len(letters) - quarantined > 5, letters
        assert tables["user"]["unremembered"] > 0 and tables["user"]["expired_idle"] > 0 and tables["item"]["expired_capacity"] > 0, tables
        assert tables["tag"]["expired_weak"] > 0 and tables["tag"]["expired_score"] > 0, tables
        refused = self.start("one", "scale.domains=6", wait_http=False)
        assert refused.wait_exit() == 3 and "scale.domains: 12 -> 6" in refused.log(), refused.log()[-2000:]
        print(f"   {first['samples']} samples, {len(letters)} letters, private hash {first['private']} three times")

    def learning(self):
        differences = {}
        for name in out_of_box.STREAMS[:1] + out_of_box.STREAMS[3:5]:
            path = stream(name)
            config = self.work.path / f"{name}.yaml"
            out_of_box.renamed(config, *out_of_box.slots_of(path))
            tool("produce", "--brokers", self.kafka.address, "--topic", name, "--file", path, "--partitions", "8", "--format", "msgpack")
            aucs = []
            for domains in (1, 8):
                state = self.work.path / f"{name}-{domains}"
                daemon = self.work.daemon(config, self.work.path / f"{name}-{domains}.log",
                                          [f"ingest.brokers={self.kafka.address}", f"ingest.topic={name}", f"model={name}-{domains}", f"state_dir={state}",
                                           f"scale.domains={domains}", "export.partitions=8", "ingest.lockstep={records: 32, epoch_batches: 512}",
                                           "ingest.batch_warmup={first: 64}"], wait_http=False)
                daemon.expect_exit(0)
                aucs.append(json.loads(tool("dump", "--state-dir", state, "--metrics")[1])["tasks"]["click"]["lifetime"]["auc"])
            differences[name] = aucs[1] - aucs[0]
            print(f"   {name}: AUC {aucs[0]:.5f} with 1 domain, {aucs[1]:.5f} with 8", flush=True)
        assert all(abs(difference) <= MARGIN for difference in differences.values()), differences


def main():
    with Workspace() as work, Kafka() as kafka:
        run_cases(Cases(work, kafka), ["twelve", "learning"])


if __name__ == "__main__":
    main()
