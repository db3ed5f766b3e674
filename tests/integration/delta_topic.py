"""The delta topic on a real Kafka: the cases of unit_exporter_kafka, which a plain unit run skips for want of a broker; none may be skipped here.

Further cases change the topic or the state: the topic is deleted under a running daemon, renamed, given partitions, or loses its beginning; the state is a
restored copy; a kill comes while the topic is filled. In each case fresh replicas, ours and one written from the text alone, end with the daemon's dump. With two fresh states on one
topic, no process continues as if it were alone.
"""
import collections
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))
import confluent_kafka  # noqa: E402
import confluent_kafka.admin  # noqa: E402
import msgpack  # noqa: E402
import delta  # noqa: E402
from harness import *  # noqa: E402,F403

CONFIG = SOURCE / "tests/integration/operating.yaml"
NP = 2
BACKLOG = int(os.environ.get("FRESHET_BACKLOG", 400))  # epochs; by hand thousands, which take minutes on a busy machine


def unit_cases(address):
    done = subprocess.run([BUILD / "tests/unit/unit_exporter_kafka"], env={**os.environ, "FRESHET_KAFKA": address}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=PATIENCE)
    passed = re.search(r"PASSED\D*(\d+) test", done.stdout)
    if done.returncode != 0 or "SKIPPED" in done.stdout or not passed:
        print(done.stdout[-12000:])
        raise AssertionError(f"unit_exporter_kafka: exit {done.returncode}")
    return int(passed.group(1))


class Life:
    """A state after several folds: its journal no longer begins with epoch 1."""

    def __init__(self, work, kafka, name):
        self.work, self.kafka, self.name = work, kafka, name
        self.admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": kafka.address})
        self.state, self.topic, self.count = work.path / name, f"{name}.delta", 0
        self.create(name, 1)
        self.produce(3000)

    def create(self, topic, partitions, **config):
        for future in self.admin.create_topics([confluent_kafka.admin.NewTopic(topic, partitions, 1, config=config)]).values():
            future.result(PATIENCE)

    def produce(self, count):
        producer = confluent_kafka.Producer({"enable.idempotence": True, "bootstrap.servers": self.kafka.address})
        for i in range(self.count, self.count + count):
            producer.produce(self.name, msgpack.packb({"t": 1700000000000 + i, "y": {"click": i % 2},
                                                       "f": {"sample": i, "user_id": i % 50, "price": 1.0}}), partition=0)
        assert producer.flush(PATIENCE) == 0
        self.count += count

    def daemon(self, arguments=(), state=None, topic=None, sets=(), **options):
        return self.work.daemon(CONFIG, self.work.path / f"{self.name}.log",
                                [f"state_dir={state or self.state}", f"ingest.brokers={self.kafka.address}", f"ingest.topic={self.name}",
                                 f"export.topic={topic or self.topic}", f"export.partitions={NP}", "unfolded_max=64KiB", "epoch=100ms",
                                 "heartbeat=500ms", *sets], arguments, **options)

    def to_the_end(self, **options):
        daemon = self.daemon(["--until", "end"], wait_http=False, **options)
        daemon.expect_exit(0)
        return daemon

    def live(self):
        """Starts a daemon and waits until it has trained everything and its journal begins after epoch 1."""
        daemon = self.daemon()
        wait_until(lambda: daemon.json("/status").get("samples", {}).get("trained") == self.count, "everything is trained")
        wait_until(lambda: self.trimmed(), "the journal begins later than epoch 1")
        return daemon

    def trimmed(self):
        return min((int(file.stem) for file in (self.state / "journal").glob("*.fj")), default=0) > 1

    def expect_whole(self, state=None, topic=None, strays=0):
        """Expects that both replicas, started again, hold what the state holds, and that this number of records belongs to no writer."""
        state, topic = state or self.state, topic or self.topic
        _, out, _ = tool("verify", "--state-dir", state, "--brokers", self.kafka.address, "--topic", topic)
        assert out.splitlines()[-1].startswith("verified:"), out
        replica = delta.Replica(NP)
        for partition, records in delta.read_topic(self.kafka.address, topic).items():
            for _, value in records:
                try:
                    replica.feed(partition, value)
                except delta.Bad:
                    strays -= 1
        assert strays == 0, strays
        mine, theirs = delta.dump_lines(replica), tool("dump", "--state-dir", state)[1].splitlines()
        assert mine == theirs, f"{len(mine)} lines here, {len(theirs)} there; ends: {mine[-1]} {theirs[-1]}"


class Cases:
    def __init__(self, work, kafka):
        self.work, self.kafka = work, kafka

    def life(self, name):
        return Life(self.work, self.kafka, name)

    def a_topic_deleted_under_a_running_daemon_is_filled_again(self):
        life = self.life("deleted")
        daemon = life.live()
        wait_until(lambda: daemon.json("/status")["outbox"]["topic"]["begin"] == 1, "the topic begins with epoch 1")
        for future in life.admin.delete_topics([life.topic]).values():
            future.result(PATIENCE)
        life.produce(200)
        wait_until(lambda: daemon.json("/status").get("outbox", {}).get("topic", {}).get("begin", 0) > 1, "the topic begins with a merged epoch")
        assert daemon.running()
        daemon.drain()
        assert "event=rebase_end" in daemon.log()
        life.expect_whole()

    def a_deleted_topic_is_named_until_it_is_there_again(self):
        life = self.life("unnamed")
        life.create(life.topic, NP)
        daemon = life.daemon(sets=["export.create=false"])
        wait_until(lambda: daemon.json("/status").get("samples", {}).get("trained") == life.count and daemon.get("/readyz")[0] == 200, "all is well")
        of_topic = lambda: [p for p in daemon.json("/status")["problems"] if life.topic in p["text"]]
        assert not of_topic() and not daemon.json("/status")["outbox"]["problem"], daemon.json("/status")["problems"]
        for future in life.admin.delete_topics([life.topic]).values():
            future.result(PATIENCE)
        life.produce(200)
        wait_until(lambda: life.topic in daemon.json("/status")["outbox"]["problem"] and of_topic() and life.topic in daemon.get("/readyz")[1], "the topic is named")
        life.create(life.topic, NP)
        wait_until(lambda: not daemon.json("/status")["outbox"]["problem"] and not of_topic() and daemon.get("/readyz")[0] == 200, "nothing is named any more")
        assert life.topic not in daemon.get("/readyz")[1], daemon.get("/readyz")
        daemon.drain()
        life.expect_whole()

    def a_topic_moved_by_name_gets_the_whole_state(self):
        life = self.life("moved")
        life.live().drain()
        life.daemon(["--until", "end"], topic="moved.new", sets=["export.on_loss=stop"], wait_http=False).expect_exit(3)
        life.produce(200)
        life.to_the_end(topic="moved.new")
        life.expect_whole(topic="moved.new")
        life.produce(100)
        assert "event=rebase " not in life.to_the_end(topic="moved.new").log(), "once is enough"
        life.expect_whole(topic="moved.new")

    def partitions_that_were_added_stay_empty(self):
        life = self.life("grown")
        life.to_the_end()
        for future in life.admin.create_partitions([confluent_kafka.admin.NewPartitions(life.topic, NP + 1)]).values():
            future.result(PATIENCE)
        life.produce(200)
        assert "topic_partitions_unused" in life.to_the_end().log()
        life.expect_whole()

    def a_topic_that_lost_its_beginning_gets_the_whole_state(self):
        life = self.life("cut")
        life.live().drain()
        at = confluent_kafka.TopicPartition(life.topic, 0, 5)
        for future in life.admin.delete_records([at]).values():
            future.result(PATIENCE)
        life.produce(200)
        life.to_the_end()
        life.expect_whole()
        assert "event=rebase " not in life.to_the_end().log(), "it is known where the topic begins"

    def a_restored_copy_of_a_state_continues_with_a_topic_of_its_own(self):
        life = self.life("copied")
        life.live().drain()
        copy = self.work.path / "copy"
        shutil.copytree(life.state, copy)
        life.produce(200)
        life.to_the_end()
        refused = life.daemon(["--until", "end"], state=copy, wait_http=False)
        refused.expect_exit(3)
        assert "older copy of the state" in refused.log() and "export.topic" in refused.log()
        life.to_the_end(state=copy, topic="copied.new")
        life.expect_whole(state=copy, topic="copied.new")
        life.expect_whole()

    def a_kill_while_the_topic_is_filled_costs_nothing(self):
        life = self.life("killed")
        life.live().drain()
        daemon = life.daemon(topic="killed.new", wait_http=False)
        wait_until(lambda: "event=rebase_begin" in daemon.log(), "the topic is being filled")
        daemon.kill()
        life.produce(200)
        daemon = life.daemon(topic="killed.new")
        wait_until(lambda: daemon.json("/status").get("outbox", {}).get("topic", {}).get("begin", 0) > 1, "the topic begins with a merged epoch")
        wait_until(lambda: daemon.json("/status")["samples"]["trained"] == life.count, "everything is trained")
        daemon.drain()
        life.expect_whole(topic="killed.new")

    def a_filling_that_was_cut_off_is_repeated_without_new_samples(self):
        life = self.life("half")
        life.live().drain()
        tool("snapshot", "--state-dir", life.state, "--dir", self.work.path / "elsewhere")  # the newest epoch is folded
        still = ["heartbeat=1d"]
        life.to_the_end(topic="half.whole", sets=still)
        life.create("half.new", NP)
        producer = confluent_kafka.Producer({"bootstrap.servers": self.kafka.address})
        for partition, records in delta.read_topic(self.kafka.address, "half.whole").items():
            for _, value in records[:1 + partition]:  # as a kill leaves it
                producer.produce("half.new", value, partition=partition)
        assert producer.flush(PATIENCE) == 0
        life.to_the_end(topic="half.new", sets=still)  # the later epoch is the drain's
        life.expect_whole(topic="half.new")

    def _refuse(self, life, refuses):
        """Makes the broker refuse all records of the delta topic, or accept them again."""
        resource = confluent_kafka.admin.ConfigResource("topic", life.topic, set_config={"max.message.bytes": "60" if refuses else "1048588"})
        for future in life.admin.alter_configs([resource]).values():
            future.result(PATIENCE)

    def a_topic_that_takes_smaller_records_is_refused_at_the_start_and_waited_for_later(self):
        life = self.life("small")
        life.create(life.topic, NP, **{"max.message.bytes": "65536"})
        daemon = life.daemon(wait_http=False)
        daemon.expect_exit(3)
        assert re.search(r"topic \S+ takes 65536 bytes at once .*export.piece_max lets a record have 524288: set max.message.bytes=524416 or more", daemon.log()), daemon.log()
        self._refuse(life, False)
        daemon = life.daemon(sets=["export.drain_timeout=2s"])
        wait_until(lambda: daemon.get("/readyz")[0] == 200, "ready")
        self._refuse(life, True)

        def refused():  # the topic's log takes the limit over some time after the controller has it
            life.produce(100)
            return "set max.message.bytes=524416 on it" in daemon.get("/readyz")[1]
        wait_until(refused, "it says what it waits for")
        wait_until(lambda: daemon.get("/readyz")[0] == 503 and "max.message.bytes" in daemon.get("/healthz")[1], "not ready, and /healthz says it")
        daemon.process.send_signal(15)
        daemon.expect_exit(3)
        assert "set max.message.bytes=524416 on it, then start again" in daemon.log(), daemon.log()
        self._refuse(life, False)
        life.to_the_end()
        life.expect_whole()

    def a_topic_that_takes_one_record_at_once_gets_an_epoch_of_several(self):
        life = self.life("single")
        life.create(life.topic, NP, **{"max.message.bytes": str((64 << 10) + 128)})  # the size that the start requires
        life.produce(20000)
        life.to_the_end(sets=["export.piece_max=64KiB", "export.drain_timeout=5s", "epoch=10m", "unfolded_max=64MiB"])
        epochs = collections.Counter()  # bytes
        for partition, records in delta.read_topic(self.kafka.address, life.topic).items():
            for _, value in records:
                epochs[partition, delta.parse(value)["e"]] += len(value)
        assert max(epochs.values()) > (64 << 10) + 128, epochs  # larger than the limit in one piece
        life.expect_whole()

    def an_open_transaction_of_another_producer_hides_nothing(self):
        life = self.life("foreign")
        daemon = life.live()
        foreign = confluent_kafka.Producer({"bootstrap.servers": self.kafka.address, "transactional.id": "foreign", "transaction.timeout.ms": 600000})
        foreign.init_transactions(PATIENCE)
        foreign.begin_transaction()
        for partition in range(NP):
            foreign.produce(life.topic, b"not a delta record", partition=partition)
        assert foreign.flush(PATIENCE) == 0
        life.produce(500)
        wait_until(lambda: daemon.json("/status")["samples"]["trained"] == life.count and daemon.json("/status")["outbox"]["epochs"] == 0, "all is published")
        daemon.drain()
        life.to_the_end()  # the start's look at the topic
        life.expect_whole(strays=NP)
        foreign.abort_transaction(PATIENCE)
        life.produce(100)
        life.to_the_end()
        life.expect_whole(strays=NP)
        log = daemon.log()
        assert "event=stray" in log and "topic_changed" not in log and "delta_topic_lost_records" not in log and log.count("event=rebase ") == 0, log[-3000:]

    def a_backlog_goes_out_merged_through_kills(self):
        life = self.life("backlog")
        memory = pathlib.Path("/dev/shm")
        if memory.is_dir() and shutil.disk_usage(memory).free > 4 << 30:  # many small epochs, whatever a sync costs on the disk of /tmp
            memory = tempfile.TemporaryDirectory(dir=memory)
            life.state = pathlib.Path(memory.name) / "state"
        life.to_the_end()
        # an epoch has up to 600 KB of metrics' bins
        sets = ["epoch=1ms", "export.backlog_max=64KiB", "export.piece_max=64KiB", "unfolded_max=64MiB", "journal_max=4GiB", "ingest.batch_size=1"]
        daemon = life.daemon(sets=sets)
        wait_until(lambda: daemon.get("/readyz")[0] == 200, "ready")
        self._refuse(life, True)
        begin = last_epoch(life.state)
        outbox = lambda: daemon.json("/status").get("outbox", {})
        wait_until(lambda: life.produce(BACKLOG // 2) or outbox()["epochs"] >= BACKLOG, "epochs wait")
        waiting = outbox()
        assert waiting["waiting_bytes"] > 64 << 10, waiting
        daemon.process.kill()
        daemon.expect_exit(-9)
        self._refuse(life, False)
        for pause in (0.0, 0.02, 0.1):
            daemon = life.daemon(sets=sets, wait_http=False)
            wait_until(lambda: "event=topic_checked" in daemon.log() or not daemon.running(), "the topic was looked at")
            time.sleep(pause)
            daemon.process.kill()
            daemon.expect_exit(-9)
        life.produce(20)
        life.to_the_end(sets=sets)
        life.expect_whole()
        records = [delta.parse(value) for _, value in delta.read_topic(self.kafka.address, life.topic)[0]]
        merged = {(r["from"], r["e"]) for r in records if r["from"] < r["e"]}
        commits = [r["e"] for r in records if r["k"] == "commit" and r["e"] > begin]
        assert merged and len(commits) < waiting["epochs"] / 4, f"{len(commits)} commits for {waiting['epochs']} epochs, merged {sorted(merged)}"
        print(f"{waiting['epochs']} epochs waited and went out in {len(commits)} commits a partition, merged {sorted(merged)}")

    def two_fresh_states_on_one_topic_notice_each_other(self):
        life = self.life("twice")
        life.create(life.topic, NP)
        life.create("quiet", 1)
        states = [self.work.path / "one", self.work.path / "two"]
        # neither has anything to publish before both have read the topic
        daemons = [self.work.daemon(CONFIG, self.work.path / f"{state.name}.log",
                                    [f"state_dir={state}", f"ingest.brokers={self.kafka.address}", "ingest.topic=quiet", f"export.topic={life.topic}",
                                     f"export.partitions={NP}", "epoch=100ms", "heartbeat=1d"]) for state in states]
        for daemon in daemons:
            wait_until(lambda: "event=topic_checked" in daemon.log(), "the topic was looked at")
        life.name, life.count = "quiet", 0
        life.produce(500)
        wait_until(lambda: not all(daemon.running() for daemon in daemons), "one notices the other")
        life.produce(500)
        for daemon in daemons:
            daemon.expect_exit(3)
            assert "topic twice.delta" in daemon.log() and "model operated" in daemon.log(), daemon.log()[-1500:]
            assert re.search(r"at offset \d+ \(timeline 1, digest 0x[0-9a-f]{16}, written at 20\d\d-\d\d-\d\dT\S+Z\)", daemon.log()), daemon.log()[-1500:]


def main():
    with Kafka() as kafka, Workspace() as work:
        cases = Cases(work, kafka)
        names = [name for name in vars(Cases) if not name.startswith("_") and name != "life"]
        passed = 0 if sys.argv[1:] else unit_cases(kafka.address)
        for name in sys.argv[1:] or names:
            getattr(cases, name)()
            passed += 1
            print("ok", name, flush=True)
    print(f"{passed} passed, 0 failed")


main()
