"""Logs that change while the daemon hears nothing: it is stopped, or a network swallows questions and answers, and meanwhile its topic is deleted and
created again, or cut by an unclean election among three brokers. The daemon must not continue in the other log by offset number: it ends with exit 3 and
names the offset, or does what on_loss says. A silence in which nothing changed loses nothing, whatever retention, transactions and other topics did.
"""
import os
import pathlib
import re
import signal
import socket
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import confluent_kafka  # noqa: E402
import confluent_kafka.admin as kafka_admin  # noqa: E402
import msgpack  # noqa: E402
from harness import *  # noqa: E402,F403

CONFIG = """version: 1
model: silence
state_dir: ./state
ingest: {brokers: "localhost:1", topics: [x], batch_wait: 20ms}
tables: {ledger: {dim: 1, optimizer: {sgd: {lr: 0.01}}}, user: {dim: 4}}
slots: {sample: {table: ledger}, user_id: {table: user}}
labels: {click: {}}
network: {layers: [{name: out, dense: [sample, user_id], units: 1}]}
tasks: [{name: click, label: click, logit: out}]
epoch: 1s
export: {topic: x.delta, partitions: 1}
metrics: {listen: "127.0.0.1:0"}
"""
EACH = 500
OTHER = "is not the one that was trained"


def free_ports(n):
    """Returns free ports below the ephemeral range, as tests/kafka/start chooses them."""
    held, ports = [], []
    while len(ports) < n:
        port = 20000 + int.from_bytes(os.urandom(2), "little") % 12000
        listener = socket.socket()
        try:
            listener.bind(("127.0.0.1", port))
            ports.append(port)
        except OSError:
            pass
        held.append(listener)
    for listener in held:
        listener.close()
    return ports


class Network:
    """The network between daemon and broker: passes on bytes; from `hang` to `heal` it holds them back and loses none; `cut` ends all connections."""

    def __init__(self, port, to):
        self.to, self.open, self.pairs = to, threading.Event(), []
        self.open.set()
        self.listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client = self.listener.accept()[0]
            try:
                server = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                client.close()
                continue
            self.pairs.append((client, server))
            for a, b in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(a, b), daemon=True).start()

    def _pass_on(self, a, b):
        try:
            while data := a.recv(1 << 16):
                self.open.wait()
                b.sendall(data)
        except OSError:
            pass
        for end in (a, b):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def hang(self):
        self.open.clear()

    def cut(self):
        pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for end in pair:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def heal(self):
        self.open.set()


class Case:
    """A daemon that has trained its topic, of EACH samples in each partition."""

    def __init__(self, cases, name, partitions=1, on_loss="stop", config=None, assignment=None, brokers=None, address=None, transactions=False, more=""):
        self.cases, self.name, self.on_loss, self.brokers = cases, name, on_loss, brokers or cases.address
        self.topics, self.partitions, self.config, self.assignment, self.made, self.transactions = [name, *filter(None, [more])], partitions, config or {}, assignment, 0, transactions
        for topic in self.topics:
            self.create(topic)
        cases.on_node_1(f"{name}.delta")
        for topic in self.topics:
            for partition in range(partitions):
                self.put(topic, partition, EACH)
        self.daemon = cases.work.daemon(cases.config, cases.work.path / f"{name}.log", self.sets(address))
        assert self.daemon.port, self.daemon.log()

    def sets(self, address=None):
        return [f"model={self.name}", f"state_dir={self.cases.work.path / self.name}", f"ingest.brokers={address or self.brokers}",
                f"ingest.topics=[{', '.join(self.topics)}]", f"ingest.on_loss={self.on_loss}",
                f"ingest.dead_letter_topic={self.cases.dead}", f"export.topic={self.name}.delta"]

    def create(self, topic):
        replicas = {"replica_assignment": self.assignment} if self.assignment else {"replication_factor": 1}

        def done():
            try:
                new = kafka_admin.NewTopic(topic, self.partitions, config=self.config, **replicas)
                self.cases.admin.create_topics([new])[topic].result(PATIENCE)
                return True
            except confluent_kafka.KafkaException as error:  # the broker is still removing the deleted topic
                if error.args[0].code() != confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                return False
        wait_until(done, "creating " + topic)

    def delete(self, topic):
        self.cases.admin.delete_topics([topic])[topic].result(PATIENCE)

    def put(self, topic, partition, count):
        settings = {"transactional.id": f"{topic}-{self.made}"} if self.transactions else {}
        producer = confluent_kafka.Producer({"bootstrap.servers": self.brokers, "acks": 1 if not settings else "all", "topic.metadata.refresh.interval.ms": 200, **settings})
        if settings:
            producer.init_transactions(PATIENCE)
            producer.begin_transaction()
        for _ in range(count):
            value = {"t": 1700000000000 + self.made, "y": {"click": self.made % 2}, "f": {"sample": f"{self.name}-{self.made}", "user_id": self.made % 50}}
            producer.produce(topic, msgpack.packb(value), partition=partition)
            self.made += 1
        if settings:
            producer.commit_transaction(PATIENCE)
        assert producer.flush(PATIENCE) == 0

    def trained(self):
        return self.daemon.json("/status").get("samples", {}).get("trained", 0)

    def wait_trained(self, count):
        wait_until(lambda: self.trained() >= count or not self.daemon.running(), f"{self.name}: {count} trained")
        assert self.daemon.running(), self.daemon.log()[-2000:]
        assert self.trained() == count, (self.name, self.trained(), count)

    def stop(self):
        self.daemon.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.daemon.process.send_signal(signal.SIGCONT)

    def create_again(self, *counts):
        """Deletes the first topic and creates it again; its partitions get `counts` records."""
        self.delete(self.name)
        self.create(self.name)
        for partition, count in enumerate(counts):
            self.put(self.name, partition, count)

    def expect_refused(self, *texts, restart=False):
        """Checks exit 3; with `restart`, also that nothing of the other log took effect: the next start ends in the same way."""
        self.daemon.expect_exit(3)
        last = [line for line in self.daemon.log().splitlines() if "event=stopped" in line][-1]
        assert all(text in last for text in texts), last
        if not restart:
            return
        again = self.cases.work.daemon(self.cases.config, self.cases.work.path / f"{self.name}.log", self.sets(), arguments=["--until", "end"], wait_http=False)
        again.expect_exit(3)
        assert "event=stopped" in again.log() and all(text in again.log() for text in texts), again.log()[-1500:]

    def expect_sound(self, count):
        """Checks that all is trained, nothing lost, and no alarm stays; the ledger has each sample once."""
        self.wait_trained(count)
        lost = sum(p["lost"] for p in self.daemon.json("/status")["partitions"])
        assert lost == 0 and "records_lost" not in self.daemon.log(), self.daemon.log()[-2000:]
        # The publisher may have a delta record in flight until it is connected again, and says so.
        wait_until(lambda: self.daemon.json("/healthz")["status"] == "ok", f"{self.name}: healthy")
        self.daemon.drain()
        rows = [json.loads(line) for line in tool("dump", "--state-dir", self.cases.work.path / self.name, "--private")[1].splitlines()]
        shows = [row["show"] for row in rows if row.get("table") == "ledger" and "show" in row]
        assert len(shows) == count and set(shows) == {1}, (self.name, len(shows), count, set(shows))


class Cases:
    def __init__(self, work):
        self.work, self.dead = work, "dead"
        for attempt in range(5):  # another process may take the port after it was seen free and before Kafka binds it
            direct, proxied, controller, network = free_ports(4)
            try:
                self.network = Network(network, proxied)
                self.first = self._start_first(direct, proxied, controller, network)
                break
            except (OSError, subprocess.CalledProcessError):
                if attempt == 4:
                    raise
        self.others = []
        self.starting = threading.Thread(target=self._start_others)
        self.starting.start()
        self.address, self.proxied = f"127.0.0.1:{direct}", f"127.0.0.1:{network}"
        self.admin = kafka_admin.AdminClient({"bootstrap.servers": self.address})
        self.on_node_1(self.dead)
        self.config = work.path / "silence.yaml"
        self.config.write_text(CONFIG)

    @staticmethod
    def _start_first(direct, proxied, controller, network):
        protocols = "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL"
        properties = [f"listener.security.protocol.map={protocols}", f"controller.quorum.voters=1@127.0.0.1:{controller}",
                      f"listeners=PLAINTEXT://127.0.0.1:{direct},PROXIED://127.0.0.1:{proxied},CONTROLLER://127.0.0.1:{controller}",
                      f"advertised.listeners=PLAINTEXT://127.0.0.1:{direct},PROXIED://127.0.0.1:{network}"]
        return Kafka(*sum([["--properties", line] for line in properties], []))

    def on_node_1(self, topic):
        """Creates a topic on node 1: the other nodes may end, and node 1 alone is reached through the network that can be cut."""
        new = kafka_admin.NewTopic(topic, 1, replica_assignment=[[1]], config={"retention.ms": "-1"})
        self.admin.create_topics([new])[topic].result(PATIENCE)

    def silence(self):
        """Begins a silence; the returned function waits until the silence is longer than one after which the daemon asks nothing."""
        begin = time.monotonic()
        return lambda: wait_until(lambda: time.monotonic() > begin + 1, "a second has passed")

    def _start_others(self):
        for _ in range(2):
            self.others.append(Kafka("--join", self.first.dir, "--properties", "replica.lag.time.max.ms=2000"))

    def close(self):
        self.starting.join()
        ending = [threading.Thread(target=kafka.__exit__, args=(None, None, None)) for kafka in [*self.others, self.first]]
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join()

    def on_first(self, name, **options):
        return Case(self, name, assignment=[[1]] * options.get("partitions", 1), **options)

    def a_topic_created_again_while_the_daemon_is_stopped_is_a_loss(self):
        more, equal, fewer = self.on_first("more"), self.on_first("equal"), self.on_first("fewer")
        one = self.on_first("one-of-two", partitions=2, more="one-of-two-too")
        earliest = self.on_first("earliest", on_loss="earliest")
        latest = self.on_first("latest", on_loss="latest", transactions=True)
        stalled = [more, equal, fewer, one, earliest, latest]
        for case in stalled:
            case.wait_trained(EACH * len(case.topics) * case.partitions)
        for case in stalled:
            case.stop()
        silent = self.silence()
        more.create_again(EACH + 200)
        equal.create_again(EACH)
        fewer.create_again(EACH - 200)
        one.create_again(EACH + 100, EACH + 100)
        earliest.create_again(EACH + 300)
        latest.create_again(EACH + 300)
        silent()
        for case in stalled:
            case.resume()
        more.expect_refused(f"more/0: the record at offset {EACH - 1} ", OTHER, restart=True)
        equal.expect_refused(f"equal/0: the record at offset {EACH - 1} ", OTHER)
        fewer.expect_refused("fewer/0: 200 records are missing at its end", f"the next offset is {EACH}")
        one.expect_refused(f"the record at offset {EACH - 1} ", OTHER)
        earliest.wait_trained(EACH + EACH + 300)
        assert earliest.daemon.json("/status")["partitions"][0]["lost"] == 0
        wait_until(lambda: latest.daemon.json("/status")["partitions"][0]["lost"], "latest counts what it passes over")
        assert latest.daemon.json("/status")["partitions"][0]["lost"] == EACH + 301 and latest.trained() == EACH, latest.daemon.get("/status")  # and a marker
        for case in (earliest, latest):
            case.put(case.name, 0, 10)
        earliest.wait_trained(EACH + EACH + 310)
        latest.wait_trained(EACH + 10)

    def a_topic_created_again_while_it_is_read_is_a_loss(self):
        """The topic is filled beyond the position so soon that the client gets no error to report."""
        live = self.on_first("live")
        live.wait_trained(EACH)
        live.create_again(EACH + 200)
        live.expect_refused("live/0: ")

    def a_stop_without_a_change_loses_nothing(self):
        same, markers = self.on_first("same", partitions=2), self.on_first("markers", transactions=True)
        retention = self.on_first("retention")
        stalled = [same, markers, retention]
        for case in stalled:
            case.wait_trained(EACH * case.partitions)
        for case in stalled:
            case.stop()
        silent = self.silence()
        for case in stalled:
            case.put(case.name, 0, 100)
        cut = [confluent_kafka.TopicPartition("retention", 0, EACH)]  # the record of the fingerprint is deleted, and those that were not read stay
        for future in self.admin.delete_records(cut).values():
            future.result(PATIENCE)
        silent()
        for case in stalled:
            case.resume()
        for case in stalled:
            case.expect_sound(EACH * case.partitions + 100)
        assert "event=unverified" in retention.daemon.log()

    def a_network_that_hangs_or_ends_connections_hides_no_other_topic(self):
        cases = [self.on_first(name, address=self.proxied) for name in ("hung", "cut", "kept")]
        hung, cut, kept = cases
        for case in cases:
            case.wait_trained(EACH)
        silent = self.silence()
        self.network.hang()
        hung.create_again(EACH + 200)
        kept.put(kept.name, 0, 100)
        silent()
        self.network.heal()
        hung.expect_refused(f"hung/0: the record at offset {EACH - 1} ", OTHER)
        self.network.hang()
        cut.create_again(EACH + 200)
        kept.put(kept.name, 0, 100)
        self.network.cut()
        self.network.heal()
        cut.expect_refused(f"cut/0: the record at offset {EACH - 1} ", OTHER)
        kept.expect_sound(EACH + 200)

    def an_unclean_election_while_the_daemon_is_stopped_is_a_loss(self):
        self.starting.join()
        ids = [int(kafka.address.split(":")[1]) for kafka in self.others]
        brokers = ",".join([self.address, *[kafka.address for kafka in self.others]])
        wait_until(lambda: set(self.admin.list_topics(timeout=PATIENCE).brokers) == {1, *ids}, "a cluster of three brokers")
        settings = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
        case = Case(self, "election", assignment=[ids], config=settings, brokers=brokers)
        case.wait_trained(EACH)
        asking = kafka_admin.AdminClient({"bootstrap.servers": self.address, "socket.timeout.ms": 2000})  # one of the brokers will not answer

        def partition():
            try:
                return asking.list_topics("election", timeout=5).topics["election"].partitions[0]
            except confluent_kafka.KafkaException:
                return None
        leader, follower = self.others if wait_until(partition, "the partition").leader == ids[0] else self.others[::-1]
        os.kill(follower.pid(), signal.SIGSTOP)
        wait_until(lambda: (seen := partition()) and len(seen.isrs) == 1, "the follower is out of the replicas in sync")
        case.put("election", 0, 200)
        case.wait_trained(EACH + 200)
        case.stop()
        leader.stop("--kill")
        os.kill(follower.pid(), signal.SIGCONT)
        wait_until(lambda: (seen := partition()) and seen.leader == ids[self.others.index(follower)], "the replica that lacks records leads")
        case.put("election", 0, 300)
        case.resume()
        case.expect_refused(f"election/0: the record at offset {EACH + 199} ", OTHER, restart=True)


with Workspace() as work:
    cases = Cases(work)
    try:
        run_cases(cases, ["a_topic_created_again_while_the_daemon_is_stopped_is_a_loss", "a_topic_created_again_while_it_is_read_is_a_loss", "a_stop_without_a_change_loses_nothing",
                          "a_network_that_hangs_or_ends_connections_hides_no_other_topic", "an_unclean_election_while_the_daemon_is_stopped_is_a_loss"])
    finally:
        cases.close()
