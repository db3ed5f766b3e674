"""A soak by hand: random faults on a daemon that trains from real Kafka, and at the end an exact ledger.

    FRESHET_BUILD=build/release build/venv/bin/python tests/fault/soak.py [MINUTES [SEED]]     default 30 1

Faults, one after the other, at random: kill -9; drain and restart; the broker hangs (SIGSTOP); the broker is stopped and started; the delta topic is deleted;
a second writer on the delta topic; the disk fills up (tmpfs, where it can be mounted); malformed records, also while their topic refuses them; a savepoint.
Samples come all the while. At the end every sample's own feature was counted once, every malformed record is counted, a fresh replica equals the state, the
newest savepoint is sound. Memory, descriptors and the size of the state directory are printed once a minute.
"""
import pathlib
import random
import signal
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import confluent_kafka  # noqa: E402
import confluent_kafka.admin  # noqa: E402
import msgpack  # noqa: E402
from harness import *  # noqa: E402,F403

MINUTES = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 1
CONFIG = SOURCE / "tests/integration/operating.yaml"
RATE, USERS, BURST = 300, 500, 30
DISK_MIB = 512


class Stream(threading.Thread):
    """Sends samples, each with a feature that no other sample has, until its `ends` is set."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.producer = confluent_kafka.Producer({"enable.idempotence": True, "bootstrap.servers": address, "message.timeout.ms": 0, "log_level": 0})
        self.sent, self.malformed, self.arrived, self.failed, self.ends = 0, 0, 0, 0, threading.Event()

    def _done(self, error, _):
        self.arrived, self.failed = self.arrived + (error is None), self.failed + (error is not None)

    def put(self, value):
        self.producer.produce("samples", value, partition=random.randrange(3), on_delivery=self._done)

    def run(self):
        while not self.ends.wait(BURST / RATE):
            for _ in range(BURST):
                i, self.sent = self.sent, self.sent + 1
                self.put(msgpack.packb({"t": 1700000000000 + i, "y": {"click": i % 3 == 0}, "f": {"sample": i, "user_id": i % USERS, "price": 1.0}}))
            self.producer.poll(0)

    def end(self):
        self.ends.set()
        self.join()
        assert self.producer.flush(PATIENCE) == 0 and self.failed == 0, f"{self.failed} samples did not reach the topic"


class Soak:
    def __init__(self, work, kafka, disk):
        self.work, self.kafka, self.disk, self.state = work, kafka, disk, disk / "state"
        self.rng = random.Random(SEED)
        self.admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": kafka.address, "log_level": 0})
        for future in self.admin.create_topics([confluent_kafka.admin.NewTopic("samples", 3, 1), confluent_kafka.admin.NewTopic("samples.dead", 1, 1)]).values():
            future.result(PATIENCE)
        self.stream, self.starts, self.counts = Stream(kafka.address), 0, {}
        self.daemon = self.start()

    def start(self, state=None, **options):
        self.starts += 1
        state = state or self.state
        return self.work.daemon(CONFIG, self.work.path / f"{state.name}-{self.starts}.log",
                                [f"ingest.brokers={self.kafka.address}", f"state_dir={state}", "export.topic=deltas", "unfolded_max=4MiB", "journal_max=32MiB",
                                 "memory_limit=256MiB", "savepoint.every=20s", "savepoint.keep=2"], **options)

    def trained(self):
        return self.daemon.json("/status").get("samples", {}).get("trained", 0)

    def wait_until_caught_up(self):
        """Waits until the daemon has trained everything sent so far and is ready."""
        target = self.stream.sent
        try:
            wait_until(lambda: self.runs() and self.trained() >= target, f"{target} samples trained")
        except AssertionError:
            self.runs()
            print(f"stands still: {self.figures()} arrived={self.stream.arrived} failed={self.stream.failed} ends={self.ends()} {self.daemon.json('/status')}", flush=True)
            raise
        wait_until(lambda: self.runs() and self.daemon.get("/readyz")[0] == 200, "ready")

    def runs(self):
        assert self.daemon.running(), self.daemon.log()[-3000:]
        return True

    # ---- faults ----

    def kill(self):
        self.daemon.process.kill()
        self.daemon.expect_exit(-signal.SIGKILL)
        self.daemon = self.start()

    def drain(self):
        self.daemon.drain()
        self.daemon = self.start()

    def hang_broker(self):
        os.kill(self.kafka.pid(), signal.SIGSTOP)
        time.sleep(self.rng.uniform(2, 20))
        os.kill(self.kafka.pid(), signal.SIGCONT)

    def stop_broker(self):
        self.kafka.stop()
        time.sleep(self.rng.uniform(0, 20))
        self.kafka.start()

    def refuse_letters(self):
        """Epochs wait for their dead letters, and training waits for epochs."""
        def limit(size):
            resource = confluent_kafka.admin.ConfigResource("topic", "samples.dead", set_config={"max.message.bytes": size})
            for future in self.admin.alter_configs([resource]).values():
                future.result(PATIENCE)
        limit("16")
        self.malformed()
        wait_until(lambda: self.runs() and "dead" in json.dumps(self.daemon.json("/healthz").get("reasons", [])), "/healthz says that epochs wait for letters")
        limit("1048588")

    def delete_deltas(self):
        if "event=rebase" in self.daemon.log():  # a daemon that finds an empty topic twice within ten minutes stops for an operator
            self.drain()
        for future in self.admin.delete_topics(["deltas"]).values():
            future.exception(PATIENCE)  # the topic may not exist again yet

    def second_writer(self):
        other_state = self.disk / "other"
        shutil.rmtree(other_state, ignore_errors=True)
        other = self.start(other_state, wait_http=False)
        wait_until(lambda: not (other.running() and self.daemon.running()), "one of two writers is refused or stops")
        for writer in (other, self.daemon):
            assert writer.running() or writer.process.returncode == 3, writer.log()[-2000:]
        other.kill()
        shutil.rmtree(other_state, ignore_errors=True)
        if not self.daemon.running():  # the other daemon had begun with an empty topic: its records have to be deleted
            for future in self.admin.delete_topics(["deltas"]).values():
                future.exception(PATIENCE)
            self.daemon = self.start()

    def fill_disk(self):
        filler = self.disk / "filler"
        try:
            with open(filler, "wb", buffering=0) as file:
                while True:
                    file.write(b"x" * (1 << 20))
        except OSError:
            pass
        time.sleep(self.rng.uniform(1, 5))
        filler.unlink()

    def malformed(self):
        for _ in range(20):
            self.stream.put(b"\xc1 no sample")
        self.stream.malformed += 20

    def savepoint(self):
        name = f"asked-{self.starts}-{int(time.time())}"
        rc, _, error = tool("savepoint", "--state-dir", self.state, "--name", name, check=False)
        assert rc == 0, error
        shutil.rmtree(self.state / "savepoints" / name)

    # ---- the run ----

    def ends(self):
        """Returns how many records the broker has, by partition."""
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.kafka.address, "group.id": "looks"})
        try:
            return [consumer.get_watermark_offsets(confluent_kafka.TopicPartition("samples", p), timeout=PATIENCE)[1] for p in range(3)]
        finally:
            consumer.close()

    def figures(self):
        process = self.daemon.process.pid
        status = pathlib.Path(f"/proc/{process}/status").read_text()
        rss = int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) // 1024
        descriptors = len(list(pathlib.Path(f"/proc/{process}/fd").iterdir()))
        bytes_of_state = sum(f.stat().st_size for f in self.state.rglob("*") if f.is_file() and "savepoints" not in f.parts)
        return f"rss={rss}MiB fds={descriptors} state={bytes_of_state >> 20}MiB sent={self.stream.sent} trained={self.trained()} starts={self.starts} faults={self.counts}"

    def run(self):
        faults = [self.kill, self.drain, self.hang_broker, self.stop_broker, self.delete_deltas, self.second_writer, self.malformed, self.refuse_letters, self.savepoint]
        if os.path.ismount(self.disk):
            faults.append(self.fill_disk)
        begin = printed = time.monotonic()
        self.stream.start()
        while time.monotonic() - begin < MINUTES * 60:
            fault = self.rng.choice(faults)
            fault()
            self.counts[fault.__name__] = self.counts.get(fault.__name__, 0) + 1
            self.wait_until_caught_up()
            if time.monotonic() - printed > 60 or len(self.counts) == 1:
                printed = time.monotonic()
                print(f"{(printed - begin) / 60:5.1f} min {self.figures()}", flush=True)
            time.sleep(self.rng.uniform(0, 3))
        self.stream.end()
        self.wait_until_caught_up()
        print(f"end       {self.figures()}", flush=True)
        self.daemon.drain()
        self.check()

    def check(self):
        lines = [json.loads(line) for line in tool("dump", "--state-dir", self.state, "--private")[1].splitlines()]
        shows = [row["show"] for row in lines if row.get("table") == "ledger" and "show" in row]
        assert len(shows) == self.stream.sent and set(shows) == {1}, f"{len(shows)} of {self.stream.sent} samples, counted {set(shows)} times"
        state = tool("state", self.state, "--images")[1]
        assert "checks passed=true" in state, state
        dead = sum(int(n) for n in re.findall(r"^position .*\bdead_lettered=(\d+)", state, re.M))
        assert dead == self.stream.malformed, f"{dead} dead letters of {self.stream.malformed} malformed records"
        verified = tool("verify", "--state-dir", self.state, "--brokers", self.kafka.address, "--topic", "deltas")[1].strip().splitlines()[-1]
        assert verified.startswith("verified:"), verified
        for savepoint in re.findall(r'^savepoint dir="?([^" ]+)', tool("savepoint", "--state-dir", self.state, "--list")[1], re.M):
            assert "checks passed=true" in tool("state", savepoint, "--images")[1], savepoint
        print(f"exact: {len(shows)} samples once each, {dead} malformed records, {verified}")


with Workspace() as soak_work, Kafka(own=True) as soak_kafka:
    soak_disk = soak_work.path / "disk"
    soak_disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(soak_disk)], capture_output=True).returncode == 0
    try:
        Soak(soak_work, soak_kafka, soak_disk).run()
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(soak_disk)], check=True)
