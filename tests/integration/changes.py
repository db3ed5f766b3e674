"""What may change on a model that exists (docs/operating.md): changed settings of training apply at a restart and are recorded with the first epoch that is
trained with them; after a kill the state is either the one before or the one after the change.

Cases: a rate is changed on a live model with a kill -9 right after: nothing is lost, the history says since which epoch, a replica follows without a new model; a
start that made no epoch changes nothing; a drain records a change without samples; everything that may change is changed at once, and back; a lockstep run
that is changed after an epoch gives the same state with kills and without; a change of what is fixed is refused by name.
"""
import pathlib
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
RATE = "tables.user.optimizer={adagrad: {lr: 0.01}}"
RATE_TEXT = "tables.user.parts.v.optimizer.lr: 0.05 -> 0.01"
LOCKSTEP_SETS = ["ingest.lockstep.epoch_batches=2"]
LOCKSTEP_CHANGE = ["network.optimizer={adamw: {lr: 0.001}}", "tables.user.admit={sketch: {min: 2, bytes: 64KiB}}", "tasks.1.weight=2"]


def changes(state):
    """Returns [(epoch, what changed)] of the history that `freshet state` shows."""
    return [(int(epoch), what) for epoch, what in re.findall(r'^change epoch=(\d+) time_ms=\d+ what="(.*)"$', tool("state", state)[1], re.M)]


class Cases:
    def __init__(self, work, kafka):
        self.work, self.kafka = work, kafka
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": kafka.address})
        for future in admin.create_topics([confluent_kafka.admin.NewTopic(topic, 2, 1) for topic in ("live", "lockstep")]).values():
            future.result(PATIENCE)

    def daemon(self, config, topic, name, sets=(), **options):
        return self.work.daemon(config, self.work.path / f"{name}.log", [f"ingest.brokers={self.kafka.address}", f"ingest.topic={topic}", "export.create=true",
                                                                         f"state_dir={self.work.path / name}", f"export.topic={name}.delta", *sets], **options)

    def live(self, sets=()):
        return self.daemon(LIVE, "live", "live", sets)

    def trained(self, daemon, count):
        wait_until(lambda: daemon.json("/status").get("samples", {}).get("trained", 0) == count, f"{count} samples trained")

    def a_rate_changes_on_a_live_model_through_a_kill(self):
        state = self.work.path / "live"
        produce(self.kafka.address, "live", live_samples(0, 1000))
        daemon = self.live()
        self.trained(daemon, 1000)
        daemon.drain()
        before = last_epoch(state)
        assert changes(state) == []

        daemon = self.live([RATE])
        produce(self.kafka.address, "live", live_samples(1000, 500))
        self.trained(daemon, 1500)
        daemon.process.kill()
        daemon.expect_exit(-signal.SIGKILL)
        assert f'what="{RATE_TEXT}" class=training' in daemon.log() and f"event=changes_taken changes=1 since_epoch={before + 1}" in daemon.log(), daemon.log()
        samples = int(re.search(r"\bsamples=(\d+)", tool("state", state)[1]).group(1))
        recorded = changes(state)
        assert recorded in ([], [(before + 1, RATE_TEXT)]) and (recorded or samples == 1000), f"{samples} samples, changes {recorded}"

        daemon = self.live([RATE])
        produce(self.kafka.address, "live", live_samples(1500, 500))
        self.trained(daemon, 2000)
        daemon.drain()
        assert changes(state) == [(before + 1, RATE_TEXT)], changes(state)
        shows = [row["show"] for row in map(json.loads, tool("dump", "--state-dir", state, "--private")[1].splitlines()) if row.get("table") == "ledger" and "show" in row]
        assert len(shows) == 2000 and set(shows) == {1}, "every sample counted once"
        assert tool("verify", "--state-dir", state, "--brokers", self.kafka.address, "--topic", "live.delta")[1].strip().splitlines()[-1].startswith("verified:")
        records = [delta.parse(value) for messages in delta.read_topic(self.kafka.address, "live.delta").values() for _, value in messages]
        assert len({(record["e"], record["i"]) for record in records if record["k"] == "model"}) == 1 and len({record["fp"] for record in records}) == 1, \
            "replicas keep the model they have"

    def a_start_that_made_no_epoch_changes_nothing(self):
        state = self.work.path / "live"
        recorded, epoch = changes(state), last_epoch(state)
        daemon = self.live(["epoch=1d", "heartbeat=1d", "tables.user.optimizer={adagrad: {lr: 0.5}}"])
        wait_until(lambda: daemon.get("/readyz")[0] == 200, "ready")
        produce(self.kafka.address, "live", live_samples(2000, 100))
        self.trained(daemon, 2100)
        daemon.process.kill()
        daemon.expect_exit(-signal.SIGKILL)
        assert (changes(state), last_epoch(state)) == (recorded, epoch)
        daemon = self.live([RATE])
        self.trained(daemon, 2100)
        daemon.drain()
        assert changes(state) == recorded and "event=change" not in daemon.log(), daemon.log()

    def a_drain_records_a_change_without_samples(self):
        state = self.work.path / "live"
        epoch, recorded = last_epoch(state), changes(state)
        for _ in range(2):  # the second start finds no change
            daemon = self.live([RATE, "tasks.0.weight=0.5"])
            wait_until(lambda: daemon.get("/readyz")[0] == 200, "ready")
            daemon.drain()
        daemon = self.live([RATE])  # and back
        wait_until(lambda: daemon.get("/readyz")[0] == 200, "ready")
        daemon.drain()
        added = changes(state)[len(recorded):]
        assert added.pop()[1] == "tasks.click.weight: 0.5 -> 1" and len(added) == 1 and added[0][0] > epoch and added[0][1] == "tasks.click.weight: 1 -> 0.5", added

    def all_that_may_change_changes_at_once_and_back(self):
        state = self.work.path / "live"
        count = int(re.search(r"\bsamples=(\d+)", tool("state", state)[1]).group(1))
        all_of_it = ["seed=9", "ingest.batch_size=128", "ingest.sampling=none", "network.clip_global_norm=1", "tasks.0.weight=2", "tables.ledger.init={uniform: 0.1}",
                     "network.optimizer={adamw: {lr: 0.01, clip_norm: 1, warmup_samples: 10, decay_samples: 1000}}",
                     "tables.user.optimizer={adagrad: {lr: 0.02, half_life: 1000, initial: 0.1, l2: 0.001}}",
                     "tables.user.expire={idle: 1h, weak: 0.001, score: {min: 0.1}, rows_max: 20, every: 1}"]
        admits = ["{count: 2, idle: 1h, count_max: 1000}", "{probability: 0.5}"]
        for sets, expected in (([*all_of_it, f"tables.user.admit={admits[0]}"], 22), ([*all_of_it, f"tables.user.admit={admits[1]}"], 1), ([], 20)):
            before = len(changes(state))
            daemon = self.live(sets)
            produce(self.kafka.address, "live", live_samples(count, 300))
            count += 300
            self.trained(daemon, count)
            daemon.drain()
            added = changes(state)[before:]
            assert len({epoch for epoch, _ in added}) == 1 and len(added) >= expected, f"{len(added)} changes: {added}"
            assert tool("verify", "--state-dir", state, "--brokers", self.kafka.address, "--topic", "live.delta")[1].strip().splitlines()[-1].startswith("verified:")

    def a_model_record_that_changes_reaches_replicas_through_a_kill(self):
        """Slots and labels on which nothing in the state depends are added and removed, and replicas get another model record with all parameters."""
        state, topic = self.work.path / "live", "live.delta"

        def models():  # {fingerprint of a model record: epoch}, in the order of epochs
            records = [delta.parse(value) for _, value in delta.read_topic(self.kafka.address, topic)[0]]
            return {r["fp"]: r["e"] for r in records if r["k"] == "model"}, {r["e"]: {x["name"] for x in records if x["e"] == r["e"] and x["k"] == "dense"}
                                                                             for r in records if r["k"] == "model"}

        def verified():
            return tool("verify", "--state-dir", state, "--brokers", self.kafka.address, "--topic", topic)[1].strip().splitlines()[-1].startswith("verified:")

        count = int(re.search(r"\bsamples=(\d+)", tool("state", state)[1]).group(1))
        first, dense = models()
        base = len(changes(state))
        grown = ["slots.age={kind: dense}", "labels.like={}", "slots.user_id.max_ids=2", "slots.sample.key=the sample"]
        samples = [(i, {**value, "y": {**value["y"], "like": 1, "share": None}, "f": {"the sample": i, "user_id": [7, i % 50, i % 9], "age": 3.0, "price": 1.0}, "request": i})
                   for i, value in live_samples(count, 200)]
        daemon = self.live(grown)
        produce(self.kafka.address, "live", samples[:100])
        self.trained(daemon, count + 100)
        ignored = daemon.json("/status")["ignored"]
        assert ignored["keys"] == {"request": 100, "y.share": 100} and ignored["slots"] == {} and ignored["excess_ids"] >= 100, ignored
        wait_until(lambda: last_epoch(state) > max(first.values()), "an epoch of the other model")
        daemon.process.kill()
        daemon.expect_exit(-signal.SIGKILL)
        daemon = self.live(grown)
        produce(self.kafka.address, "live", samples[100:])
        self.trained(daemon, count + 200)
        daemon.drain()
        second, parameters = models()
        assert list(second)[:len(first)] == list(first) and len(second) == len(first) + 1, (first, second)
        assert parameters[list(second.values())[-1]] == dense[list(first.values())[0]], "all dense parameters go with the model record"
        assert {what for _, what in changes(state)[base:]} == {"slots.age: added", "labels.like: added", "slots.user_id.max_ids: 1024 -> 2",
                                                             "slots.sample.key: absent -> the sample"}, changes(state)[base:]
        assert verified()
        daemon = self.live()  # and back: a drain without samples publishes it
        wait_until(lambda: daemon.get("/readyz")[0] == 200, "ready")
        daemon.drain()
        assert verified() and len(changes(state)) == base + 8, changes(state)
        records = [delta.parse(value) for _, value in delta.read_topic(self.kafka.address, topic)[0]]
        assert records[-1]["fp"] == list(first)[-1] and len({r["e"] for r in records if r["k"] == "model"}) == len(second) + 1

    def what_is_fixed_is_refused_by_name_beside_what_is_not(self):
        state = self.work.path / "live"
        recorded, epoch = changes(state), last_epoch(state)
        daemon = self.daemon(LIVE, "live", "live", ["tables.user.dim=16", "tables.user.optimizer={momentum: {lr: 0.1}}", "slots.user_id.namespace=age", "epoch=1s",
                                                    "network.optimizer={adam: {lr: 0.002}}"], wait_http=False)
        daemon.expect_exit(3)
        failure = [line for line in daemon.log().splitlines() if "does not fit" in line][-1]
        for text in ("tables.user.parts.v.dim: 4 -> 16 (replicas hold it)", "slots.user_id.namespace: user -> age (replicas hold it)",
                     "tables.user.parts.v.optimizer: adagrad -> momentum (their states differ)",
                     "Changed too, which a start may: network.optimizer.lr: 0.001 -> 0.002", str(state), "export.topic"):
            assert text in failure, f"{text} in {failure}"
        assert (changes(state), last_epoch(state)) == (recorded, epoch)
        (state / "training.json").rename(state / "training.away")
        daemon = self.daemon(LIVE, "live", "live", [RATE], wait_http=False)
        daemon.expect_exit(3)
        assert "no training.json" in daemon.log(), daemon.log()
        (state / "training.away").rename(state / "training.json")

    def a_configuration_without_epochs_is_free(self):
        for sets in ([], ["tables.user.dim=16"]):
            daemon = self.daemon(LIVE, "no-samples", "fresh", sets)
            wait_until(lambda: "no-samples" in daemon.json("/readyz").get("reason", ""), "the topic is missed")
            daemon.process.send_signal(signal.SIGTERM)
            daemon.expect_exit(0)
        assert '"dim":16' in (self.work.path / "fresh/model.json").read_text()

    # ---- lockstep ----

    def lockstep(self, name, sets=(), kill=None):
        env = {"LD_PRELOAD": str(harness.BUILD / "tests/fault/libkill_shim.so"), "FRESHET_KILL": kill} if kill else None
        daemon = self.daemon(LOCKSTEP, "lockstep", name, [*LOCKSTEP_SETS, *sets], env=env, wait_http=False)
        daemon.expect_exit(-signal.SIGKILL if kill else 0)

    def outcome(self, name):
        lines = tool("dump", "--state-dir", self.work.path / name, "--private")[1].splitlines()
        records = {(p, r["e"], r["i"]): value for p, messages in delta.read_topic(self.kafka.address, f"{name}.delta").items()
                   for _, value in messages for r in [delta.parse(value)]}
        return json.loads(lines[-1])["hash"], records

    def a_lockstep_run_changed_after_an_epoch_is_itself_under_kills(self):
        produce(self.kafka.address, "lockstep", lockstep_samples(6000, seed=3))
        self.lockstep("same")
        for name in ("whole", "killed"):
            self.lockstep(name, kill="hwm_synced:5")
            assert last_epoch(self.work.path / name) == 5
        self.lockstep("whole", LOCKSTEP_CHANGE)
        for kill in ("hwm_write:0", "hwm_write:2", "hwm_synced:3", "hwm_synced:1"):
            self.lockstep("killed", LOCKSTEP_CHANGE, kill)
        self.lockstep("killed", LOCKSTEP_CHANGE)
        expected = {(6, "network.optimizer: adam -> adamw"), (6, "network.optimizer.lr: 0.003 -> 0.001"), (6, "network.optimizer.weight_decay: absent -> 0.01"),
                    (6, "tables.user.admit: count -> sketch"), (6, "tasks.buy.weight: 1 -> 2")}
        for name in ("whole", "killed"):
            assert set(changes(self.work.path / name)) == expected and len(changes(self.work.path / name)) == 5, changes(self.work.path / name)
            assert tool("verify", "--state-dir", self.work.path / name, "--brokers", self.kafka.address, "--topic", f"{name}.delta")[1].strip().splitlines()[-1].startswith("verified:")
        (same, unchanged), (whole, records), (killed, again) = (self.outcome(name) for name in ("same", "whole", "killed"))
        assert whole == killed and records == again, f"private hash {killed}, {whole} without kills"
        assert whole != same and all(records[where] == value for where, value in unchanged.items() if where[1] <= 5), "the change changes what comes after it"
        pending = re.search(r"^table name=user .*\bpending=(\d+)", tool("state", self.work.path / "whole")[1], re.M).group(1)
        assert pending == "0", f"{pending} counts that nobody reads are kept"

    def run(self):
        names = [n for n in vars(Cases) if n.startswith(("a_", "all_", "what_"))]
        run_cases(self, names)


with Workspace() as test_work, Kafka() as test_kafka:
    Cases(test_work, test_kafka).run()
