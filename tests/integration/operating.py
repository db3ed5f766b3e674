"""What an operator meets (docs/commands.md): every refusal and every outage says what to do, has its exit code, and loses nothing.

Cases: broker absent at start; topic absent at start; a second daemon on one state; a changed config; another format version; a foreign delta topic; retention
that passed our position; a full disk at the journal; broker away in mid-run; drain while the broker is down; a dead-letter topic that refuses; a wrong
password (TLS and SASL); numbers that are not finite; a crowd of HTTP clients; a broken config; the names of threads; /healthz, /readyz, /metrics, /auc.
"""
import contextlib
import pathlib
import socket
import struct
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import confluent_kafka  # noqa: E402
import confluent_kafka.admin  # noqa: E402
import crc32c  # noqa: E402
import msgpack  # noqa: E402
import harness  # noqa: E402
from harness import *  # noqa: E402,F403

CONFIG = SOURCE / "tests/integration/operating.yaml"


def closed_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def create_topic(address, topic, partitions=1, config=None):
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([confluent_kafka.admin.NewTopic(topic, partitions, 1, config=config or {})]).values():
        future.result(PATIENCE)


def produce(address, topic, begin, count, price=1.0, label=None):
    producer = confluent_kafka.Producer({"enable.idempotence": True, "bootstrap.servers": address})
    for i in range(begin, begin + count):
        producer.produce(topic, msgpack.packb({"t": 1700000000000 + i, "y": {"click": i % 2 if label is None else label}, "f": {"sample": i, "user_id": i % 50, "price": price}}), partition=0)
    assert producer.flush(PATIENCE) == 0


def trained(daemon):
    return daemon.json("/status").get("samples", {}).get("trained", 0)


def with_login(login, password):
    """The model with the login of docs/operating.md's TLS and SASL example, its values replaced by this broker's."""
    example = re.search(r"  kafka:\n((?:    [a-z.]+: .*\n)+)", (SOURCE / "docs/operating.md").read_text()).group(1)
    properties = dict(line.strip().split(": ", 1) for line in example.splitlines())
    assert set(properties) <= set(login), "the example names what a login needs"
    properties.update({name: json.dumps(login[name]) for name in properties}, **{"sasl.password": json.dumps(password)})
    kafka = ", ".join(f"{name}: {value}" for name, value in properties.items())
    return CONFIG.read_text().replace("batch_wait: 10ms}", "batch_wait: 10ms, kafka: {%s}}" % kafka)


class FullPipe:
    """A pipe that has no room for a byte until it is read."""

    def __enter__(self):
        self.read, self.write = os.pipe()
        os.set_blocking(self.write, False)
        for size in (4096, 1):
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(self.write, b"\n" * size)
        os.set_blocking(self.write, True)
        return self

    def begin_reading(self):
        os.close(self.write)
        self.write, self.text = None, bytearray()
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self):
        while piece := os.read(self.read, 65536):
            self.text += piece

    def lines(self):
        """Returns all lines of the pipe, once the writer has ended."""
        self.thread.join()
        return self.text.decode(errors="replace").strip().splitlines()

    def __exit__(self, *unused):
        os.close(self.read)
        if self.write is not None:
            os.close(self.write)


class Cases:
    def __init__(self, work, kafka):
        self.work, self.kafka = work, kafka

    def daemon(self, name, sets=(), config=CONFIG, **options):
        base = [f"ingest.brokers={self.kafka.address}", f"ingest.topic={name}", f"model={name}", f"state_dir={self.work.path / name}",
                f"export.topic={name}.delta"]
        return self.work.daemon(config, self.work.path / f"{name}.log", [*base, *sets], **options)

    def ledger_is_exact(self, name, count, state=None):
        """Checks that every sample's own feature was counted once: nothing is lost and nothing doubled."""
        text = tool("dump", "--state-dir", state or self.work.path / name, "--private")[1]
        shows = [row["show"] for row in map(json.loads, text.splitlines()) if row.get("table") == "ledger" and "show" in row]
        assert len(shows) == count and all(show == 1 for show in shows), f"{name}: {len(shows)} of {count} samples, not all counted once"

    def broker_absent_at_start_is_retried_with_the_reason(self):
        daemon = self.daemon("absent", [f"ingest.brokers=127.0.0.1:{closed_port()}"])
        wait_until(lambda: "brokers 127.0.0.1" in daemon.json("/readyz").get("reason", ""), "/readyz names the broker")
        assert daemon.get("/readyz")[0] == 503
        assert daemon.get("/healthz")[0] == 200 and daemon.running()
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.wait_exit() == 0, "nothing was consumed: a drain has nothing to do"

    def a_signal_during_the_start_drains(self):
        for _ in range(5):  # at another instant each time; a thread of a library must not take the signal with its default action
            daemon = self.daemon("early")
            daemon.process.send_signal(signal.SIGTERM)
            daemon.expect_exit(0)

    def topic_absent_at_start_is_retried_until_it_exists(self):
        daemon = self.daemon("late")
        wait_until(lambda: "late" in daemon.json("/readyz").get("reason", ""), "/readyz names the topic")
        create_topic(self.kafka.address, "late")
        produce(self.kafka.address, "late", 0, 300)
        wait_until(lambda: trained(daemon) == 300, "300 samples trained")
        wait_until(lambda: daemon.get("/readyz")[0] == 200, "/readyz says ready")
        daemon.drain()
        self.ledger_is_exact("late", 300)

    def a_second_daemon_on_one_state_is_refused(self):
        create_topic(self.kafka.address, "one")
        produce(self.kafka.address, "one", 0, 500)
        first = self.daemon("one")
        wait_until(lambda: trained(first) == 500, "500 samples")
        second = self.daemon("one", wait_http=False)
        second.expect_exit(75)
        assert str(first.process.pid) in second.log(), "the message names the holder"
        wait_until(lambda: 'freshet_samples_trained_total{model="one"} 500\n' in first.get("/metrics")[1], "500 samples that are durable")
        assert first.json("/healthz")["status"] == "ok"
        auc = first.json("/auc")
        assert set(auc["tasks"]["click"]) == {"decayed", "lifetime", "curve", "gauc", "served"} and auc["tasks"]["click"]["lifetime"]["weight"] == 500
        first.drain()

    def a_log_that_nobody_reads_stops_nothing(self):
        """Standard error is a pipe that is full from the first moment on; the client of Kafka has much to say."""
        create_topic(self.kafka.address, "unread")
        produce(self.kafka.address, "unread", 0, 500)
        config = self.work.path / "unread.yaml"
        config.write_text(CONFIG.read_text().replace("batch_wait: 10ms}", "batch_wait: 10ms, kafka: {debug: all}}"))
        lost = lambda daemon: int(re.search(r'freshet_log_lines_lost_total{model="unread"} (\d+)', daemon.get("/metrics")[1]).group(1))
        reasons = lambda daemon: [reason for reason in daemon.json("/healthz").get("reasons", []) if "lines of the log are lost" in reason]
        with FullPipe() as pipe:
            daemon = self.daemon("unread", config=config, stderr=pipe.write)
            wait_until(lambda: trained(daemon) == 500, "500 samples")
            wait_until(lambda: reasons(daemon), "/healthz says that lines are lost")
            wait_until(lambda: daemon.get("/healthz")[0] == 200 and daemon.get("/readyz")[0] == 200, "ready although lines are lost")
            assert daemon.json("/status")["log"]["lines_lost"] > 0
            daemon.process.send_signal(signal.SIGTERM)
            daemon.expect_exit(0)
        produce(self.kafka.address, "unread", 500, 500)
        with FullPipe() as pipe:
            daemon = self.daemon("unread", config=config, stderr=pipe.write)
            wait_until(lambda: trained(daemon) == 1000 and reasons(daemon), "500 more samples, and lines that are lost")
            pipe.begin_reading()
            wait_until(lambda: not reasons(daemon), "/healthz has forgotten it once the log says it")
            count = lost(daemon)
            daemon.process.send_signal(signal.SIGTERM)
            daemon.expect_exit(0)
            lines = pipe.lines()
        assert sum(int(n) for n in re.findall(r"event=lines_lost lines=(\d+) ", "\n".join(lines))) >= count > 0
        assert " event=drained epoch=" in lines[-1], lines[-1]
        self.ledger_is_exact("unread", 1000)

    def every_thread_has_its_name(self):
        create_topic(self.kafka.address, "named")
        produce(self.kafka.address, "named", 0, 100)
        daemon = self.daemon("named", ["threads=3"])
        wait_until(lambda: trained(daemon) == 100, "100 samples")
        tasks = pathlib.Path(f"/proc/{daemon.process.pid}/task")
        names = sorted(name for name in ((task / "comm").read_text().strip() for task in tasks.iterdir()) if not name.startswith(("rdk:", "rocksdb:")))
        ours = {"log", "ingest", "owner", "worker-1", "worker-2", "durable", "upkeep", "fold", "publish", "snapshot", "http"}
        # libraries start further threads before main and while the state is opened; those have the name of the thread that starts them
        assert ours | {"freshetd"} <= set(names) <= ours | {"freshetd", "recovery"}, names
        daemon.drain()

    def metrics_say_where_time_goes(self):
        create_topic(self.kafka.address, "timed")
        produce(self.kafka.address, "timed", 0, 20000)
        daemon = self.daemon("timed")
        wait_until(lambda: trained(daemon) == 20000, "20000 samples")

        def seconds(label):
            return {name: float(value) for name, value in re.findall(rf'_total{{model="timed",{label}="(\w+)"}} (\S+)', daemon.get("/metrics")[1])}

        wait_until(lambda: seconds("thread").get("owner", 0) > 0 and all(seconds("phase").values()), "the owner's time and a cut")
        phases, threads = seconds("phase"), seconds("thread")
        assert set(phases) == {"plan", "forward", "backward", "update", "metrics", "cut", "wait"}, phases
        assert {"ingest", "owner", "worker", "durable", "fold", "publish", "other"} <= set(threads) and threads["ingest"] > 0, threads
        step = float(re.search(r'freshet_step_seconds_total{model="timed"} (\S+)', daemon.get("/metrics")[1]).group(1))
        assert sum(phases.values()) - phases["cut"] - phases["wait"] <= step, (phases, step)
        daemon.drain()

    def a_trace_has_the_phases_of_every_thread(self):
        create_topic(self.kafka.address, "traced")
        produce(self.kafka.address, "traced", 0, 2000)
        path = self.work.path / "trace.json"
        daemon = self.daemon("traced", arguments=["--trace", path, "--until", "end"])
        daemon.expect_exit(0)
        trace = json.loads(path.read_text())
        threads = {event["tid"]: event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
        spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        seen = {(threads[event["tid"]], event["name"]) for event in spans}
        assert {("ingest", "batch"), ("owner", "plan"), ("owner", "forward"), ("owner", "train"), ("owner", "cut"), ("owner", "wait for a batch"),
                ("durable", "append"), ("publish", "acknowledged")} <= seen, seen
        assert all(event["dur"] >= 0 and event["ts"] > 0 for event in spans) and trace["otherData"] == {"lost": "0"}, trace["otherData"]
        epochs = int(re.search(r"event=drained epoch=(\d+)", daemon.log()).group(1))
        assert len([event for event in spans if event["name"] == "append"]) == epochs, epochs
        assert "event=trace file=" in daemon.log()
        daemon = self.daemon("traced", arguments=["--trace", "/dev/null/trace"], wait_http=False)
        daemon.expect_exit(2)
        assert "the trace /dev/null/trace cannot be written" in daemon.log(), daemon.log()

    def a_changed_model_is_refused_with_the_difference(self):
        daemon = self.daemon("one", ["tables.user.dim=16"], wait_http=False)
        daemon.expect_exit(3)
        assert "tables.user.parts.v.dim: 4 -> 16" in daemon.log() and "state_dir" in daemon.log()

    def another_format_version_is_refused(self):
        state = self.work.path / "one"
        copy = self.work.path / "versioned"
        shutil.copytree(state, copy)
        mark = bytearray((copy / "hwm").read_bytes())
        for slot in (0, 4096):  # magic, u32 format version, ..., CRC32C at 124 (store/durable/hwm.c)
            assert mark[slot:slot + 8] == b"FRHWMARK"
            mark[slot + 8] = 9
            mark[slot + 124:slot + 128] = struct.pack("<I", crc32c.crc32c(bytes(mark[slot:slot + 124])))
        (copy / "hwm").write_bytes(mark)
        daemon = self.daemon("one", [f"state_dir={copy}"], wait_http=False)
        daemon.expect_exit(3)
        assert "state format 9" in daemon.log() and "another state_dir" in daemon.log(), daemon.log()[-500:]

    def a_foreign_delta_topic_is_refused(self):
        create_topic(self.kafka.address, "two")
        produce(self.kafka.address, "two", 0, 100)
        daemon = self.daemon("two", ["export.topic=one.delta"], wait_http=False)
        daemon.expect_exit(3)
        assert "one.delta" in daemon.log()
        # The same model from an empty state: a second writer on the topic of the first.
        daemon = self.daemon("one", [f"state_dir={self.work.path / 'fresh'}"], wait_http=False)
        daemon.expect_exit(3)

    def retention_that_passed_our_position_stops(self):
        create_topic(self.kafka.address, "hole")
        produce(self.kafka.address, "hole", 0, 200)
        daemon = self.daemon("hole")
        wait_until(lambda: trained(daemon) == 200, "200 samples")
        daemon.drain()
        produce(self.kafka.address, "hole", 200, 300)
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.kafka.address})
        for future in admin.delete_records([confluent_kafka.TopicPartition("hole", 0, 400)]).values():
            future.result(PATIENCE)
        daemon = self.daemon("hole", wait_http=False)
        daemon.expect_exit(3)
        assert "200" in daemon.log() and "on_loss" in daemon.log()
        daemon = self.daemon("hole", ["ingest.on_loss=earliest"])
        wait_until(lambda: trained(daemon) == 300, "the 100 samples that are left")
        status = wait_until(lambda: (lambda s: s if s["partitions"] and s["partitions"][0]["offset"] == 500 else None)(daemon.json("/status")), "durable at 500")
        assert status["partitions"][0]["lost"] == 200, status["partitions"]
        daemon.drain()

    def a_full_disk_at_the_journal_waits_and_loses_nothing(self):
        create_topic(self.kafka.address, "full")
        produce(self.kafka.address, "full", 0, 2000)
        full = self.work.path / "full.flag"
        full.touch()
        shim = {"LD_PRELOAD": str(harness.BUILD / "tests/fault/libkill_shim.so"), "FRESHET_FAIL": "journal_enospc:2", "FRESHET_FULL": str(full)}
        daemon = self.daemon("full", env=shim)
        wait_until(lambda: "make room under" in " ".join(daemon.json("/healthz").get("reasons", [])), "/healthz says that an epoch waits for room")
        wait_until(lambda: "room on the disk" in daemon.json("/readyz").get("reason", ""), "/readyz says that an epoch is late")
        for path in ("/readyz", "/status"):
            listed = {problem["where"]: problem for problem in daemon.json(path)["problems"]}
            assert {"durable", "journal"} <= set(listed), f"{path} lists the epoch that waits and what it waits for: {listed}"
            assert "make room under" in listed["journal"]["text"] and listed["journal"]["since_ms"] > 0, listed
        assert daemon.get("/readyz")[1].splitlines()[0].startswith('{"ready":false,"reason":"epoch '), "the first line has the first problem"
        assert daemon.running()
        full.unlink()
        wait_until(lambda: trained(daemon) == 2000, "2000 samples after space is there")
        wait_until(lambda: daemon.get("/readyz")[0] == 200, "/readyz says ready")
        assert daemon.json("/healthz")["status"] == "ok", daemon.json("/healthz")
        assert daemon.json("/status")["problems"] == [], daemon.json("/status")["problems"]
        daemon.drain()
        self.ledger_is_exact("full", 2000)

    def a_disk_that_fills_up_pauses_reading_which_continues_by_itself(self):
        disk = self.work.path / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(disk)], capture_output=True).returncode != 0:
            print("SKIP: a disk that fills up: a tmpfs cannot be mounted here")
            return
        try:
            create_topic(self.kafka.address, "filled")
            produce(self.kafka.address, "filled", 0, 1000)
            daemon = self.daemon("filled", [f"state_dir={disk / 'state'}"])
            wait_until(lambda: trained(daemon) == 1000, "1000 samples")
            with open(disk / "other", "wb") as other:  # another program takes all but some MiB
                other.write(b"x" * (52 << 20))
            wait_until(lambda: "bytes free" in daemon.json("/status")["paused"], "reading pauses before the disk is full")
            assert "bytes free" in daemon.json("/readyz")["reason"]
            produce(self.kafka.address, "filled", 1000, 20000)
            assert daemon.running() and trained(daemon) < 21000
            with open(disk / "more", "wb", buffering=0) as more, contextlib.suppress(OSError):  # and the rest
                while True:
                    more.write(b"x" * 65536)
            assert daemon.running() and daemon.json("/healthz")["status"] == "degraded"
            (disk / "other").unlink()
            (disk / "more").unlink()
            wait_until(lambda: trained(daemon) == 21000, "reading continues by itself")
            daemon.drain()
            self.ledger_is_exact("filled", 21000, disk / "state")
        finally:
            subprocess.run(["umount", "-l", str(disk)], check=True)

    def limits_hold_while_a_slow_disk_takes_a_fold(self):
        create_topic(self.kafka.address, "slow")
        produce(self.kafka.address, "slow", 0, 100_000)
        limit = 1 << 20
        shim = {"LD_PRELOAD": str(harness.BUILD / "tests/fault/libkill_shim.so"), "FRESHET_SLOW": "fold:300000"}
        daemon = self.daemon("slow", ["unfolded_max=1MiB", "journal_max=64MiB", "memory_limit=2GiB"], env=shim)
        unfolded, reasons, folding = 0, set(), 0
        while trained(daemon) < 100_000:
            status = daemon.json("/status")
            unfolded = max(unfolded, status["journal"]["unfolded_bytes"])
            folding += status["folding"]
            reasons.add(status["paused"].split(":")[0])
            time.sleep(0.05)
        assert folding > 0 and "unfolded_max" in reasons, f"folds were not slow: {reasons}"
        assert unfolded <= 2 * limit, f"{unfolded} bytes waited for a fold, the limit is {2 * limit}"
        daemon.kill()
        daemon = self.daemon("slow")
        wait_until(lambda: trained(daemon) == 100_000, "all samples after a kill in a fold")
        daemon.drain()
        self.ledger_is_exact("slow", 100_000)

    def a_dead_letter_topic_that_refuses_holds_epochs_and_says_so(self):
        create_topic(self.kafka.address, "letters")
        create_topic(self.kafka.address, "letters.dead", config={"cleanup.policy": "compact"})  # a compacted topic refuses records without a key
        produce(self.kafka.address, "letters", 0, 100)
        producer = confluent_kafka.Producer({"enable.idempotence": True, "bootstrap.servers": self.kafka.address})
        producer.produce("letters", b"\xc1", partition=0)
        assert producer.flush(PATIENCE) == 0
        produce(self.kafka.address, "letters", 100, 100)
        daemon = self.daemon("letters")
        wait_until(lambda: "dead-letter topic" in " ".join(daemon.json("/healthz")["reasons"]), "/healthz says that epochs wait for the dead-letter topic")
        wait_until(lambda: trained(daemon) == 200, "training itself continues")
        status = daemon.json("/status")
        assert all(p["dead_lettered"] == 0 for p in status["partitions"]), "an epoch is durable before its dead letter was acknowledged"
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.kafka.address})
        change = confluent_kafka.admin.ConfigEntry("cleanup.policy", "delete", incremental_operation=confluent_kafka.admin.AlterConfigOpType.SET)
        resource = confluent_kafka.admin.ConfigResource("TOPIC", "letters.dead", incremental_configs=[change])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(PATIENCE)
        wait_until(lambda: [p["dead_lettered"] for p in daemon.json("/status")["partitions"]] == [1], "durable past the dead letter")
        wait_until(lambda: daemon.json("/healthz")["status"] == "ok", "the reason is gone")
        daemon.drain()
        self.ledger_is_exact("letters", 200)

    def a_broker_that_goes_and_comes_back_costs_nothing(self):
        create_topic(self.kafka.address, "pause")
        produce(self.kafka.address, "pause", 0, 1000)
        daemon = self.daemon("pause")
        wait_until(lambda: trained(daemon) == 1000, "1000 samples")
        broker = self.kafka.pid()
        os.kill(broker, signal.SIGSTOP)
        try:
            time.sleep(3)  # the outage lasts for a while; no assertion depends on how long
            assert daemon.running() and daemon.get("/healthz")[0] == 200
        finally:
            os.kill(broker, signal.SIGCONT)
        produce(self.kafka.address, "pause", 1000, 1000)
        wait_until(lambda: trained(daemon) == 2000, "2000 samples")
        daemon.drain()
        self.ledger_is_exact("pause", 2000)

    def a_drain_while_the_broker_is_down_exits_75_and_the_rest_is_sent_later(self):
        daemon = self.daemon("pause", ["export.drain_timeout=3s", "epoch=30s"])
        produce(self.kafka.address, "pause", 2000, 500)
        wait_until(lambda: trained(daemon) == 2500, "2500 samples")
        broker = self.kafka.pid()
        os.kill(broker, signal.SIGSTOP)
        try:
            daemon.process.send_signal(signal.SIGTERM)
            code = daemon.wait_exit()
            assert code == 75, f"exit {code}: {daemon.log()[-1500:]}"
        finally:
            os.kill(broker, signal.SIGCONT)
        daemon = self.daemon("pause")
        wait_until(lambda: (lambda s: s.get("acked", 0) >= s.get("durable", 1) > 0)(daemon.json("/status")), "everything is acknowledged")
        daemon.drain()
        self.ledger_is_exact("pause", 2500)
        out = tool("verify", "--state-dir", self.work.path / "pause", "--brokers", self.kafka.address, "--topic", "pause.delta")[1]
        assert out.strip().splitlines()[-1].startswith("verified:")

    def non_finite_batches_hold_publishing_until_as_many_good_ones_came(self):
        create_topic(self.kafka.address, "numbers")
        produce(self.kafka.address, "numbers", 0, 640)
        daemon = self.daemon("numbers")
        wait_until(lambda: trained(daemon) == 640 and (lambda s: s["acked"] >= s["durable"] > 0)(daemon.json("/status")), "640 samples on the delta topic")
        produce(self.kafka.address, "numbers", 640, 256, price=1e38, label=0.5)  # at least four batches whose loss is not finite
        held = wait_until(lambda: [r for r in daemon.json("/healthz").get("reasons", []) if r.startswith("numbers: ")], "/healthz says that publishing is held")
        assert "learning rates" in held[0], held
        wait_until(lambda: daemon.json("/status")["samples"]["quarantined"] == 256, "the batches are quarantined")
        produce(self.kafka.address, "numbers", 896, 1)  # one good batch is not enough
        wait_until(lambda: trained(daemon) == 641 and (lambda s: s["durable"] > s["acked"])(daemon.json("/status")), "an epoch that is durable and held")
        daemon.process.send_signal(signal.SIGTERM)
        daemon.expect_exit(3)
        assert "publishing is held" in daemon.log(), daemon.log()[-1500:]

        daemon = self.daemon("numbers")
        wait_until(lambda: [r for r in daemon.json("/healthz").get("reasons", []) if r.startswith("numbers: ")], "a restart does not end the hold")
        wait_until(lambda: daemon.get("/readyz")[0] == 200, "ready")  # the delta topic was checked before
        status = daemon.json("/status")
        assert status["held"] != "" and status["durable"] > status["publishable"] == status["acked"], f"held epochs were published by the restart: {status}"
        produce(self.kafka.address, "numbers", 897, 192)
        wait_until(lambda: trained(daemon) == 833 and (lambda s: s["acked"] >= s["durable"])(daemon.json("/status")), "the backlog is published")
        assert daemon.json("/healthz")["reasons"] == [], daemon.json("/healthz")
        daemon.drain()
        self.ledger_is_exact("numbers", 833)
        out = tool("verify", "--state-dir", self.work.path / "numbers", "--brokers", self.kafka.address, "--topic", "numbers.delta")[1]
        assert out.strip().splitlines()[-1].startswith("verified:")

    def a_wrong_password_is_retried_with_the_reason_and_the_right_one_works(self):
        with Kafka("--sasl-ssl") as secure:
            login = dict(line.split("=", 1) for line in pathlib.Path(secure.more["properties"]).read_text().splitlines())
            create_topic(secure.more["plaintext"], "locked")
            produce(secure.more["plaintext"], "locked", 0, 300)
            config = self.work.path / "locked.yaml"
            mistaken = []
            for protocol, address, said in (("ssl", secure.more["plaintext"], "this client speaks TLS, the listener seems to speak plaintext"),
                                            ("plaintext", secure.address, "this client speaks plaintext, the listener seems to speak TLS")):
                config.write_text(CONFIG.read_text().replace("batch_wait: 10ms}", "batch_wait: 10ms, kafka: {security.protocol: %s}}" % protocol))
                mistaken.append((self.daemon(f"mistaken-{protocol}", [f"ingest.brokers={address}"], config=config), f"{said}: set security.protocol to"))
            for daemon, said in mistaken:
                wait_until(lambda: said in daemon.json("/readyz").get("reason", ""), f"/readyz says that {said}")
                daemon.process.send_signal(signal.SIGTERM)
                daemon.expect_exit(0)
            sets = [f"ingest.brokers={secure.address}"]
            config.write_text(with_login(login, "wr0ng-pass"))
            daemon = self.daemon("locked", sets, config=config)
            reason = wait_until(lambda: (lambda r: r if "uthentication" in r else None)(daemon.json("/readyz").get("reason", "")),
                                "/readyz says that the login failed")
            assert "sasl.username" in reason and secure.address in reason, reason
            assert daemon.running() and daemon.get("/healthz")[0] == 200
            daemon.process.send_signal(signal.SIGTERM)
            daemon.expect_exit(0)
            assert "wr0ng-pass" not in daemon.log(), "a password in the log"

            config.write_text(with_login(login, login["sasl.password"]))
            shown = subprocess.run([harness.BUILD / "daemon/freshetd", "--config", config, "--print-config"], stdout=subprocess.PIPE, text=True, check=True)
            assert "sasl.username" in shown.stdout and login["sasl.password"] not in shown.stdout, "--print-config and the password"
            daemon = self.daemon("locked", sets, config=config)
            wait_until(lambda: trained(daemon) == 300, "300 samples over TLS")
            daemon.drain()
            assert login["sasl.password"] not in daemon.log(), "a password in the log"
            self.ledger_is_exact("locked", 300)

    def a_probe_is_answered_while_others_are_connected(self):
        create_topic(self.kafka.address, "crowd")
        daemon = self.daemon("crowd")
        wait_until(lambda: daemon.get("/readyz")[0] == 200, "ready")
        descriptors = lambda: len(os.listdir(f"/proc/{daemon.process.pid}/fd"))
        before, crowd = descriptors(), []
        for i in range(600):
            s = socket.create_connection(("127.0.0.1", daemon.port), PATIENCE)
            s.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + (b"\r\n" if i % 2 else b"X: "))  # half of them stay idle, half begin a request
            crowd.append(s)
            if i % 100 == 99:
                assert daemon.get("/healthz")[0] == 200 and daemon.get("/readyz")[0] == 200
                assert descriptors() < before + 100, f"{descriptors()} descriptors, {before} without clients"
        values = dict(re.findall(r'freshet_http_(\w+)\{model="crowd"\} (\S+)', daemon.get("/metrics")[1]))
        assert values["accept_errors_total"] == "0" and float(values["connections"]) <= float(values["connections_max"]), values
        for s in crowd:
            s.close()
        daemon.drain()

    def a_broken_config_exits_2_with_every_problem(self):
        broken = self.work.path / "broken.yaml"
        broken.write_text("version: 1\nmodel: x\nstate_dirr: /tmp/x\nepoch: 5\n")
        done = subprocess.run([harness.BUILD / "daemon/freshetd", "--config", broken, "--check"], stderr=subprocess.PIPE, text=True)
        assert done.returncode == 2 and "did you mean `state_dir`" in done.stderr and "epoch" in done.stderr, done.stderr

    def another_model_of_the_own_name_exits_2(self):
        done = subprocess.run([harness.BUILD / "daemon/freshetd", "--config", CONFIG, "--restore", self.work.path / "savepoint", "--as", "operated"], stderr=subprocess.PIPE, text=True)
        assert done.returncode == 2 and "--as operated: " in done.stderr and "choose another name" in done.stderr, done.stderr

    def a_reserve_beyond_the_machine_exits_2(self):
        done = subprocess.run([harness.BUILD / "daemon/freshetd", "--config", CONFIG, "--check", "--set", "memory_limit=64TiB", "--set", "memory_reserve=40TiB"],
                              stderr=subprocess.PIPE, text=True)
        assert done.returncode == 2 and "memory_reserve: 43980465111040B, but this machine has" in done.stderr, done.stderr

    def run(self):
        names = [n for n in vars(Cases) if not n.startswith("_") and n not in ("daemon", "ledger_is_exact", "run")]
        run_cases(self, names)


with Workspace() as test_work, Kafka(own=True) as test_kafka:  # cases stop this broker
    Cases(test_work, test_kafka).run()
