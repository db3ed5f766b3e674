"""The page at GET / in a real browser: what it shows is what /status and /auc say, in a healthy run and during an outage; nothing violates its policy.

Needs Debian's package `chromium` (124 MB to load, 414 MB on disk), which tests/packages leaves out; the first case needs none.
"""
import html
import html.parser
import os
import pathlib
import shutil
import signal
import sys

import confluent_kafka

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import *  # noqa: E402,F403

CONFIG = SOURCE / "conf/quickstart.yaml"
SAMPLES = 20000


class Dom(html.parser.HTMLParser):
    """Values by data-key, texts of a few elements by their ids, and which elements with an id are not hidden."""

    def __init__(self, text):
        super().__init__()
        self.values, self.texts, self.sections, self.path = {}, {}, {}, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag not in ("meta", "link", "input", "br"):
            self.path.append(attributes.get("id") or tag)
        if "id" in attributes:
            self.sections[attributes["id"]] = "hidden" not in attributes
        if "data-key" in attributes:
            self.values[attributes["data-key"]] = attributes["data-value"]

    def handle_endtag(self, tag):
        if self.path:
            self.path.pop()

    def handle_data(self, data):
        for name in {"state", "problem-list", "model-summary", "model-picture", "insight-summary", "replicas"} & set(self.path):
            self.texts[name] = self.texts.get(name, "") + data


class Cases:
    def __init__(self, work, broker):
        self.work, self.broker = work, broker
        self.produce(SAMPLES // 2, seed=1)
        self.daemon = work.daemon(CONFIG, work.path / "page.log", [f"ingest.brokers={broker.address}", f"state_dir={work.path / 'state'}",
                                  "ingest.ready_lag=5s", "export.retention=all", "heartbeat=10m", "insight.interval=1s", "insight.importance=4"])
        # the history has a rate between two of its points, and a fast machine trains all samples before the first one
        wait_until(lambda: [rows for rows in self.column(self.daemon.json("/history?step=1"), "rows") if rows], "a point of the history")
        self.produce(SAMPLES - SAMPLES // 2, seed=2)
        self.quiet = wait_until(self.all_published, "everything trained and acknowledged")

    def produce(self, count, seed):
        tool("produce", "--brokers", self.broker.address, "--topic", "clicks", "--synthetic", "clicks", "--form", "array", "--count", count, "--seed", seed)

    def all_published(self):
        status = self.daemon.json("/status")
        done = status["samples"]["trained"] == SAMPLES and status["outbox"]["epochs"] == 0 and not status["problems"]
        return status if done and self.daemon.json("/auc")["tasks"]["click"]["lifetime"]["weight"] == SAMPLES else None

    def browse(self, tab=""):
        """The document after a few turns of the page's clock, which does not wait."""
        if not shutil.which("chromium"):
            skip("Debian's package chromium is not installed")
        command = ["chromium", "--headless=new", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
                   "--disable-sync", "--disable-extensions", f"--user-data-dir={self.work.path / 'browser'}", "--enable-logging=stderr",
                   "--virtual-time-budget=5000", "--dump-dom", f"http://127.0.0.1:{self.daemon.port}/{tab}"]
        done = subprocess.run(command + (["--no-sandbox"] if os.getuid() == 0 else []), capture_output=True, text=True, timeout=PATIENCE)
        console = [line for line in done.stderr.splitlines() if "CONSOLE" in line and ":INFO:" not in line]
        assert not console, "\n".join(console)
        assert "data-key" in done.stdout, f"no script has run:\n{done.stdout[:2000]}\n{done.stderr[-2000:]}"
        return Dom(done.stdout)

    def every_place_of_a_problem_has_its_advice(self):
        table = (SOURCE / "docs/http.md").read_text().split("### Problems")[1].split("## /auc")[0]
        places = {name for line in table.splitlines() if line.startswith("| `") and "`where`" not in line for name in re.findall(r"`(\w+)`", line.split("|")[1])}
        advice = set(re.findall(r"^  (\w+): \"", (SOURCE / "page/page.js").read_text().split("const ADVICE = {")[1].split("\n};")[0], re.M))
        assert len(places) > 10 and places <= advice, f"no advice for {places - advice}"

    def the_page_without_scripts_says_model_and_state(self):
        code, text = self.daemon.get("/")
        assert code == 200 and "<h1>quickstart</h1>" in text and ">Running, ready.</p>" in text and "<li>" not in text, text[:1500]
        rows = sum(table["rows"]["ram"] for table in self.quiet["tables"].values())
        past = wait_until(lambda: (lambda d: d if self.column(d, "rows")[-1] == rows else None)(self.daemon.json("/history?step=1")), "the rows in the history")
        assert any(rate and rate > 0 for rate in self.column(past, "samples_per_second")), self.column(past, "samples_per_second")

    @staticmethod
    def column(past, name):
        return past["values"][[column["name"] for column in past["columns"]].index(name)]

    def what_the_page_shows_is_what_status_says(self):
        def once():
            before, dom, after = self.daemon.json("/status"), self.browse(), self.daemon.json("/status")
            return (before, dom) if before["epoch"] == after["epoch"] == after["acked"] else None  # no heartbeat came between
        status, dom = wait_until(once, "a document and a status of the same epoch")
        task = self.daemon.json("/auc")["tasks"]["click"]
        expected = {"samples": status["samples"]["trained"], "rows": sum(table["rows"]["ram"] for table in status["tables"].values()),
                    **{key: status[key] for key in ("epoch", "durable", "sent", "acked")}, "outbox_epochs": 0, "auc": task["decayed"]["5m"]["auc"],
                    **{f"rows {name}": table["rows"]["ram"] for name, table in status["tables"].items()},
                    **{f"{name} {i}": bucket[name] for i, bucket in enumerate(task["curve"]["5m"]) for name in ("predicted", "observed")},
                    **{f"auc click {half}": block["auc"] for half, block in [*task["decayed"].items(), ("lifetime", task["lifetime"])]}}
        shown = {key: float(dom.values[key]) for key in expected}
        assert shown == expected and "predicted 9" in shown, f"shown {shown}, said {expected}"
        assert 0 < float(dom.values["memory"]) < 1 << 30 and dom.texts["state"] == "Running, ready." and not dom.texts.get("problem-list", "").strip(), dom.texts
        assert "6 slots and 3 tables feed 5 layers" in dom.texts["model-summary"] and "mlp 64-32 → 32" in dom.texts["model-picture"], dom.texts

    def the_insight_tab_shows_what_insight_says(self):
        dom = self.browse("#insight")
        slots = self.daemon.json("/insight")["slots"]  # nothing is trained meanwhile: rows and importance stay
        expected = {f"importance {slot['name']}": slot["importance"][0]["importance"] for slot in slots}
        expected |= {f"norm {slot['name']}": slot["row_norm"]["p50"] if slot["row_norm"] else None for slot in slots}
        shown = {key: float(dom.values[key]) if dom.values[key] else None for key in expected}
        assert shown == expected and len(slots) == 6 and expected["importance item_id"] > 0, (shown, expected)
        assert "Importance is measured on one batch in 4." in dom.texts["insight-summary"], dom.texts
        assert dom.sections["insight"] and not dom.sections["overview"]
        overview = self.browse().sections
        assert overview["overview"] and not overview["insight"]

    def replicas_are_shown_by_what_they_acknowledge(self):
        assert not self.browse().sections["replicas-section"]  # nothing is acknowledged without the option
        producer = confluent_kafka.Producer({"bootstrap.servers": self.broker.address})
        producer.list_topics("fleet.ack", timeout=PATIENCE)  # makes the topic, which the broker of librdkafka 2.8 makes for no daemon
        daemon, self.daemon = self.daemon, self.work.daemon(CONFIG, self.work.path / "fleet.log", [
            f"ingest.brokers={self.broker.address}", f"state_dir={self.work.path / 'fleet'}", "export.topic=fleet.delta", "export.retention=all", "heartbeat=10m",
            "model=fleet", "export.acknowledgements=true"])
        quiet = wait_until(self.all_published, "everything acknowledged by the delta topic")
        record = {"v": 1, "m": "fleet", "tl": quiet["timeline"], "t": 1, "cut": 1767225600000, "wm": 1767225600000, "rows": 7}
        for name, epoch, more in (("<b>slow</b>", 1, {"problem": "<i>no broker</i>"}), ("quick", quiet["epoch"], {"scores": 2.5})):
            producer.produce("fleet.ack", json.dumps({**record, "name": name, "e": epoch, **more}).encode(), name.encode())
        assert producer.flush(PATIENCE) == 0
        said = wait_until(lambda: (lambda r: r if r["count"] == 2 else None)(self.daemon.json("/status")["replicas"]), "both replicas")
        dom = self.browse()
        assert dom.sections["replicas-section"] and said["slowest"]["name"] == "<b>slow</b>", said
        assert {key: dom.values[key] for key in ("replicas", "serves <b>slow</b>", "serves quick")} == {"replicas": "2", "serves <b>slow</b>": "1", "serves quick": str(quiet["epoch"])}
        served = float(dom.values["served_age"])
        assert said["slowest"]["freshness"] <= served <= self.daemon.json("/status")["replicas"]["slowest"]["freshness"], (said, served)
        assert "<b>slow</b>" in dom.texts["replicas"] and "<i>no broker</i>" in dom.texts["replicas"], dom.texts["replicas"]  # as text, not as markup
        self.daemon.kill()
        self.daemon = daemon

    def an_outage_is_shown_with_every_problem(self):
        self.broker.process.send_signal(signal.SIGSTOP)
        try:
            wait_until(lambda: any(one["where"] == "brokers" for one in self.daemon.json("/status")["problems"]), "the brokers as a problem")
            assert "<li><b>brokers</b> " in self.daemon.get("/")[1]
            dom = self.browse()
            assert dom.texts["state"] == "Running, not ready, with problems.", dom.texts["state"]
            for one in self.daemon.json("/status")["problems"]:
                assert one["where"] in dom.texts["problem-list"], (one, dom.texts["problem-list"])
            assert "reading continues where it stopped" in dom.texts["problem-list"] and dom.values["lag_ms"] == "", dom.values
        finally:
            self.broker.process.send_signal(signal.SIGCONT)
        wait_until(self.all_published, "the outage's end")


with Workspace() as work, Broker() as broker:
    run_cases(Cases(work, broker), ["every_place_of_a_problem_has_its_advice", "the_page_without_scripts_says_model_and_state",
                                    "what_the_page_shows_is_what_status_says", "the_insight_tab_shows_what_insight_says",
                                    "replicas_are_shown_by_what_they_acknowledge",
                                    "an_outage_is_shown_with_every_problem"])
