"""Snapshots (docs/operating.md): taken during training, on request and by policy; an independent replica begins with one by docs/formats alone and ends with
the daemon's dump, in every form of values; whole or not there, also under kills; the hook, what commits announce; a topic that keeps only what is later.
"""
import hashlib
import pathlib
import random
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))
import confluent_kafka  # noqa: E402
import confluent_kafka.admin  # noqa: E402
import delta  # noqa: E402
from harness import *  # noqa: E402,F403
from streams import Live, live_samples  # noqa: E402

LINE = re.compile(r'^snapshot dir="?([^" ]+)"? timeline=(\d+) epoch=(\d+) digest=0x[0-9a-f]{16} rows=(\d+) files=\d+ bytes=\d+(.*)$', re.M)
KILLS = 10
FOLLOWER_KILLS = 10


def snapshots(folder):
    """Returns [(directory, epoch, is CURRENT)], the oldest first."""
    return [(pathlib.Path(m[0]), int(m[2]), m[4] == " current=true") for m in LINE.findall(tool("snapshot", "--dir", folder, "--list")[1])]


def check(directory):
    assert "checks passed=true" in tool("snapshot", "--check", directory)[1], directory


def dump(state):
    return tool("dump", "--state-dir", state)[1].splitlines()


class Cases(Live):
    SETS = ["tables.ledger.expire={idle: 300ms, every: 1}", "epoch=50ms", "export.dense_every=0s", "unfolded_max=64KiB"]  # rows of old samples go, with tombstones

    def __init__(self, work, kafka):
        super().__init__(work, kafka)
        self.more(1500)

    def current(self, daemon, name):
        wait_until(lambda: daemon.json("/status").get("snapshot", {}).get("current") == name, f"CURRENT names {name}")

    def replica(self, directory, topic):
        """A replica that begins with a snapshot and continues with the topic at the place that the manifest names."""
        replica = delta.Replica(2)
        offsets = replica.begin(directory)["delta_offsets"]
        offsets = offsets or [0, 0]  # a hint
        for partition, records in delta.read_topic(self.kafka.address, topic).items():
            for offset, value in records:
                if offset >= offsets[partition]:
                    replica.feed(partition, value)
        return replica

    def form(self, quantize):
        state, topic = self.work.path / quantize, f"{quantize}.delta"
        daemon = self.daemon(quantize, [f"export.quantize={quantize}"])
        self.trained(daemon)
        (directory, _, epoch, rows, _), = LINE.findall(tool("snapshot", "--state-dir", state)[1])
        assert int(rows) > 50, rows
        assert len(json.loads((pathlib.Path(directory) / "MANIFEST.json").read_text())["delta_offsets"]) == 2, "the manifest says where the topic continues"
        check(directory)
        self.current(daemon, pathlib.Path(directory).name)
        self.more(700)
        self.trained(daemon)
        assert re.search(r"^freshet_snapshots_total\{[^}]*\} 1$", daemon.get("/metrics")[1], re.M), daemon.get("/metrics")[1]
        daemon.drain()
        replica = self.replica(directory, topic)
        assert replica.tombstones > 100 and replica.applied == last_epoch(state) > int(epoch)
        assert delta.dump_lines(replica) == dump(state), "the daemon's dump"
        follower = delta.Replica(2)  # a replica that followed from the beginning, as of the snapshot's epoch
        for partition, records in delta.read_topic(self.kafka.address, topic).items():
            for _, value in records:
                if delta.parse(value)["e"] <= int(epoch):
                    follower.feed(partition, value)
        begun = delta.Replica(2)
        begun.begin(directory)
        assert delta.dump_lines(begun) == delta.dump_lines(follower), "what one that followed every epoch had then"

    def a_replica_begins_with_a_snapshot_in_f32(self):
        self.form("f32")

    def a_replica_begins_with_a_snapshot_in_f16(self):
        self.form("f16")

    def a_replica_begins_with_a_snapshot_in_bf16(self):
        self.form("bf16")

    def a_replica_begins_with_a_snapshot_in_i8(self):
        self.form("i8")

    def a_stopped_state_has_its_snapshot_written_by_the_tool(self):
        state = self.work.path / "f16"
        line = tool("snapshot", "--state-dir", state)[1]
        (directory, _, epoch, _, _), = LINE.findall(line)
        check(directory)
        assert int(epoch) == last_epoch(state) and snapshots(state / "snapshots")[-1][2], "CURRENT: the topic has had all of it"
        begun = delta.Replica(2)
        begun.begin(directory)
        assert delta.dump_lines(begun) == dump(state)
        rc, _, error = tool("snapshot", "--state-dir", self.work.path / "nothing", check=False)
        assert rc == 1 and "no state" in error and not (self.work.path / "nothing").exists(), error
        rc, _, error = tool("snapshot", "--check", state, check=False)
        assert rc == 1 and "MANIFEST.json" in error, error

    def a_merged_epoch_of_the_topic_replaces_what_a_snapshot_gave(self):
        state = self.work.path / "f16"
        older = snapshots(state / "snapshots")[0][0]
        self.admin.delete_topics(["f16.delta"])["f16.delta"].result(PATIENCE)
        wait_until(lambda: "f16.delta" not in self.admin.list_topics(timeout=10).topics, "the topic is gone")
        self.more(300)
        daemon = self.daemon("f16", ["export.quantize=f16"])
        self.trained(daemon)
        daemon.drain()
        assert "event=rebase_begin" in daemon.log()
        replica = delta.Replica(2)
        replica.begin(older)
        for partition, records in delta.read_topic(self.kafka.address, "f16.delta").items():
            for _, value in records:
                replica.feed(partition, value)
        assert delta.dump_lines(replica) == dump(state)

    def the_hook_is_repeated_until_it_succeeds_and_then_commits_announce_the_snapshot(self):
        state, hook, log = self.work.path / "hooked", self.work.path / "hook", self.work.path / "hook.log"
        hook.write_text(f"#!/bin/sh\necho \"$1 $2\" >> {log}\n[ $(wc -l < {log}) -ge 2 ]\n")
        hook.chmod(0o755)
        daemon = self.daemon("hooked", [f'snapshot.hook=["{hook}", "x y"]'])
        self.trained(daemon)
        (directory, _, epoch, _, _), = LINE.findall(tool("snapshot", "--state-dir", state)[1])
        name = pathlib.Path(directory).name
        wait_until(lambda: daemon.json("/status")["snapshot"]["announced"] == name, "announced")
        assert log.read_text().splitlines() == [f"x y {directory}"] * 2
        assert daemon.json("/status")["snapshot"]["hook_failures"] == 1 and "exit status 1" in daemon.log()
        self.more(100)
        self.trained(daemon)
        daemon.drain()
        self.more(100)
        daemon = self.daemon("hooked", [f'snapshot.hook=["{hook}", "x y"]'])
        self.trained(daemon)
        daemon.drain()
        assert len(log.read_text().splitlines()) == 2, "announced already: not uploaded again"
        manifest, text, _ = delta.read_snapshot(directory)
        expected = {"name": name, "bytes": sum(file["bytes"] for file in manifest["files"]), "sha256": hashlib.sha256(text).digest()}
        snaps = {}
        for records in delta.read_topic(self.kafka.address, "hooked.delta").values():
            for _, value in records:
                record = delta.parse(value)
                if record["k"] == "commit":
                    snaps.setdefault(record["e"], []).append(record["snap"])
        assert all(snap is None for e in snaps if e <= int(epoch) for snap in snaps[e]) and snaps[max(snaps)] == [expected] * 2, (epoch, snaps)

    def a_hook_that_hangs_is_ended(self):
        hook = self.work.path / "hanging"
        hook.write_text("#!/bin/sh\nsleep 600\n")
        hook.chmod(0o755)
        daemon = self.daemon("hangs", [f'snapshot.hook=["{hook}"]', "snapshot.hook_timeout=100ms"])
        self.trained(daemon)
        tool("snapshot", "--state-dir", self.work.path / "hangs")
        wait_until(lambda: daemon.json("/status")["snapshot"]["hook_failures"] > 0, "the hook has failed")
        assert "raise snapshot.hook_timeout" in daemon.get("/healthz")[1], daemon.get("/healthz")[1]
        assert daemon.json("/status")["snapshot"]["announced"] == ""
        daemon.drain()

    def the_policy_keeps_the_newest(self):
        folder = self.work.path / "elsewhere"
        daemon = self.daemon("policy", ["snapshot.every=300ms", "snapshot.keep=2", f"snapshot.dir={folder}"])
        made = set()
        for _ in range(4):
            self.more(50)
            self.trained(daemon)
            made |= wait_until(lambda: {p[0].name for p in snapshots(folder)} - made if folder.exists() else set(), "another snapshot by policy")
        daemon.drain()
        kept = snapshots(folder)
        assert 2 <= len(kept) <= 3 and [p[2] for p in kept].count(True) == 1, kept  # one more as long as CURRENT names an older one
        for directory, _, _ in kept:
            check(directory)

    def a_directory_has_the_snapshots_of_one_model(self):
        """Two daemons begin with one empty folder: CURRENT stays with the model that was first; the other daemon reports it and does not start there again."""
        folder = self.work.path / "shared"
        first = self.daemon("mine", [f"snapshot.dir={folder}"])
        second = self.daemon("other", ["model=other", f"snapshot.dir={folder}"])
        for daemon in (first, second):
            self.trained(daemon)
        (directory, _, _, _, _), = LINE.findall(tool("snapshot", "--state-dir", self.work.path / "mine")[1])
        name = pathlib.Path(directory).name
        self.current(first, name)
        tool("snapshot", "--state-dir", self.work.path / "other")
        wait_until(lambda: "give each model its own snapshot.dir" in second.get("/healthz")[1], "the other model says why CURRENT stays")
        assert (folder / "CURRENT").read_text() == name + "\n"
        first.drain()
        second.drain()
        refused = self.daemon("other", ["model=other", f"snapshot.dir={folder}"], wait_http=False)
        refused.expect_exit(3)
        assert "of model operated" in refused.log() and "give each model its own snapshot.dir" in refused.log(), refused.log()
        again = self.daemon("mine", [f"snapshot.dir={folder}"])
        self.trained(again)
        again.drain()
        assert (folder / "CURRENT").read_text().startswith("operated-1-")

    def delete_records(self, topic):
        """Deletes all that the topic holds now, as its retention would in time."""
        ends = {p: records[-1][0] + 1 for p, records in delta.read_topic(self.kafka.address, topic).items() if records}
        for future in self.admin.delete_records([confluent_kafka.TopicPartition(topic, p, end) for p, end in ends.items()]).values():
            future.result(PATIENCE)

    def followed(self, state, topic, name):
        """Returns the dump of a replica that began with CURRENT and read the topic to its end."""
        out = self.work.path / f"{name}.dump"
        tool("follow", "--brokers", self.kafka.address, "--topic", topic, "--snapshot", state / "snapshots", "--until-idle", "1s", "--dump", out)
        return out.read_text().splitlines()

    def a_state_that_read_files_before_the_topic_has_snapshots_like_any_other(self):
        """Positions of files stay in every snapshot, under their names (docs/formats/snapshots.md, "MANIFEST.json"): keys by hash and by number, three forms of input names."""
        state, paths = self.work.path / "backfilled", [self.work.path / "before, (1) [x] {y}: #'~@.jsonl", self.work.path / ("long" * 40 + ".jsonl")]
        for number, path in enumerate(paths):
            path.write_text("".join(json.dumps(sample) + "\n" for _, sample in live_samples(10_000_000 + 300 * number, 300)))
        sets = ["ingest.files=" + json.dumps([str(path) for path in paths]), "ingest.format=json", "snapshot.every=1h", "export.retention=snapshots", "ingest.topic=lines"]
        self.admin.create_topics([confluent_kafka.admin.NewTopic("lines", 2, 1)])["lines"].result(PATIENCE)
        lines = confluent_kafka.Producer({"enable.idempotence": True, "bootstrap.servers": self.kafka.address})
        for i, sample in live_samples(20_000_000, 200):
            lines.produce("lines", json.dumps(sample), partition=i % 2)
        assert lines.flush(PATIENCE) == 0
        daemon = self.daemon("backfilled", sets)
        wait_until(lambda: daemon.json("/status").get("samples", {}).get("trained", 0) == 800, "files and topic are trained")
        (directory, _, _, _, _), = LINE.findall(tool("snapshot", "--state-dir", state)[1])
        check(directory)
        self.current(daemon, pathlib.Path(directory).name)
        daemon.drain()
        assert "failed" not in daemon.log() and daemon.log().count("event=current") <= 3, daemon.log()
        kept = snapshots(state / "snapshots")
        assert kept[-1][1] == last_epoch(state) and kept[-1][2], kept
        manifest = delta.read_snapshot(kept[-1][0])[0]
        assert manifest["off"] == {**{f"file:{path}": {"0": 300} for path in paths}, "lines": {"0": 100, "1": 100}}, manifest["off"]
        self.delete_records("backfilled.delta")
        assert self.followed(state, "backfilled.delta", "backfilled") == dump(state)
        tool("savepoint", "--state-dir", state, "--name", "s")
        again = self.daemon("backfilled-again", [*sets, "export.topic=backfilled.delta"], arguments=["--restore", state / "savepoints/s"])
        wait_until(lambda: "event=rewind_end" in again.log() or "event=rewind_refused" in again.log(), "a new timeline begins with a snapshot")
        assert "event=rewind_refused" not in again.log(), again.log()
        again.drain()
        assert self.followed(self.work.path / "backfilled-again", "backfilled.delta", "again") == dump(self.work.path / "backfilled-again")

    def a_drain_leaves_a_snapshot_of_its_end_for_replicas_that_come_much_later(self):
        state, hook, fails = self.work.path / "drained", self.work.path / "last-hook", self.work.path / "fails"
        hook.write_text(f"#!/bin/sh\n[ ! -e {fails} ]\n")
        hook.chmod(0o755)
        sets = ["snapshot.every=1h", "export.retention=snapshots", f'snapshot.hook=["{hook}"]']
        daemon = self.daemon("drained", sets)
        self.trained(daemon)
        wait_until(lambda: daemon.json("/status")["snapshot"]["announced"], "a first snapshot")
        self.more(200)
        self.trained(daemon)
        daemon.drain()
        assert re.search(r'event=topic_created topic=drained.delta partitions=2 retention_ms=\d+ ', daemon.log()), daemon.log()
        self.delete_records("drained.delta")
        assert self.followed(state, "drained.delta", "drained") == dump(state)
        self.more(100)
        fails.write_text("")
        daemon = self.daemon("drained", [*sets, "export.drain_timeout=8s"])
        self.trained(daemon)
        daemon.process.send_signal(signal.SIGTERM)
        daemon.expect_exit(75)
        assert "every epoch is published and nothing is lost" in daemon.log().lower() and "exit status 1" in daemon.log().splitlines()[-1], daemon.log()
        assert f"`freshet snapshot --state-dir {state} --dir {state}/snapshots --topic drained.delta`" in daemon.log(), daemon.log()

    def a_wrong_hint_costs_time_only(self):
        """Records from the snapshot's offsets on are all that the topic keeps, so a replica can continue with these only."""
        state, topic = self.work.path / "hinted", "hinted.delta"
        daemon = self.daemon("hinted", ["snapshot.every=1h"])
        self.trained(daemon)
        self.current(daemon, wait_until(lambda: [path.name for path in (state / "snapshots").glob("operated-1-*")], "a first one by policy")[0])
        self.more(100)
        self.trained(daemon)
        (directory, _, _, _, _), = LINE.findall(tool("snapshot", "--state-dir", state)[1])
        self.current(daemon, pathlib.Path(directory).name)
        for _ in range(3):
            self.more(100)
            self.trained(daemon)
        daemon.drain()
        path = pathlib.Path(directory) / "MANIFEST.json"
        text = path.read_text()
        right = json.loads(text)["delta_offsets"]
        ends = [records[-1][0] + 1 for _, records in sorted(delta.read_topic(self.kafka.address, topic).items())]
        for future in self.admin.delete_records([confluent_kafka.TopicPartition(topic, p, offset) for p, offset in enumerate(right)]).values():
            future.result(PATIENCE)
        assert max(right) > 0 and all(end > offset + 2 for end, offset in zip(ends, right)), (right, ends)
        for offsets in ([offset + 2 for offset in right], ends, [right[0], ends[1]], [end + 1 for end in ends]):
            body = text[:text.index(',\n"sha256":')].replace(f'"delta_offsets":{json.dumps(right).replace(" ", "")}', f'"delta_offsets":{json.dumps(offsets)}')
            path.write_text(f'{body},\n"sha256":"{hashlib.sha256(body.encode()).hexdigest()}"}}\n')
            assert json.loads(path.read_text())["delta_offsets"] == offsets
            assert self.followed(state, topic, "hinted") == dump(state), offsets

    def a_snapshot_that_does_not_read_is_said_and_makes_way(self):
        state = self.work.path / "damaged"
        daemon = self.daemon("damaged", ["snapshot.every=1h"])
        self.trained(daemon)
        (directory, _, _, _, _), = LINE.findall(tool("snapshot", "--state-dir", state)[1])
        self.current(daemon, pathlib.Path(directory).name)
        daemon.drain()
        manifest = pathlib.Path(directory) / "MANIFEST.json"
        manifest.write_bytes(manifest.read_bytes().replace(b"damaged.delta", b"damaged.felta"))
        assert "its SHA-256 is not the one at its end" in tool("snapshot", "--check", directory, check=False)[2]
        assert re.search(r"^snapshot dir=\S+ timeline=1 epoch=\d+ problem=.*SHA-256", tool("snapshot", "--state-dir", state, "--list")[1], re.M)
        daemon = self.daemon("damaged", ["snapshot.every=1h"])
        wait_until(lambda: daemon.json("/status").get("snapshot", {}).get("current"), "there is another one")
        wait_until(lambda: not manifest.exists() or "felta" not in manifest.read_text(), "the damaged one is gone or replaced")
        daemon.drain()
        assert daemon.log().count("event=current") == 1, daemon.log()
        for kept, _, _ in snapshots(state / "snapshots"):
            check(kept)

    def kills_leave_whole_snapshots_only(self):
        state, rng, seen = self.work.path / "killed", random.Random(9), set()
        for _ in range(KILLS):
            daemon = self.daemon("killed", ["snapshot.every=1ms", "snapshot.keep=3", "snapshot.rate=200KiB"])
            wait_until(lambda: daemon.get("/readyz")[0] == 200, "ready")
            self.more(50)
            time.sleep(rng.random() * 0.6)
            daemon.process.kill()
            daemon.expect_exit(-signal.SIGKILL)
            for directory, _, _ in snapshots(state / "snapshots") if (state / "snapshots").exists() else []:
                check(directory)
                seen.add(directory.name)
            if (state / "snapshots/CURRENT").exists():
                check(state / "snapshots" / (state / "snapshots/CURRENT").read_text().strip())
        assert len(seen) >= 3, seen
        daemon = self.daemon("killed")
        self.trained(daemon)
        daemon.drain()
        assert not list((state / "snapshots").glob("*.part")), "leftovers are removed at start"
        directory = next(p[0] for p in snapshots(state / "snapshots") if p[2])
        assert delta.dump_lines(self.replica(directory, "killed.delta")) == dump(state)

    def follow(self, topic, name, *arguments):
        """Returns (process, a function that returns the epochs it has printed)."""
        log = self.work.path / f"{name}.follow"
        process = subprocess.Popen([BUILD / "tool/freshet", "follow", "--brokers", self.kafka.address, "--topic", topic, "--dump", self.work.path / f"{name}.dump", *arguments],
                                   stdout=open(log, "wb"), stderr=subprocess.STDOUT)
        return process, lambda: [int(epoch) for epoch in re.findall(r"^epoch=(\d+) .*\n", log.read_text(), re.M)]

    def a_follower_that_is_killed_begins_again_with_the_newest_snapshot(self):
        state, topic, rng, begun = self.work.path / "followed", "followed.delta", random.Random(4), set()
        daemon = self.daemon("followed", ["snapshot.every=200ms", "snapshot.keep=2"])
        self.trained(daemon)
        wait_until(lambda: (state / "snapshots/CURRENT").exists(), "a first snapshot")
        whole, epochs_of_whole = self.follow(topic, "whole")
        followers = [whole]
        try:
            for kill in range(FOLLOWER_KILLS):
                current = (state / "snapshots/CURRENT").read_text().strip()
                follower, epochs = self.follow(topic, f"killed {kill}", "--snapshot", state / "snapshots")
                followers.append(follower)
                wait_until(lambda: self.more(10) or follower.poll() is not None or epochs(), "an epoch later than the snapshot's")
                self.more(30)
                time.sleep(rng.random() * 0.3)
                follower.kill()
                assert follower.wait() == -signal.SIGKILL and epochs()[0] > int(current.rsplit("-", 1)[1]) >= 1, (current, epochs())
                assert "passed_over" not in (self.work.path / f"killed {kill}.follow").read_text(), "it continues from the snapshot"
                begun.add(current)
            last, epochs = self.follow(topic, "last", "--snapshot", state / "snapshots")
            followers.append(last)
            self.trained(daemon)
            daemon.drain()
            for follower, served in ((whole, epochs_of_whole), (last, epochs)):
                wait_until(lambda: follower.poll() is not None or last_epoch(state) in served(), "it serves the last epoch")
                follower.terminate()
                assert follower.wait() == 0
        finally:
            for follower in followers:
                follower.kill()
                follower.wait()
        assert len(begun) >= 3 and epochs_of_whole()[0] == 1 < epochs()[0], (begun, epochs())
        assert (self.work.path / "last.dump").read_text() == (self.work.path / "whole.dump").read_text() == "".join(line + "\n" for line in dump(state))

    def a_topic_that_lost_its_beginning_is_not_filled_again_while_a_snapshot_covers_it(self):
        state, sets = self.work.path / "short", ["snapshot.every=1h", "snapshot.keep=2", "snapshot.at_drain=false", "export.retention=snapshots"]
        daemon = self.daemon("short", sets)
        self.trained(daemon)
        wait_until(lambda: daemon.json("/status")["snapshot"]["announced"], "a snapshot is announced")
        directory = state / "snapshots" / daemon.json("/status")["snapshot"]["current"]
        self.more(200)
        self.trained(daemon)
        daemon.drain()
        resource = confluent_kafka.admin.ConfigResource(confluent_kafka.admin.ConfigResource.Type.TOPIC, "short.delta")
        settings = self.admin.describe_configs([resource])[resource].result(PATIENCE)
        assert settings["retention.ms"].value == str(2 * 3 * 3600 * 1000), "made to keep what is needed, twice"
        offsets = json.loads((directory / "MANIFEST.json").read_text())["delta_offsets"]
        for future in self.admin.delete_records([confluent_kafka.TopicPartition("short.delta", p, offset) for p, offset in enumerate(offsets)]).values():
            future.result(PATIENCE)
        entry = confluent_kafka.admin.ConfigEntry("retention.ms", "1000000", incremental_operation=confluent_kafka.admin.AlterConfigOpType.SET)
        self.admin.incremental_alter_configs([confluent_kafka.admin.ConfigResource(resource.restype, "short.delta", incremental_configs=[entry])])[resource].result(PATIENCE)
        self.more(200)
        daemon = self.daemon("short", sets)
        self.trained(daemon)
        assert re.search(r"^freshet_delta_retention_short\{[^}]*\} 1$", daemon.get("/metrics")[1], re.M)
        daemon.drain()
        assert "event=rebase" not in daemon.log() and "set retention.ms=10800000 or more" in daemon.log(), daemon.log()
        assert delta.dump_lines(self.replica(directory, "short.delta")) == dump(state)
        rest = self.admin.delete_records([confluent_kafka.TopicPartition("short.delta", p, offset + 3) for p, offset in enumerate(offsets)])
        for future in rest.values():
            future.result(PATIENCE)
        daemon = self.daemon("short", sets)
        self.trained(daemon)
        daemon.drain()
        assert "event=rebase_begin" in daemon.log(), "now nobody could begin"

    def run(self):
        names = [n for n in vars(Cases) if n.startswith(("a_", "the_", "kills_"))]
        run_cases(self, names)


with Workspace() as test_work, Kafka() as test_kafka:
    Cases(test_work, test_kafka).run()
