"""A candidate beside a live model: restored from the live model's savepoint under another name and trained over the same stream to the same end, it has the live
model's AUC to the last bit; a candidate with another learning rate has another AUC. `freshet compare` shows both, from state directories, documents and a running daemon.

The stream is globo_200k (FRESHET_DATA), in one partition, in lockstep.
"""
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import confluent_kafka  # noqa: E402
import harness  # noqa: E402
from harness import *  # noqa: E402,F403

CONFIG = SOURCE / "conf/reference/globo_200k_ftrl128.yaml"
SAVED_EPOCH = 3


class Backtest:
    def __init__(self, work, kafka):
        self.work, self.kafka = work, kafka
        self.config = work.path / "live.yaml"
        text = re.sub(r"(?m)^(model|state_dir):.*\n", "", CONFIG.read_text())
        self.config.write_text(text + f"model: live\nstate_dir: {work.path}/live\n")

    def run(self, *arguments, sets=(), kill=None, expect=0, **options):
        env = {"LD_PRELOAD": str(harness.BUILD / "tests/fault/libkill_shim.so"), "FRESHET_KILL": kill} if kill else None
        daemon = self.work.daemon(self.config, self.work.path / "log", [f"ingest.brokers={self.kafka.address}", "ingest.topic=globo", "ingest.lockstep.epoch_batches=400",
                                                                        *sets], arguments, env=env, wait_http=False, **options)
        daemon.expect_exit(-signal.SIGKILL if kill else expect)
        return daemon.log()

    def compare(self, a, b):
        document = json.loads(tool("compare", a, b, "--json")[1])
        return {(c["task"], c["window"], c["metric"]): (c["a"], c["b"]) for c in document["compared"]}

    def timestamp(self, offset):
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.kafka.address, "group.id": "backtest", "enable.auto.commit": False})
        consumer.assign([confluent_kafka.TopicPartition("globo", 0, offset)])
        message = consumer.poll(PATIENCE)
        consumer.close()
        return message.timestamp()[1]

    def trained(self, name):
        return int(re.search(r"\bsamples=(\d+)", tool("state", self.work.path / name)[1]).group(1))

    def test(self, path):
        tool("produce", "--brokers", self.kafka.address, "--topic", "globo", "--file", path, "--partitions", "1")
        self.run(kill=f"hwm_synced:{SAVED_EPOCH}")
        live = self.work.path / "live"
        tool("savepoint", "--state-dir", live, "--name", "monday")
        monday = str(live / "savepoints/monday")
        at_savepoint = self.trained("live")
        self.run()
        log = self.run("--as", "candidate", "--restore", monday, "--until", "end")
        assert "model=candidate" in log and "event=restored" in log, log
        assert 0 < at_savepoint < self.trained("live") == self.trained("candidate") == 600000, (at_savepoint, self.trained("candidate"))
        same = self.compare(live, self.work.path / "candidate")
        windows = {window for _, window, _ in same}
        assert "lifetime" in windows and len(windows) > 1 and all(a is not None and a == b for a, b in same.values()), same
        print(f"ok the candidate's {len(same)} figures are the live model's: lifetime auc {same['click', 'lifetime', 'auc'][1]:.9f}", flush=True)

        until = self.timestamp(400000)
        self.run("--as", "other", "--restore", monday, "--until", str(until), sets=["tables.item.parts.w.optimizer={ftrl: {lr: 0.3, l2: 30}}"])
        assert at_savepoint < self.trained("other") <= 400000, "it ends before the first record of that time"
        (self.work.path / "live.json").write_text(tool("dump", "--state-dir", live, "--metrics")[1])
        assert self.compare(self.work.path / "live.json", self.work.path / "candidate") == same, "a document is as good as a state"
        _, table, _ = tool("compare", self.work.path / "live.json", self.work.path / "other")
        assert re.search(r"^\S+ +lifetime +auc +0\.\d+ +0\.\d+ +-?[\d.e-]+$", table, re.M) and "model live timeline 1" in table and "model other timeline 2" in table, table
        print("ok a candidate ends at --until")

    def refusals(self):
        live = self.work.path / "live"
        for arguments, code, text in (([], 2, "expected two models"), ([live], 2, "expected two models"), ([live, self.work.path / "nothing"], 1, "nothing"),
                                      ([live, self.config], 1, "no document"), ([live, "http://127.0.0.1:1"], 1, "cannot connect"), ([live, "http://localhost"], 1, "expected http"),
                                      ([live, live, "--xml"], 2, "--xml")):
            rc, _, error = tool("compare", *map(str, arguments), check=False)
            assert rc == code and text in error, (arguments, rc, error)
        print("ok what is no model is refused by name")


with Workspace() as test_work, Kafka() as test_kafka:
    test_path = stream("globo_200k")
    backtest = Backtest(test_work, test_kafka)
    backtest.test(test_path)
    backtest.refusals()
    print("3 passed, 0 failed")
