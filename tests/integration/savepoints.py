"""Savepoints (docs/operating.md): taken during training, by policy, at a drain and of a stopped state; whole or not there, also under kills. A state that begins
from a savepoint continues as if nothing had happened, in a new timeline.
"""
import pathlib
import random
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))
import confluent_kafka  # noqa: E402
import confluent_kafka.admin  # noqa: E402
import delta  # noqa: E402
import harness  # noqa: E402
from harness import *  # noqa: E402,F403
from streams import live_samples, lockstep_samples, produce  # noqa: E402

LIVE, LOCKSTEP = SOURCE / "tests/integration/operating.yaml", SOURCE / "tests/integration/tool.yaml"
LINE = re.compile(r'^savepoint dir="?([^" ]+)"? timeline=(\d+) epoch=(\d+) digest=(0x[0-9a-f]{16}) bytes=(\d+)$', re.M)
KILLS = 10


def savepoints(state):
    """Returns [(directory, timeline, epoch)] by ascending names."""
    return [(pathlib.Path(m[0]), int(m[1]), int(m[2])) for m in LINE.findall(tool("savepoint", "--state-dir", state, "--list")[1])]


def private_hash(state):
    return json.loads(tool("dump", "--state-dir", state, "--private")[1].splitlines()[-1])["hash"]


def sound(state):
    return "checks passed=true checked=chain,cold,sections,ledger,images" in tool("state", state, "--images")[1]


class Cases:
    def __init__(self, work, kafka):
        self.work, self.kafka = work, kafka
        self.admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": kafka.address})
        self.plain = work.path / "plain.yaml"  # the configuration that says where the state is
        self.plain.write_text(LOCKSTEP.read_text().replace("state_dir: ./state", f"state_dir: {work.path}/whole"))
        for future in self.admin.create_topics([confluent_kafka.admin.NewTopic(topic, 2, 1) for topic in ("live", "lockstep")]).values():
            future.result(PATIENCE)

    def daemon(self, config, topic, name, sets=(), **options):
        return self.work.daemon(config, self.work.path / f"{name}.log", [f"ingest.brokers={self.kafka.address}", f"ingest.topic={topic}", "export.create=true",
                                                                         f"state_dir={self.work.path / name}", f"export.topic={name}.delta", *sets], **options)

    def trained(self, daemon, count):
        wait_until(lambda: daemon.json("/status").get("samples", {}).get("trained", 0) == count, f"{count} samples trained")

    def a_savepoint_is_taken_beside_training(self):
        state = self.work.path / "live"
        produce(self.kafka.address, "live", live_samples(0, 1000))
        daemon = self.daemon(LIVE, "live", "live")
        self.trained(daemon, 1000)
        taken = LINE.findall(tool("savepoint", "--state-dir", state, "--name", "first")[1])
        assert len(taken) == 1 and taken[0][0] == str(state / "savepoints/first"), taken
        rc, _, error = tool("savepoint", "--state-dir", state, "--name", "first", check=False)
        assert rc == 1 and "exists" in error, error
        produce(self.kafka.address, "live", live_samples(1000, 500))
        self.trained(daemon, 1500)
        assert re.search(r"^freshet_savepoints_total\{[^}]*\} 1$", daemon.get("/metrics")[1], re.M), daemon.get("/metrics")[1]
        daemon.drain()
        (directory, timeline, epoch), = savepoints(state)
        assert timeline == 1 and epoch == int(taken[0][2]) and epoch < last_epoch(state), (epoch, last_epoch(state))
        assert sound(directory)

    def a_stopped_state_has_its_savepoint_taken_by_the_tool(self):
        state = self.work.path / "live"
        tool("savepoint", "--state-dir", state, "--name", "stopped")
        assert private_hash(state / "savepoints/stopped") == private_hash(state)
        rc, _, error = tool("savepoint", "--state-dir", self.work.path / "nothing", check=False)
        assert rc == 1 and "no state" in error and not (self.work.path / "nothing").exists(), error

    def the_policy_keeps_the_newest_and_a_drain_takes_one(self):
        state = self.work.path / "live"
        named = {"first", "stopped"}
        daemon = self.daemon(LIVE, "live", "live", ["savepoint.every=500ms", "savepoint.keep=2", "savepoint.at_drain=true", "epoch=50ms"])
        made = set()
        for begin in range(1500, 2500, 100):
            produce(self.kafka.address, "live", live_samples(begin, 100))
            self.trained(daemon, begin + 100)
            made |= wait_until(lambda: {p[0].name for p in savepoints(state)} - named - made, "another savepoint by policy")
        daemon.drain()
        kept = [p for p in savepoints(state) if p[0].name not in named]
        assert len(kept) == 2 and kept[-1][2] == last_epoch(state), kept
        assert {p[0].name for p in savepoints(state)} > named
        assert private_hash(kept[-1][0]) == private_hash(state)

    def kills_leave_whole_savepoints_only(self):
        state, rng = self.work.path / "killed", random.Random(9)
        for turn in range(KILLS):
            daemon = self.daemon(LIVE, "live", "killed", ["epoch=50ms", "savepoint.every=1ms", "savepoint.keep=3"])
            wait_until(lambda: daemon.get("/readyz")[0] == 200, "ready")
            produce(self.kafka.address, "live", live_samples(2500 + 50 * turn, 50))
            time.sleep(rng.random() * 0.3)
            daemon.process.kill()
            daemon.expect_exit(-signal.SIGKILL)
            for directory, _, _ in savepoints(state):
                assert sound(directory), directory
        daemon = self.daemon(LIVE, "live", "killed")
        self.trained(daemon, 2500 + 50 * KILLS)
        daemon.drain()
        assert sound(state)

    def lockstep(self, name, sets=(), kill=None, keep_names=False, **options):
        """keep_names: the names of the configuration's file and --as hold, not those of `name`."""
        env = {"LD_PRELOAD": str(harness.BUILD / "tests/fault/libkill_shim.so"), "FRESHET_KILL": kill} if kill else None
        sets = ["ingest.lockstep.epoch_batches=2", *sets]
        if keep_names:
            daemon = self.work.daemon(self.plain, self.work.path / f"{name}.log", [f"ingest.brokers={self.kafka.address}", "ingest.topic=lockstep", *sets], env=env,
                                      wait_http=False, **options)
        else:
            daemon = self.daemon(LOCKSTEP, "lockstep", name, sets, env=env, wait_http=False, **options)
        daemon.expect_exit(-signal.SIGKILL if kill else 0)
        return daemon

    def a_state_from_a_savepoint_ends_like_the_one_it_was_taken_of(self):
        produce(self.kafka.address, "lockstep", lockstep_samples(6000, seed=5))
        self.lockstep("whole")
        self.lockstep("half", kill="hwm_synced:5")
        half, whole = self.work.path / "half", self.work.path / "whole"
        tool("savepoint", "--state-dir", half, "--name", "five")
        daemon = self.lockstep("restored", arguments=["--restore", half / "savepoints/five"])
        assert "event=restored" in daemon.log(), daemon.log()
        assert private_hash(self.work.path / "restored") == private_hash(whole), "as if nothing had happened"
        assert "timeline=2" in tool("state", self.work.path / "restored")[1]
        verified = tool("verify", "--state-dir", self.work.path / "restored", "--brokers", self.kafka.address, "--topic", "restored.delta")[1]
        assert verified.strip().splitlines()[-1].startswith("verified:"), verified
        self.lockstep("half")
        assert private_hash(half) == private_hash(whole), "the state that the savepoint was taken of continues by itself"
        refused = self.daemon(LOCKSTEP, "lockstep", "misfit", ["export.quantize=i8"], arguments=["--restore", half / "savepoints/five"], wait_http=False)
        refused.expect_exit(3)
        assert "does not fit the model in" in refused.log() and "savepoints/five" in refused.log() and not (self.work.path / "misfit").exists(), "what is refused leaves no directory behind: " + refused.log()
        refused = self.daemon(LOCKSTEP, "lockstep", "whole", arguments=["--restore", half / "savepoints/five"], wait_http=False)
        refused.expect_exit(3)
        assert "holds a state already" in refused.log(), refused.log()

    # ---- history is rewound on the topic that replicas follow ----

    def expect_followed(self, name, topic, timeline):
        """Expects that new replicas, ours and one written from the text alone, hold what the state holds."""
        state = self.work.path / name
        verified = tool("verify", "--state-dir", state, "--brokers", self.kafka.address, "--topic", topic)[1].strip().splitlines()[-1]
        assert verified.startswith(f"verified: timeline {timeline} "), verified
        messages = delta.read_topic(self.kafka.address, topic)
        replica = delta.Replica(len(messages))
        for partition, records in messages.items():
            for _, value in records:
                replica.feed(partition, value)
        assert delta.dump_lines(replica) == tool("dump", "--state-dir", state)[1].splitlines()
        return messages

    def a_restored_state_rewinds_the_topic_of_the_model(self):
        half, topic = self.work.path / "half", "export.topic=half.delta"
        five = half / "savepoints/five"
        states = [self.lockstep("rewound", [topic], arguments=["--restore", five]), self.lockstep("again", [topic], arguments=["--restore", five])]
        assert "event=timeline_taken topic=half.delta timeline=2 instead=3" in states[1].log(), "the first one's number is not used again"
        messages = self.expect_followed("again", "half.delta", 3)
        for records in messages.values():
            kinds = [(r["tl"], r["from"], r["i"], r["to"], r["snap"]) for r in (delta.parse(value) for _, value in records) if r["k"] == "rewind"]
            assert kinds == [(2, 1, 0, 0, ""), (3, 1, 0, 0, "")], kinds
        fenced = self.daemon(LOCKSTEP, "lockstep", "half", [topic, "ingest.lockstep.epoch_batches=2"], wait_http=False)
        fenced.expect_exit(3)
        assert "this state is of timeline 1" in fenced.log() and "--new-timeline 1)" in fenced.log(), fenced.log()
        early = self.daemon(LOCKSTEP, "lockstep", "half", [topic], arguments=["--new-timeline", "2"], wait_http=False)
        early.expect_exit(3)
        assert "this state is of timeline 1; name the timeline to leave" in early.log(), early.log()
        again = self.lockstep("half", [topic], arguments=["--new-timeline", "1"])
        assert "event=new_timeline timeline=2" in again.log() and "instead=4" in again.log(), again.log()
        self.expect_followed("half", "half.delta", 4)
        once = self.lockstep("half", [topic], arguments=["--new-timeline", "1"])  # a systemd unit passes the option at every start
        assert "event=timeline_left_before left=1 timeline=4" in once.log() and "event=rebase " not in once.log(), once.log()
        self.expect_followed("half", "half.delta", 4)

    def kills_while_the_new_timeline_is_published_leave_no_torn_one(self):
        state, rng = self.work.path / "live", random.Random(4)
        tool("savepoint", "--state-dir", state, "--name", "back")
        sets = ["export.topic=live.delta", "epoch=50ms"]
        for turn in range(5):
            daemon = self.daemon(LIVE, "live", "back", sets, arguments=[] if turn else ["--restore", state / "savepoints/back"], wait_http=False)
            wait_until(lambda: "event=recovered" in daemon.log(), "recovered")
            time.sleep(rng.random() * 0.2)
            daemon.process.kill()
            daemon.expect_exit(-signal.SIGKILL)
        daemon = self.daemon(LIVE, "live", "back", sets)
        wait_until(lambda: daemon.get("/readyz")[0] == 200, "ready")
        daemon.drain()
        timeline = int(re.search(r"\btimeline=(\d+)", tool("state", self.work.path / "back")[1]).group(1))
        assert 2 <= timeline <= 7, timeline
        self.expect_followed("back", "live.delta", timeline)

    def a_new_state_takes_over_the_topic_of_a_lost_one(self):
        refused = self.daemon(LIVE, "live", "fresh", ["export.topic=live.delta"], wait_http=False)
        refused.expect_exit(3)
        assert "--new-timeline 1)" in refused.log(), refused.log()
        daemon = self.daemon(LIVE, "live", "fresh", ["export.topic=live.delta"], arguments=["--new-timeline", "1", "--until", "end"], wait_http=False)
        daemon.expect_exit(0)
        timeline = int(re.search(r"\btimeline=(\d+)", tool("state", self.work.path / "fresh")[1]).group(1))
        self.expect_followed("fresh", "live.delta", timeline)

    # ---- another model next to the live one ----

    def the_metrics_of_two_running_daemons_are_compared_by_their_urls(self):
        count = 3000
        self.admin.create_topics([confluent_kafka.admin.NewTopic("compared", 2, 1)])["compared"].result(PATIENCE)
        produce(self.kafka.address, "compared", live_samples(0, count))
        daemons = [self.daemon(LIVE, "compared", name, [f"model={name}", f"network.optimizer={{adam: {{lr: {rate}}}}}"]) for name, rate in (("left", 0.001), ("right", 0.02))]
        urls = [f"http://127.0.0.1:{daemon.port}" for daemon in daemons]

        def settled():
            """The metrics that each model reports, once they include all samples; /auc is published once a second."""
            documents = [daemon.json("/auc") for daemon in daemons]
            return documents if all(d.get("tasks", {}).get("click", {}).get("lifetime", {}).get("weight") == count for d in documents) else None
        left, right = (document["tasks"]["click"] for document in wait_until(settled, "both tell the metrics of all samples"))
        compared = {(c["window"], c["metric"]): (c["a"], c["b"]) for c in json.loads(tool("compare", *urls, "--json")[1])["compared"]}
        for window, a, b in (("lifetime", left["lifetime"], right["lifetime"]), ("1h", left["decayed"]["1h"], right["decayed"]["1h"])):
            for metric in ("auc", "logloss", "calibration"):
                assert compared[window, metric] == (a[metric], b[metric]), (window, metric, compared)
        assert compared["lifetime", "logloss"][0] != compared["lifetime", "logloss"][1], "two models"
        table = tool("compare", *urls)[1]
        assert "model left timeline 1" in table and "model right timeline 1" in table, table
        daemons[1].drain()
        rc, _, error = tool("compare", *urls, check=False)
        assert rc == 1 and "cannot connect" in error and urls[1][len("http://"):] in error, error
        daemons[0].drain()

    def a_candidate_begins_from_a_savepoint_under_another_name(self):
        five = self.work.path / "half/savepoints/five"
        daemon = self.lockstep("whole", ["ingest.lockstep.epoch_batches=2"], arguments=["--as", "candidate", "--restore", five], keep_names=True)
        assert "model=candidate" in daemon.log(), daemon.log()
        assert private_hash(self.work.path / "candidate") == private_hash(self.work.path / "whole"), "the name changes nothing"
        messages = self.expect_followed("candidate", "candidate.delta", 2)
        assert {delta.parse(value)["m"] for records in messages.values() for _, value in records} == {"candidate"}
        fingerprints = {delta.parse(value)["fp"] for topic in ("candidate.delta", "whole.delta")
                        for records in delta.read_topic(self.kafka.address, topic).values() for _, value in records}
        assert len(fingerprints) == 1, "the name is no part of the model"
        groups = [g.group_id for g in self.admin.list_consumer_groups().result().valid]
        assert "freshet.candidate" in groups, groups

    def run(self):
        names = [n for n in vars(Cases) if n.startswith(("a_", "the_", "kills_"))]
        run_cases(self, names)


with Workspace() as test_work, Kafka() as test_kafka:
    Cases(test_work, test_kafka).run()
