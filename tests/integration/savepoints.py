"""Savepoints (docs/operating.md): taken beside training, by policy, at a drain and of a stopped state; whole or not there, also under kills; a state that begins
from one goes on as if nothing had happened, in a new timeline.
"""
import pathlib
import random
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import confluent_kafka  # noqa: E402
import confluent_kafka.admin  # noqa: E402
import harness  # noqa: E402
from harness import *  # noqa: E402,F403
from streams import live_samples, lockstep_samples, produce  # noqa: E402

LIVE, LOCKSTEP = SOURCE / "tests/integration/operating.yaml", SOURCE / "tests/integration/tool.yaml"
LINE = re.compile(r'^savepoint dir="?([^" ]+)"? timeline=(\d+) epoch=(\d+) digest=(0x[0-9a-f]{16}) bytes=(\d+)$', re.M)
KILLS = 10


def savepoints(state):
    """[(directory, timeline, epoch)], ascending names."""
    return [(pathlib.Path(m[0]), int(m[1]), int(m[2])) for m in LINE.findall(tool("savepoint", "--state-dir", state, "--list")[1])]


def private_hash(state):
    return json.loads(tool("dump", "--state-dir", state, "--private")[1].splitlines()[-1])["hash"]


def sound(state):
    return "checks passed=true checked=chain,cold,sections,ledger,images" in tool("state", state, "--images")[1]


class Cases:
    def __init__(self, work, kafka):
        self.work, self.kafka, self.count = work, kafka, 0
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": kafka.address})
        for future in admin.create_topics([confluent_kafka.admin.NewTopic(topic, 2, 1) for topic in ("live", "lockstep")]).values():
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

    def lockstep(self, name, sets=(), kill=None, **options):
        env = {"LD_PRELOAD": str(harness.BUILD / "tests/fault/libkill_shim.so"), "FRESHET_KILL": kill} if kill else None
        daemon = self.daemon(LOCKSTEP, "lockstep", name, ["ingest.lockstep.epoch_batches=2", *sets], env=env, wait_http=False, **options)
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
        again = self.daemon(LOCKSTEP, "lockstep", "rewound", ["export.topic=whole.delta", "ingest.lockstep.epoch_batches=2"],
                            arguments=["--restore", half / "savepoints/five"], wait_http=False)
        again.expect_exit(3)
        assert "begins timeline 2 from a savepoint" in again.log(), again.log()
        self.lockstep("half")
        assert private_hash(half) == private_hash(whole), "the state it was taken of goes on by itself"
        refused = self.daemon(LOCKSTEP, "lockstep", "whole", arguments=["--restore", half / "savepoints/five"], wait_http=False)
        refused.expect_exit(3)
        assert "holds a state already" in refused.log(), refused.log()

    def run(self):
        names = [n for n in vars(Cases) if n.startswith(("a_", "the_", "kills_"))]
        for name in [n for n in names if not sys.argv[1:] or n in sys.argv[1:]]:
            begin = time.monotonic()
            getattr(self, name)()
            print(f"ok {name} ({time.monotonic() - begin:.1f} s)", flush=True)
            self.count += 1
        print(f"{self.count} passed, 0 failed")


with Workspace() as test_work, Kafka() as test_kafka:
    Cases(test_work, test_kafka).run()
