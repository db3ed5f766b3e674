"""Sources on a real Kafka: the cases of unit_ingest_kafka*, which a plain unit run skips for want of a broker (none may be skipped here), and what only the
whole daemon shows.

Cases of the daemon: several topics, one altered while it runs; idle partitions; begin and end at a time; files (plain, gzip) before Kafka, killed on the way, in
lockstep, alone, without brokers, changed; ranges passed over (--skip), killed on the way; on_loss stop, earliest and latest on a log shortened by retention and on one created again; a right taken away in mid-run. Every sample
has a feature of its own, and the state's private dump has how often each was counted.
"""
import datetime
import gzip
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import confluent_kafka  # noqa: E402
import confluent_kafka.admin as kafka_admin  # noqa: E402
from harness import *  # noqa: E402,F403

T0 = 1700000000000
CONFIG = (SOURCE / "tests/integration/operating.yaml").read_text()
INGEST = re.search(r"^ingest: .*\n", CONFIG, re.M).group(0)


def sample(i):
    return json.dumps({"t": T0 + i, "y": {"click": i % 2}, "f": {"sample": i, "user_id": i % 50, "price": 1.0}})


def run_units(kafka):
    for name in ("unit_ingest_kafka", "unit_ingest_kafka_topics"):
        done = subprocess.run([BUILD / "tests/unit" / name], env={**os.environ, "FRESHET_KAFKA": kafka.address, "FRESHET_KAFKA_DIR": kafka.dir},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE)
        if done.returncode != 0 or "SKIPPED" in done.stdout or "PASSED" not in done.stdout:
            print(done.stdout[-12000:])
            raise AssertionError(f"{name}: exit {done.returncode}")
        print(f"{name}:", re.search(r"PASSED\D*(\d+) test", done.stdout).group(1), "passed, 0 failed", flush=True)


class Cases:
    def __init__(self, work, kafka):
        self.work, self.kafka = work, kafka
        self.admin = kafka_admin.AdminClient({"bootstrap.servers": kafka.address})
        self.made = 0  # samples so far, which is the number of the next sample

    # ---- the log ----

    def create(self, topic, partitions=1, config=None):
        def done():
            try:
                for future in self.admin.create_topics([kafka_admin.NewTopic(topic, partitions, 1, config=config or {})]).values():
                    future.result(PATIENCE)
                return True
            except confluent_kafka.KafkaException as error:  # the broker still forgets a deleted topic
                if error.args[0].code() != confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                return False
        wait_until(done, "creating " + topic)

    def delete(self, topic):
        for future in self.admin.delete_topics([topic]).values():
            future.result(PATIENCE)

    def put(self, topic, partition, count, first_ms=None):
        """Produces `count` samples, with Kafka timestamps first_ms, first_ms + 1, ... if given."""
        producer = confluent_kafka.Producer({"enable.idempotence": True, "bootstrap.servers": self.kafka.address, "topic.metadata.refresh.interval.ms": 200})
        for i in range(count):
            producer.produce(topic, sample(self.made), partition=partition, timestamp=first_ms + i if first_ms else 0)
            self.made += 1
        assert producer.flush(PATIENCE) == 0

    def file(self, name, count, more=""):
        path = self.work.path / name
        text = "".join(sample(self.made + i) + "\n" for i in range(count)) + more
        self.made += count
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    # ---- the daemon ----

    def daemon(self, model, ingest, arguments=(), state=None, sets=(), brokers=True, **options):
        state = state or self.work.path / model
        config = self.work.path / f"{model}.yaml"
        address = f'brokers: "{self.kafka.address}", ' if brokers else ""
        config.write_text(CONFIG.replace(INGEST, "ingest: {%sformat: json, batch_wait: 5ms, %s}\n" % (address, ingest)))
        sets = [f"model={model}", f"state_dir={state}", f"export.topic={model}.delta", *sets]
        return self.work.daemon(config, self.work.path / f"{model}.log", sets, arguments=arguments, **options)

    def run(self, model, ingest, until="end", code=0, more=(), **options):
        """Makes a bounded run; returns its log."""
        daemon = self.daemon(model, ingest, ["--until", until, *more], wait_http=False, **options)
        daemon.expect_exit(code)
        return daemon.log()

    def positions(self, model):
        """Returns (topic, partition) -> what the state says, and the number of samples; checks that each was counted once."""
        rows = [json.loads(line) for line in tool("dump", "--state-dir", self.work.path / model, "--private")[1].splitlines()]
        shows = [row["show"] for row in rows if row.get("table") == "ledger" and "show" in row]
        assert all(show == 1 for show in shows), f"{model}: a sample was counted {max(shows)} times"
        return {(row["position"]["topic"], row["position"]["partition"]): row["position"] for row in rows if "position" in row}, len(shows)

    @staticmethod
    def trained(daemon):
        return daemon.json("/status").get("samples", {}).get("trained", 0)

    # ---- cases ----

    def several_topics_one_of_them_altered_while_running(self):
        self.create("first", 3)  # partitions 1 and 2 stay idle
        self.create("a-second", 1)
        self.put("first", 0, 300)
        daemon = self.daemon("several", "topics: [first, a-second], kafka: {topic.metadata.refresh.interval.ms: 500}")
        wait_until(lambda: self.trained(daemon) == 300, "300 samples")
        wait_until(lambda: daemon.get("/readyz")[0] == 200, "idle partitions do not keep it from being ready")
        subprocess.run([SOURCE / "tests/kafka/tool", "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.kafka.address, "--alter", "--topic", "a-second",
                        "--partitions", "3"], check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)
        self.put("a-second", 2, 200)
        self.put("a-second", 0, 100)
        producer = confluent_kafka.Producer({"enable.idempotence": True, "bootstrap.servers": self.kafka.address})
        producer.produce("a-second", b"not json", partition=0)
        assert producer.flush(PATIENCE) == 0
        wait_until(lambda: self.trained(daemon) == 600, "600 samples, of a partition that was added")
        wait_until(lambda: sum(p["dead_lettered"] for p in daemon.json("/status")["partitions"]) == 1, "the dead letter's epoch is durable")
        wait_until(lambda: daemon.get("/readyz")[0] == 200, "ready")
        daemon.drain()
        positions, samples = self.positions("several")
        assert samples == 600 and positions["a-second", 2]["offset"] == 200 and positions["a-second", 0]["dead_lettered"] == 1, positions
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.kafka.address, "group.id": "freshet.several", "enable.auto.commit": False})
        wanted = [confluent_kafka.TopicPartition("first", 0), confluent_kafka.TopicPartition("a-second", 2)]
        assert [p.offset for p in consumer.committed(wanted, PATIENCE)] == [300, 200], "lag tools see both topics"
        consumer.assign([confluent_kafka.TopicPartition("first.dead", 0, 0)])
        letter = consumer.poll(PATIENCE)
        headers = dict(letter.headers())
        assert letter.value() == b"not json" and headers["__connect.errors.topic"] == b"a-second" and headers["__connect.errors.offset"] == b"100", headers
        consumer.close()

    def a_run_begins_and_ends_at_a_time(self):
        self.create("timed", 2)
        begin = int(time.time()) * 1000 - 3600000  # a whole second
        self.put("timed", 0, 100, begin)
        self.put("timed", 1, 3000, begin)
        iso = datetime.datetime.fromtimestamp(begin / 1000 + 1, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.run("timed", f"topic: timed, start: {begin + 50}", iso)
        positions, samples = self.positions("timed")
        assert samples == 50 + 950 and positions["timed", 0]["offset"] == 100 and positions["timed", 1]["offset"] == 1000, positions
        self.run("timed", "topic: timed", str(begin + 2000))
        assert self.positions("timed")[1] == 50 + 1950
        self.run("timed", "topic: timed")
        assert self.positions("timed")[1] == 50 + 2950

    def files_come_first_and_a_kill_costs_nothing(self):
        plain, zipped = self.file("one.jsonl", 3000, "broken\r\n\n"), self.file("two.jsonl.gz", 150000)
        self.create("after", 2)
        self.put("after", 0, 100)
        self.put("after", 1, 100)
        before = self.made
        ingest = f"topic: after, batch_size: 1, files: [{plain}, {zipped}]"  # small batches, so that the run is slow enough to be killed on the way
        daemon = self.daemon("files", ingest, sets=["epoch=50ms"])  # many epochs are cut in the second file; the kill comes in one of them
        wait_until(lambda: any(p["topic"] == f"file:{zipped}" and p["offset"] > 0 for p in daemon.json("/status").get("partitions", [])),
                   "durable in the second file")
        reason = daemon.json("/readyz").get("reason")
        daemon.kill()
        assert reason and "lag of" in reason, f"history is not the present: {reason}"
        assert 3000 < self.positions("files")[1] < 153000, "killed in the second file"
        self.put("after", 1, 100)
        daemon = self.daemon("files", ingest)
        wait_until(lambda: daemon.get("/readyz")[0] == 200, "ready: near the end of files and topic")
        first = before - 153200
        wait_until(lambda: self.trained(daemon) == self.made - first, "all of them")
        daemon.drain()
        positions, samples = self.positions("files")
        assert samples == self.made - first, f"{samples} of {self.made - first}"
        assert positions[f"file:{plain}", 0]["dead_lettered"] == 1 and positions[f"file:{zipped}", 0]["offset"] == 150000, positions
        out = tool("verify", "--state-dir", self.work.path / "files", "--brokers", self.kafka.address, "--topic", "files.delta")[1]
        assert out.strip().splitlines()[-1].startswith("verified:"), out
        # Kafka has taken over: the files may go.
        plain.unlink()
        self.put("after", 0, 50)
        self.run("files", ingest)
        assert self.positions("files")[1] == self.made - first

    def lockstep_reads_files_and_topic_the_same_way_twice(self):
        path = self.file("lockstep.jsonl.gz", 20000)
        self.create("step", 2)
        self.put("step", 0, 500)
        self.put("step", 1, 300)
        ingest = f"topic: step, files: [{path}], lockstep: {{records: 5, epoch_batches: 64}}"
        self.run("step1", ingest)
        shim = {"LD_PRELOAD": str(BUILD / "tests/fault/libkill_shim.so"), "FRESHET_KILL": "hwm_synced:5"}  # five epochs of 320 samples
        self.daemon("step2", ingest, env=shim, wait_http=False).expect_exit(-signal.SIGKILL)
        assert 0 < self.positions("step2")[1] < 20000, "killed in the file"
        self.run("step2", ingest)
        hashes = [json.loads(tool("dump", "--state-dir", self.work.path / model, "--private")[1].splitlines()[-1])["hash"] for model in ("step1", "step2")]
        assert hashes[0] == hashes[1], hashes
        assert self.positions("step2")[1] == 20800

    def files_alone_are_a_run(self):
        path = self.file("alone.jsonl", 500)
        self.run("alone", f"files: [{path}]")
        assert self.positions("alone")[1] == 500
        # What was read is changed: refused, with what to do.
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[:-1]) + sample(0) + "\n" + sample(self.made) + "\n")
        log = self.run("alone", f"files: [{path}]", code=3)
        assert "line 499 of" in log and "another state_dir" in log, log[-800:]
        path.write_text("".join(lines) + sample(self.made) + "\n")  # an added line is read
        self.made += 1
        self.run("alone", f"files: [{path}]")
        assert self.positions("alone")[1] == 501

    def files_alone_need_no_brokers_until_there_are_some(self):
        path, state = self.file("offline.jsonl", 500, "not json\n"), self.work.path / "offline"
        letters = state / "dead_letters.jsonl"
        for _ in range(2):  # the second run has nothing to read
            log = self.run("offline", f"files: [{path}]", brokers=False, sets=["snapshot.at_drain=true"])
            assert "event=no_brokers" in log and (state / "snapshots/CURRENT").exists(), log[-1500:]
            letter, = [json.loads(line) for line in letters.read_text().splitlines()]
            assert (letter["topic"], letter["offset"], letter["value"]) == (f"file:{path}", 500, "not json") and "JSON" in letter["reason"], letter
        positions, samples = self.positions("offline")
        assert samples == 500 and positions[f"file:{path}", 0]["dead_lettered"] == 1, positions
        # A line that a power cut left half written is ended, and the next letter is whole.
        letters.write_text(letters.read_text() + '{"topic":')
        path.write_text(path.read_text() + sample(self.made) + "\nnor this\n")
        self.made += 1
        self.run("offline", f"files: [{path}]", brokers=False)
        assert json.loads(letters.read_text().splitlines()[-1])["value"] == "nor this" and self.positions("offline")[1] == 501
        # With brokers the topic gets the whole state: at first, and again after epochs that it never got.
        online = f"files: [{path}]"
        for case, expected in (("new", 501), ("gap", 801)):
            log = self.run("offline", online, sets=["export.on_loss=stop"])
            assert self.positions("offline")[1] == expected and "delta_topic_lost_records" not in log, case
            out = tool("verify", "--state-dir", state, "--brokers", self.kafka.address, "--topic", "offline.delta")[1]
            assert "verified" in out, out
            if case == "new":
                path.write_text(path.read_text() + "".join(sample(self.made + i) + "\n" for i in range(200)))
                self.made += 200
                self.run("offline", online, brokers=False)
                self.create("online")
                self.put("online", 0, 100)
                online += ", topic: online"
        # A run without brokers that trains nothing leaves the topic as it is.
        self.run("offline", f"files: [{path}]", brokers=False)
        log = self.run("offline", online, sets=["export.on_loss=stop"])
        assert "event=rebase" not in log, log[-1500:]
        log = self.run("offline", "topic: online", code=2, brokers=False)
        assert "ingest.brokers: missing" in log, log[-800:]

    def a_range_is_passed_over_and_a_kill_costs_nothing(self):
        self.create("spoiled", 2)
        self.put("spoiled", 0, 100)
        self.put("spoiled", 1, 100)
        self.run("spoiled", "topic: spoiled")
        for skip, code, reason in (("spoiled:0:1200", 2, "expected topic:partition:first-last"), ("spoiled:0:1200-1199", 2, "smaller than the first"),
                                   ("spoilt:0:1200-1299", 2, "reads no topic spoilt"), ("spoiled:2:1200-1299", 2, "has 2 partitions"),
                                   ("spoiled:0:99-1299", 3, "before offset 100 has taken effect")):
            log = self.run("spoiled", "topic: spoiled", code=code, more=["--skip", skip])
            assert reason in log, log[-800:]
        self.put("spoiled", 0, 200)
        daemon = self.daemon("spoiled", "topic: spoiled", ["--skip", "spoiled:0:200-449", "--skip", "spoiled:1:150-150"], sets=["epoch=20ms"])
        wait_until(lambda: sum(p["skipped"] for p in daemon.json("/status").get("partitions", [])) == 100, "durable in the range")
        daemon.kill()
        self.put("spoiled", 0, 250)
        self.put("spoiled", 1, 100)
        daemon = self.daemon("spoiled", "topic: spoiled", ["--skip", "spoiled:0:200-449"], sets=["epoch=20ms"])  # the range may be named again, but need not be
        wait_until(lambda: sum(p["trained"] for p in daemon.json("/status").get("partitions", [])) == 499, "all but the ranges")
        assert {p["partition"]: (p["skipped"], p["skips"]) for p in daemon.json("/status")["partitions"]} == \
            {0: (250, [[200, 449]]), 1: (1, [[150, 150]])}, daemon.json("/status")["partitions"]
        wait_until(lambda: re.search(r"freshet_samples_skipped_total\{[^}]*\} 251\n", daemon.get("/metrics")[1]), "the series")
        daemon.drain()
        positions, samples = self.positions("spoiled")
        assert samples == 499 and positions["spoiled", 0]["samples"] == 550 and positions["spoiled", 0]["skipped"] == 250, positions
        # A range ahead of the log is part of the savepoint.
        self.run("spoiled", "topic: spoiled", more=["--skip", "spoiled:0:560-569"])
        state = self.work.path / "spoiled"
        tool("savepoint", "--state-dir", state, "--name", "ahead")
        self.put("spoiled", 0, 50)
        self.run("spoiled", "topic: spoiled", state=self.work.path / "restored", more=["--restore", str(state / "savepoints" / "ahead")])
        positions, samples = self.positions("restored")
        assert samples == 539 and positions["spoiled", 0]["skipped"] == 260, positions
        assert "skips=200-449,560-569" in tool("state", self.work.path / "restored")[1]

    def in_lockstep_a_range_passed_over_was_never_there(self):
        lines = [sample(self.made + i) for i in range(3000)]
        self.made += len(lines)
        whole, clean = self.work.path / "whole.jsonl", self.work.path / "clean.jsonl"
        whole.write_text("\n".join(lines) + "\n")
        clean.write_text("\n".join(lines[:700] + lines[1500:]) + "\n")
        dumps = []
        for model, path, more in (("whole", whole, ["--skip", f"file:{whole}:0:700-1499"]), ("clean", clean, [])):
            self.run(model, f"files: [{path}], lockstep: {{records: 5, epoch_batches: 64}}", more=more)
            lines = [json.loads(line) for line in tool("dump", "--state-dir", self.work.path / model, "--private")[1].splitlines()]
            dumps.append([line for line in lines if "position" not in line and "hash" not in line])
        assert len(dumps[0]) > 2200 and dumps[0] == dumps[1], [pair for pair in zip(*dumps) if pair[0] != pair[1]][:3]

    def lose(self, topic, damage, first_ms=None):
        """Trains three models on 200 samples of one log, then calls `damage`. Returns the log with which `stop` exits, and the positions of the other two."""
        self.create(topic, 1)
        self.put(topic, 0, 200, first_ms)
        for policy in ("stop", "earliest", "latest"):
            self.run(f"{topic}-{policy}", f"topic: {topic}, on_loss: {policy}")
        damage()
        log = self.run(f"{topic}-stop", f"topic: {topic}, on_loss: stop", code=3)
        assert "ingest.on_loss: earliest or latest" in log and "another state_dir" in log, log[-800:]
        found = []
        for policy in ("earliest", "latest"):
            self.run(f"{topic}-{policy}", f"topic: {topic}, on_loss: {policy}")
            positions, samples = self.positions(f"{topic}-{policy}")
            found.append((samples, positions[topic, 0]["offset"], positions[topic, 0]["lost"]))
        return log, found

    def retention_is_a_loss_by_policy(self):
        old = int(time.time() * 1000) - 3600000
        where = confluent_kafka.TopicPartition("kept", 0)

        def damage():
            self.put("kept", 0, 100, old)
            change = kafka_admin.ConfigEntry("retention.ms", "60000", incremental_operation=kafka_admin.AlterConfigOpType.SET)
            for future in self.admin.incremental_alter_configs([kafka_admin.ConfigResource("TOPIC", "kept", incremental_configs=[change])]).values():
                future.result(PATIENCE)
            consumer = confluent_kafka.Consumer({"bootstrap.servers": self.kafka.address, "group.id": "look"})
            wait_until(lambda: consumer.get_watermark_offsets(where, PATIENCE)[0] == 300, "the broker deleted what is older than a minute")
            consumer.close()
            self.put("kept", 0, 50)
        log, found = self.lose("kept", damage, old)
        assert "100 records were deleted before they were read (retention)" in log, log[-800:]
        assert found == [(250, 350, 100), (200, 350, 150)], found

    def a_topic_created_again_is_a_loss_by_policy(self):
        for topic, records, said in (("shorter", 50, "missing at its end"), ("longer", 300, "is not the one that was trained")):
            def damage():
                self.delete(topic)
                self.create(topic, 1)
                self.put(topic, 0, records)
            log, found = self.lose(topic, damage)
            assert said in log, log[-800:]
            assert found == [(200 + records, records, 0), (200, records, records)], found

    def transaction(self, topic, partition, count):
        """Returns a producer in an open transaction that has written `count` samples."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self.kafka.address, "transactional.id": f"{topic}-{partition}", "transaction.timeout.ms": 600000})
        producer.init_transactions(PATIENCE)
        producer.begin_transaction()
        for _ in range(count):
            producer.produce(topic, sample(self.made), partition=partition)
            self.made += 1
        assert producer.flush(PATIENCE) == 0
        return producer

    def an_open_transaction_is_waited_for_and_reported(self):
        """An open transaction in live mode, and in a bounded run. The run must reach what was committed after the transaction began, and an end that only the marker of an abort passes."""
        self.create("opened", 2)
        self.put("opened", 0, 100)
        daemon = self.daemon("opened", "topic: opened, ready_lag: 1s")
        wait_until(lambda: self.trained(daemon) == 100 and daemon.json("/healthz")["status"] == "ok", "100 samples, all well")
        series = lambda name: float(re.search(name + r'\{[^}]*partition="0"[^}]*\} (\S+)\n', daemon.get("/metrics")[1]).group(1))
        wait_until(lambda: series("freshet_partition_transaction_seconds") == 0, "no transaction in /metrics")
        first = self.transaction("opened", 0, 10)
        self.put("opened", 0, 100)
        code, text = wait_until(lambda: (lambda answer: answer if answer[0] == 503 else None)(daemon.get("/readyz")), "not ready while records wait")
        assert "over ready_lag: opened/0: records from offset 100 to 209 wait for a producer's transaction, open for" in text and "find-hanging" in text, text
        wait_until(lambda: "wait for a producer's transaction" in " ".join(daemon.json("/healthz")["reasons"]), "/healthz says it")
        wait_until(lambda: series("freshet_partition_transaction_seconds") >= 1 and series("freshet_partition_lag_records") == 110, "/metrics says it")
        status = daemon.json("/status")
        assert status["ingest"]["lag_ms"] >= 1000 and not status["ingest"]["at_end"] and self.trained(daemon) == 100, status["ingest"]
        assert daemon.log().count("event=transaction_open topic=opened partition=0 offset=100 high=210") == 1, daemon.log()[-2000:]
        first.commit_transaction(PATIENCE)
        wait_until(lambda: self.trained(daemon) == 210 and daemon.get("/readyz")[0] == 200 and daemon.json("/healthz")["status"] == "ok", "all of it, and all well")
        assert series("freshet_partition_transaction_seconds") == 0
        daemon.drain()

        first, second = self.transaction("opened", 0, 10), self.transaction("opened", 1, 10)
        self.put("opened", 0, 100)
        daemon = self.daemon("opened", "topic: opened", ["--until", "end"])
        wait_until(lambda: "2 partitions; brokers end it" in daemon.json("/readyz").get("reason", ""), "the bounded run says what it waits for")
        assert daemon.running() and self.trained(daemon) == 210
        first.commit_transaction(PATIENCE)
        second.abort_transaction(PATIENCE)
        daemon.expect_exit(0)
        ends = re.findall(r"event=end_(\w+) topic=opened partition=(\d) next=(\d+) end=(\d+)", daemon.log())
        assert ends == [("fixed", "0", "211", "321"), ("fixed", "1", "0", "10"), ("reached", "0", "321", "321"), ("reached", "1", "10", "10")], ends
        positions, samples = self.positions("opened")
        assert samples == 320 and positions["opened", 0]["offset"] == 321, (samples, positions)

    def a_deleted_topic_is_reported_and_one_created_again_stops(self):
        self.create("vanished", 1)
        self.put("vanished", 0, 100)
        daemon = self.daemon("vanished", "topic: vanished")
        wait_until(lambda: self.trained(daemon) == 100 and daemon.get("/readyz")[0] == 200, "100 samples")
        self.delete("vanished")
        code, text = wait_until(lambda: (lambda answer: answer if answer[0] == 503 and "is gone" in answer[1] else None)(daemon.get("/readyz")), "not ready without its topic")
        assert "topic vanished is gone (deleted?)" in text and "take it out of ingest.topics" in text and "1 of 1 partitions wait" in text, text
        assert "topic vanished is gone" in " ".join(daemon.json("/healthz")["reasons"]) and daemon.get("/healthz")[0] == 200
        self.create("vanished", 1)
        daemon.expect_exit(3)
        assert "100 records are missing at its end (truncated, or the topic was created again)" in daemon.log(), daemon.log()[-2000:]

    def a_compacted_topic_is_refused(self):
        for policy in ("compact", "compact,delete"):
            topic = policy.replace(",", "-")
            self.create(topic, 1, {"cleanup.policy": policy})
            log = self.run(topic, f"topic: {topic}", code=3)
            assert f"topic {topic} is compacted (cleanup.policy={policy})" in log and "set cleanup.policy=delete" in log, log[-800:]

    def a_right_taken_away_is_waited_for(self):
        """self.kafka requires a login; the tests' own clients may do everything."""
        login = dict(line.split("=", 1) for line in pathlib.Path(self.kafka.more["properties"]).read_text().splitlines())
        user, address = "User:" + login["sasl.username"], self.kafka.address

        def rule(kind, name, operation, permission=kafka_admin.AclPermissionType.ALLOW, pattern=kafka_admin.ResourcePatternType.LITERAL):
            return kafka_admin.AclBinding(kind, name, pattern, user, "*", operation, permission)
        everything = [rule(kind, name, kafka_admin.AclOperation.ALL) for kind, name in
                      ((kafka_admin.ResourceType.TOPIC, "*"), (kafka_admin.ResourceType.GROUP, "*"), (kafka_admin.ResourceType.BROKER, "kafka-cluster"))]
        denied = rule(kafka_admin.ResourceType.TOPIC, "guarded", kafka_admin.AclOperation.READ, kafka_admin.AclPermissionType.DENY)
        self.kafka.address = self.kafka.more["plaintext"]
        self.admin = kafka_admin.AdminClient({"bootstrap.servers": self.kafka.address})
        for future in self.admin.create_acls(everything).values():
            future.result(PATIENCE)
        self.create("guarded", 1)
        self.put("guarded", 0, 100)
        properties = ", ".join(f"{name}: {json.dumps(value)}" for name, value in login.items() if name != "bootstrap.servers")
        config = self.work.path / "guarded.yaml"
        config.write_text(CONFIG.replace(INGEST, 'ingest: {brokers: "%s", format: json, topic: guarded, batch_wait: 5ms, kafka: {%s}}\n' % (address, properties)))
        daemon = self.work.daemon(config, self.work.path / "guarded.log", ["model=guarded", f"state_dir={self.work.path / 'guarded'}"])
        wait_until(lambda: self.trained(daemon) == 100, "100 samples")
        for future in self.admin.create_acls([denied]).values():
            future.result(PATIENCE)
        self.put("guarded", 0, 100)
        wait_until(lambda: "grant this user READ" in " ".join(daemon.json("/healthz").get("reasons", [])), "/healthz says which right is missing")
        assert daemon.running() and daemon.get("/healthz")[0] == 200
        filters = [kafka_admin.AclBindingFilter(kafka_admin.ResourceType.TOPIC, "guarded", kafka_admin.ResourcePatternType.LITERAL, user, "*",
                                                kafka_admin.AclOperation.READ, kafka_admin.AclPermissionType.DENY)]
        for future in self.admin.delete_acls(filters).values():
            future.result(PATIENCE)
        wait_until(lambda: self.trained(daemon) == 200, "the rest, once the right is back")
        daemon.drain()
        assert self.positions("guarded")[1] == 200

    def a_wrong_format_takes_nothing_from_the_stream(self):
        self.create("mistaken", 2)
        self.put("mistaken", 0, 300)
        wrong = ["ingest.format=msgpack"]
        daemon = self.daemon("mistaken", "topic: mistaken", ["--until", "end"], sets=wrong, wait_http=False)
        daemon.expect_exit(2)
        assert "looks like json and the format is msgpack" in daemon.log(), daemon.log()[-2000:]
        self.put("mistaken", 1, 1000)
        daemon = self.daemon("mistaken", "topic: mistaken", sets=wrong)
        wait_until(lambda: "looks like json" in daemon.json("/readyz").get("reason", ""), "/readyz says what the first record looks like")
        assert daemon.get("/readyz")[0] == 503 and daemon.get("/healthz")[0] == 200
        ingest = daemon.json("/status")["ingest"]
        assert ingest["malformed"] == ingest["malformed_kinds"]["form"] == 1000 and ingest["last_malformed"]["topic"] == "mistaken", ingest
        metrics = daemon.get("/metrics")[1]
        assert re.search(r'freshet_records_malformed_total\{[^}]*reason="form"[^}]*\} 1000\n', metrics), metrics
        assert re.search(r"freshet_paused\{[^}]*\} 1\n", metrics), metrics
        assert 1 <= daemon.log().count("event=malformed") <= 12
        daemon.drain()
        daemon = self.daemon("mistaken", "topic: mistaken")
        wait_until(lambda: self.trained(daemon) == 1300, "all of it, once the format is right")
        wait_until(lambda: 'slot="user_id"} 1300' in daemon.get("/metrics")[1].replace('model="mistaken",', ""), "1300 samples have a user")
        daemon.drain()
        assert self.positions("mistaken")[1] == 1300

    def a_batch_that_inflates_is_in_memory_once(self):
        size = 200 << 20
        self.create("bomb", 1)
        self.create("sober", 1, {"compression.type": "uncompressed"})
        bomber = confluent_kafka.Producer({"bootstrap.servers": self.kafka.address, "message.max.bytes": 10**9, "compression.type": "gzip",
                                           "queue.buffering.max.kbytes": 10**6, "batch.num.messages": 1, "compression.level": 9, "message.timeout.ms": 120000})
        refused = []
        for topic in ("bomb", "sober"):
            bomber.produce(topic, bytes(size), on_delivery=lambda error, message: refused.append(message.topic()) if error else None)
            assert bomber.flush(PATIENCE) == 0
        assert refused == ["sober"], refused  # brokers compare the inflated size with the limit
        self.put("bomb", 0, 100)
        daemon = self.daemon("bomb", "topic: bomb", sets=["memory_limit=64MiB"])
        wait_until(lambda: self.trained(daemon) == 100, "the samples after the bomb are trained")
        peak = int(re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text()).group(1)) << 10
        assert peak < size + (150 << 20), f"{peak >> 20} MiB at the most"
        wait_until(lambda: daemon.json("/status")["ingest"]["dead_without_value"] == 1, "a letter with its length and digest")
        assert re.search(r"level=warn .*component=ingest event=batch_bound topic=bomb .*inflates_to=1082142816", daemon.log()), daemon.log()[:3000]
        daemon.drain()


GUARD = ["authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users=User:ANONYMOUS"]


def main():
    wanted = sys.argv[1:]
    with Kafka("--properties", "log.retention.check.interval.ms=500", "--properties", "log.initial.task.delay.ms=500") as kafka, Workspace() as work:
        if not wanted:
            run_units(kafka)
        cases = Cases(work, kafka)
        for case in (cases.several_topics_one_of_them_altered_while_running, cases.a_run_begins_and_ends_at_a_time, cases.files_come_first_and_a_kill_costs_nothing,
                     cases.lockstep_reads_files_and_topic_the_same_way_twice, cases.files_alone_are_a_run, cases.files_alone_need_no_brokers_until_there_are_some,
                     cases.a_range_is_passed_over_and_a_kill_costs_nothing, cases.in_lockstep_a_range_passed_over_was_never_there, cases.retention_is_a_loss_by_policy,
                     cases.a_topic_created_again_is_a_loss_by_policy, cases.a_compacted_topic_is_refused, cases.an_open_transaction_is_waited_for_and_reported,
                     cases.a_deleted_topic_is_reported_and_one_created_again_stops, cases.a_wrong_format_takes_nothing_from_the_stream,
                     cases.a_batch_that_inflates_is_in_memory_once):
            if not wanted or case.__name__ in wanted:
                begin = time.monotonic()
                case()
                print(f"ok {case.__name__} ({time.monotonic() - begin:.1f} s)", flush=True)
    if wanted and "a_right_taken_away_is_waited_for" not in wanted:
        return
    begin = time.monotonic()
    with Kafka("--sasl-ssl", *(word for line in GUARD for word in ("--properties", line))) as kafka, Workspace() as work:
        Cases(work, kafka).a_right_taken_away_is_waited_for()
    print(f"ok a_right_taken_away_is_waited_for ({time.monotonic() - begin:.1f} s)")


main()
