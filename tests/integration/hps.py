"""`export.format: hps`: a consumer that knows the layout of NVIDIA HPS alone ends with the values that replicas have, through kills of the daemon, in f16 and f32. Tombstones,
which the layout cannot express, are counted. A state that begins from a savepoint sends all of its rows.
"""
import pathlib
import random
import signal
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))
import confluent_kafka.admin  # noqa: E402
import delta  # noqa: E402
from harness import *  # noqa: E402,F403
from streams import Live  # noqa: E402

DIMS = {"ledger": 1, "user": 4}
KILLS = 6


class Consumer:
    """Reads a topic as HugeCTR 4.3.1's Kafka source does, except that a broken message is an error here."""

    def __init__(self, address, model, table):
        self.rows, self.pairs, self.homes = {}, 0, {}
        topic = f"hps_et.{model}.{table}"
        for partition, messages in delta.read_topic(address, topic, see=self._no_key).items():
            for _, value in messages:
                self._take(partition, value, DIMS[table])

    @staticmethod
    def _no_key(message):
        assert message.key() is None, "HPS discards messages with a key"

    def _take(self, partition, value, dim):
        assert value[:4] == b"HCTR" and len(value) <= 256 << 10, (value[:8], len(value))
        size, = struct.unpack_from("<I", value, 4)
        assert size == 4 * dim and len(value) > 8 and (len(value) - 8) % (8 + size) == 0, (size, len(value))
        for at in range(8, len(value), 8 + size):
            key, = struct.unpack_from("<Q", value, at)
            assert self.homes.setdefault(key, partition) == partition, "a key has one partition, and so an order"
            self.rows[key] = value[at + 8:at + 8 + size]
            self.pairs += 1


class Cases(Live):
    SETS = ["export.format=hps", "epoch=50ms", "export.dense_every=0s", "heartbeat=300ms"]

    def daemon(self, name, sets=(), **options):
        return super().daemon(name, [f"model={name}", *sets], **options)

    def replica(self, topic):
        replica = delta.Replica(2)
        for partition, values in delta.read_topic(self.kafka.address, topic).items():
            for _, value in values:
                replica.feed(partition, value)
        return replica

    def agree(self, model, topic=None):
        """Returns the consumers' values of all rows that replicas have, and the rows that only consumers have."""
        replica, gone = self.replica(topic or f"{model}.delta"), 0
        for table, rows in replica.rows.items():
            consumer = Consumer(self.kafka.address, model, table)
            for key, parts in rows.items():
                expected = struct.pack(f"<{DIMS[table]}f", *(value for values in parts.values() for value in values))
                assert consumer.rows.get(key) == expected, (table, key, parts, consumer.rows.get(key))
            gone += len(consumer.rows.keys() - rows.keys())
        assert replica.rows.keys() == DIMS.keys() and all(replica.rows.values())
        return replica, gone

    def consumers_have_what_replicas_have_but_tombstones(self):
        daemon = self.daemon("gone", ["tables.ledger.expire={idle: 300ms, every: 1}", "export.quantize=f16"])
        for _ in range(6):
            self.more(300)
            self.trained(daemon)
        daemon.drain()
        replica, gone = self.agree("gone")
        again = self.daemon("gone", ["tables.ledger.expire={idle: 300ms, every: 1}", "export.quantize=f16"])
        self.more(100)
        self.trained(again)
        for name in ("rows_total", "drops_untold_total"):
            wait_until(lambda: int(re.search(r"^freshet_hps_%s\{[^}]*\} (\d+)$" % name, again.get("/metrics")[1], re.M).group(1)) > 0, name)
        again.drain()
        assert replica.tombstones > 0 and gone > 0, (replica.tombstones, gone)
        assert "event=hps_topic_begins_late" not in daemon.log() + again.log()

    def kills_take_no_row_from_consumers(self):
        rng = random.Random(3)
        for _ in range(KILLS):
            daemon = self.daemon("killed", wait_http=False)
            wait_until(lambda: "event=recovered" in daemon.log(), "recovered")
            self.more(400)
            time.sleep(rng.random() * 0.5)
            daemon.process.kill()
            daemon.expect_exit(-signal.SIGKILL)
        daemon = self.daemon("killed")
        self.more(50)
        self.trained(daemon)
        daemon.drain()
        _, gone = self.agree("killed")
        assert gone == 0, gone

    def limit(self, topic, bytes_at_once):
        entry = confluent_kafka.admin.ConfigEntry("max.message.bytes", str(bytes_at_once), incremental_operation=confluent_kafka.admin.AlterConfigOpType.SET)
        resource = confluent_kafka.admin.ConfigResource(confluent_kafka.admin.ResourceType.TOPIC, topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(PATIENCE)

    def rows_that_a_topic_refused_come_when_it_takes_them(self):
        """The delta topic gets the epochs meanwhile, so a complete epoch there does not mean that the topics for HPS are complete."""
        topic = "hps_et.refused.user"
        self.admin.create_topics([confluent_kafka.admin.NewTopic(topic, 2, 1, config={"max.message.bytes": "200000"})])[topic].result(PATIENCE)
        unfit = self.daemon("refused", wait_http=False)
        unfit.expect_exit(3)
        assert re.search(rf"topic {topic} takes 200000 bytes at once .* export.format: hps lets a record have 262144: set max.message.bytes=262272 or more", unfit.log()), unfit.log()
        self.limit(topic, 1048588)
        daemon = self.daemon("refused")
        wait_until(lambda: daemon.get("/readyz")[0] == 200, "ready")
        self.limit(topic, 100)

        def refused():  # the topic's log takes the limit over some time after the controller has it
            self.more(100)
            return f"was not accepted by topic {topic}" in daemon.log()
        wait_until(refused, "the refusal is logged with the topic's name")
        self.trained(daemon)
        assert self.replica("refused.delta").applied > 0
        daemon.process.kill()
        daemon.expect_exit(-signal.SIGKILL)
        self.limit(topic, 1048588)
        again = self.daemon("refused")
        self.trained(again)
        again.drain()
        _, gone = self.agree("refused")
        assert gone == 0, gone

    def topics_that_begin_late_are_warned_of_and_filled_by_a_new_timeline(self):
        plain = self.daemon("late", ["export.format=delta"])
        self.more(300)
        self.trained(plain)
        tool("savepoint", "--state-dir", self.work.path / "late", "--name", "whole")
        plain.drain()
        daemon = self.daemon("late")
        wait_until(lambda: daemon.log().count("event=hps_topic_begins_late") == len(DIMS), "both topics begin late")
        self.trained(daemon)
        daemon.drain()
        restored = self.daemon("late", [f"state_dir={self.work.path / 'restored'}"], arguments=["--restore", self.work.path / "late/savepoints/whole"])
        self.more(50)
        self.trained(restored)
        restored.drain()
        self.agree("late")

    def run(self):
        run_cases(self, [n for n in vars(Cases) if n.startswith(("consumers_", "kills_", "rows_that_", "topics_"))])


with Workspace() as test_work, Kafka() as test_kafka:
    Cases(test_work, test_kafka).run()
