"""Ten seeded kill -9 in lockstep mode on real Kafka, then the proof that they changed nothing.

Each kill comes after at least one new durable epoch; at least three leave epochs that are not on the delta topic yet and at least two fall inside a fold.
After each kill nothing beyond the HWM may be on the topic, and what is there must be byte by byte what an uninterrupted run published. At the end:
the private hash equals that of the uninterrupted run, delta records of both runs are equal epoch by epoch, no (p, tl, e, i) has two contents on the raw
topic, every sample is counted once (a feature of its own), and a replica verifies. Some samples have a weight that makes their batch's gradients overflow: single
batches are quarantined (their samples are counted as that, and nowhere else), and two stretches of them hold publishing for a while.

    python3 tests/fault/kill_loop.py [--seed S] [--freshetd PROGRAM]

The kills come from tests/fault/kill_shim.c, which is preloaded; the product has no failpoints.
"""
import argparse
import pathlib
import random
import re
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))
import delta  # noqa: E402
import harness  # noqa: E402
from harness import *  # noqa: E402,F403

SAMPLES = 60000
PARTITIONS = 3
UNACKED_KILLS, FOLD_KILLS = 3, 2
BROKEN = {*range(5000, SAMPLES, 12000), *range(18000, 19500, 60), *range(42000, 44000, 60)}


def write_samples(path, seed):
    """Zipf-like users and items, a feature per sample, planted weights; JSON lines."""
    rng = random.Random(seed)
    bias = {}
    with open(path, "w") as file:
        for i in range(SAMPLES):
            user, item = int(rng.paretovariate(0.6)) % 5000, int(rng.paretovariate(0.7)) % 800
            history = [int(rng.paretovariate(0.7)) % 800 for _ in range(rng.randrange(0, 10))]
            score = bias.setdefault(("u", user), rng.gauss(0, 1)) + bias.setdefault(("i", item), rng.gauss(0, 1))
            sample = {"t": 1700000000000 + i * 200, "y": {"click": int(rng.random() < 1 / (1 + 2.718 ** -score))},
                      "f": {"sample": i, "user_id": user, "item_id": f"i{item}", "history": [f"i{h}" for h in history], "price": rng.random() * 20, "age": 40 + 12 * rng.gauss(0, 1)}}
            if i in BROKEN:
                sample["w"] = 3e38
            file.write(json.dumps(sample) + "\n")


def kill_points(rng):
    """Ten points of kill_shim.c with the durable epochs before them: four after the HWM, two between journal and HWM, four in a fold; in any order."""
    points = ["hwm_synced"] * 4 + ["hwm_write"] * 2 + ["fold_open", "fold_ingest", "fold_ingest", "fold_done"]
    rng.shuffle(points)
    return [(point, rng.randrange(1, 3) if point.startswith("fold") else rng.randrange(1, 6)) for point in points]


class Topic:
    """What a delta topic holds now: (partition, timeline, epoch, piece) -> bytes, and the check that none has two contents."""

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
        self.rng = random.Random(arguments.seed)
        self.shim = str(harness.BUILD / "tests/fault/libkill_shim.so")
        samples = work.path / "samples.jsonl"
        write_samples(samples, arguments.seed)
        tool("produce", "--brokers", kafka.address, "--topic", "kill", "--file", samples, "--partitions", PARTITIONS)

    def run(self, name, env=None):
        """Starts a run: topic <name>.delta, state <name>; all else is equal."""
        return self.work.daemon(SOURCE / "tests/fault/kill.yaml", self.work.path / f"{name}.log",
                                [f"ingest.brokers={self.kafka.address}", f"state_dir={self.work.path / name}", f"export.topic={name}.delta"],
                                env=env, wait_http=False, program=self.program)

    def facts(self):
        """epoch, folded, acked of the killed state at rest."""
        text = tool("state", self.work.path / "killed")[1]
        return [int(re.search(rf"\b{name}=(\d+)", text).group(1)) for name in ("epoch", "folded", "acked")]

    def kills(self, whole):
        unpublished_kills = fold_kills = last = 0
        for number, (point, count) in enumerate(kill_points(self.rng), 1):
            name = f"kill {number} at {point} after {count}"
            daemon = self.run("killed", {"LD_PRELOAD": self.shim, "FRESHET_KILL": f"{point}:{count}"})
            daemon.expect_exit(-signal.SIGKILL, 120)
            epoch, folded, acked = self.facts()
            topic = Topic(self.kafka.address, "killed.delta")
            print(f"{name}: epoch {epoch} unacked {epoch - acked} ({epoch - topic.complete} not on the topic) unfolded {epoch - folded}", flush=True)
            assert topic.newest <= epoch, f"{name}: epoch {topic.newest} is on the delta topic, the last durable one is {epoch}"
            topic.expect_part_of(whole)
            assert epoch > last, f"{name}: no new durable epoch before it"
            assert point != "hwm_synced" or topic.complete < epoch, f"{name}: the epoch was published before the HWM was synced"
            unpublished_kills += topic.complete < epoch
            fold_kills += point.startswith("fold")
            last = epoch
        assert unpublished_kills >= UNACKED_KILLS and fold_kills >= FOLD_KILLS, f"{unpublished_kills} kills with unacknowledged epochs, {fold_kills} in a fold"

    def private_dump(self, name):
        lines = tool("dump", "--state-dir", self.work.path / name, "--private")[1].splitlines()
        return json.loads(lines[-1])["hash"], lines

    def check_ledger(self, lines):
        counts, quarantined = {}, 0
        for line in lines:
            row = json.loads(line)
            if row.get("table") == "ledger":
                counts[row["key"]] = row["show"]
            quarantined += row.get("position", {}).get("quarantined", 0)
        wrong = [key for key, count in counts.items() if count != 1]
        assert len(counts) + quarantined == SAMPLES and not wrong, \
            f"{len(counts)} of {SAMPLES} samples in the ledger, {quarantined} quarantined, {len(wrong)} not counted once"
        assert len(BROKEN) < quarantined < SAMPLES / 4, f"{quarantined} samples quarantined"
        return quarantined

    def all(self):
        daemon = self.run("whole")
        daemon.expect_exit(0, 120)
        for event in ("publishing_held", "publishing_resumed"):
            assert daemon.log().count(f"event={event}") == 2, f"{event}: not as often as the stream has stretches of broken samples"
        whole = Topic(self.kafka.address, "whole.delta")
        self.kills(whole)
        self.run("killed").expect_exit(0, 120)
        killed = Topic(self.kafka.address, "killed.delta")
        killed.expect_part_of(whole)
        assert whole.contents.keys() == killed.contents.keys(), "the runs published different pieces"
        whole_hash, _ = self.private_dump("whole")
        killed_hash, dump = self.private_dump("killed")
        assert whole_hash == killed_hash, f"private hash {killed_hash}, uninterrupted {whole_hash}"
        quarantined = self.check_ledger(dump)
        code, out, _ = tool("verify", "--state-dir", self.work.path / "killed", "--brokers", self.kafka.address, "--topic", "killed.delta", check=False)
        verdict = (out.strip().splitlines() or [""])[-1]
        assert code == 0 and verdict.startswith("verified:"), f"verify: exit {code}, {verdict}"
        print(verdict)
        print(f"private hash {whole_hash}; {len(killed.contents)} delta records equal, {killed.records - len(killed.contents)} of them sent again; "
              f"{SAMPLES - quarantined} samples counted once, {quarantined} quarantined")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--freshetd", help="another freshetd than that of the build folder")
    arguments = parser.parse_args()
    print("repeat with: python3 tests/fault/kill_loop.py --seed", arguments.seed, flush=True)
    with Workspace() as work, Kafka() as kafka:
        Test(work, kafka, arguments).all()
    print("1 passed, 0 failed")


main()
