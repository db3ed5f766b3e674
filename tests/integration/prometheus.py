"""/metrics as Prometheus sees it. Usage: prometheus.py [--scrape SECONDS]

Without an option: `promtool check metrics` reports nothing, the rules and alerts of ops/prometheus pass their tests, Prometheus parses the dashboard's queries, and
series have the labels that alerts select. With --scrape (by hand): a real Prometheus scrapes every second while samples come at a steady rate, the daemon is
killed and restarted, and Kafka is away for a while. Then Prometheus's own functions are asked: no counter of the history was seen to begin again, rate() stays
near the truth, and the outage can be seen. Both need Debian's package `prometheus` (19 MB), which tests/packages does not install.
"""
import pathlib
import re
import socket
import sys
import threading
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import confluent_kafka  # noqa: E402
import confluent_kafka.admin  # noqa: E402
import msgpack  # noqa: E402
from harness import *  # noqa: E402,F403

CONFIG = SOURCE / "tests/integration/operating.yaml"
RATE = 500
OUTAGE = 15
HISTORY = ("freshet_samples_trained_total", "freshet_batches_total", "freshet_records_delivered_total", "freshet_rows_admitted_total", "freshet_task_samples_total")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Stream(threading.Thread):
    """Sends RATE samples a second until `ended` is set; the client keeps what it cannot send."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.producer = confluent_kafka.Producer({"enable.idempotence": True, "bootstrap.servers": address, "message.timeout.ms": 300000})
        self.count, self.begin, self.ended = 0, time.monotonic(), False

    def run(self):
        while not self.ended:
            while self.count < (time.monotonic() - self.begin) * RATE:
                i = self.count
                self.producer.produce("scraped", msgpack.packb({"t": int(time.time() * 1000), "y": {"click": i % 2}, "f": {"sample": i, "user_id": i % 50, "price": 1.0}}))
                self.count += 1
            self.producer.poll(0.05)
        assert self.producer.flush(PATIENCE) == 0


def promtool(*arguments, folder=SOURCE / "ops/prometheus"):
    done = subprocess.run(["promtool", *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


def rules(work):
    """Checks the files alone; the dashboard's queries become rules of a file of their own."""
    promtool("check", "rules", "recording.yml", "alerts.yml")
    promtool("test", "rules", "alerts_test.yml")
    queries = subprocess.run([sys.executable, SOURCE / "ops/dashboard.py", "--queries"], capture_output=True, text=True, check=True).stdout.splitlines()
    file = {"groups": [{"name": "dashboard", "rules": [{"record": f"panel:{i}", "expr": query.replace("$__rate_interval", "1m")} for i, query in enumerate(queries)]}]}
    (work.path / "queries.yml").write_text(json.dumps(file))
    promtool("check", "rules", "queries.yml", folder=work.path)
    print(f"ok promtool check rules, test rules; {len(queries)} queries of the dashboard")


def selected(daemon):
    """Checks that alerts which select one value of a label find a series with it."""
    text = daemon.get("/metrics")[1]
    found = re.findall(r"(freshet_\w+)(?::\w+)?\{(\w+=\"[^\"]*\")\}", (SOURCE / "ops/prometheus/alerts.yml").read_text())
    assert len(found) >= 3
    for name, label in found:
        assert re.search(rf"^{name}(?:_bucket)?\{{[^}}]*{re.escape(label)}", text, re.M), f"no series {name} with {label}"
    print(f"ok labels of alerts: {', '.join(sorted({label for _, label in found}))}")


def check(daemon):
    text = daemon.get("/metrics")[1]
    done = subprocess.run(["promtool", "check", "metrics"], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0 and not done.stdout.strip(), done.stdout
    print(f"ok promtool check metrics: {len(text)} bytes, {sum(not line.startswith('#') for line in text.splitlines())} series")


class Prometheus:
    def __init__(self, work, target):
        self.port = free_port()
        (work.path / "prometheus.yml").write_text(f"global: {{scrape_interval: 1s}}\nscrape_configs: [{{job_name: freshet, static_configs: [{{targets: ['{target}']}}]}}]\n")
        self.process = subprocess.Popen(["prometheus", f"--config.file={work.path / 'prometheus.yml'}", f"--storage.tsdb.path={work.path / 'tsdb'}",
                                         f"--web.listen-address=127.0.0.1:{self.port}"], stderr=open(work.path / "prometheus.log", "wb"))

    def ask(self, path, **parameters):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=PATIENCE) as answer:
            return json.load(answer)["data"]["result"]

    def values(self, query, begin, end):
        return [float(value) for result in self.ask("query_range", query=query, start=begin, end=end, step=1) for _, value in result["values"]]

    def now(self, query):
        return [float(result["value"][1]) for result in self.ask("query", query=query)]


def scrape(work, kafka, start, seconds):
    daemon, stream = start(), Stream(kafka.address)
    prometheus = Prometheus(work, f"127.0.0.1:{daemon.port}")
    try:
        wait_until(lambda: daemon.get("/readyz")[0] == 200, "ready")
        begin = time.time()
        stream.begin = time.monotonic()
        stream.start()
        time.sleep(seconds)
        before = time.time()  # the steady rate before anything happens
        daemon.kill()
        daemon = start()
        wait_until(lambda: daemon.get("/readyz")[0] == 200, "ready again")
        restarted = time.time()
        time.sleep(seconds)
        kafka.stop()
        away = time.time()
        time.sleep(OUTAGE)
        back = time.time()
        kafka.start()
        time.sleep(seconds)
        stream.ended = True
        stream.join()
        wait_until(lambda: daemon.json("/status")["samples"]["trained"] == stream.count, "all samples trained")
        time.sleep(5)
        judge(prometheus, stream.count, begin, before, restarted, away, back)
    finally:
        prometheus.process.terminate()
        prometheus.process.wait()
    daemon.drain()


def judge(prometheus, count, begin, before, restarted, away, back):
    end = time.time()
    window = int(end - begin) + 5
    for name in HISTORY:
        resets = prometheus.now(f"resets({name}[{window}s])")
        assert resets and not any(resets), f"{name} was seen to begin again at 0: {resets}"
    grown = max(prometheus.values("freshet_samples_trained_total", begin, end))
    steady = prometheus.values("rate(freshet_samples_trained_total[10s])", begin + 12, before)
    restart = prometheus.values("rate(freshet_samples_trained_total[10s])", before, restarted + 12)
    highest = max(prometheus.values("rate(freshet_samples_trained_total[10s])", begin, end))
    connected = prometheus.values("freshet_connected", away + 2, back)
    lag = prometheus.values("freshet_lag_seconds", away + 2, back)
    print(f"produced {count} at {RATE} a second; counter {grown:.0f}; rate() steady {min(steady):.0f} to {max(steady):.0f}, over the restart {min(restart):.0f} to "
          f"{max(restart):.0f}, at most {highest:.0f} (after the outage); connected in the outage {min(connected):.0f}; lag then "
          f"{sum(value != value for value in lag)} of {len(lag)} NaN")
    assert grown == count
    # a restart retrains at most what was not durable; the outage's samples come at once after it
    assert max(restart) < 5 * RATE and highest < RATE * (OUTAGE + (back - away)) / 5, "rates that cannot be"
    assert min(connected) == 0 and any(value != value for value in lag), "an outage that cannot be seen"


if not shutil.which("promtool"):
    skip("no promtool: install Debian's package prometheus")
with Workspace() as test_work, Kafka(own=True) as test_kafka:
    rules(test_work)
    test_admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": test_kafka.address})
    test_admin.create_topics([confluent_kafka.admin.NewTopic("scraped", 1, 1)])["scraped"].result(PATIENCE)
    test_port = free_port()
    start_daemon = lambda: test_work.daemon(CONFIG, test_work.path / "log", [
        f"ingest.brokers={test_kafka.address}", "ingest.topic=scraped", "model=scraped", f"state_dir={test_work.path / 'state'}", "export.topic=scraped.delta",
        f"metrics.listen=127.0.0.1:{test_port}", "metrics.auc_half_life=[5m, 1h, 1d]"])
    if "--scrape" in sys.argv:
        scrape(test_work, test_kafka, start_daemon, int(sys.argv[sys.argv.index("--scrape") + 1]))
    else:
        test_daemon = start_daemon()
        wait_until(lambda: test_daemon.get("/readyz")[0] == 200, "ready")
        check(test_daemon)
        selected(test_daemon)
        test_daemon.drain()
