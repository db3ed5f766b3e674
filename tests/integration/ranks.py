"""N ranks in one process (tests/ranks/run_ranks.c), against real Kafka: all that they hold together is what one freshetd holds.

The log, the model and the single process are those of domains.py: 12 domains, every gate and every rule of expiry, quarantine, groups, sequences, two tasks. A run has
1, 2, 3, 4, 6 or 7 ranks with one or two workers each; with memory for a part of the rows, with a drain on the way, with messages that are seen late, with a wait for a rank. Rows, pending keys and
gates' counters of all ranks are those of the single state, and so are the ledger, the letters and the counts; each rank has the same parameters, metrics and history.
`processes` and `kills` have the ranks as processes that mpirun starts, and kill some of them. In that log slices or a cut follow nearly each batch, so few batches are planned beside the step before; the case `beside` has slices and cuts seldom.
"""
import collections
import contextlib
import pathlib
import random
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))
import confluent_kafka.admin  # noqa: E402
import delta  # noqa: E402
import domains  # noqa: E402
from harness import *  # noqa: E402,F403

RUN_RANKS = pathlib.Path(os.environ.get("FRESHET_RUN_RANKS", BUILD / "tests/run_ranks"))  # another build's, for bugs that must be found
SELDOM = [*(f"tables.{table}.expire.every=24" for table in ("user", "item", "tag")), "ingest.lockstep.epoch_batches=16"]
KILLS = int(os.environ.get("FRESHET_KILLS", "3"))
SHARED = ("dense", "dense_state", "metrics", "trainer")  # lines of a private dump that every rank has; the others are of its domains and lanes


def counts(described):
    """The counts of each table, from the texts of `freshet state` of all ranks."""
    total = collections.Counter()
    for line in described.splitlines():
        if line.startswith("table "):
            name, *pairs = [pair.split("=") for pair in line.split()[1:]]
            total.update({(name[1], key): int(value) for key, value in pairs})
    return total


def digest(states):
    """What states of one job hold together, and which lines of each rank are not those of rank 0."""
    private = [tool("dump", "--private", "--state-dir", state)[1].splitlines()[:-1] for state in states]
    public = [tool("dump", "--state-dir", state)[1].splitlines() for state in states]
    described = [tool("state", state)[1] for state in states]
    kinds = [collections.defaultdict(list) for _ in states]
    for lines, kind in zip(private, kinds):
        for line in lines:
            kind[next(iter(json.loads(line)))].append(line)
    for rank, kind in enumerate(kinds):
        for name in SHARED:
            assert kind[name] == kinds[0][name], f"{name} of rank {rank}, and of rank 0: {differing(kind[name], kinds[0][name])}"
    rows = [[line for line in lines if line.startswith('{"table":')] for lines in public]
    ends = [json.loads(lines[-1]) for lines in public]
    return {"private": sorted(line for kind in kinds for line in kind["table"]), "rows": sorted(line for lines in rows for line in lines),
            "parameters": [line for line in public[0] if line.startswith('{"dense":')], **{name: kinds[0][name] for name in SHARED},
            "samples": {(end["samples"], end["wm"]) for end in ends}, "counts": counts("".join(described)),
            "announced": {tuple(line for line in text.splitlines() if line.startswith(("announcement ", "auc "))) for text in described},
            # a rank lists partitions of other ranks' lanes, too, without any offset
            "ledger": sorted(line for kind in kinds for line in kind["position"] if json.loads(line)["position"]["offset"] >= 0),
            "expiry": {line for kind in kinds for line in kind["expiry"]}}


def published(address, topic):
    """What a reader finds in a delta topic: each record, without what names model and state. All records of an epoch have one digest, and each commit that of the epoch before."""
    found, digests = {}, {0: 0}
    for partition, records in delta.read_topic(address, topic).items():
        for _, value in records:
            record = delta.parse(value)
            assert record["p"] == partition and record["from"] == record["e"] and digests.setdefault(record["e"], record["dig"]) == record["dig"], record
            key = tuple(record[name] for name in ("p", "tl", "e", "i"))
            content = str({name: value for name, value in record.items() if name not in ("m", "dig", "prev", "crc")})
            assert found.setdefault(key, content) == content, f"two records of {topic}: {key}"
            if record["k"] == "commit":
                found["commit", key] = record["prev"]
    for key in [key for key in found if key[0] == "commit"]:
        assert found.pop(key) == digests[key[1][2] - 1], f"prev of {key}"
    return found


def served(address, topic, partitions=domains.DOMAINS):
    """The lines of rows and of parameters that a replica of the topic serves, by a reader that knows the text of the contract only."""
    replica = delta.Replica(partitions)
    for partition, records in delta.read_topic(address, topic).items():
        for _, value in records:
            replica.feed(partition, value)
    lines = delta.dump_lines(replica)[:-1]
    return [sorted(line for line in lines if line.startswith(kind)) for kind in ('{"table":', '{"dense":')]


def differing(a, b):
    """Items of one and not of the other, the first few of each."""
    a, b = (set(x.items()) if isinstance(x, dict) else set(x) for x in (a, b))
    return str(sorted(a - b)[:3])[:1500] + ", " + str(sorted(b - a)[:3])[:1500]


class Cases:
    def __init__(self, work, kafka):
        self.single = domains.Cases(work, kafka)
        self.work, self.kafka = work, kafka
        self.run_single("single")

    def run_single(self, name, sets=()):
        self.single.start(name, "threads=1", *sets, wait_http=False).expect_exit(0)
        self.expected = digest([self.work.path / name])
        self.letters = domains.read_letters(self.kafka, f"{name}.dead")
        self.published, self.single_state = published(self.kafka.address, f"{name}.delta"), self.work.path / name

    def start(self, ranks, workers, sets=(), faults=(), name=None, program=RUN_RANKS, **options):
        return self.single.start(name or f"ranks{ranks}", f"threads={workers}", *sets, program=program, arguments=["--ranks", str(ranks), *faults], **options)

    def start_processes(self, ranks, name, faults=()):
        """The same ranks by mpirun. Returns the daemon, and the process of each rank once all have said it."""
        launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "--allow-run-as-root", "-n", str(ranks)]
        daemon = self.start(ranks, 1, faults=["--engine", "mpi", *faults], name=name, program=[*launcher, RUN_RANKS], wait_http=False)

        def pids():
            return {int(rank): int(pid) for rank, pid in re.findall(r"event=process rank=(\d+) pid=(\d+)", daemon.log())}
        wait_until(lambda: not daemon.running() or len(pids()) == ranks, "all ranks")
        return daemon, pids()

    def daemons(self):
        """freshetd itself, by mpirun."""
        for ranks in (2, 3):
            begin, name = time.monotonic(), f"daemons{ranks}"
            launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "--allow-run-as-root", "-n", str(ranks), BUILD / "daemon/freshetd"]
            daemon = self.single.start(name, "threads=1", f"scale.ranks={ranks}", program=launcher, wait_http=False)
            daemon.expect_exit(0)
            self.compare(name, ranks, begin, states=[self.work.path / name / f"rank-{rank}of{ranks}" for rank in range(ranks)])

    def live(self):
        """Two freshetd by mpirun train a topic while it is written, drain as one of them is asked to, and continue: each sample once, and a replica has the rows of both."""
        begin, name, count = time.monotonic(), "live", 6000
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.kafka.address})
        admin.create_topics([confluent_kafka.admin.NewTopic("stream", 4, 1, config={"retention.ms": "-1"})])["stream"].result(PATIENCE)
        producer = confluent_kafka.Producer({"bootstrap.servers": self.kafka.address})

        def produce(first, end):
            for i in range(first, end):
                sample = {"t": domains.T0 + i, "f": {"sample": f"s{i}", "user_id": f"u{i % 400}", "price": i % 7}, "y": {"click": i % 3 == 0}}
                producer.produce("stream", json.dumps(sample).encode(), partition=i * 7 % 4, timestamp=domains.T0)
            assert producer.flush(PATIENCE) == 0

        def start(*arguments):
            sets = [f"ingest.brokers={self.kafka.address}", "ingest.topic=stream", "ingest.format=json", f"model={name}", f"state_dir={self.work.path / name}",
                    f"export.topic={name}.delta", "scale.domains=2", "scale.ranks=2"]
            launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "--allow-run-as-root", "-n", "2", BUILD / "daemon/freshetd"]
            return self.work.daemon(SOURCE / "tests/integration/operating.yaml", self.work.path / f"{name}.log", sets, arguments=arguments, program=launcher, wait_http=False)
        produce(0, count // 2)
        daemon = start()
        wait_until(lambda: not daemon.running() or len(self.ports(daemon)) == 2, "both ranks")
        daemon.port = self.ports(daemon)[0]
        wait_until(lambda: not daemon.running() or daemon.json("/status").get("samples", {}).get("trained", 0) >= count // 2, "the first half")
        children = pathlib.Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children").read_text().split()
        produce(count // 2, count)
        os.kill(int(children[1]), signal.SIGTERM)
        daemon.expect_exit(0)
        start("--until", "end").expect_exit(0)
        states = [self.work.path / name / f"rank-{rank}of2" for rank in range(2)]
        held = digest(states)
        assert {samples for samples, _ in held["samples"]} == {count}, held["samples"]
        rows, parameters = served(self.kafka.address, f"{name}.delta", 2)
        assert rows == sorted(held["rows"]) and len(rows) == count + 400, differing(rows, held["rows"])
        print(f"   {count} samples once, {len(rows)} rows in a replica and in the states of 2 ranks, run in {time.monotonic() - begin:.1f} s", flush=True)

    def processes(self):
        for ranks in (1, 2, 3, 4):
            begin, name = time.monotonic(), f"processes{ranks}"
            daemon, pids = self.start_processes(ranks, name)
            if ranks == 3:  # a rank that is asked to stop stops all
                wait_until(lambda: not daemon.running() or "event=epoch epoch=5 " in daemon.log(), "epoch 5")
                os.kill(pids[1], signal.SIGTERM)
                daemon.expect_exit(0)
                daemon, pids = self.start_processes(ranks, name)
            daemon.expect_exit(0)
            self.compare(name, ranks, begin, drained=ranks == 3)

    def kills(self):
        """A rank or the launcher is killed, or a rank stands still until the deadline, at any time of a run; the next start continues, and the end is that of one process."""
        draw, ends, kinds = random.Random(int(os.environ.get("FRESHET_SEED", "5"))), collections.Counter(), ("rank", "launcher", "stands", "rank", "rank")
        for number in range(KILLS):
            begin, name, kind, ranks = time.monotonic(), f"kills{number}", kinds[number % len(kinds)], 2 + number % 2
            daemon, pids = self.start_processes(ranks, name, ["--deadline-ms", "3000"])
            wait_until(lambda: not daemon.running() or daemon.log().count("event=recovered ") == ranks, "all ranks have recovered")
            time.sleep(draw.random() * 1.5)
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.kill(daemon.process.pid if kind == "launcher" else pids[draw.randrange(ranks)], signal.SIGSTOP if kind == "stands" else signal.SIGKILL)
            code = daemon.wait_exit()
            assert code in {"rank": (0, 75, 137), "launcher": (0, 75, -signal.SIGKILL), "stands": (0, 75)}[kind], (kind, code, daemon.log()[-2000:])
            ends[f"{kind}: {code}"] += 1
            for pid in pids.values():
                wait_until(lambda: not pathlib.Path(f"/proc/{pid}").exists(), f"process {pid} is gone")
            daemon, pids = self.start_processes(ranks, name)
            daemon.expect_exit(0)
            ends.update("epochs agreed" for _ in re.findall("event=epochs_agreed", daemon.log()))
            self.compare(name, ranks, begin)
        print(f"   {dict(ends)}", flush=True)

    def compare(self, name, ranks, begin, drained=False, states=None):
        states = states or [self.work.path / name / f"rank-{rank}" for rank in range(ranks)]
        held = digest(states)
        for key, value in self.expected.items():
            # sections of domains that are equal have the hash of one of them, others that of all
            same = held[key] == value or (key == "expiry" and len(held[key]) > 1 and not held[key] & value)
            assert same, f"{key} of {ranks} ranks, and of one process: {differing(held[key], value)}"
        letters = domains.read_letters(self.kafka, f"{name}.dead")
        assert letters == self.letters, f"letters of {ranks} ranks: {letters}, of one process: {self.letters}"
        topic = f"{name}.delta"
        records = published(self.kafka.address, topic)
        for lines, key in zip(served(self.kafka.address, topic), ("rows", "parameters")):
            assert lines == sorted(self.expected[key]), f"{key} of a replica of {ranks} ranks' topic, and of one process: {differing(lines, self.expected[key])}"
        if not drained:  # a drain cuts an epoch that one process does not have
            assert records == self.published, f"records of {ranks} ranks, and of one process: {differing(records, self.published)}"
            verified = tool("verify", "--state-dir", self.single_state, "--brokers", self.kafka.address, "--topic", topic)[1]
            assert verified.strip().splitlines()[-1].startswith("verified:"), f"a replica of the topic of {ranks} ranks, and the state of one process: {verified}"
        print(f"   {ranks} ranks: {len(held['private'])} keys and counters, {len(held['ledger'])} partitions, {len(letters)} letters, {len(records)} records as of one process, "
              f"run in {time.monotonic() - begin:.1f} s", flush=True)

    def run(self, ranks, workers, sets=(), faults=(), drain_after=0, name=None):
        """Returns which part of the batches was planned beside the step of the batch before."""
        begin, name = time.monotonic(), name or f"ranks{ranks}"
        if drain_after:
            daemon = self.start(ranks, workers, sets, faults, name)
            wait_until(lambda: not daemon.running() or daemon.json("/status").get("durable", 0) > drain_after, f"epoch {drain_after}")
            daemon.process.send_signal(signal.SIGTERM)
            daemon.expect_exit(0)
            assert "event=drain why=signal" in daemon.log(), daemon.log()[-2000:]
        daemon = self.start(ranks, workers, sets, faults, name, wait_http=False)
        daemon.expect_exit(0)
        batches = {(int(all), int(early)) for all, early in re.findall(r"event=rank_drained .* batches=(\d+) planned_early=(\d+)", daemon.log())}
        created = re.findall(r"event=topic_created topic=(\S+) ", daemon.log())
        assert created.count(f"{name}.delta") == (0 if drain_after else 1), f"topics that were created: {created}"
        assert len(batches) == 1, f"batches of each rank, and those planned early: {batches}"
        self.compare(name, ranks, begin, drained=drain_after > 0)
        return next(early / all for all, early in batches)

    def one(self):
        self.run(1, 1)

    def two(self):
        self.run(2, 2, sets=["row_memory=300KiB"])

    def three(self):
        self.run(3, 1, drain_after=4)

    def four(self):
        self.run(4, 2, faults=["--delay-us", "300", "--seed", "4"])

    def six(self):
        self.run(6, 1)

    def beside(self):
        self.run_single("seldom", SELDOM)
        cases = ((2, 1, [], ()), (3, 2, [], ("--delay-us", "300", "--seed", "9")), (4, 1, ["row_memory=300KiB"], ()), (6, 1, [], ()))
        early = [self.run(ranks, workers, SELDOM + sets, faults, name=f"beside{ranks}") for ranks, workers, sets, faults in cases]
        assert max(early) > 0.05, f"parts of the batches that were planned beside the step of the batch before: {early}"

    def seven(self):
        """The delta topic refuses records until ranks pause for their journals; one that does not names a rank that does. All continue once the topic accepts records."""
        begin = time.monotonic()
        daemon = self.start(7, 1, ["journal_max=128KiB", "unfolded_max=64KiB"], ["--delay-us", "3000"])  # slow, so that the log does not end before the refusal
        wait_until(lambda: not daemon.running() or (len(self.ports(daemon)) == 7 and daemon.log().count("event=topic_checked topic=ranks7.delta ") == 7), "all ranks")
        self.refuse("ranks7.delta", True)
        named = re.compile(r"the job waits for rank \d, where reading is paused; /status and the log of rank \d have the reason")

        def paused(port):
            daemon.port = port
            return daemon.json("/status").get("paused", "")

        def shown():
            texts = [paused(port) for port in self.ports(daemon)]
            return all(text.startswith("journal_max: ") or named.fullmatch(text) for text in texts) and any(text.startswith("journal_max: ") for text in texts)
        wait_until(lambda: not daemon.running() or shown(), "a wait in all statuses")
        for port in self.ports(daemon):
            reason = "rank" if named.fullmatch(paused(port)) else "journal_max"
            code, ready = daemon.get("/readyz")
            metrics = daemon.get("/metrics")[1]
            assert code == 503 and f'"where":"trainer","text":"{"the job waits for rank " if reason == "rank" else reason}' in ready, ready
            assert re.findall(r'^freshet_paused{.*reason="(.*)"} 1$', metrics, re.M) == [reason], metrics
            waits = dict(re.findall(r'^freshet_exchange_wait_seconds_total{.*channel="(.*)"} (\S+)$', metrics, re.M))
            assert set(waits) == {"keys", "values", "roll call", "votes"} and min(map(float, waits.values())) > 0, waits
        self.refuse("ranks7.delta", False)
        daemon.expect_exit(0)
        self.compare("ranks7", 7, begin)

    def ports(self, daemon):
        return [int(port) for port in re.findall(r"event=http .*?port=(\d+)", daemon.log())]

    def refuse(self, topic, refuses):
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.kafka.address})
        entry = confluent_kafka.admin.ConfigEntry("max.message.bytes", "60" if refuses else "1048588", incremental_operation=confluent_kafka.admin.AlterConfigOpType.SET)
        resource = confluent_kafka.admin.ConfigResource("topic", topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(PATIENCE)

    def hangs(self):
        """One rank hangs before or after its vote about an epoch, and the deadline ends the job: with marks and journals that differ, all ranks continue from one epoch."""
        agreed = collections.Counter()
        for rank, vote in ((1, 2), (2, 3), (0, 6), (1, 13)):
            begin, name = time.monotonic(), f"hangs{rank}-{vote}"
            daemon = self.start(3, 1, faults=["--deadline-ms", "3000", "--hang-rank", str(rank), "--hang-vote", str(vote)], name=name, wait_http=False)
            daemon.expect_exit(75)
            assert f"rank {rank} has not come to exchange" in daemon.log(), daemon.log()[-2000:]
            daemon = self.start(3, 1, name=name, wait_http=False)
            daemon.expect_exit(0)
            for epoch, marked, journal in re.findall(r"event=epochs_agreed rank=\d epoch=(\d+) marked=(\d+) in_journal=(\d+)", daemon.log()):
                agreed.update({"kept beyond the mark": epoch > marked, "cut off": journal > epoch})
            self.compare(name, 3, begin)
        assert agreed["kept beyond the mark"] > 0 and agreed["cut off"] > 0, agreed

    def lost(self):
        """The topic is deleted when the journals no longer have all epochs. No rank fills it or begins a timeline alone: the job ends, and says what to do."""
        self.start(3, 1, ["unfolded_max=64KiB"], name="lost", wait_http=False).expect_exit(0)
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.kafka.address})
        admin.delete_topics(["lost.delta"])["lost.delta"].result(PATIENCE)
        daemon = self.start(3, 1, ["unfolded_max=64KiB"], name="lost", wait_http=False)
        daemon.expect_exit(3)
        assert re.search(r"event=stopped rank=\d first=1 code=3 .*topic lost.delta, partitions \d+ to \d+: they lack epochs .*begin a new job", daemon.log()), daemon.log()[-2000:]

    def malformed(self):
        """All records of rank 1's partition are malformed. For one process, which reads good ones, too, they are letters; for two ranks they end the job."""
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.kafka.address})
        admin.create_topics([confluent_kafka.admin.NewTopic("mixed", 12, 1, config={"retention.ms": "-1"})])["mixed"].result(PATIENCE)
        producer = confluent_kafka.Producer({"bootstrap.servers": self.kafka.address})
        for i in range(20):
            good = {"t": domains.T0 + i * 1000, "f": {"user_id": i}, "y": {"click": 0, "buy": 0}}
            producer.produce("mixed", json.dumps(good).encode(), partition=0, timestamp=domains.T0)
            producer.produce("mixed", b"{broken", partition=11, timestamp=domains.T0)
        assert producer.flush(PATIENCE) == 0
        mixed = ["ingest.topics=[mixed]", "ingest.files=[]", "ingest.malformed_max=0.1"]
        self.single.start("mixed1", *mixed, wait_http=False).expect_exit(0)
        assert len(domains.read_letters(self.kafka, "mixed1.dead")) == 20
        daemon = self.single.start("mixed2", *mixed, program=RUN_RANKS, arguments=["--ranks", "2"], wait_http=False)
        daemon.expect_exit(2)
        assert re.search(r'event=stopped rank=1 first=1 code=2 .*all 20 records since the start are malformed \(mixed/11 offset 0: ', daemon.log()), daemon.log()[-2000:]
        self.single.start("mixed2", *mixed, "ingest.malformed_max=1", program=RUN_RANKS, arguments=["--ranks", "2"], wait_http=False).expect_exit(0)
        assert len(domains.read_letters(self.kafka, "mixed2.dead")) == 20

    def error(self):
        """The error of one rank, whose state directory is a file, ends all, and its code is that of the process."""
        (self.work.path / "ranks5").mkdir()
        (self.work.path / "ranks5" / "rank-3").write_text("")
        daemon = self.start(5, 1, wait_http=False)
        daemon.expect_exit(3)
        stopped = re.findall(r"event=stopped rank=(\d) first=(\d) code=(\d+) ", daemon.log())
        assert sorted(rank for rank, *_ in stopped) == list("01234"), stopped
        assert [(rank, code) for rank, first, code in stopped if first == "1"] == [("3", "3")], stopped


def main():
    with Workspace() as work, Kafka() as kafka:
        # the last one changes what is expected
        run_cases(Cases(work, kafka), ["one", "two", "three", "four", "six", "seven", "hangs", "processes", "daemons", "live", "kills", "lost", "malformed", "error", "beside"])


main()
