"""The same samples in every form and both codecs, through real Kafka: the states they train must be equal.

Without anything shared all forms must give the same bytes. With groups every form that carries them must give the same bytes, and their expansion into plain
samples the same keys, counts and labels with values that differ by rounding only (shared parts are computed once, so sums run in another order).

A replica of any of those delta topics (`freshet score`) then gives the same scores for the same samples: the same bytes among the forms that carry groups and
among those that do not, within 1e-5 in the logit between the two (P12)."""
import math
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import confluent_kafka  # noqa: E402
import confluent_kafka.admin  # noqa: E402
from harness import *  # noqa: E402,F403

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import samples  # noqa: E402

GROUPS, GROUP_SIZE = 400, 8  # 64 samples a batch: groups end where batches do
START_MS = 1700000000000
SHARED = ("user_id", "history", "age", "vector")


def random_item(rng, t):
    item = {"f": {"item_id": rng.choice([rng.randrange(150), f"i-{rng.randrange(150)}"]), "price": round(rng.random() * 50, 3)},
            "y": {"click": rng.randrange(2), "buy": rng.choice([0, 1, None])}, "t": t}
    if rng.random() < 0.7:
        tags = [rng.randrange(40) for _ in range(rng.randrange(7))]
        item["f"]["tags"] = {"i": tags, "w": [round(rng.random() + 0.5, 3) for _ in tags]} if rng.random() < 0.5 else tags
    if rng.random() < 0.7:
        item["f"]["context"] = rng.choice(["05", "5", "home", "Grüße", "中文"])
    if rng.random() < 0.8:
        item["f"]["seen_at"] = (t - rng.randrange(10**9)) // 2**18 * 2**18  # an f32: packed columns say the same
    if rng.random() < 0.3:
        item["w"] = rng.choice([0, 2, {"click": 0.5, "buy": 3}])
    if rng.random() < 0.2:
        item["u"] = rng.choice([1, 2, 3])
    if rng.random() < 0.3:
        item["s"] = rng.choice([0.25, 0.5, 1])
    return item


def random_groups(rng, shared):
    t = START_MS
    for _ in range(GROUPS if shared else GROUPS * GROUP_SIZE):
        t += rng.randrange(400)
        f = {"user_id": rng.randrange(200), "history": [rng.randrange(150) for _ in range(rng.randrange(10))]}
        if rng.random() < 0.9:
            f["age"] = rng.randrange(18, 80)
        f["vector"] = [round(rng.gauss(0, 1), 4) for _ in range(3)]
        items = [random_item(rng, t + rng.choice([0, 0, i])) for i in range(GROUP_SIZE if shared else 1)]
        if shared:
            yield {"shared": f, "items": items}
        else:
            yield {"shared": {}, "items": [{**items[0], "f": {**f, **items[0]["f"]}}]}


class Run:
    """Trains one topic to its end; keeps the rows of the private dump (values, optimizer state, seen, counters, pending) and the dense parameters."""

    def __init__(self, work, kafka, topic, values, codec):
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": kafka.address})
        for future in admin.create_topics([confluent_kafka.admin.NewTopic(topic, 1, 1)]).values():
            future.result(PATIENCE)
        producer = confluent_kafka.Producer({"enable.idempotence": True, "bootstrap.servers": kafka.address, "linger.ms": 5})
        self.records = 0
        for value in values:
            producer.produce(topic, value, partition=0)
            producer.poll(0)
            self.records += 1
        assert producer.flush(PATIENCE) == 0
        state = work.path / topic
        sets = [f"ingest.brokers={kafka.address}", f"ingest.topic={topic}", f"ingest.format={codec}", f"state_dir={state}", f"export.topic={topic}.delta"]
        work.daemon(SOURCE / "tests/interop/forms.yaml", work.path / f"{topic}.log", sets, ["--until", "end"], wait_http=False).expect_exit(0)
        self.lines = [line for line in tool("dump", "--state-dir", state, "--private")[1].splitlines() if line.startswith(('{"table"', '{"dense"'))]
        self.metrics = json.loads(tool("dump", "--state-dir", state, "--metrics")[1])["tasks"]
        shutil.rmtree(state)


def close(a, b, where):
    """Equal except for rounding."""
    if isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a:
            close(a[key], b[key], f"{where}.{key}")
    elif isinstance(a, list):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b)):
            close(x, y, f"{where}[{i}]")
    elif isinstance(a, float) or isinstance(b, float):
        assert abs(a - b) <= 2e-4 + 2e-3 * max(abs(a), abs(b)), f"{where}: {a} {b}"
    else:
        assert a == b, f"{where}: {a} {b}"


def compare(name, runs):
    first, base = next(iter(runs.items()))
    for form, run in runs.items():
        for number, (a, b) in enumerate(zip(base.lines, run.lines), 1):
            assert a == b, f"{name}: {first} and {form} differ in line {number}:\n{a[:400]}\n{b[:400]}"
        assert len(base.lines) == len(run.lines), f"{name}: {first} and {form}"
        assert base.metrics == run.metrics, f"{name}: metrics of {first} and {form}"
    rows = sum(line.startswith('{"table"') for line in base.lines)
    assert rows > 300, f"only {rows} rows"
    print(f"{name}: {', '.join(f'{form} ({run.records} records)' for form, run in runs.items())}: {rows} rows, {len(base.lines) - rows} other lines equal", flush=True)


def logit(p):
    return math.log(p / (1 - p))


class Scores:
    """What replicas of the delta topics answer for the same groups in every form."""

    def __init__(self, work, kafka, groups):
        self.work, self.kafka, self.files = work, kafka, {}
        plain = [{"shared": {}, "items": [sample]} for group in groups for sample in samples.expanded(group)]
        for name, form, source, pack in (("sample", "sample", plain, 1), ("array of samples", "array", plain, 9), ("block of samples", "block", plain, 50),
                                         ("group", "group", groups, 1), ("array of groups", "array", groups, 7), ("block of groups", "block", groups, 16)):
            self.files[name] = work.path / f"{name}.jsonl"
            self.files[name].write_bytes(b"\n".join(samples.records(source, form, "json", pack)))

    def of(self, topic, name):
        lines = tool("score", "--brokers", self.kafka.address, "--topic", f"{topic}.delta", "--file", self.files[name])[1].splitlines()
        return [json.loads(line) for line in lines]

    def check(self, topics):
        plain, *others = [self.of(topics[0], name) for name in ("sample", "array of samples", "block of samples")]
        carried, *more = [self.of(topics[0], name) for name in ("group", "array of groups", "block of groups")]
        assert all(other == plain for other in others), "plain forms score differently"
        assert all(other == carried for other in more), "forms with groups score differently"
        assert len(plain) == len(carried) and len({score["buy"] for score in plain}) > len(plain) / 2, "a score for every sample, not one for all"
        for a, b in zip(plain, carried):
            assert abs(a["buy"] - a["click"] * a["cvr"]) <= 1e-6, f"probability of the product: {a}"
            for task in a:
                bound = 1e-5 + 2 ** -23 / (1 - a[task])  # a printed probability is an f32
                assert abs(logit(a[task]) - logit(b[task])) <= bound, f"{task}: {a} plain, {b} in a group"
        for topic in topics[1:]:
            assert self.of(topic, "group") == carried and self.of(topic, "sample") == plain, f"{topic}: equal states, other scores"
        print(f"scores: {len(plain)} samples in 6 forms from {len(topics)} topics equal")


def main():
    rng = random.Random(11)
    plain, grouped = list(random_groups(rng, False)), list(random_groups(rng, True))
    ways = [("sample", "msgpack"), ("sample", "json"), ("array", "msgpack"), ("array", "json"), ("block", "msgpack"), ("block", "json"), ("packed", "msgpack")]
    dense = ("price", "age", "vector", "seen_at")
    with Workspace() as work, Kafka() as kafka:
        def run(name, groups, form, codec):
            return Run(work, kafka, f"{name}-{form}-{codec}", samples.records(groups, form, codec, rng.choice([1, 7, 40]), dense), codec)

        compare("plain", {f"{form}/{codec}": run("plain", plain, form, codec) for form, codec in ways})
        carried = {f"{form}/{codec}": run("grouped", grouped, form if form != "sample" else "group", codec) for form, codec in ways}
        compare("grouped", carried)
        expansion = run("expanded", grouped, "sample", "msgpack")
        base = next(iter(carried.values()))
        assert len(base.lines) == len(expansion.lines), f"{len(base.lines)} lines of groups, {len(expansion.lines)} of plain samples"
        for a, b in zip(base.lines, expansion.lines):
            close(json.loads(a), json.loads(b), a[:80])
        print(f"expanded: {len(base.lines)} lines equal except for rounding")
        unseen = list(random_groups(random.Random(12), True))[:20]
        Scores(work, kafka, grouped[-40:] + unseen).check(["grouped-group-msgpack", "grouped-block-json", "grouped-packed-msgpack"])
    print(f"{2 * len(ways) + 2} passed, 0 failed")


main()
