"""Ten and more seeded kill -9 in lockstep mode on real Kafka, then the proof that they changed nothing.

Each kill comes after at least one new durable epoch; at least three leave epochs that are not on the delta topic yet and at least two fall inside a fold.
After each kill nothing beyond the HWM may be on the topic, and what is there must be byte by byte what an uninterrupted run published. At the end:
the private hash equals that of the uninterrupted run, delta records of both runs are equal epoch by epoch, no (p, tl, e, i) has two contents on the raw
topic, every sample is counted once (a feature of its own), and a replica verifies. Some samples have a weight that makes gradients overflow: single ones are
left out of their batches (counted as quarantined, and nowhere else), and stretches of only such samples hold publishing for a while; the records of the former,
and no sound one, are on the dead-letter topic, in the uninterrupted run once. Records have every form,
the first come from files, the others from two topics, and some are so long that epochs end, and at least one kill finds the state, inside a record.

With --tiers the model has sketch gates and every rule of expiry (kill_tiers.yaml), and the killed run's row_memory is at most a tenth of what its tables
need (checked), while the uninterrupted run has all rows in memory.

    python3 tests/fault/kill_loop.py [--seed S] [--freshetd PROGRAM] [--tiers [--limit SIZE]]

The kills come from tests/fault/kill_shim.c, which is preloaded; the product has no failpoints.
"""
import argparse
import math
import pathlib
import random
import re
import signal
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))
import confluent_kafka  # noqa: E402
import confluent_kafka.admin  # noqa: E402
import delta  # noqa: E402
import harness  # noqa: E402
import samples  # noqa: E402
from harness import *  # noqa: E402,F403

SAMPLES = 60000
PARTITIONS = 3  # of the delta topic
TOPICS = {"kill": 3, "kill-too": 1}
FILES, FILE_RECORDS = 2, 60
BULKS, BULK_SAMPLES, BULK_STEP = 20, 150000, 1000  # blocks that are cut twice: a lockstep batch has at most 65536 samples
UNACKED_KILLS, FOLD_KILLS, ITEM_KILLS = 3, 2, 1
EPOCH_KILLS = 12  # at most so many kills more than the planned ones
SINGLE = set(range(11000, SAMPLES, 12000))
BROKEN = {*SINGLE, *range(34000, 54000)}  # partitions are not read evenly: in the middle of the stretch all samples are broken
BROKEN_LINES = range(12, FILE_RECORDS)  # of the last file: four batches


SIZE = {"KiB": 1 << 10, "MiB": 1 << 20}


class Stream:
    """Zipf-like users and items, a feature per sample, planted weights; in records of every form."""

    def __init__(self, seed):
        self.rng, self.bias, self.count = random.Random(seed), {}, 0
        self.breaking, self.n_broken = False, 0

    def zipf(self, shape, most):
        return int(self.rng.paretovariate(shape)) % most

    def item(self, user):
        rng, i, item = self.rng, self.count, self.zipf(0.7, 800)
        self.count += 1
        score = self.bias.setdefault(("u", user), rng.gauss(0, 1)) + self.bias.setdefault(("i", item), rng.gauss(0, 1))
        sample = {"t": 1700000000000 + i * 200, "y": {"click": int(rng.random() < 1 / (1 + 2.718 ** -score))},
                  "f": {"sample": i, "item_id": f"i{item}", "price": rng.random() * 20}}
        if rng.random() < 0.5:
            sample["p"] = {"click": rng.random()}
        if i in BROKEN or self.breaking:
            sample["w"] = 3e38
            self.n_broken += 1
        return sample

    def group(self, size, plain, own_histories):
        rng, user = self.rng, self.zipf(0.6, 5000)
        shared = {"user_id": user, "age": 40 + 12 * rng.gauss(0, 1)}
        items = [self.item(user) for _ in range(size)]
        histories = [[f"i{self.zipf(0.7, 800)}" for _ in range(rng.randrange(10))] for _ in items]
        if own_histories:
            for item, history in zip(items, histories):
                item["f"]["history"] = history
        else:
            shared["history"] = histories[0]
        if not plain:
            return {"shared": shared, "items": items}
        return {"shared": {}, "items": [{**item, "f": {**shared, **item["f"]}} for item in items]}

    def record(self, codec):
        """A slot is in one place throughout a record; in some the history is not shared."""
        rng = self.rng
        form = rng.choice([form for form in samples.FORMS if form != "packed" or codec == "msgpack"])
        plain, own_histories = form == "sample" or rng.random() < 0.2, rng.random() < 0.2
        sizes = [1 if plain else rng.randrange(1, 13) for _ in range(1 if form in ("sample", "group") else rng.randrange(1, 5))]
        groups = [self.group(size, plain, own_histories) for size in sizes]
        return next(samples.records(groups, form, codec, len(groups), ("price", "age")))

    def bulk(self):
        """Many samples in one record; one of BULK_STEP has a label and a feature, the others are masked."""
        t, features, clicks = 1700000000000 + self.count * 200, [None] * BULK_SAMPLES, [math.nan] * BULK_SAMPLES
        for at in range(0, BULK_SAMPLES, BULK_STEP):
            features[at], clicks[at] = self.count, float(self.rng.random() < 0.3)
            self.count += 1
        y = struct.pack(f"<{BULK_SAMPLES}f", *clicks)
        return samples.encode({"n": BULK_SAMPLES, "cols": {"sample": features}, "y": {"click": {"b": y}}, "t": t}, "msgpack")


def kill_points(rng):
    """Ten points of kill_shim.c with the durable epochs before them: four after the HWM, two between journal and HWM, four in a fold; in any order,
    except that a point between journal and HWM is the first: none of the first epochs is held, so a publisher that is too early shows there."""
    points = ["hwm_synced"] * 4 + ["hwm_write"] + ["fold_open", "fold_ingest", "fold_ingest", "fold_done"]
    rng.shuffle(points)
    points.insert(0, "hwm_write")
    return [(point, rng.randrange(1, 3) if point.startswith("fold") else rng.randrange(1, 6)) for point in points]


class Topic:
    """Returns what a delta topic holds now: (partition, timeline, epoch, piece) -> bytes; checks that none has two contents."""

    def __init__(self, address, name):
        self.contents, self.records, committed = {}, 0, {}
        for partition, messages in delta.read_topic(address, name).items():
            for _, value in messages:
                record = delta.parse(value)
                where = (partition, record["tl"], record["e"], record["i"])
                assert self.contents.setdefault(where, value) == value, f"two contents for (p, tl, e, i) = {where}"
                self.records += 1
                if record["k"] == "commit":
                    committed.setdefault(record["e"], set()).add(partition)
        self.newest = max((where[2] for where in self.contents), default=0)
        self.complete = 0
        while len(committed.get(self.complete + 1, ())) == PARTITIONS:
            self.complete += 1

    def expect_part_of(self, whole):
        different = [where for where, value in self.contents.items() if whole.contents.get(where) != value]
        assert not different, f"{len(different)} delta records are not those of the uninterrupted run; first (p, tl, e, i) = {min(different, key=lambda w: w[2:])}"


class Test:
    def __init__(self, work, kafka, arguments):
        self.work, self.kafka, self.program = work, kafka, arguments.freshetd
        self.config = SOURCE / "tests/fault" / ("kill_tiers.yaml" if arguments.tiers else "kill.yaml")
        self.limit, self.limits = arguments.limit, {"killed": [f"row_memory={arguments.limit}"]} if arguments.tiers else {}
        self.rng = random.Random(arguments.seed)
        self.shim = str(harness.BUILD / "tests/fault/libkill_shim.so")
        self.files = [work.path / f"before{number}.jsonl" for number in range(FILES)]
        self.produce(Stream(arguments.seed))

    def produce(self, stream):
        for path in self.files:
            lines = []
            for line in range(FILE_RECORDS):
                stream.breaking = path == self.files[-1] and line in BROKEN_LINES
                lines.append(stream.record("json"))
            path.write_bytes(b"\n".join(lines))
        stream.breaking = False
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.kafka.address})
        for future in admin.create_topics([confluent_kafka.admin.NewTopic(topic, n, 1) for topic, n in TOPICS.items()]).values():
            future.result(PATIENCE)
        places = [(topic, partition) for topic, n in TOPICS.items() for partition in range(n)]
        producer = confluent_kafka.Producer({"enable.idempotence": True, "bootstrap.servers": self.kafka.address, "linger.ms": 5})
        number = 0
        while stream.count < SAMPLES:
            bulk = number % 37 == 36 and number < 37 * BULKS  # about one in a round of lockstep, and in another partition each time
            topic, partition = places[number % len(places)]
            producer.produce(topic, stream.bulk() if bulk else stream.record("msgpack"), partition=partition)
            producer.poll(0)
            number += 1
        assert producer.flush(PATIENCE) == 0
        self.n_samples, self.n_broken = stream.count, stream.n_broken

    def run(self, name, env=None):
        """Starts a run with the topic <name>.delta and the state <name>; all runs are equal otherwise."""
        return self.work.daemon(self.config, self.work.path / f"{name}.log",
                                [f"ingest.brokers={self.kafka.address}", f"state_dir={self.work.path / name}", f"export.topic={name}.delta",
                                 f"ingest.files=[{', '.join(map(str, self.files))}]", f"ingest.dead_letter_topic={name}.dead"] + self.limits.get(name, []),
                                env=env, wait_http=False, program=self.program)

    def facts(self):
        """Returns epoch, folded and acked of the state that the killed daemon left."""
        text = tool("state", self.work.path / "killed")[1]
        return [int(re.search(rf"\b{name}=(\d+)", text).group(1)) for name in ("epoch", "folded", "acked")]

    def kills(self, whole):
        unpublished_kills = fold_kills = item_kills = last = number = 0
        points = kill_points(self.rng)
        while points:
            point, count = points.pop(0)
            number += 1
            name = f"kill {number} at {point} after {count}"
            daemon = self.run("killed", {"LD_PRELOAD": self.shim, "FRESHET_KILL": f"{point}:{count}"})
            daemon.expect_exit(-signal.SIGKILL)
            epoch, folded, acked = self.facts()
            topic = Topic(self.kafka.address, "killed.delta")
            item = max((position["item"] for position in self.positions(self.private_dump("killed")[1])), default=0)
            print(f"{name}: epoch {epoch} unacked {epoch - acked} ({epoch - topic.complete} not on the topic) unfolded {epoch - folded} item {item}", flush=True)
            assert topic.newest <= epoch, f"{name}: epoch {topic.newest} is on the delta topic, the last durable one is {epoch}"
            topic.expect_part_of(whole)
            assert epoch > last, f"{name}: no new durable epoch before it"
            assert point != "hwm_synced" or topic.complete < epoch, f"{name}: the epoch was published before the HWM was synced"
            unpublished_kills += topic.complete < epoch
            fold_kills += point.startswith("fold")
            item_kills += item > 0
            last = epoch
            # How far a run gets before a point in a fold depends on load, and the long records come early: go there epoch by epoch.
            if item_kills < ITEM_KILLS and number <= EPOCH_KILLS:
                points.insert(0, ("hwm_synced", 1))
        assert unpublished_kills >= UNACKED_KILLS and fold_kills >= FOLD_KILLS and item_kills >= ITEM_KILLS, \
            f"{unpublished_kills} kills with unacknowledged epochs, {fold_kills} in a fold, {item_kills} inside a record"

    def private_dump(self, name):
        lines = tool("dump", "--state-dir", self.work.path / name, "--private")[1].splitlines()
        return json.loads(lines[-1])["hash"], lines

    @staticmethod
    def positions(lines):
        return [row["position"] for row in map(json.loads, lines[-64:]) if "position" in row]

    def check_ledger(self, lines):
        counts = {}
        for line in lines:
            if line.startswith('{"table":"ledger"'):
                row = json.loads(line)
                counts[row["key"]] = row["show"]
        positions = self.positions(lines)
        trained, quarantined, masked, refused = (sum(position[name] for position in positions) for name in ("trained", "quarantined", "masked", "dead_lettered"))
        wrong = [key for key, count in counts.items() if count != 1]
        assert refused == 0, f"{refused} records are malformed"
        assert masked == BULKS * BULK_SAMPLES * (BULK_STEP - 1) // BULK_STEP, f"{masked} samples masked"
        assert not wrong and len(counts) == trained and trained + quarantined == self.n_samples, \
            f"{len(counts)} of {self.n_samples} samples in the ledger, {trained} trained, {quarantined} quarantined, {len(wrong)} not counted once"
        assert quarantined == self.n_broken, f"{quarantined} samples quarantined, {self.n_broken} are broken"
        return quarantined

    def letters(self, name):
        """(topic, partition, offset) of every dead letter, all for broken samples."""
        places = []

        def see(message):
            headers = {key: data.decode() for key, data in message.headers()}
            assert headers["__connect.errors.exception.message"].startswith("quarantined: sample ") and message.value(), f"{name}: {headers}"
            places.append(tuple(headers[f"__connect.errors.{part}"] for part in ("topic", "partition", "offset")))

        delta.read_topic(self.kafka.address, f"{name}.dead", see=see)
        return places

    def check_expired(self):
        """Checks that every rule of expiry removed rows."""
        text = tool("state", self.work.path / "killed")[1]
        counts = {}
        for reason, count in re.findall(r"\bexpired_(\w+)=(\d+)", text):
            counts[reason] = counts.get(reason, 0) + int(count)
        print("expired:", counts)
        without = [rule for rule, count in counts.items() if count == 0 and rule not in ("none", "manual")]
        assert counts and not without, f"give the tables of kill_tiers.yaml these rules of expiry, so that rows go by them: {without}"

    @staticmethod
    def watched(daemon):
        """Waits until the daemon has ended; returns the last sums over the tables in /status, and the most bytes that the tables took at any time."""
        tables, most = {}, 0
        while daemon.running():
            if daemon.port or daemon._find_port():
                now = daemon.json("/status").get("tables", {}).values()
                sums = {name: sum(table[name] for table in now) for name in ("evictions", "resident", "bytes", "pending")} if now else {}
                if sums:
                    tables = {**sums, "rows": sum(table["rows"]["ram"] for table in now)}
                    most = max(most, tables["bytes"])
            time.sleep(0.05)
        daemon.expect_exit(0)
        return {**tables, "most": most}

    def check_limit(self, whole, killed):
        """The limit is a tenth of what the tables take in the uninterrupted run, or less, and most keys were in the cold store only."""
        share = SIZE[self.limit[-3:]] * int(self.limit[:-3]) / whole["most"]
        print(f"row_memory: {share:.3f} of the {whole['most']} bytes that all rows take; in the last run {killed['evictions']} evictions, "
              f"{killed['resident']} of {killed['rows'] + killed['pending']} keys in memory")
        assert share <= 0.1, "row_memory is more than a tenth of what the tables need"
        assert killed["evictions"] > 0 and killed["resident"] < (killed["rows"] + killed["pending"]) / 2, "memory holds more than it should"

    def check_letters(self):
        whole, killed = self.letters("whole"), self.letters("killed")
        assert len(whole) == len(set(whole)) > len(SINGLE), f"{len(whole)} dead letters, {len(set(whole))} records"
        assert set(killed) == set(whole), f"{len(set(killed) ^ set(whole))} records have a dead letter in one run only"
        return len(whole), len(killed) - len(whole)

    def all(self):
        daemon = self.run("whole")
        whole_tables = self.watched(daemon)
        held, resumed = (daemon.log().count(f"event=publishing_{event}") for event in ("held", "resumed"))
        assert held == resumed >= 2, f"held {held} times, resumed {resumed} times: the stream has two stretches of broken samples"
        whole = Topic(self.kafka.address, "whole.delta")
        self.kills(whole)
        killed_tables = self.watched(self.run("killed"))
        killed = Topic(self.kafka.address, "killed.delta")
        killed.expect_part_of(whole)
        assert whole.contents.keys() == killed.contents.keys(), "the runs published different pieces"
        whole_hash, _ = self.private_dump("whole")
        killed_hash, dump = self.private_dump("killed")
        assert whole_hash == killed_hash, f"private hash {killed_hash}, uninterrupted {whole_hash}"
        quarantined = self.check_ledger(dump)
        if self.limits:
            self.check_limit(whole_tables, killed_tables)
            self.check_expired()
        letters, again = self.check_letters()
        code, out, _ = tool("verify", "--state-dir", self.work.path / "killed", "--brokers", self.kafka.address, "--topic", "killed.delta", check=False)
        verdict = (out.strip().splitlines() or [""])[-1]
        assert code == 0 and verdict.startswith("verified:"), f"verify: exit {code}, {verdict}"
        print(verdict)
        print(f"private hash {whole_hash}; {len(killed.contents)} delta records equal, {killed.records - len(killed.contents)} of them sent again; "
              f"{self.n_samples - quarantined} samples counted once, {quarantined} quarantined; {letters} records dead-lettered, {again} sent again")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--freshetd", help="another freshetd than that of the build folder")
    parser.add_argument("--tiers", action="store_true", help="the killed run has memory for a tenth of its tables")
    parser.add_argument("--limit", default="2MiB", help="its row_memory")
    arguments = parser.parse_args()
    tiers = f" --tiers --limit {arguments.limit}" if arguments.tiers else ""
    print(f"repeat with: python3 tests/fault/kill_loop.py --seed {arguments.seed}{tiers}", flush=True)
    with Workspace() as work, Kafka() as kafka:
        Test(work, kafka, arguments).all()
    print("1 passed, 0 failed")


main()
