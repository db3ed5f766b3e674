"""`freshetd init` proposes a configuration that `--check` accepts, that decodes the records it was made from, and that learns as well as one that was written by hand.

- kinds: flat JSON records with a field of every kind, from a topic: the proposal's lines, also from MessagePack and after a restart of the log's order; a short run.
- forms: samples and groups in MessagePack, labels of -1 and 1, a label that is no probability; files in place of a topic.
- refused: what cannot be proposed, with the exit code and what to do next.
- streams: on each public stream (loaded as a topic) the proposal's progressive AUC is within MARGIN of conf/samples/general.yaml with its slots named by hand
  (out_of_box.py). At most COUNT samples of each; `init.py streams whole [STREAM...]` takes all of them.
"""
import concurrent.futures
import pathlib
import random
import socket
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import confluent_kafka  # noqa: E402
import msgpack  # noqa: E402
import out_of_box  # noqa: E402
from harness import *  # noqa: E402,F403

MARGIN = 0.005
COUNT = 30000
STREAMS = ("adult", "ml", "grocery", "globo_200k")
BEGIN_S = 1767225600


def init(*arguments, code=0):
    """Returns what `freshetd init` prints: the proposal, or the reason that there is none."""
    done = subprocess.run([BUILD / "daemon/freshetd", "init", *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == code, f"exit {done.returncode} instead of {code}: {done.stderr}"
    assert code == 0 or not done.stdout
    return done.stdout if code == 0 else done.stderr


def line_of(proposal, name):
    """Returns the line of a slot or label, and the comments below it."""
    lines = proposal.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(f"  {name}: "))
    end = at + 1
    while lines[end].startswith("    # "):
        end += 1
    return "\n".join(line.strip() for line in lines[at:end])


def flat_records(n):
    """Records with a field of every kind; the click follows the item and the price."""
    draw = random.Random(1)
    for i in range(n):
        item, price = int(300 * draw.random() ** 2), round(draw.expovariate(0.02), 2)
        record = {"ts": BEGIN_S + i // 10, "user": {"id": 100000 + int(4000 * draw.random() ** 2), "premium": draw.random() < 0.2}, "item": f"sku-{item}",
                  "history": [f"sku-{int(300 * draw.random() ** 2)}" for _ in range(draw.randrange(4))], "tags": draw.sample(["a", "b", "c", "d"], 2),
                  "price": price, "vector": [round(draw.gauss(0, 1), 3) for _ in range(3)], "age": draw.randrange(18, 80), "hour": i // 400 % 24, "slot": draw.randrange(5),
                  "mixed": draw.randrange(9) if i % 50 else "none", "signup": BEGIN_S - draw.randrange(10 ** 7), "at": "2026-01-01T00:00:00Z", "request_id": f"{i:08x}-q",
                  "wide": "x y", "comment": "a text of more than three words", "amount": f"{price:.2f}", "more": [{"a": 1}], "deep": {"a": {"b": {"c": {"d": {"e": {"f": i % 7}}}}}}, "nothing": None,
                  "odd name\n": "n", "clicked": draw.random() < (0.1 + 0.6 * (item % 3 == 0)), "bought": draw.random() < 0.02}
        if i % 4 == 0:
            del record["age"]
        yield record


class Cases:
    def __init__(self, work, kafka):
        self.work, self.kafka = work, kafka
        self.producer = confluent_kafka.Producer({"bootstrap.servers": kafka.address, "max.in.flight": 1, "log_level": 0})

    def fill(self, topic, values, partitions=2):
        tool("topic", "create", "--brokers", self.kafka.address, "--topic", topic, "--partitions", partitions)
        for i, value in enumerate(values):
            self.producer.produce(topic, value, partition=i % partitions)
            self.producer.poll(0)
        self.producer.flush(PATIENCE)

    def of_topic(self, topic, *arguments, code=0):
        return init("--brokers", self.kafka.address, "--topic", topic, *arguments, code=code)

    def check(self, name, proposal):
        config = self.work.path / f"{name}.yaml"
        config.write_text(proposal)
        done = subprocess.run([BUILD / "daemon/freshetd", "--config", config, "--check"], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{proposal}"
        return config

    def lifetime(self, config, name, sets=()):
        state = self.work.path / f"{name}-state"
        daemon = self.work.daemon(config, self.work.path / f"{name}.log", [f"model={name}", f"state_dir={state}", *sets], ["--until", "end"], wait_http=False)
        daemon.expect_exit(0)
        return json.loads(tool("dump", "--state-dir", state, "--metrics")[1])["tasks"]

    def kinds(self):
        records = list(flat_records(8000))
        self.fill("flat", [json.dumps(record) for record in records])
        proposal = self.of_topic("flat")
        golden = SOURCE / "tests/golden/init_flat.yaml"
        text = proposal.replace(self.kafka.address, "BROKERS")
        if os.environ.get("FR_UPDATE"):
            golden.write_text(text)
        assert text == golden.read_text(), f"not {golden} (FR_UPDATE=1 writes it):\n{text}"
        assert proposal == self.of_topic("flat"), "the same records give the same proposal"
        assert "# All of them decode with this configuration." in proposal
        self.fill("flat_msgpack", [msgpack.packb(record) for record in records])
        packed = self.of_topic("flat_msgpack", "--model", "flat")
        assert packed == proposal.replace('topic: "flat"', 'topic: "flat_msgpack"').replace("format: json", "format: msgpack")
        tasks = self.lifetime(self.check("flat", proposal), "flat")
        assert tasks["clicked"]["lifetime"]["weight"] == len(records) and tasks["clicked"]["lifetime"]["auc"] > 0.7, tasks
        newest = self.of_topic("flat", "--records", 10)
        assert "from 10 records: the newest of 8000 in 2 partitions" in newest
        assert "slots" in self.of_topic("flat", "--label", "bought", "--label", "clicked").split("labels:")[0]

    def forms(self):
        draw = random.Random(2)
        samples = [{"t": 1000 * BEGIN_S + i, "y": {"dwell": 20 * draw.random()}, "f": {"user_id": i % 900, "x": draw.random(), "flag": bool(i % 2)}} for i in range(2000)]
        self.fill("dwell", [msgpack.packb(sample) for sample in samples] + [b"\xc1 neither"])
        proposal = self.of_topic("dwell")
        assert "# 1 of them are refused by this configuration, the first because: $:" in proposal and "loss: mse" in proposal
        assert '  # left out: "flag": booleans' in proposal and "envelope" not in proposal
        self.check("dwell", proposal)
        groups = [{"t": 1000 * BEGIN_S + i, "shared": {"user_id": f"u{i % 50}", "hist": [f"i{i % 40}", f"i{i % 30}"]},
                   "items": [{"f": {"item": f"i{(i + k) % 60}"}, "y": {"click": 1 if k == i % 3 else -1}} for k in range(3)]} for i in range(500)]
        file = self.work.path / "groups.jsonl"
        file.write_text("".join(json.dumps(group) + "\n" for group in groups))
        proposal = init("--file", file, "--model", "grouped")
        assert "click: {negative: -1}   # in 100 %; 1 in 33.3 %" in proposal, proposal
        assert line_of(proposal, "user_id").startswith('user_id: {table: context, namespace: user_id}   # id in 100 %; 50 different: "u0", "u1"')
        assert line_of(proposal, "hist").startswith("hist: {table: item, kind: sequence, max_len: 50}   # history of 2 in 100 %")
        tasks = self.lifetime(self.check("grouped", proposal), "grouped")
        assert tasks["click"]["lifetime"]["weight"] == 1500, tasks
        numbers = self.work.path / "numbers.jsonl"
        numbers.write_text("".join(json.dumps({"y": i % 2, "f": {"values": 0.5 * i, "n.m": 1.5}}) + "\n" for i in range(20)))
        proposal = init("--file", numbers)
        assert 'values_2: {kind: dense, transform: standardize, key: "values"}' in proposal and "tables:" not in proposal
        self.check("numbers", proposal)
        self.names()

    def names(self):
        """What other people name their fields becomes neither options nor an error, and a field of strings and lists in equal parts is an id."""
        option = "\nsnapshot: {hook: [/bin/false]}\n#"
        fields = {"null": "a", "one\x7ftwo\x80three\ufffe": "b", "line\u2028break": "c", **{f"n{option}".replace("\n", end): [] for end in "\n\x85\u2028\u2029"}}
        file = self.work.path / "names.jsonl"
        file.write_text("".join(json.dumps({"ts": BEGIN_S + i, "click": i % 2, **fields, "some": ["x"] if i % 2 else "y"}) + "\n" for i in range(20)))
        proposal = init("--file", file)
        config = self.check("names", proposal)
        printed = subprocess.run([BUILD / "daemon/freshetd", "--config", config, "--print-config"], capture_output=True, text=True, timeout=PATIENCE)
        assert printed.returncode == 0 and "/bin/false" not in printed.stdout, printed
        assert 'null_2: {table: context, namespace: null_2, key: "null"}' in proposal and 'key: "line\\u2028break"' in proposal, proposal
        assert proposal.count("/bin/false") == 4 and all(line.startswith("  # left out: ") for line in proposal.splitlines() if "/bin/false" in line), proposal
        assert "# All of them decode with this configuration." in proposal and "some: {table: context, namespace: some}" in proposal, proposal

    def refused(self):
        brokers = self.kafka.address
        assert "freshet topic create" in init("--brokers", brokers, "--topic", "nowhere", code=2)
        self.fill("empty", [])
        code, _, said = tool("topic", "create", "--brokers", brokers, "--topic", "empty", check=False)
        assert code == 1 and "there already and was not changed: topic=empty partitions=2 replication=1 retention.ms=604800000 cleanup.policy=delete" in said, said
        assert "has no records: write some" in self.of_topic("empty", code=75)
        self.fill("avro", [b"\x00\x00\x00\x00\x07abc"] * 20)
        assert "begins with \\x00\\x00\\x00\\x00\\x07\\x61" in self.of_topic("avro", code=2)
        self.fill("unlabelled", [json.dumps({"user": i, "a": i % 2, "b": 1}) for i in range(20)])
        said = self.of_topic("unlabelled", code=2)
        assert "name the label by --label PATH" in said and "a, b" in said, said
        self.check("unlabelled", self.of_topic("unlabelled", "--label", "a"))
        assert "no record of the sample has this field" in self.of_topic("unlabelled", "--label", "c", code=2)
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        assert "start the brokers, or correct --brokers" in init("--brokers", f"127.0.0.1:{port}", "--topic", "t", code=75)
        assert "either --brokers and --topic, or --file" in init("--topic", "t", code=2)
        assert "No such file" in init("--file", "/nowhere.jsonl", code=3)
        assert "see freshetd init --help" in init("--record", "5", code=2)

    def compare(self, name, count):
        """Returns the AUC of the proposal and that of the general model on a stream."""
        path, topic = stream(name), f"stream-{name}"
        tool("produce", "--brokers", self.kafka.address, "--topic", topic, "--file", path, *(["--count", count] if count else []))
        proposed = self.check(f"{name}-proposed", self.of_topic(topic))
        general = self.work.path / f"{name}-general.yaml"
        out_of_box.renamed(general, *out_of_box.slots_of(path))
        sets = [f"ingest.brokers={self.kafka.address}", f"ingest.topic={topic}"]
        runs = [self.lifetime(config, config.stem, sets)["click"]["lifetime"] for config in (proposed, general)]
        return [run["auc"] for run in runs], runs[0]["weight"]

    def streams(self, names=STREAMS, count=COUNT):
        for name in names:
            stream(name)
        failures = []
        print(f"{'stream':<12}{'samples':>9}{'proposed':>10}{'general':>9}{'difference':>12}", flush=True)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for name, ((proposed, general), samples) in zip(names, pool.map(lambda name: self.compare(name, count), names)):
                print(f"{name:<12}{samples:>9.0f}{proposed:>10.4f}{general:>9.4f}{proposed - general:>+12.4f}", flush=True)
                if not proposed >= general - MARGIN:
                    failures.append(name)
        assert not failures, f"more than {MARGIN} below the general model: {', '.join(failures)}"


def main():
    with Workspace() as work, Kafka() as kafka:
        cases = Cases(work, kafka)
        if sys.argv[1:3] == ["streams", "whole"]:
            cases.streams(sys.argv[3:] or (*STREAMS, "hillstrom", "open_bandit"), 0)
        else:
            run_cases(cases, ["kinds", "forms", "refused", "streams"])  # the last one may be skipped


main()
