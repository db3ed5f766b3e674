"""libfreshet_follow and `freshet follow` through outages of a real Kafka: brokers that are stopped or hang, a topic that is created again, one that lost its
beginning before or while a replica reads it. Meanwhile replicas continue to serve, their state reports what they wait for, and every replica ends with the daemon's last epoch.
"""
import ctypes
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))
import confluent_kafka  # noqa: E402
import confluent_kafka.admin  # noqa: E402
from harness import *  # noqa: E402,F403
from streams import live_samples, produce  # noqa: E402
import delta  # noqa: E402

CONFIG = SOURCE / "tests/integration/operating.yaml"
SAMPLE = b'{"f":{"user_id":7,"sample":3,"price":1.0}}'
JSON_FORM = 1
OK, AGAIN, UNKNOWN = 0, 2, 2**64 - 1
os.environ["FRESHET_REPLICA"] = str(BUILD / "libfreshet_replica.so")
sys.path.insert(0, str(SOURCE / "replica/python"))
import freshet  # noqa: E402


class Options(ctypes.Structure):
    _fields_ = [("brokers", ctypes.c_char_p), ("topic", ctypes.c_char_p), ("snapshots", ctypes.c_char_p), ("model", ctypes.c_char_p),
                ("partitions", ctypes.POINTER(ctypes.c_uint32)), ("n_partitions", ctypes.c_size_t), ("memory_max", ctypes.c_uint64),
                ("kafka_file", ctypes.c_char_p), ("properties", ctypes.POINTER(ctypes.c_char_p)), ("n_properties", ctypes.c_size_t),
                ("acknowledge", ctypes.c_char_p), ("acknowledgement_topic", ctypes.c_char_p)]


class State(ctypes.Structure):
    _fields_ = [("ended", ctypes.c_int), ("timeline", ctypes.c_uint64), ("epoch", ctypes.c_uint64), ("lag_records", ctypes.c_uint64),
                ("freshness_ms", ctypes.c_int64), ("reloads", ctypes.c_uint64), ("memory_bytes", ctypes.c_uint64), ("problem", ctypes.c_char * 512),
                ("acknowledged_epoch", ctypes.c_uint64)]


class Follow:
    """The library's thread, and a reader of its replica; a context manager."""

    library = None

    def __init__(self, brokers, topic, snapshots=None, acknowledge=None):
        if not Follow.library:
            ctypes.CDLL(BUILD / "libfreshet_replica.so", mode=ctypes.RTLD_GLOBAL)
            Follow.library = ctypes.CDLL(BUILD / "libfreshet_follow.so")
            Follow.library.freshet_follow_replica.restype = ctypes.c_void_p
        self.handle, self.reader, problem = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.create_string_buffer(512)
        options = Options(brokers=brokers.encode(), topic=topic.encode(), snapshots=os.fsencode(snapshots) if snapshots else None,
                          acknowledge=acknowledge)
        status = self.library.freshet_follow_start(ctypes.byref(options), ctypes.byref(self.handle), problem, ctypes.c_size_t(512))
        assert status == 0, problem.value

    def __enter__(self):
        replica = ctypes.c_void_p(self.library.freshet_follow_replica(self.handle))
        assert self.library.freshet_reader_new(replica, ctypes.byref(self.reader)) == 0
        return self

    def __exit__(self, *unused):
        self.library.freshet_reader_free(self.reader)
        self.library.freshet_follow_stop(self.handle)

    def state(self):
        state = State()
        self.library.freshet_follow_get_state(self.handle, ctypes.byref(state))
        assert not state.ended, state.problem
        return state

    def problem(self):
        return self.state().problem.decode()

    def score(self):
        """Returns the score of one sample; None while no epoch is served."""
        scores, n = (ctypes.c_float * 4)(), ctypes.c_uint32(4)
        status = self.library.freshet_reader_score(self.reader, JSON_FORM, SAMPLE, ctypes.c_size_t(len(SAMPLE)), scores, ctypes.byref(n))
        return scores[0] if status == 0 else None

    def caught_up(self, timeout_ms=PATIENCE * 1000):
        return self.library.freshet_follow_wait_caught_up(self.handle, timeout_ms)

    def serves(self, epoch):
        wait_until(lambda: self.state().epoch >= epoch and not self.problem(), f"epoch {epoch} is served and all is well ({self.state().epoch}, {self.problem()})")


class Cases:
    def __init__(self, work, kafka):
        self.work, self.kafka, self.count = work, kafka, 0
        self.admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": kafka.address})
        self.admin.create_topics([confluent_kafka.admin.NewTopic("live", 2, 1)])["live"].result(PATIENCE)
        self.produced = 0
        self.file = work.path / "sample.jsonl"
        self.file.write_bytes(SAMPLE + b"\n")

    def daemon(self, name, *sets):
        return self.work.daemon(CONFIG, self.work.path / f"{name}.log", [f"ingest.brokers={self.kafka.address}", "ingest.topic=live", "export.create=true",
                                                                         f"state_dir={self.work.path / name}", f"export.topic={name}.delta", "epoch=50ms",
                                                                         "unfolded_max=64KiB", "heartbeat=500ms", "export.dense_every=0s", *sets])

    def more(self, daemon, count=200):
        """Waits until everything is trained and published. Returns an epoch after which only heartbeats come, so that scores (`dense_every` 0) stay the same."""
        produce(self.kafka.address, "live", live_samples(self.produced, count))
        self.produced += count
        status = lambda: daemon.json("/status")
        trained = lambda now: now["samples"]["trained"] == self.produced and now["epoch"]
        last = wait_until(lambda: trained(status()), f"{self.produced} samples are trained") + 1  # samples may be in the open epoch
        wait_until(lambda: status()["acked"] >= last, f"epoch {last} is published")
        return last

    def expected(self, daemon, topic, **options):
        """Returns the score of a replica that has read the topic to its end."""
        with Follow(self.kafka.address, topic, **options) as follow:
            follow.serves(daemon.json("/status")["epoch"])
            return follow.score()

    def send(self, topic, records):
        producer = confluent_kafka.Producer({"bootstrap.servers": self.kafka.address, "enable.idempotence": True})
        for partition, value in records:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(PATIENCE) == 0

    def lose_beginning(self, topic, offsets=None):
        """Deletes the records before the offsets; without offsets, all records except the last one of each partition."""
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.kafka.address, "group.id": "looks"})
        ends = [consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, p))[1] for p in range(2)]
        consumer.close()
        keep = [confluent_kafka.TopicPartition(topic, p, offsets[p] if offsets else ends[p] - 1) for p in range(2)]
        for future in self.admin.delete_records(keep).values():
            future.result(PATIENCE)

    def a_broker_that_stops_is_named_and_waited_for(self):
        daemon = self.daemon("stopped")
        epoch = self.more(daemon)
        with Follow(self.kafka.address, "stopped.delta") as follow:
            follow.serves(epoch)
            score = follow.score()
            self.kafka.stop()
            wait_until(follow.problem, "the state tells that brokers are away")
            assert follow.score() == score and follow.state().epoch >= epoch, "what is served is served on"  # a heartbeat may have been published before
            assert follow.caught_up(1) == AGAIN, "nobody says where the topic ends"
            with Follow(self.kafka.address, "stopped.delta") as late:  # begun during the outage
                wait_until(late.problem, "it says why it serves nothing")
                assert late.score() is None
                self.kafka.start()
                epoch = self.more(daemon)
                follow.serves(epoch)
                late.serves(epoch)
                assert follow.caught_up() == OK
                assert late.score() == follow.score() != score
        daemon.drain()

    def a_broker_that_hangs_is_noticed(self):
        daemon = self.daemon("hung")
        epoch = self.more(daemon)
        with Follow(self.kafka.address, "hung.delta") as follow:
            follow.serves(epoch)
            score, broker = follow.score(), self.kafka.pid()
            os.kill(broker, signal.SIGSTOP)
            try:
                wait_until(follow.problem, "the state tells")
                assert follow.score() == score
            finally:
                os.kill(broker, signal.SIGCONT)
            follow.serves(self.more(daemon))
        daemon.drain()

    def a_topic_created_again_is_followed(self):
        daemon = self.daemon("again", "snapshot.every=1h")
        self.more(daemon, 600)
        wait_until(lambda: daemon.json("/status")["snapshot"]["current"], "a snapshot")
        folder = self.work.path / "again/snapshots"
        with Follow(self.kafka.address, "again.delta") as follow, Follow(self.kafka.address, "again.delta", snapshots=folder) as hinted:
            follow.serves(daemon.json("/status")["epoch"])
            hinted.serves(daemon.json("/status")["epoch"])
            daemon.drain()
            self.admin.delete_topics(["again.delta"])["again.delta"].result(PATIENCE)
            wait_until(lambda: "again.delta" not in self.admin.list_topics(timeout=10).topics, "the topic is gone")
            wait_until(lambda: follow.problem() and hinted.problem(), "both say so")
            daemon = self.daemon("again", "snapshot.every=1h")
            epoch = self.more(daemon)
            assert "event=rebase_begin" in daemon.log()
            follow.serves(epoch)
            hinted.serves(epoch)
            assert follow.score() == hinted.score() == self.expected(daemon, "again.delta") is not None
        daemon.drain()

    def a_topic_without_its_beginning_is_reported_until_a_snapshot_comes(self):
        daemon = self.daemon("headless")
        self.more(daemon)
        daemon.process.send_signal(signal.SIGSTOP)  # the daemon checks its topic once a minute, and would fill it
        self.lose_beginning("headless.delta")
        folder = self.work.path / "headless/snapshots"
        with Follow(self.kafka.address, "headless.delta", snapshots=folder) as follow:
            wait_until(lambda: "lost its beginning" in follow.problem(), "what it waits for")
            assert follow.score() is None
            rc, _, error = tool("follow", "--brokers", self.kafka.address, "--topic", "headless.delta", check=False)
            assert rc == 1 and "lost its beginning" in error and "--snapshot" in error, error
            daemon.process.send_signal(signal.SIGCONT)
            tool("snapshot", "--state-dir", self.work.path / "headless")
            wait_until(lambda: (folder / "CURRENT").exists(), "CURRENT")
            epoch = self.more(daemon)
            follow.serves(epoch)
            assert follow.state().reloads == 1 or "event=rebase_begin" in daemon.log(), "the daemon fills the topic within a minute"
            assert follow.score() == self.expected(daemon, "headless.delta", snapshots=folder) is not None
        daemon.drain()

    def a_follower_that_retention_overtakes_continues_from_a_snapshot(self):
        daemon = self.daemon("slow")
        first = self.more(daemon)
        state, folder = self.work.path / "slow", self.work.path / "slow/snapshots"
        command = [BUILD / "tool/freshet", "follow", "--brokers", self.kafka.address, "--topic", "slow.delta", "--dump", self.work.path / "slow.dump"]
        followers = {}
        for name, more in (("with", ["--snapshot", folder]), ("without", [])):
            log = open(self.work.path / f"slow {name}.log", "wb")
            followers[name] = subprocess.Popen([*map(str, command), *map(str, more)], stdout=log, stderr=log)
        log = lambda name: (self.work.path / f"slow {name}.log").read_text()
        try:
            for name, follower in followers.items():
                wait_until(lambda: re.search(rf"^epoch={first} ", log(name), re.M), "it follows")
                os.kill(follower.pid, signal.SIGSTOP)
            for _ in range(5):
                self.more(daemon)
            tool("snapshot", "--state-dir", state)
            current = wait_until(lambda: daemon.json("/status")["snapshot"]["current"], "CURRENT")
            self.lose_beginning("slow.delta", json.loads((folder / current / "MANIFEST.json").read_text())["delta_offsets"])
            for follower in followers.values():
                os.kill(follower.pid, signal.SIGCONT)
            assert followers["without"].wait(PATIENCE) == 1
            assert re.search(r"records were deleted before they were read|gap", log("without")), log("without")
            self.more(daemon)
            daemon.drain()
            last = last_epoch(state)
            wait_until(lambda: re.search(rf"^epoch={last} ", log("with"), re.M) or followers["with"].poll() is not None, "it continues")
            followers["with"].terminate()
            assert followers["with"].wait(PATIENCE) == 0, log("with")
        finally:
            for follower in followers.values():
                follower.kill()
                follower.wait()
        assert (self.work.path / "slow.dump").read_text() == tool("dump", "--state-dir", state)[1]

    def a_follower_says_when_it_serves_what_the_topic_holds(self):
        daemon = self.daemon("caught")
        for _ in range(3):
            self.more(daemon)
        with Follow(self.kafka.address, "caught.delta") as follow:
            durable = daemon.json("/status")["epoch"]
            assert follow.caught_up() == OK
            assert follow.state().epoch >= durable - 1 and follow.score() == self.expected(daemon, "caught.delta")
        daemon.drain()
        records = [(p, value) for p, held in delta.read_topic(self.kafka.address, "caught.delta").items() for _, value in held]
        last, half = last_epoch(self.work.path / "caught"), last_epoch(self.work.path / "caught") // 2
        early, rest = [r for r in records if delta.parse(r[1])["e"] <= half], [r for r in records if delta.parse(r[1])["e"] > half]
        self.admin.create_topics([confluent_kafka.admin.NewTopic("copied", 2, 1)])["copied"].result(PATIENCE)
        with Follow(self.kafka.address, "copied") as follow:
            self.send("copied", early)
            assert follow.caught_up() == OK and follow.state().epoch == half
            with freshet.Replica.follow(self.kafka.address, "copied") as replica:
                assert replica.info.epoch == half
                self.send("copied", early * 50 + rest)  # passing over records that the replica has takes time
                assert follow.caught_up() == OK and follow.state().epoch == last, (follow.state().epoch, last)
                replica.wait_caught_up(PATIENCE)
                assert replica.info.epoch == last, (replica.info.epoch, last)
            self.send("copied", [(0, b"not a delta record")])
            wait_until(follow.problem, "it says that a record was refused")
            assert follow.caught_up() == OK and not follow.problem()
        with Follow(self.kafka.address, "absent.delta") as follow:
            wait_until(follow.problem, "it says that there is no such topic")
            assert follow.caught_up(1) == AGAIN and follow.state().lag_records == UNKNOWN, "not known before the topic is open"

    def a_topic_whose_records_were_deleted_is_distinguished_from_one_that_is_read(self):
        daemon, state = self.daemon("aged"), self.work.path / "aged"
        topic = ["--brokers", self.kafka.address, "--topic", "aged.delta"]
        self.more(daemon)
        tool("snapshot", "--state-dir", state)
        folder = state / "snapshots"
        wait_until(lambda: (folder / "CURRENT").exists(), "CURRENT")
        begins = json.loads((folder / (folder / "CURRENT").read_text().strip() / "MANIFEST.json").read_text())["e"]
        last = self.more(daemon)
        daemon.drain()
        shutil.copytree(folder, self.work.path / "older")
        shutil.copytree(folder, self.work.path / "later")
        self.lose_beginning("aged.delta", [confluent_kafka.OFFSET_END] * 2)
        lost = "were deleted: epoch %d is served, and later ones may be missing" % begins
        with Follow(self.kafka.address, "aged.delta", snapshots=self.work.path / "later") as follow, Follow(self.kafka.address, "aged.delta") as bare:
            wait_until(lambda: lost in follow.problem(), "records that follow the snapshot are missing")
            assert follow.caught_up(1) == AGAIN and follow.state().epoch == begins and follow.score() is not None
            nothing = lambda text: "aged.delta holds nothing: its records up to offset" in text and "--snapshot" in text
            wait_until(lambda: nothing(bare.problem()), "the topic holds nothing")
            rc, out, error = tool("follow", *topic, "--until-idle", "1s", "--snapshot", self.work.path / "older", check=False)
            assert rc == 1 and lost in error and re.match(rf"snapshot epoch={begins} .*\ndeleted reason=", out), (out, error)
            rc, out, error = tool("verify", "--state-dir", state, *topic, "--snapshot", self.work.path / "older", check=False)
            assert rc == 1 and out.startswith(f"behind: replica at epoch {begins}, state at ") and lost in error, (out, error)
            for command in (["follow", "--until-idle", "1s"], ["verify", "--state-dir", state], ["score", "--file", self.file]):
                rc, out, error = tool(*command, *topic, check=False)
                assert rc == 1 and nothing(error) and not out, (command, out, error)
            for snapshots, said in ((self.work.path / "older", "were deleted: later epochs may be missing"), (None, "holds nothing: its records up to offset")):
                try:
                    freshet.Replica.follow(self.kafka.address, "aged.delta", snapshots=snapshots, timeout=0.5)
                    raise AssertionError("it returns without what the topic held")
                except TimeoutError as error:
                    assert said in str(error), error
            tool("snapshot", "--state-dir", state, "--dir", self.work.path / "later", "--topic", "aged.delta")
            assert follow.caught_up() == OK and follow.state().epoch >= last and not follow.problem(), "a snapshot that comes later is taken"
        with freshet.Replica.follow(self.kafka.address, "aged.delta", snapshots=self.work.path / "later") as replica:
            assert replica.info.epoch >= last and replica.problem == ""
        assert tool("verify", "--state-dir", state, *topic, "--snapshot", self.work.path / "later")[1].startswith("verified: ")
        assert tool("follow", *topic, "--until-idle", "100ms", "--snapshot", self.work.path / "later")[1].startswith(f"snapshot epoch={last_epoch(state)} ")

    def a_follow_without_an_end_follows_until_sigterm(self):
        out, dump, state = self.work.path / "endless.out", self.work.path / "endless.dump", self.work.path / "endless"
        with out.open("w") as to:  # begun before there is a topic
            follower = subprocess.Popen([BUILD / "tool/freshet", "follow", "--brokers", self.kafka.address, "--topic", "endless.delta", "--dump", dump,
                                         "--score", self.file], stdout=to, stderr=to)
        try:
            daemon = self.daemon("endless")
            for epoch in (self.more(daemon), self.more(daemon)):
                wait_until(lambda: re.search(rf"^epoch={epoch} ", out.read_text(), re.M) or follower.poll() is not None, f"epoch {epoch} is followed")
            daemon.drain()
            last = last_epoch(state)
            wait_until(lambda: re.search(rf"^epoch={last} ", out.read_text(), re.M) or follower.poll() is not None, "the last epoch is followed")
            assert follower.poll() is None, f"the end of the topic is not its end: {out.read_text()}"
            follower.send_signal(signal.SIGTERM)
            assert follower.wait(PATIENCE) == 0, out.read_text()
        finally:
            follower.kill()
            follower.wait()
        assert dump.read_text() == tool("dump", "--state-dir", state)[1] and re.fullmatch(r'\{"click":[0-9.e-]+\}', out.read_text().splitlines()[-1]), out.read_text()[-500:]

    def a_snapshot_of_another_topic_waits_for_a_record_that_shows_its_model(self):
        daemon, state = self.daemon("shown"), self.work.path / "shown"
        self.more(daemon)
        folder = state / "snapshots"
        tool("snapshot", "--state-dir", state)
        wait_until(lambda: (folder / "CURRENT").exists(), "CURRENT")
        self.more(daemon)
        daemon.drain()
        last = last_epoch(state)
        self.admin.create_topics([confluent_kafka.admin.NewTopic("copy.delta", 2, 1)])["copy.delta"].result(PATIENCE)
        self.send("copy.delta", [(p, value) for p, held in delta.read_topic(self.kafka.address, "shown.delta").items() for _, value in held])
        with Follow(self.kafka.address, "copy.delta", snapshots=folder) as follow:  # the first record shows that it is the same model
            assert follow.caught_up() == OK and follow.state().epoch == last and follow.state().reloads == 1, follow.state().reloads
        with freshet.Replica.follow(self.kafka.address, "copy.delta", snapshots=folder) as replica:
            assert replica.info.epoch == last and replica.info.reloads == 1
        self.lose_beginning("copy.delta", [confluent_kafka.OFFSET_END] * 2)
        said = "is a snapshot of model operated, whose deltas are on topic shown.delta, and no record of copy.delta has shown yet that it is of that model; if it is, name the model"
        with Follow(self.kafka.address, "copy.delta", snapshots=folder) as follow:
            wait_until(lambda: said in follow.problem() or follow.state().epoch, "the snapshot is not loaded")
            assert follow.state().epoch == 0 and follow.score() is None and follow.caught_up(1) == AGAIN
        rc, out, error = tool("follow", "--brokers", self.kafka.address, "--topic", "copy.delta", "--until-idle", "1s", "--snapshot", folder, check=False)
        assert rc == 1 and said in error and not out, (out, error)
        for model, begins in (("operated", r"snapshot epoch="), ("other", "$")):  # the caller that names the model vouches for the topic
            rc, out, error = tool("follow", "--brokers", self.kafka.address, "--topic", "copy.delta", "--until-idle", "1s", "--snapshot", folder, "--model", model, check=False)
            assert rc == 1 and re.match(begins, out), (model, out, error)
        try:
            freshet.Replica.follow(self.kafka.address, "copy.delta", snapshots=folder, timeout=0.5)
            raise AssertionError("it serves what may be another model")
        except TimeoutError as error:
            assert said in str(error), error
        with freshet.Replica.follow(self.kafka.address, "shown.delta", snapshots=folder) as replica:
            assert replica.info.epoch == last and replica.info.reloads == 1

    def a_fleet_is_shown_by_its_slowest_replica(self):
        """Four replicas (the library, the command, the Python package, and one written here from the text alone) say what they serve. The command is stopped and is the slowest."""
        assert "operated.ack" not in self.admin.list_topics().topics, "nobody asked for it"
        daemon = self.daemon("fleet", "export.acknowledgements=true")
        first = self.more(daemon)
        fleet = lambda: daemon.json("/status")["replicas"]
        named = lambda name: next((r for r in fleet()["list"] if r["name"] == name), None)
        where = ("--brokers", self.kafka.address, "--topic", "fleet.delta")
        wait_until(lambda: "operated.ack" in self.admin.list_topics().topics, "the daemon makes the topic")
        command = subprocess.Popen([BUILD / "tool/freshet", "follow", *where, "--acknowledge", "command"], stdout=subprocess.DEVNULL)
        try:
            with Follow(self.kafka.address, "fleet.delta", acknowledge="library \u2603 <b>".encode()) as follow, \
                    freshet.Replica.follow(self.kafka.address, "fleet.delta", acknowledge="python") as replica:
                wait_until(lambda: {r["name"] for r in fleet()["list"] if r["epoch"] >= first} == {"library \u2603 <b>", "command", "python"}, f"three are there: {fleet()}")
                self.say({"e": 1, "tl": 1, "cut": 1700000000000, "wm": 1600000000000, "rows": 3, "scores": 2.5, "problem": "a\n\0"}, {"name": "left"}, {"name": "left", "leaving": True},
                         {"v": 2}, {"name": ""}, {"name": "a\0b"}, {"m": "other"}, {"tl": 9}, {"tl": 1, "e": 2**62}, b"{", b'{"v":1', b"\x80", None)
                wait_until(lambda: fleet()["ignored"] == {"malformed": 7, "model": 1, "timeline": 1, "ahead": 1} and fleet()["left"] == 1, f"what is wrong is counted: {fleet()}")
                slowest = fleet()["slowest"]
                assert slowest == named("third") | {k: slowest[k] for k in ("freshness", "cut_age", "silence", "epochs_behind")}, slowest
                assert (slowest["epoch"], slowest["rows"], slowest["scores_per_second"], slowest["problem"]) == (1, 3, 2.5, "a\n"), slowest
                assert slowest["epochs_behind"] >= first - 1 and slowest["freshness"] > slowest["cut_age"] > 1e6 and not slowest["silent"], slowest
                self.say({"leaving": True})
                command.send_signal(signal.SIGSTOP)
                last = self.more(daemon)
                replica.score([{"f": {"user_id": 7}}] * 5)
                wait_until(lambda: fleet()["slowest"]["name"] == "command" and named("python")["epoch"] >= last and named("python")["scores_per_second"], f"the stopped one is the slowest: {fleet()}")
                before = fleet()["slowest"]
                wait_until(lambda: fleet()["slowest"]["epochs_behind"] > before["epochs_behind"], "it falls behind")
                after = fleet()["slowest"]
                assert after["name"] == "command" and after["epoch"] == before["epoch"] and after["freshness"] > before["freshness"] and after["silence"] > before["silence"], (before, after)
                text = daemon.get("/metrics")[1]
                assert "freshet_replicas{" in text and re.search(r'freshet_replica_acknowledgements_ignored_total\{model="operated",reason="malformed"\} 7$', text, re.M), text[-3000:]
                command.send_signal(signal.SIGCONT)
                wait_until(lambda: named("command")["epoch"] >= last, "it continues")
                assert wait_until(lambda: follow.state().acknowledged_epoch >= last, "the library knows that its acknowledgement was taken")
        finally:
            command.send_signal(signal.SIGCONT)
            command.terminate()
            command.wait(PATIENCE)
        wait_until(lambda: fleet()["count"] == 0 and fleet()["slowest"] is None and fleet()["left"] == 5, f"who ends says so: {fleet()}")
        daemon.drain()

    def say(self, *records):
        """Writes acknowledgements by the text alone; a map is completed, and other bytes are written as they are."""
        whole = {"v": 1, "m": "operated", "name": "third", "tl": 1, "e": 1}
        self.send("operated.ack", [(0, json.dumps(whole | r).encode() if isinstance(r, dict) else r) for r in records])

    def run(self):
        names = [n for n in vars(Cases) if n.startswith("a_")]
        for name in [n for n in names if not sys.argv[1:] or n in sys.argv[1:]]:
            begin = time.monotonic()
            getattr(self, name)()
            print(f"ok {name} ({time.monotonic() - begin:.1f} s)", flush=True)
            self.count += 1
        print(f"{self.count} passed, 0 failed")


with Workspace() as test_work, Kafka(own=True) as test_kafka:
    Cases(test_work, test_kafka).run()
