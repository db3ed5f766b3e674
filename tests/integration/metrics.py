"""Metrics of the real daemon against the same numbers computed here from the same samples (docs/metrics.md).

Cases: AUC, logloss, calibration, prediction mean, squared error, GAUC and served scores by brute force, in every form of sample that carries served scores, both live and in lockstep;
sampling correction; a label flip within one half-life of event time; freshness at every stage; the stable names of /metrics.
"""
import math
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))
import confluent_kafka  # noqa: E402
import confluent_kafka.admin  # noqa: E402
import samples  # noqa: E402
from harness import *  # noqa: E402,F403

CONFIG = SOURCE / "tests/integration/metrics.yaml"
BEGIN_MS = 1700000000000
LOCKSTEP = ["ingest.lockstep.records=64", "ingest.lockstep.epoch_batches=8"]


def sigmoid(z):
    return 1 / (1 + math.exp(-z))


def make_groups(rng, count, user=lambda rng: rng.randrange(400), first_ms=BEGIN_MS, positive=0.3):
    """Groups of one user's samples; x is informative about every label; every third sample has served scores, with ties."""
    groups = []
    for g in range(count):
        items = []
        for i in range(rng.randrange(1, 6)):
            x = [round(rng.gauss(0, 1), 2), round(rng.gauss(0, 1), 2)]
            click = int(rng.random() < sigmoid(math.log(positive / (1 - positive)) + x[0] - x[1]))
            item = {"t": first_ms + g * 1000 + i * 7, "f": {"x": x}, "y": {"click": click, "watched": None, "amount": 2 * x[0] + rng.gauss(1, 0.5)}}
            if rng.random() < 0.1:
                item["y"]["click"] = None
            if rng.random() < 0.2:
                item["w"] = {"click": 2.5, "watched": 1, "amount": 0.5}
            if rng.random() < 0.1:
                item["u"] = rng.choice([1, 2])
            if rng.random() < 0.34:
                item["p"] = {"fixed": round(rng.random(), 2), "amount": 2 * x[0]}
            items.append(item)
        groups.append({"shared": {"user_id": user(rng)}, "items": items})
    return groups


# ---- brute force: rows are (user, score, label, weight) ----

def auc(rows):
    positive = [(s, w) for _, s, y, w in rows if y > 0]
    negative = [(s, w) for _, s, y, w in rows if y == 0]
    if not positive or not negative:
        return None
    won = sum(pw * nw * (1 if ps > ns else 0.5 if ps == ns else 0) for ps, pw in positive for ns, nw in negative)
    return won / sum(w for _, w in positive) / sum(w for _, w in negative)


def gauc(rows):
    users = {}
    for row in rows:
        users.setdefault(row[0], []).append(row)
    values = [(auc(of), sum(w for *_, w in of)) for of in users.values()]
    values = [(a, w) for a, w in values if a is not None]
    total = sum(w for _, w in values)
    return {"auc": sum(a * w for a, w in values) / total, "groups": len(values), "weight": total}


def block(rows, probability):
    """B of /auc; probability: of a score."""
    weight = sum(w for *_, w in rows)
    p = [probability(s) for _, s, _, _ in rows]
    label = sum(w * y for _, _, y, w in rows)
    prediction = sum(w * q for q, (*_, w) in zip(p, rows))
    clip = 1 / (1 + math.exp(16))
    loss = sum(-w * (y * math.log(max(q, clip)) + (1 - y) * math.log(max(1 - q, clip))) for q, (_, _, y, w) in zip(p, rows))
    return {"auc": auc(rows), "logloss": loss / weight, "calibration": prediction / label, "positive_rate": label / weight, "prediction_mean": prediction / weight,
            "weight": weight}


def rows_of(groups, label, score, correct=True):
    rows = []
    for group in groups:
        for item in group["items"]:
            y, w = item["y"][label], item.get("w", {}).get(label, 1)
            s = score(item)
            if item.get("u", 3) & 2 and y is not None and s is not None:
                rows.append((group["shared"]["user_id"], s, y, w / item.get("s", 1) if correct else w))
    return rows


def same(got, expected, what, tolerance=1e-4):
    for name, value in expected.items():
        allowed = 1e-3 if name == "auc" else tolerance * max(1, abs(value))
        assert abs(got[name] - value) <= allowed, f"{what}: {name} is {got[name]}, computed here {value}"


class Cases:
    def __init__(self, work, kafka):
        self.work, self.kafka = work, kafka

    def produce(self, topic, groups, form="group", codec="msgpack"):
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.kafka.address})
        for name, future in admin.create_topics([confluent_kafka.admin.NewTopic(topic, 1, 1)]).items():
            if future.exception() and "TOPIC_ALREADY_EXISTS" not in str(future.exception()):
                raise future.exception()
        producer = confluent_kafka.Producer({"enable.idempotence": True, "bootstrap.servers": self.kafka.address})
        for value in samples.records(groups, form, codec):
            producer.produce(topic, value, partition=0)
        assert producer.flush(PATIENCE) == 0

    def daemon(self, topic, sets=(), **options):
        return self.work.daemon(CONFIG, self.work.path / f"{topic}.log", [f"ingest.brokers={self.kafka.address}", f"ingest.topic={topic}", f"model={topic}",
                                f"state_dir={self.work.path / topic}", f"export.topic={topic}.delta", *sets], **options)

    def run_lockstep(self, topic, sets=()):
        """Trains to the end of the stream. Returns the tasks of the metrics."""
        self.daemon(topic, [*LOCKSTEP, *sets], wait_http=False).expect_exit(0)
        return json.loads(tool("dump", "--state-dir", self.work.path / topic, "--metrics")[1])["tasks"]

    def fixed_score(self, topic):
        """The function that the layer `fixed` computes in every run."""
        dump = [json.loads(line) for line in tool("dump", "--state-dir", self.work.path / topic)[1].splitlines()]
        dense = {line["dense"]: line["values"] for line in dump if "dense" in line}
        kernel, bias = dense["fixed/kernel"], dense["fixed/bias"][0]
        return lambda item: kernel[0] * item["f"]["x"][0] + kernel[1] * item["f"]["x"][1] + bias

    def check_fixed(self, topic, groups, tasks):
        score = self.fixed_score(topic)
        rows = rows_of(groups, "click", score)
        same(tasks["fixed"]["lifetime"], block(rows, sigmoid), f"{topic}: lifetime")
        exact = gauc(rows)
        got = tasks["fixed"]["gauc"]
        assert abs(got["auc"] - exact["auc"]) <= min(got["error_max"] + 1e-6, 2e-3), (got, exact)
        assert got["groups"] == exact["groups"] and abs(got["weight"] - exact["weight"]) < 1e-6, (got, exact)
        served = rows_of(groups, "click", lambda item: item.get("p", {}).get("fixed"))
        same(tasks["fixed"]["served"], block(served, lambda p: p), f"{topic}: served")
        assert tasks["click"]["served"] is None and tasks["amount"]["gauc"] is None
        rows = rows_of(groups, "amount", score)
        weight = sum(w for *_, w in rows)
        amount = tasks["amount"]["lifetime"]
        assert amount["auc"] is None and amount["logloss"] is None
        same(amount, {"mse": sum(w * (s - y) ** 2 for _, s, y, w in rows) / weight, "prediction_mean": sum(w * s for _, s, _, w in rows) / weight,
                      "positive_rate": sum(w * y for _, _, y, w in rows) / weight, "weight": weight}, f"{topic}: amount")
        served = rows_of(groups, "amount", lambda item: item.get("p", {}).get("amount"))
        same(tasks["amount"]["served"], {"mse": sum(w * (s - y) ** 2 for _, s, y, w in served) / sum(w for *_, w in served)}, f"{topic}: amount served")

    def every_form_gives_the_numbers_computed_from_its_samples(self):
        groups = make_groups(random.Random(1), 1200)
        first = None
        for form, codec in (("sample", "msgpack"), ("group", "json"), ("array", "msgpack")):
            topic = f"form-{form}"
            self.produce(topic, groups, form, codec)
            tasks = self.run_lockstep(topic, ["ingest.format=json"] if codec == "json" else [])
            self.check_fixed(topic, groups, tasks)
            assert tasks["fixed"]["gauc"]["error_max"] == 0, "users have few samples: GAUC is exact"
            first = first or tasks
            for part in ("lifetime", "gauc", "served"):  # decay depends on batches: an event counts as old as the watermark at most
                got, was = ({k: v for k, v in of["fixed"][part].items() if k != "decayed"} for of in (tasks, first))
                assert got == was, f"{form}, {part}: {got}, first form {was}"

    def few_groups_are_a_sample_of_all_and_each_is_whole(self):
        groups = make_groups(random.Random(2), 2500)
        self.produce("few", groups)
        got = self.run_lockstep("few", ["metrics.gauc_groups_max=60"])["fixed"]["gauc"]
        score = self.fixed_score("few")
        exact = gauc(rows_of(groups, "click", score))
        assert got["groups"] <= 60 < exact["groups"], (got, exact)
        assert abs(got["auc"] - exact["auc"]) < 0.06, (got, exact)  # another sample of users: about four standard errors

    def sampling_correction_gives_back_the_whole_stream(self):
        rng = random.Random(3)
        whole = make_groups(rng, 4000, positive=0.05)
        for group in whole:
            for item in group["items"]:
                item.pop("u", None)
        kept = []
        for group in whole:  # one negative in four, every positive
            items = [{**item, "s": 1.0 if item["y"]["click"] else 0.25} for item in group["items"] if item["y"]["click"] or rng.random() < 0.25]
            if items:
                kept.append({"shared": group["shared"], "items": items})
        self.produce("whole", whole)
        self.produce("kept", kept)
        self.produce("plain", kept)
        self.produce("metrics", kept)
        reference = self.run_lockstep("whole")["fixed"]["lifetime"]
        for topic, sampling, corrected in (("kept", "all", True), ("metrics", "metrics", True), ("plain", "none", False)):
            got = self.run_lockstep(topic, [f"ingest.sampling={sampling}"])["fixed"]["lifetime"]
            same(got, block(rows_of(kept, "click", self.fixed_score(topic), corrected), sigmoid), topic)
            for name in ("calibration", "positive_rate"):
                ratio = got[name] / reference[name]
                assert (abs(ratio - 1) < 0.05) if corrected else (abs(ratio - 1) > 0.3), f"sampling {sampling}: {name} {got[name]}, whole stream {reference[name]}"

    def a_label_flip_is_visible_within_one_half_life(self):
        """With a half-life of 5m of event time: two half-lives with true labels, then the opposite in the label that nothing learns."""
        half_life, chunks = 300000, 6
        rng = random.Random(4)

        def chunk(begin, end, flipped):
            groups = []
            for t in range(begin, end, 100):
                x = [rng.gauss(0, 1), rng.gauss(0, 1)]
                click = int(rng.random() < sigmoid(3 * x[0]))
                groups.append({"shared": {"user_id": rng.randrange(50)},
                               "items": [{"t": t, "f": {"x": x}, "y": {"click": click, "watched": 1 - click if flipped else click, "amount": 0}}]})
            return groups

        daemon = self.daemon("flip")
        flip, sent, crossed = BEGIN_MS + 2 * half_life, 0, None
        steps = [(BEGIN_MS, flip, False)] + [(flip + i * half_life // chunks, flip + (i + 1) * half_life // chunks, True) for i in range(chunks)]
        for begin, end, flipped in steps:
            groups = chunk(begin, end, flipped)
            self.produce("flip", groups)
            sent += len(groups)
            document = wait_until(lambda: (lambda d: d if d.get("tasks") and d["tasks"]["watch"]["lifetime"]["weight"] == sent else None)(daemon.json("/auc")),
                                  f"/auc of {sent} samples")
            watch, click = document["tasks"]["watch"], document["tasks"]["click"]
            if not flipped:
                assert watch["decayed"]["5m"]["auc"] > 0.75 and watch["lifetime"] == click["lifetime"], document
            elif watch["decayed"]["5m"]["auc"] < 0.5 and crossed is None:
                crossed = document["as_of_ms"]
        assert crossed and flip < crossed <= flip + half_life, (crossed, document)
        assert watch["lifetime"]["auc"] > 0.55 and watch["decayed"]["1h"]["auc"] > 0.5, document
        assert click["decayed"]["5m"]["auc"] > 0.8, "what is trained did not flip"
        daemon.drain()

    def live_documents_and_series_agree_and_freshness_is_there(self):
        now = int(time.time() * 1000)
        groups = make_groups(random.Random(5), 900, lambda rng: int(rng.paretovariate(0.8)) % 150, first_ms=now - 3600 * 1000)  # events of the last hour
        for group in groups:
            for item in group["items"]:
                item["f"]["nobody"] = 1
                item["x_more"] = 1
        self.produce("live", groups)
        daemon = self.daemon("live", ["export.acknowledgements=true"])  # its series are promised, too
        status = wait_until(lambda: (lambda s: s if s["samples"]["trained"] > 0 and s.get("freshness", {}).get("published", {}).get("p50") and
                                     sum(p["samples"] for p in s["partitions"]) == sum(len(g["items"]) for g in groups) else None)(daemon.json("/status")),
                            "everything trained and published")
        text = wait_until(lambda: (lambda t: t if self.counts(t) == [status["samples"]["trained"]] * 3 else None)(daemon.get("/metrics")[1]),
                          "every trained sample observed at every stage")
        fresh = daemon.json("/status")["freshness"]
        assert set(fresh) == {f"{origin}{stage}" for origin in ("", "arrival_") for stage in ("trained", "durable", "published")} | {"ingest_lag"}
        for stage in ("trained", "durable", "published"):
            assert 60 < fresh[stage]["p50"] <= fresh[stage]["p90"] <= fresh[stage]["p99"] < 14400, fresh
        assert fresh["trained"]["p50"] <= fresh["durable"]["p50"] * 1.2 <= fresh["published"]["p50"] * 1.4, fresh  # each within a sixteenth
        arrival = [fresh[f"arrival_{stage}"] for stage in ("trained", "durable", "published")]  # the events are an hour old, the records are new
        assert all(0 < a["p50"] <= a["p99"] < 120 for a in arrival) and arrival[0]["p50"] <= arrival[1]["p50"] * 1.2 <= arrival[2]["p50"] * 1.4, fresh
        assert 0 < fresh["ingest_lag"]["p99"] < 120, fresh
        assert status["held"] == "" and not any(status["quarantine"].values()) and status["ignored"]["unknown_slots"] > 0
        document = daemon.json("/auc")
        names = set(re.findall(r"^# TYPE (\S+)", text, re.M))
        for name in re.findall(r"`(freshet_[a-z_]+)`", (SOURCE / "docs/metrics.md").read_text().split("## Series")[1]):
            # the second is of several ranks: integration_ranks
            assert name in names or name in ("freshet_rows_expired_total", "freshet_exchange_wait_seconds_total"), f"{name} is promised and not there"
        for series, value in (('freshet_gauc{model="live",task="fixed",half_life="lifetime"}', document["tasks"]["fixed"]["gauc"]["auc"]),
                              ('freshet_auc{model="live",task="fixed",half_life="lifetime"}', document["tasks"]["fixed"]["lifetime"]["auc"]),
                              ('freshet_served_auc{model="live",task="fixed"}', document["tasks"]["fixed"]["served"]["auc"]),
                              ('freshet_mse{model="live",task="amount",half_life="1h"}', document["tasks"]["amount"]["decayed"]["1h"]["mse"]),
                              ('freshet_prediction_mean{model="live",task="click",half_life="5m"}', document["tasks"]["click"]["decayed"]["5m"]["prediction_mean"])):
            found = re.search(re.escape(series) + r" (\S+)", text)
            assert found and abs(float(found.group(1)) - value) < 1e-6, f"{series}: {found and found.group(1)}, /auc says {value}"
        daemon.drain()
        dumped = json.loads(tool("dump", "--state-dir", self.work.path / "live", "--metrics")[1])
        assert dumped["tasks"] == document["tasks"], "the state holds what /auc said"
        self.check_fixed("live", groups, dumped["tasks"])
        again = self.daemon("live")
        restored = wait_until(lambda: (lambda d: d if d.get("tasks") and d["tasks"]["fixed"]["lifetime"]["weight"] else None)(again.json("/auc")), "/auc after a restart")
        assert restored["tasks"] == document["tasks"]
        again.drain()

    def insight_and_one_id_are_served(self):
        groups = make_groups(random.Random(6), 700, lambda rng: int(rng.paretovariate(0.8)) % 150, first_ms=int(time.time() * 1000) - 700000)
        users = [group["shared"]["user_id"] for group in groups for _ in group["items"]]
        self.produce("insight", groups)
        daemon = self.daemon("insight", ["insight.interval=100ms", "insight.importance=2"])
        # the partitions are those of the newest durable epoch, and there may be none yet
        wait_until(lambda: (lambda s: s.get("samples", {}).get("trained", 0) > 0 and s["partitions"] and s["partitions"][0]["lag"] == 0)(daemon.json("/status")), "all trained")
        document = wait_until(lambda: (lambda code, text: json.loads(text) if code == 200 else None)(*daemon.get("/insight")), "a document")
        user, x = document["slots"]
        assert (user["name"], x["name"], x["hot"], x["table"]) == ("user_id", "x", None, None) and document["task"] == "fixed", document
        assert user["present"] == user["ids"] == 1 and x["present"] is None and user["keys"] <= len(set(users)), user
        assert [one["name"] for one in document["layers"]] == ["fixed", "learned"] and 0 < document["cost"] < 0.5, document
        hot = user["hot"][0]
        assert hot["id"] == str(max(set(users), key=users.count)), (hot, users)

        feature = daemon.json(f"/feature?slot=user_id&id={hot['id']}")
        assert feature == {**daemon.json(f"/feature?slot=user_id&key={hot['key']}")} and feature["state"] == "row", feature
        assert daemon.json("/feature?slot=user_id&id=n%C3%B6body+else")["state"] == "unknown"
        for query, code in (("", 400), ("?slot=user_id", 400), ("?slot=user_id&id=1&key=1", 400), ("?slot=user_id&id=%C3", 400), ("?slot=user_id&key=x", 400),
                            ("?slot=nobody&id=1", 404), ("?slot=x&id=1", 404), (f"?slot=user_id&id={'1' * 2000}", 400)):
            assert (lambda code, text: (code, "error" in json.loads(text)))(*daemon.get("/feature" + query)) == (code, True), query
        daemon.drain()
        row = json.loads(tool("row", "--state-dir", self.work.path / "insight", "--slot", "user_id", "--id", hot["id"])[1])
        assert (row["key"], row["show"], row["click"], row["seen_ms"]) == tuple(feature[name] for name in ("key", "show", "click", "seen_ms")), (row, feature)
        assert feature["parts"] == row["parts"] and feature["show"] > 50 and abs(feature["norm"] - math.hypot(*row["parts"]["v"])) < 1e-6, (row, feature)
        dump = [json.loads(line) for line in tool("dump", "--state-dir", self.work.path / "insight")[1].splitlines()]
        kernel = next(line["values"] for line in dump if line.get("dense") == "learned/kernel")
        expected = sum(a * b for a, b in zip(row["parts"]["v"], kernel))  # `learned` is a sum: the id's part of every sample's logit
        assert abs(feature["contribution"]["click"] - expected) < 1e-5 and feature["contribution"]["fixed"] == 0, (feature, expected)
        assert [one["task"] for one in user["importance"]] == ["fixed", "click", "watch"], user["importance"]

    def counts(self, text):
        found = [re.search(rf'freshet_freshness_seconds_count{{model="live",stage="{stage}"}} (\d+)', text) for stage in ("trained", "durable", "published")]
        return [int(f.group(1)) for f in found if f]

    def run(self):
        names = ["every_form_gives_the_numbers_computed_from_its_samples", "few_groups_are_a_sample_of_all_and_each_is_whole",
                 "sampling_correction_gives_back_the_whole_stream", "a_label_flip_is_visible_within_one_half_life",
                 "live_documents_and_series_agree_and_freshness_is_there", "insight_and_one_id_are_served"]
        run_cases(self, names)


if __name__ == "__main__":
    with Workspace() as test_work, Kafka() as test_kafka:
        Cases(test_work, test_kafka).run()
