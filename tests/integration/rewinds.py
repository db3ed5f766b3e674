"""A state that leaves its history (`--restore`) sends replicas to a snapshot if they begin with snapshots (`export.retention: snapshots`): the daemon writes the
snapshot, the hook carries it away, the topic names it in a rewind, and replicas load it and end with the daemon's dump. One replica is ours, the other
knows docs/formats only. If no snapshot can be taken or carried away, the whole state goes through the topic.
"""
import pathlib
import random
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))
import delta  # noqa: E402
from harness import *  # noqa: E402,F403
from streams import Live  # noqa: E402

KILLS = 6


def dump(state):
    return tool("dump", "--state-dir", state)[1].splitlines()


class Cases(Live):
    SETS = ["tables.ledger.expire={idle: 300ms, every: 1}", "epoch=50ms", "export.dense_every=0s", "unfolded_max=64KiB", "snapshot.every=1h", "export.retention=snapshots",
            "heartbeat=300ms", "snapshot.at_drain=false"]

    def daemon(self, name, topic, sets=(), **options):
        return super().daemon(name, [f"export.topic={topic}", *sets], **options)

    def saved(self, name, sets=()):
        """Makes a drained state with a savepoint `back` in its history; its topic is NAME.delta. Returns the savepoint."""
        state = self.work.path / name
        daemon = self.daemon(name, f"{name}.delta", sets)
        self.more(600)
        self.trained(daemon)
        wait_until(lambda: daemon.json("/status")["snapshot"]["current"], "a first snapshot")
        tool("savepoint", "--state-dir", state, "--name", "back")
        self.more(300)
        self.trained(daemon)
        daemon.drain()
        return state / "savepoints/back"

    def records(self, topic):
        """Returns [(partition, record, bytes)] of all partitions, each partition in the order of the topic."""
        return [(partition, delta.parse(value), value) for partition, values in delta.read_topic(self.kafka.address, topic).items() for _, value in values]

    def in_step(self, topic):
        return sorted(self.records(topic), key=lambda record: (record[1]["tl"], record[1]["e"]))

    def independent(self, records, folders):
        """A replica that knows docs/formats only: it follows from the first record on, and loads the snapshot that a rewind names. Returns it and how many it loaded."""
        replica, loaded = delta.Replica(2), 0
        for partition, record, value in records:
            try:
                replica.feed(partition, value)
            except delta.Rewound:
                named = [folder / record["snap"] for folder in folders if record["k"] == "rewind" and (folder / record["snap"] / "MANIFEST.json").exists()]
                if not named:
                    continue  # a later rewind names a snapshot that is still there
                manifest = replica.begin(named[0])
                assert (manifest["tl"], manifest["e"]) == (record["tl"], record["to"]), (manifest["tl"], manifest["e"], record)
                loaded += 1
                replica.feed(partition, value)
        return replica, loaded

    def verified(self, state, topic, snapshots):
        line = tool("verify", "--state-dir", state, "--brokers", self.kafka.address, "--topic", topic, "--snapshot", snapshots)[1].strip().splitlines()[-1]
        assert line.startswith("verified:"), line

    def a_restored_state_names_a_snapshot_and_replicas_come_over(self):
        folder, topic = self.work.path / "fleet", "ctr.delta"
        savepoint = self.saved("ctr", [f"snapshot.dir={folder}"])
        log = self.work.path / "follower.log"
        follower = subprocess.Popen([BUILD / "tool/freshet", "follow", "--brokers", self.kafka.address, "--topic", topic, "--snapshot", folder,
                                     "--dump", self.work.path / "follower.dump"], stdout=open(log, "wb"), stderr=subprocess.STDOUT)
        try:
            before = last_epoch(self.work.path / "ctr")
            wait_until(lambda: re.search(rf"^epoch={before} ", log.read_text(), re.M), "it serves what there was")
            daemon = self.daemon("back", topic, [f"snapshot.dir={folder}"], arguments=["--restore", savepoint])
            self.more(300)
            self.trained(daemon)
            wait_until(lambda: daemon.json("/status")["snapshot"]["current"].startswith("operated-2-"), "CURRENT is of the new timeline")
            daemon.drain()
            assert "event=rewind_end" in daemon.log() and "event=rebase" not in daemon.log(), daemon.log()
            again = self.daemon("back", topic, [f"snapshot.dir={folder}"])
            self.more(100)
            self.trained(again)
            again.drain()
            assert "event=rebase" not in again.log() and "event=rewind" not in again.log(), "the timeline is settled: " + again.log()
            state = self.work.path / "back"
            wait_until(lambda: follower.poll() is not None or re.search(rf"^epoch={last_epoch(state)} timeline=2 ", log.read_text(), re.M), "it serves the last epoch")
            follower.terminate()
            assert follower.wait() == 0, log.read_text()[-2000:]
        finally:
            follower.kill()
            follower.wait()
        records = self.in_step(topic)
        rewinds = [record for _, record, _ in records if record["k"] == "rewind"]
        to = rewinds[0]["to"]
        assert [(r["p"], r["tl"], r["e"], r["from"], r["i"], r["to"], r["snap"]) for r in rewinds] == [(p, 2, to + 1, to + 1, 0, to, f"operated-2-{to}") for p in range(2)], rewinds
        assert all(record["from"] > to for _, record, _ in records if record["tl"] == 2), "nothing of before goes through the topic"
        expected = dump(state)
        assert (self.work.path / "follower.dump").read_text().splitlines() == expected
        replica, loaded = self.independent(records, [folder])
        assert loaded == 1 and delta.dump_lines(replica) == expected
        self.verified(state, topic, folder)
        begun = delta.Replica(2)
        begun.begin(folder / (folder / "CURRENT").read_text().strip())
        for partition, _, value in records:
            begun.feed(partition, value)
        assert delta.dump_lines(begun) == expected, "one that begins with CURRENT"

    def the_hook_has_carried_it_away_before_the_topic_names_it(self):
        savepoint = self.saved("hooked")
        folder, hook = self.work.path / "carried", self.work.path / "carry"
        folder.mkdir()
        marker = self.work.path / "may"
        hook.write_text(f"#!/bin/sh\nwhile [ ! -e {marker} ]; do sleep 0.05; done\ncp -r \"$1\" {folder}/ && echo \"$1\" >> {folder}/log\n")
        hook.chmod(0o755)
        sets = [f'snapshot.hook=["{hook}"]']
        daemon = self.daemon("carries", "hooked.delta", sets, arguments=["--restore", savepoint])
        self.trained(daemon)
        snapshots = self.work.path / "carries/snapshots"
        wait_until(lambda: list(snapshots.glob("operated-2-*/MANIFEST.json")), "written")
        self.more(100)
        self.trained(daemon)
        assert not [r for _, r, _ in self.records("hooked.delta") if r["tl"] == 2] and not (snapshots / "CURRENT").exists(), "not before the hook has ended"
        marker.touch()
        wait_until(lambda: "event=rewind_end" in daemon.log(), "the end of the rewind is logged")
        wait_until(lambda: daemon.json("/status")["snapshot"]["announced"], "announced")
        self.more(100)
        self.trained(daemon)
        daemon.drain()
        assert len((folder / "log").read_text().splitlines()) == 1, "carried once"
        replica, loaded = self.independent(self.in_step("hooked.delta"), [folder])
        assert loaded == 1 and delta.dump_lines(replica) == dump(self.work.path / "carries")

    def a_hook_that_fails_sends_the_state_through_the_topic(self):
        daemon = self.daemon("fails", "hooked.delta", ['snapshot.hook=["/bin/false"]'], arguments=["--restore", self.work.path / "hooked/savepoints/back"])
        self.trained(daemon)
        wait_until(lambda: "event=rebase_end" in daemon.log(), "filled")
        daemon.drain()
        assert "event=rewind_refused" in daemon.log() and "event=topic_changed" not in daemon.log(), daemon.log()
        records = self.records("hooked.delta")
        newest = max(record["tl"] for _, record, _ in records)
        assert {(r["from"], r["i"], r["to"], r["snap"]) for _, r, _ in records if r["k"] == "rewind" and r["tl"] == newest} == {(1, 0, 0, "")}
        replica, _ = self.independent(self.in_step("hooked.delta"), [])
        assert delta.dump_lines(replica) == dump(self.work.path / "fails")

    def a_state_with_nothing_more_to_train_goes_through_the_topic(self):
        savepoint = self.saved("ended")
        tool("savepoint", "--state-dir", self.work.path / "ended", "--name", "end")
        daemon = self.daemon("nothing", "ended.delta", ["heartbeat=1h"], arguments=["--restore", savepoint.parent / "end", "--until", "end"], wait_http=False)
        daemon.expect_exit(0)
        assert "event=rewind_refused" in daemon.log() and "event=rebase_end" in daemon.log(), daemon.log()
        replica, _ = self.independent(self.in_step("ended.delta"), [])
        assert replica.timeline == 2 and delta.dump_lines(replica) == dump(self.work.path / "nothing")

    def kills_while_the_new_timeline_is_published_leave_one_that_replicas_follow(self):
        savepoint, rng = self.saved("killed"), random.Random(7)
        snapshots = self.work.path / "again/snapshots"
        for turn in range(KILLS):
            daemon = self.daemon("again", "killed.delta", ["snapshot.keep=100", "journal_max=128KiB"], arguments=[] if turn else ["--restore", savepoint], wait_http=False)
            wait_until(lambda: "event=recovered" in daemon.log(), "recovered")
            self.more(50)
            if turn % 2:
                wait_until(lambda: "event=rewind_begin" in daemon.log() or "event=topic_checked" in daemon.log(), "begun")
            time.sleep(rng.random() * 0.4)
            daemon.process.kill()
            daemon.expect_exit(-signal.SIGKILL)
        daemon = self.daemon("again", "killed.delta", ["snapshot.keep=100", "journal_max=128KiB"])
        self.trained(daemon)
        wait_until(lambda: daemon.json("/status")["snapshot"]["current"], "CURRENT")
        daemon.drain()
        state = self.work.path / "again"
        replica, loaded = self.independent(self.records("killed.delta"), [snapshots])
        assert loaded >= 1 and delta.dump_lines(replica) == dump(state), loaded
        self.verified(state, "killed.delta", snapshots)

    def run(self):
        names = [n for n in vars(Cases) if n.startswith(("a_", "the_", "kills_"))]
        run_cases(self, names)


with Workspace() as test_work, Kafka() as test_kafka:
    Cases(test_work, test_kafka).run()
