"""The `freshet` tool on real Kafka: follow, verify, dump, score and state agree with each other, and report what is wrong."""
import gzip
import pathlib
import random
import re
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import confluent_kafka  # noqa: E402
import confluent_kafka.admin  # noqa: E402
import harness  # noqa: E402
from harness import *  # noqa: E402,F403

CONFIG = SOURCE / "tests/integration/tool.yaml"
PARTITIONS = 3
SAMPLES = 12000


def sample(rng, i):
    return {"t": 1700000000000 + i * 100, "y": {"click": rng.randrange(2), "buy": None if i % 3 else rng.randrange(2)},
            "f": {"user_id": int(rng.paretovariate(0.6)) % 3000, "item_id": f"i{int(rng.paretovariate(0.7)) % 700}",
                  "history": [f"i{int(rng.paretovariate(0.7)) % 700}" for _ in range(rng.randrange(9))], "price": rng.random() * 9}}


def lines(text):
    return text.splitlines()


def lines_of(*arguments):
    return lines(tool(*arguments)[1])


def failing(*arguments):
    """Expects exit 1. Returns (stdout lines, stderr)."""
    code, out, err = tool(*arguments, check=False)
    assert code == 1, f"freshet {arguments}: exit {code}\n{out[-500:]}\n{err[-500:]}"
    return lines(out), err


class Cases:
    def __init__(self, work, kafka):
        self.work, self.kafka = work, kafka
        rng = random.Random(4)
        self.file = work.path / "samples.jsonl"
        self.queries = work.path / "queries.jsonl.gz"
        self.file.write_text("".join(json.dumps(sample(rng, i)) + "\n" for i in range(SAMPLES)))
        with gzip.open(self.queries, "wt") as file:
            file.write("".join(json.dumps({"f": sample(rng, i)["f"]}) + "\n" for i in range(400)))
            file.write(json.dumps([{"f": sample(rng, i)["f"]} for i in range(100)]) + "\n")
        tool("produce", "--brokers", kafka.address, "--topic", "samples", "--file", self.file, "--partitions", 2)
        self.state, self.topic = self.train("whole")
        self.dump = work.path / "whole.dump"
        self.dump.write_text(tool("dump", "--state-dir", self.state)[1])

    def sets(self, name, topic):
        return [f"ingest.brokers={self.kafka.address}", f"ingest.topic={topic}", f"state_dir={self.work.path / name}", f"export.topic={name}.delta"]

    def train(self, name, sets=(), topic="samples"):
        """One lockstep run to the end of the topic."""
        daemon = self.work.daemon(CONFIG, self.work.path / f"{name}.log", [*self.sets(name, topic), *sets], wait_http=False)
        daemon.expect_exit(0)
        return self.work.path / name, f"{name}.delta"

    def follow(self, topic, *arguments, state=None):
        """Follows to the last durable epoch of a state, or without a state until no more records come."""
        end = ("--until-epoch", last_epoch(state)) if state else ("--until-idle", "5s")
        return ("follow", "--brokers", self.kafka.address, "--topic", topic, *end, *arguments)

    def create(self, topic, partitions):
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.kafka.address})
        for future in admin.create_topics([confluent_kafka.admin.NewTopic(topic, partitions, 1)]).values():
            future.result(PATIENCE)

    def records(self, topic):
        """Returns (partition, value) in the order of the partitions."""
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.kafka.address, "group.id": "tool", "enable.auto.commit": False})
        found = []
        for partition in range(PARTITIONS):
            where = confluent_kafka.TopicPartition(topic, partition, 0)
            _, end = consumer.get_watermark_offsets(where, PATIENCE)
            consumer.assign([where])
            while end > 0:
                message = consumer.poll(PATIENCE)
                assert message is not None and not message.error(), message and message.error()
                found.append((partition, message.value()))
                if message.offset() + 1 >= end:
                    break
        consumer.close()
        return found

    def send(self, topic, records):
        producer = confluent_kafka.Producer({"enable.idempotence": True, "bootstrap.servers": self.kafka.address})
        for partition, value in records:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(PATIENCE) == 0

    def verified_or_behind(self, state, topic):
        """The newest durable epoch of a running daemon may not be on the topic yet: then a replica is behind, but never different."""
        _, out, err = tool("verify", "--state-dir", state, "--brokers", self.kafka.address, "--topic", topic, check=False)
        assert out.startswith(("verified:", "behind:")), out + err
        return out.startswith("verified:")

    # ---- agreement ----

    def the_program_of_the_documents_serves_the_scores_of_the_tool(self):
        text = (SOURCE / "docs/serving.md").read_text()
        program = self.work.path / "serving"
        program.with_suffix(".c").write_text(text.split("```c\n")[1].split("```")[0])
        subprocess.run(["cc", "-std=c17", "-Wall", "-Wextra", "-Werror", program.with_suffix(".c"), "-o", program, f"-I{SOURCE}/replica/include",
                        f"-I{SOURCE}/replica/follow/client/include", f"-L{BUILD}", "-lfreshet_follow", "-lfreshet_replica", f"-Wl,-rpath,{BUILD}"], check=True)
        queries = gzip.open(self.queries, "rt").read().splitlines()[:400]
        scores = lines_of("score", "--file", self.queries, "--brokers", self.kafka.address, "--topic", self.topic)[:400]
        expected = [json.loads(line)["click"] for line in scores]
        process = subprocess.Popen([program, self.kafka.address, self.topic], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def served():
            answers = []
            for line in queries:
                process.stdin.write(line + "\n")
                process.stdin.flush()
                answers.append(float(process.stdout.readline()))
            return answers == expected

        # the replica serves from the first epoch on; its answer is the last epoch's once that epoch is applied
        wait_until(served, "the program answers as of the last epoch")
        process.stdin.close()
        assert process.wait(PATIENCE) == 0

    def the_dump_of_a_follower_is_the_dump_of_the_state(self):
        path = self.work.path / "followed.dump"
        out = lines_of(*self.follow(self.topic, "--dump", path, state=self.state))
        assert path.read_text() == self.dump.read_text()
        last = json.loads(lines(path.read_text())[-1])
        assert len(out) == last["epoch"] and last["samples"] == SAMPLES
        for number, line in enumerate(out, 1):
            assert re.match(rf"epoch={number} timeline=1 rows=\d+ changed=\d+ dropped=\d+ dense=\d+ samples=\d+ wm=\d+ "
                            r"auc\.click=0\.\d{4} auc\.buy=0\.\d{4} delay_ms=\d+ bytes=\d+$", line), line
        assert sum(int(re.search(r"dropped=(\d+)", line).group(1)) for line in out) > 0, "some rows expired"

    def verify_says_verified_from_topic_and_from_dump(self):
        last = json.loads(lines(self.dump.read_text())[-1])
        rows = sum(line.startswith('{"table"') for line in lines(self.dump.read_text()))
        dense = sum(line.startswith('{"dense"') for line in lines(self.dump.read_text()))
        expected = f"verified: timeline 1 epoch {last['epoch']} rows {rows} dense {dense} hash {last['hash']}"
        assert lines_of("verify", "--state-dir", self.state, "--brokers", self.kafka.address, "--topic", self.topic)[-1] == expected
        assert lines_of("verify", "--state-dir", self.state, "--replica", self.dump)[-1] == expected

    def scores_from_topic_follower_dump_and_model_file_are_equal(self):
        from_topic = lines_of("score", "--brokers", self.kafka.address, "--topic", self.topic, "--file", self.queries)
        assert len(from_topic) == 500 and len(set(from_topic)) > 300
        assert all(set(json.loads(line)) == {"click", "buy"} and 0 < json.loads(line)["click"] < 1 for line in from_topic)
        assert lines_of(*self.follow(self.topic, "--score", self.queries, state=self.state))[-500:] == from_topic
        assert lines_of("score", "--dump", self.dump, "--state-dir", self.state, "--file", self.queries) == from_topic
        assert lines_of("score", "--dump", self.dump, "--model", self.state / "model.json", "--file", self.queries) == from_topic

    def the_private_dump_does_not_depend_on_epochs_or_threads(self):
        other, _ = self.train("other_cuts", ["ingest.lockstep.epoch_batches=5", "threads=1"])
        mine, theirs = (lines_of("dump", "--state-dir", state, "--private") for state in (self.state, other))
        assert mine == theirs, next((a, b) for a, b in zip(mine, theirs) if a != b)
        kinds = [json.loads(line) for line in mine]
        rows = [row for row in kinds if "row" in row]
        assert {len(row["row"]) for row in rows if row["table"] == "item"} == {1 + 4 + 2 + 4} and {len(row["row"]) for row in rows if row["table"] == "user"} == {4 + 1}
        assert any("pending" in row for row in kinds)
        assert sum(row["position"]["trained"] for row in kinds if "position" in row) == SAMPLES
        public = {(row["table"], row["key"]) for row in map(json.loads, lines(self.dump.read_text())) if "table" in row}
        assert public == {(row["table"], row["key"]) for row in rows}

    def a_state_of_three_domains_agrees_with_its_followers(self):
        state, topic = self.train("domains", [f"scale.domains={PARTITIONS}"])
        path = self.work.path / "domains.dump"
        assert lines_of("verify", "--state-dir", state, "--brokers", self.kafka.address, "--topic", topic)[-1].startswith("verified:")
        lines_of(*self.follow(topic, "--dump", path, state=state))
        assert path.read_text() == tool("dump", "--state-dir", state)[1]
        assert lines_of("state", state, "--images")[-1].startswith("checks passed=true")
        private = [json.loads(line) for line in lines_of("dump", "--state-dir", state, "--private")]
        keys = [(row["table"], int(row["key"])) for row in private if "key" in row]
        assert keys == sorted(keys) and {key * PARTITIONS >> 64 for _, key in keys} == {0, 1, 2}, "by table and key, whatever the domain"
        assert sum("store" in row for row in private) == 1 and sum("expiry" in row for row in private) == 1
        row = next(row for row in private if "row" in row and int(row["key"]) * PARTITIONS >> 64 == 2)
        found = json.loads(tool("row", "--state-dir", state, "--table", row["table"], "--key", row["key"])[1])
        assert found["state"] == "row" and found["show"] == row["show"], found
        daemon = self.work.daemon(CONFIG, self.work.path / "domains-1.log", self.sets("domains", "samples"), wait_http=False)
        daemon.expect_exit(3)
        # the state is restored, and nothing is left to train
        again = self.work.daemon(CONFIG, self.work.path / "domains-again.log", [*self.sets("domains", "samples"), f"scale.domains={PARTITIONS}"], wait_http=False)
        again.expect_exit(0)
        assert [json.loads(line) for line in lines_of("dump", "--state-dir", state, "--private")] == private

    def published_values_are_the_exact_ones_rounded_to_f16(self):
        exact = {}
        for line in lines_of("dump", "--state-dir", self.state, "--private"):
            match = re.match(r'\{"table":"(\w+)","key":"(\d+)",.*"row":\[(.*)\]\}$', line)
            if match:
                texts = match.group(3).split(",")
                assert texts == ["%.9g" % struct.unpack("<f", struct.pack("<f", float(text))) for text in texts], "floats print as %.9g"
                exact[match.group(1), match.group(2)] = texts
        compared = 0
        for row in (json.loads(line, parse_int=float) for line in lines(self.dump.read_text())):  # -0 is no int
            if "table" in row:
                published = ["%.9g" % value for part in row["parts"].values() for value in part]
                texts = exact[row["table"], row["key"]][:len(published)]
                # The text names one f32 and is not its exact value: near the middle of two f16 the latter decides.
                expected = [struct.unpack("<f", struct.pack("<f", float(text)))[0] for text in texts]
                assert published == ["%.9g" % struct.unpack("<e", struct.pack("<e", value))[0] for value in expected], row
                compared += len(published)
        assert compared > 3000, compared

    def averages_are_published_and_the_exact_values_stay(self):
        """export.average: a replica holds the daemon's averages to the bit, and training is the same as without averages."""
        state, topic = self.train("averaged", ["export.average.half_life=3000"])
        path = self.work.path / "averaged.dump"
        assert lines_of("verify", "--state-dir", state, "--brokers", self.kafka.address, "--topic", topic)[-1].startswith("verified:")
        lines_of(*self.follow(topic, "--dump", path, state=state))
        assert path.read_text() == tool("dump", "--state-dir", state)[1]
        mine, plain = ({row["dense"]: row for row in (json.loads(line, parse_int=float) for line in lines_of("dump", "--state-dir", directory, "--private"))
                        if "dense" in row}
                       for directory in (state, self.state))
        published = {row["dense"]: row["values"] for row in (json.loads(line, parse_int=float) for line in lines(path.read_text())) if "dense" in row}
        assert set(mine) == set(plain) == set(published) and not any("average" in row for row in plain.values())
        for name, row in mine.items():
            assert row["values"] == plain[name]["values"] and row["average"] != row["values"], name
            rounded = [struct.unpack("<e", struct.pack("<e", struct.unpack("<f", struct.pack("<f", value))[0]))[0] for value in row["average"]]
            assert ["%.9g" % value for value in published[name]] == ["%.9g" % value for value in rounded], name
        rows = [[line for line in lines(text) if line.startswith('{"table"')] for text in (path.read_text(), self.dump.read_text())]
        assert rows[0] == rows[1], "rows are published as they are"
        daemon = self.work.daemon(CONFIG, self.work.path / "averaged-off.log", self.sets("averaged", "samples"), wait_http=False)
        daemon.expect_exit(3)
        assert "export.average.half_life: 3000 -> 0 (parameters have an average or none" in (self.work.path / "averaged-off.log").read_text()

    def metrics_of_dump_and_state_are_equal(self):
        tasks = json.loads(tool("dump", "--state-dir", self.state, "--metrics")[1])["tasks"]
        assert set(tasks) == {"click", "buy"} and set(tasks["click"]["decayed"]) == {"5m", "1h"}
        text = tool("state", self.state)[1]
        for task in tasks:
            found = re.search(rf"^metrics task={task} half_life=lifetime auc=(\S+)", text, re.M).group(1)
            assert abs(float(found) - tasks[task]["lifetime"]["auc"]) < 1e-5
        assert tasks["click"]["lifetime"]["weight"] == SAMPLES and tasks["buy"]["lifetime"]["weight"] == SAMPLES / 3

    # ---- parts and parts of time ----

    def a_follower_of_some_partitions_holds_their_rows_only(self):
        path = self.work.path / "part.dump"
        tool(*self.follow(self.topic, "--partitions", "2", "--dump", path, state=self.state))
        expected = []
        for line in lines(self.dump.read_text())[:-1]:
            row = json.loads(line)
            if "dense" in row or ((int(row["key"]) >> 32) * PARTITIONS) >> 32 in (0, 2):
                expected.append(line)
        assert lines(path.read_text())[:-1] == expected and any('"table"' in line for line in expected)

    def a_replica_that_stopped_early_is_behind(self):
        path = self.work.path / "early.dump"
        tool("follow", "--brokers", self.kafka.address, "--topic", self.topic, "--until-epoch", 3, "--dump", path)
        out, _ = failing("verify", "--state-dir", self.state, "--replica", path)
        last = json.loads(lines(self.dump.read_text())[-1])
        assert out[-1].startswith(f"behind: replica at epoch 3, state at {last['epoch']}"), out

    def a_topic_that_ends_early_is_behind(self):
        self.create("short.delta", PARTITIONS)
        import msgpack
        self.send("short.delta", [(p, v) for p, v in self.records(self.topic) if msgpack.unpackb(v, strict_map_key=False)["e"] <= 4])
        out, _ = failing("verify", "--state-dir", self.state, "--brokers", self.kafka.address, "--topic", "short.delta")
        assert out[-1].startswith("behind: replica at epoch 4, state at"), out

    def one_different_digit_is_shown_with_both_lines(self):
        path = self.work.path / "changed.dump"
        text = lines(self.dump.read_text())
        text[41] = re.sub(r"\[(-?)0\.(\d)", lambda m: f"[{m.group(1)}0.{(int(m.group(2)) + 1) % 10}", text[41], count=1)
        path.write_text("\n".join(text) + "\n")
        out, _ = failing("verify", "--state-dir", self.state, "--replica", path)
        original = lines(self.dump.read_text())[41]
        assert out[0] == "line 42 differs" and out[1] == f"state: {original}" and out[2] == f"replica: {text[41]}", out
        assert out[-1].startswith("different:")
        _, err = failing("score", "--dump", path, "--state-dir", self.state, "--file", self.queries)
        assert "hash" in err
        path.write_text(self.dump.read_text()[:-30])
        assert "not a whole dump" in failing("verify", "--state-dir", self.state, "--replica", path)[1]

    def a_state_without_rows_has_nothing_to_verify(self):
        quiet = self.work.path / "quiet.jsonl"
        quiet.write_text("".join(json.dumps({"t": 1700000000000 + i, "u": 2, "y": {"click": i % 2}, "f": {"price": 1}}) + "\n" for i in range(100)))
        tool("produce", "--brokers", self.kafka.address, "--topic", "quiet", "--file", quiet, "--partitions", 1)
        state, topic = self.train("quiet", topic="quiet")
        out, _ = failing("verify", "--state-dir", state, "--brokers", self.kafka.address, "--topic", topic)
        assert out[-1].startswith("nothing to verify"), out

    # ---- while a daemon runs ----

    def a_running_state_is_read_and_verified(self):
        config = self.work.path / "live.yaml"
        config.write_text(re.sub(r", lockstep: \{[^}]*\}\}", "}", CONFIG.read_text()))
        daemon = self.work.daemon(config, self.work.path / "live.log", self.sets("live", "samples") + ["export.dense_every=2s"])
        state, epoch = self.work.path / "live", 0
        wait_until(lambda: daemon.json("/status").get("samples", {}).get("trained") == SAMPLES, "all samples trained")
        rng = random.Random(9)
        extra = self.work.path / "extra.jsonl"
        for turn in range(4):
            extra.write_text("".join(json.dumps(sample(rng, SAMPLES + turn * 500 + i)) + "\n" for i in range(500)))
            tool("produce", "--brokers", self.kafka.address, "--topic", "samples", "--file", extra)
            first = lines_of("state", state, "--images")
            number = int(re.search(r" epoch=(\d+) folded=\d+ acked=\d+ timeline=1 samples=\d+ watermark_ms=\d+", first[0]).group(1))
            assert number >= epoch and first[-1].startswith("checks passed=true"), first[-1]
            epoch = number
            wait_until(lambda: self.verified_or_behind(state, "live.delta"), "verified while running")
        follower = subprocess.Popen([harness.BUILD / "tool/freshet", "follow", "--brokers", self.kafka.address, "--topic", "live.delta", "--dump",
                                     self.work.path / "live.dump"], stdout=subprocess.PIPE, text=True)
        daemon.drain()
        last = int(re.search(r" epoch=(\d+)", lines_of("state", state)[0]).group(1))
        try:
            for line in follower.stdout:
                if line.startswith(f"epoch={last} "):
                    break
            follower.send_signal(signal.SIGTERM)
            assert follower.wait(30) == 0
        finally:
            follower.kill()
        assert lines_of("verify", "--state-dir", state, "--replica", self.work.path / "live.dump")[-1].startswith(f"verified: timeline 1 epoch {last} ")

    def arrays_and_blocks_train_the_same(self):
        dumps = {}
        for form, codec in (("array", "msgpack"), ("block", "msgpack"), ("block", "json")):
            name = f"{form}-{codec}"
            tool("produce", "--brokers", self.kafka.address, "--topic", name, "--file", self.file, "--partitions", 2, "--form", form, "--pack", 50, "--format", codec)
            state, _ = self.train(name, ["ingest.lockstep.records=1", f"ingest.format={codec}"], topic=name)
            dumps[name] = tool("dump", "--state-dir", state)[1]
        assert dumps["array-msgpack"] == dumps["block-msgpack"] == dumps["block-json"]
        assert json.loads(lines(dumps["block-json"])[-1])["samples"] == SAMPLES
        unnamed = self.work.path / "unnamed.jsonl"
        unnamed.write_text('{"f":{"user_id":1},"y":1}\n')
        arguments = ("produce", "--brokers", self.kafka.address, "--topic", "unnamed", "--file", unnamed, "--form", "block")
        assert "--labels" in failing(*arguments)[1]
        tool(*arguments, "--labels", "click")

    # ---- faults are reported ----

    def a_bad_record_is_refused_and_the_rest_served(self):
        self.create("noisy.delta", PARTITIONS)
        records = self.records(self.topic)
        flipped = bytearray(records[5][1])
        flipped[len(flipped) // 2] ^= 1
        self.send("noisy.delta", [(0, b"not a delta record"), *records[:5], (records[5][0], bytes(flipped)), *records[5:], *records[-3:]])
        out = lines_of(*self.follow("noisy.delta", "--dump", self.work.path / "noisy.dump"))
        refused = [line for line in out if line.startswith("refused ")]
        assert len(refused) == 2 and refused[0].startswith("refused partition=0 offset=0 reason=") and "crc" in refused[1], refused
        assert (self.work.path / "noisy.dump").read_text() == self.dump.read_text()

    def a_line_that_cannot_be_scored_is_named_with_its_fault(self):
        wrong = self.work.path / "wrong.jsonl"
        wrong.write_text('{"f":{"user_id":1,"usr":3}}\n\n{"f":{"price":"dear"}}\n')
        out, err = failing("score", "--brokers", self.kafka.address, "--topic", self.topic, "--file", wrong)
        assert len(out) == 1 and "line 2" in err and "$.f.price" in err, (out, err)
        assert re.search(r'event=ignored values=1 slots="?usr"? ', err), err

    def a_lost_record_is_a_gap(self):
        self.create("lossy.delta", PARTITIONS)
        records = self.records(self.topic)
        # The partition is read a few epochs ahead of the other at most: some epoch is served before the gap.
        rows = [i for i, (partition, value) in enumerate(records) if partition == 1 and b"\xa4rows" in value and b"\xa6commit" not in value]
        lost = rows[len(rows) // 2]
        self.send("lossy.delta", records[:lost] + records[lost + 1:])
        out, err = failing(*self.follow("lossy.delta", "--dump", self.work.path / "lossy.dump"))
        assert "gap" in err and "whole state" in err, err
        assert json.loads(lines((self.work.path / "lossy.dump").read_text())[-1])["epoch"] == len([x for x in out if x.startswith("epoch=")]), "what it served is written"

    def an_added_partition_is_not_waited_for(self):
        """The topic has one partition more than its records name."""
        self.create("wider.delta", PARTITIONS + 1)
        self.send("wider.delta", self.records(self.topic))
        lines_of(*self.follow("wider.delta", "--dump", self.work.path / "wider.dump"))
        assert (self.work.path / "wider.dump").read_text() == self.dump.read_text()
        out = lines_of("verify", "--state-dir", self.state, "--brokers", self.kafka.address, "--topic", "wider.delta")
        assert out[-1].startswith("verified: "), out

    def a_topic_that_holds_no_deltas_ends_in_an_error(self):
        begin = ["--brokers", self.kafka.address, "--topic"]
        out, err = failing("follow", *begin, "samples", "--until-idle", "30s")
        assert len(out) == 100 and all(line.startswith("refused ") for line in out), len(out)
        assert "100 records in a row" in err and "export.topic" in err, err
        _, err = failing("verify", "--state-dir", self.state, *begin, "samples")
        assert "100 records in a row" in err and "export.topic" in err, err
        self.create("empty.delta", PARTITIONS)
        out, err = failing("follow", *begin, "empty.delta", "--until-idle", "1s")
        assert not out and "no epoch of empty.delta was served" in err, (out, err)
        out, err = failing("verify", "--state-dir", self.state, *begin, "empty.delta")
        assert out[-1].startswith("behind: replica at epoch 0") and "no epoch of empty.delta was served" in err, (out, err)

    def a_second_writer_is_an_alarm(self):
        _, other = self.train("second", ["seed=12"])
        self.create("mixed.delta", PARTITIONS)
        self.send("mixed.delta", self.records(self.topic) + self.records(other))
        _, err = failing(*self.follow("mixed.delta"))
        assert "mismatch" in err and "export.topic" in err, err

    def a_topic_without_its_beginning_is_passed_over(self):
        self.create("retained.delta", PARTITIONS)
        records = self.records(self.topic)
        self.send("retained.delta", records)
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.kafka.address})
        for partition in range(PARTITIONS):
            half = sum(p == partition for p, _ in records) // 2
            for future in admin.delete_records([confluent_kafka.TopicPartition("retained.delta", partition, half)]).values():
                future.result(PATIENCE)
        _, err = failing(*self.follow("retained.delta"))
        assert "event=passed_over" in err and "lost its beginning" in err and "--snapshot" in err, err

    def a_damaged_state_is_reported(self):
        damaged = self.work.path / "damaged"
        shutil.copytree(self.state, damaged)
        journal = sorted((damaged / "journal").iterdir())[-1]
        data = bytearray(journal.read_bytes())
        data[len(data) * 3 // 4] ^= 0x20
        journal.write_bytes(data)
        out, err = failing("state", damaged)
        assert out[-1].startswith("checks passed=false problem=") and journal.name in out[-1] and err, out
        assert "no state" in failing("state", self.work.path / "nowhere")[0][-1]
        assert failing("dump", "--state-dir", damaged)[1]

    def a_configuration_shows_its_compiled_network(self):
        for config in (SOURCE / "conf/freshet.yaml", *sorted((SOURCE / "conf/samples").glob("*.yaml"))):
            graph = json.loads(tool("debug", "graph", "--config", config, "--json")[1])
            text = tool("debug", "graph", "--config", config)[1]
            lines = {line.split()[0]: line for line in text.split("nodes\n")[1].split("parameters\n")[0].splitlines()[1:]}
            assert len(lines) == len(graph["nodes"]) and graph["nodes"][-1]["trained"], (config, text)
            for number, node in enumerate(graph["nodes"]):
                assert f" {node['kind']} " in lines[str(number)] and all(name in lines[str(number)] for name in node["parameters"]), lines[str(number)]
                assert all(read < number for read in node["reads"]), node
            assert all(p["name"] in text for p in graph["parameters"]), text
        code, out, error = tool("debug", "graph", "--config", SOURCE / "conf/freshet.yaml", "--set", "tables.user.dim=0", check=False)
        assert code == 2 and not out and "tables.user.dim" in error, (code, error)

    def what_this_version_does_not_do_is_refused(self):
        code, _, err = tool("dump", "--snapshot", "d", check=False)
        assert code == 2 and "unknown argument --snapshot" in err, (code, err)

    def run(self):
        helpers = ("sets", "verified_or_behind", "train", "follow", "create", "records", "send", "run")
        run_cases(self, [n for n in vars(Cases) if not n.startswith("_") and n not in helpers])


with Workspace() as test_work, Kafka() as test_kafka:
    Cases(test_work, test_kafka).run()
