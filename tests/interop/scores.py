"""Models of every kind, scored from the delta format's text alone: scorer.py, which shares no code with Freshet, and `freshet score` must agree within 1e-5 in the logit.

The configurations of conf/samples (FM, wide and deep, DLRM, DCN-v2, DIN, ESMM, MMoE) run as they are in the tree, but read a file; DIEN and a model with every
operation, activation, transform and form of a slot stand below. Each trains on drawn samples, and both scorers read the snapshot of the stopped state. Samples hold
ids that never got a row, missing values, empty and long histories. Needs no Kafka.
"""
import json
import math
import pathlib
import random
import re
import runpy
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import *  # noqa: E402,F403

import delta  # noqa: E402
import scorer  # noqa: E402

KINDS = runpy.run_path(str(SOURCE / "replica/python/freshet/_kinds.py"))
TRAINED, SCORED, IDS = 700, 100, 25
BEGIN_MS = 1767225600000
FIELDS = [f"C{i + 1}" for i in range(26)]
# What samples of a model carry: single ids, lists of ids, numbers (how many), labels.
STREAMS = {
    "fm": (["user_id", "item_id", "hour", "device"], ["tags"], {}, ["click"]),
    "general": (["user_id", "item_id", "hour", "device"], ["history"], {"numbers": 2}, ["click"]),
    "dlrm": (FIELDS, [], {"counts": 13}, ["click"]),
    "dcn": (FIELDS, [], {"counts": 13}, ["click"]),
    "din": (["user_id", "item_id", "category_id"], ["history", "history_categories"], {"hour": 1, "price": 1}, ["click"]),
    "esmm": (["user_id", "item_id"], ["history"], {"price": 1}, ["click", "conversion"]),
    "mmoe": (["user_id", "video_id"], ["watched"], {"length": 1}, ["click", "like", "seconds"]),
    "dien": (["user_id", "item_id"], ["history", "skipped"], {"price": 1}, ["click"]),
    "every": (["user_id", "item_id", "city"], ["tags", "history", "categories"], {"price": 2, "age": 1, "plain": 1, "seen_at": 1, "week": 1, "narrow": 1}, ["click", "buy", "rating"]),
}
SMALL = {"version": 1, "epoch": "100ms", "memory_limit": "64MiB", "threads": 1, "metrics": {"listen": "127.0.0.1:0"}}
DIEN = {
    **SMALL, "model": "dien",
    "tables": {"user": {"dim": 4, "init": {"normal": 0.3}}, "item": {"dim": 6, "init": {"normal": 0.3}, "admit": {"count": 2}}},
    "slots": {"user_id": {"table": "user"}, "item_id": {"table": "item"}, "history": {"table": "item", "kind": "sequence", "max_len": 6, "admit": "never"},
              "skipped": {"table": "item", "kind": "sequence", "max_len": 6, "admit": "never"}, "price": {"kind": "dense", "transform": ["log1p", "standardize"]}},
    "labels": {"click": {}},
    "network": {"layers": [
        {"name": "interests", "gru": "history", "units": 6}, {"name": "interest", "augru": {"query": ["item_id", "price"], "keys": "interests"}},
        {"name": "h", "mlp": ["user_id", "item_id", "interest", "price"], "units": [16, 8], "activation": "dice"}, {"name": "out", "dense": "h", "units": 1}],
        "optimizer": {"adam": {"lr": 0.01}}},
    "tasks": [{"name": "click", "label": "click", "logit": "out"}],
    "losses": [{"name": "next", "next_step": {"states": "interests", "positives": "history", "negatives": "skipped"}}],
}
EVERY = {
    **SMALL, "model": "every", "key_seed": "a secret", "export": {"quantize": "bf16"},
    "tables": {"user": {"dim": 4, "init": {"normal": 0.3}}, "item": {"parts": {"w": {"dim": 1, "optimizer": {"ftrl": {"lr": 0.1}}}, "v": {"dim": 4, "init": {"normal": 0.3}}}}},
    "slots": {"user_id": {"table": "user"}, "item_id": {"table": "item"}, "city": {"table": "user", "namespace": "city", "id": "raw"}, "tags": {"table": "item", "namespace": "tags", "max_ids": 3},
              "history": {"table": "item", "kind": "sequence", "max_len": 5, "admit": "never"}, "categories": {"table": "user", "namespace": "category", "kind": "sequence", "max_len": 7},
              "price": {"kind": "dense", "dim": 2, "transform": ["log1p", "standardize"], "indicator": True}, "age": {"kind": "dense", "transform": {"bucketize": [18, 40, 65]}, "default": 30, "indicator": True},
              "plain": {"kind": "dense", "transform": {"clip": [-1, 1.5]}, "default": 0.5}, "seen_at": {"kind": "dense", "transform": "time_of_day"}, "week": {"kind": "dense", "transform": "time_of_week"}, "narrow": {"kind": "dense", "transform": "standardize"},
              "age_bucket": {"table": "user", "buckets": {"of": "age", "boundaries": [18, 30.5, 50]}}, "city_x_tag": {"table": "item", "cross": ["city", "tags"], "max_ids": 2}},
    "labels": {"click": {}, "buy": {}, "rating": {}},
    "network": {"layers": [
        {"name": "x", "concat": ["user_id", "item_id.v", {"mean": "tags.v"}, "city", "age_bucket", {"sqrtn": "city_x_tag.v"}, "price", "age", "plain", "seen_at", "week", "narrow"]},
        {"name": "f", "fm": ["user_id", "item_id.v", {"sqrtn": "tags.v"}]}, {"name": "bi", "bi_interaction": ["user_id", "item_id.v", {"sum": "history.v"}, {"max": "tags.v"}]},
        {"name": "dot", "dot_interaction": ["user_id", "item_id.v", "bi", {"mean": "tags.v"}]},
        {"name": "pairs", "concat": ["history.v", "categories"]},
        {"name": "att", "attention": {"query": ["item_id.v", "user_id"], "keys": ["history.v", "categories"]}, "units": [6, 5], "activation": "dice"},
        {"name": "soft", "attention": {"query": "item_id.v", "keys": "history.v"}, "units": [5], "activation": "sigmoid", "softmax": True},
        {"name": "full", "cross": "x", "depth": 2}, {"name": "low", "cross": "x", "depth": 2, "rank": 3},
        {"name": "mul", "multiply": ["user_id", "item_id.v"]}, {"name": "norm", "layer_norm": "x"},
        {"name": "shift", "bias": "mul"}, {"name": "soften", "activate": "shift", "activation": "gelu"}, {"name": "drop", "dropout": "soften", "rate": 0.2}, {"name": "stop", "stop_gradient": "mul"},
        {"name": "steps", "dense": ["history.v", "categories"], "units": 4, "activation": "leaky_relu"}, {"name": "mean_steps", "mean": "steps"}, {"name": "root_steps", "sqrtn": "steps"}, {"name": "max_steps", "max": "steps"},
        {"name": "all_steps", "sum": "steps"}, {"name": "last_step", "last": "steps"}, {"name": "newest", "last": "history.v"}, {"name": "last_pair", "mean": "pairs"},
        {"name": "states", "gru": ["history.v"], "units": 5}, {"name": "last_state", "last": "states"}, {"name": "mean_state", "mean": "states"},
        {"name": "interest", "augru": {"query": ["item_id.v", "price"], "keys": "states"}},
        {"name": "ex", "experts": "x", "count": 2, "units": [5, 3], "activation": "prelu"}, {"name": "mix", "mixture": {"gate": "x", "experts": "ex"}},
        {"name": "h", "mlp": ["x", "f", "dot", "att", "soft", "full", "low", "norm", "drop", "stop", "mean_steps", "root_steps", "max_steps", "all_steps", "last_step", "newest", "last_pair", "last_state", "mean_state", "interest", "mix"],
         "units": [8, 6], "activation": "dice"},
        {"name": "g", "dense": "h", "units": 5, "activation": "prelu"}, {"name": "z", "dense": ["g", "norm"], "units": 1},
        {"name": "wide", "sum": ["item_id.w", {"sum": "history.w"}]}, {"name": "out", "add": ["z", "wide"]},
        {"name": "t", "dense": "g", "units": 4, "activation": "tanh"}, {"name": "buy_out", "dense": "t", "units": 1}, {"name": "stars", "dense": "x", "units": 1}],
        "optimizer": {"adam": {"lr": 0.005}}},
    "tasks": [{"name": "click", "label": "click", "logit": "out"}, {"name": "buy", "label": "buy", "logit": "buy_out"}, {"name": "both", "label": "buy", "prob": ["click", "buy"]},
              {"name": "rating", "label": "rating", "logit": "stars", "loss": "mse"}],
}


def number(slot, rng):
    """`narrow` varies so little that the constant under the root decides."""
    if slot in ("seen_at", "week"):
        return BEGIN_MS + rng.randrange(10 ** 9)
    return rng.choice([0.0005, 0.001, 0.0015]) if slot == "narrow" else round(rng.expovariate(0.05), 3)


def drawn(name, count, ids, rng):
    """Samples of a model; ids from 0 on."""
    single, lists, numbers, labels = STREAMS[name]
    for i in range(count):
        f = {slot: rng.choice([rng.randrange(ids), f"s-{rng.randrange(ids)}"]) for slot in single if rng.random() < 0.9}
        for slot in lists:
            listed = [rng.randrange(ids) for _ in range(rng.randrange(9))]
            f[slot] = listed if rng.random() < 0.7 else {"i": listed, "w": [round(rng.uniform(0.5, 2), 2) for _ in listed]}
        for slot, dim in numbers.items():
            if rng.random() < 0.9:
                values = [number(slot, rng) for _ in range(dim)]
                f[slot] = values if dim > 1 else values[0]
        click = int(rng.random() < (0.8 if len(str(f)) % 3 else 0.2))
        y = {label: {"click": click, "seconds": click * 40 * rng.random(), "rating": rng.randrange(5)}.get(label, click * rng.randrange(2)) for label in labels}
        yield {"t": BEGIN_MS + 10 * i, "f": f, "y": y}


def logit(p):
    return math.log(p / (1 - p))


class Cases:
    def __init__(self, work):
        self.work = work

    def configuration(self, name, samples):
        """A configuration that reads this file."""
        path = self.work.path / f"{name}.yaml"
        own = {"dien": DIEN, "every": EVERY}.get(name)
        if own:
            path.write_text(json.dumps({**own, "state_dir": str(self.work.path / name), "ingest": {"files": [str(samples)]}}))
            return path
        text, read = re.subn(r'brokers: "localhost:9092",?\s*topic: \w+', f'files: ["{samples}"]', (SOURCE / f"conf/samples/{name}.yaml").read_text())
        assert read == 1, f"{name}: where it reads from"
        path.write_text(text)
        return path

    def trained(self, name, count):
        """(an independent replica of the trained model, samples to score, the daemon's scores)"""
        rng, path = random.Random(name), self.work.path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(sample) + "\n" for sample in drawn(name, count, IDS, rng)))
        state = self.work.path / f"{name}.{count}"
        self.work.daemon(self.configuration(name, path), self.work.path / f"{name}.log", [f"state_dir={state}", "memory_limit=256MiB", "threads=1"], ["--until", "end"], wait_http=False).expect_exit(0)
        tool("snapshot", "--state-dir", state)
        snapshot = state / "snapshots" / (state / "snapshots/CURRENT").read_text().strip()
        scored = list(drawn(name, SCORED, 2 * IDS, rng))
        scored[0]["f"].update({"narrow": 0.05} if "narrow" in STREAMS[name][2] else {})  # over 10 deviations
        file = self.work.path / f"{name}.scored.jsonl"
        file.write_text("".join(json.dumps(sample) + "\n" for sample in scored))
        manifest, _, _ = delta.read_snapshot(snapshot)
        replica = delta.Replica(manifest["np"])
        replica.begin(snapshot)
        return replica, scored, [json.loads(line) for line in tool("score", "--file", file, "--snapshot", snapshot)[1].splitlines()]

    def agrees(self, name, count=TRAINED):
        replica, scored, wanted = self.trained(name, count)
        model = scorer.Scorer(replica.model, replica.rows, replica.dense)
        valued = {task["name"] for task in model.cfg["tasks"] if task["loss"] == "mse"}
        got, worst = [model.score(sample["f"]) for sample in scored], 0.0
        for at, (a, b) in enumerate(zip(got, wanted, strict=True)):
            assert a.keys() == b.keys(), (a, b)
            for task in a:
                if task in valued:
                    distance, bound = abs(a[task] - b[task]), 1e-5 * (1 + abs(b[task]))
                else:
                    distance, bound = abs(logit(a[task]) - logit(b[task])), 1e-5 + 2 ** -23 / min(b[task], 1 - b[task])  # a printed probability is an f32
                assert distance <= bound, f"{name}, sample {at}, task {task}: {a[task]} by the text, {b[task]} by freshet score"
                worst = max(worst, distance)
        for task in wanted[0]:
            assert len({score[task] for score in wanted}) > SCORED / 2, f"{name}, {task}: scores differ"
        absent = [key for sample in scored for slot in model.slots if model.slots[slot]["kind"] != "dense" for key, _ in self.ids_of(model, sample, slot)
                  if key not in replica.rows.get(model.slots[slot]["table"], {})]
        assert absent and sum(map(len, replica.rows.values())) > IDS, f"{name}: rows that are there and rows that are not"
        print(f"{name}: {SCORED} samples, {len(wanted[0])} tasks, largest distance {worst:.1e}", flush=True)
        return replica, scored, wanted

    @staticmethod
    def ids_of(model, sample, slot):
        model.f = sample["f"]
        return model.ids(slot)

    def fm(self):
        self.agrees("fm")

    def general(self):
        self.agrees("general")

    def before_statistics_count(self):
        replica, _, _ = self.agrees("general", 60)
        assert 0 < replica.dense["numbers/count"][1][0] < 100, "standardize reads 0"

    def dlrm(self):
        self.agrees("dlrm")

    def dcn(self):
        self.agrees("dcn")

    def din(self):
        self.agrees("din")

    def esmm(self):
        self.agrees("esmm")

    def mmoe(self):
        self.agrees("mmoe")

    def dien(self):
        self.agrees("dien")

    def every_operation(self):
        replica, scored, wanted = self.agrees("every")
        cfg = json.loads(replica.model)
        used = {key for layer in cfg["layers"] for key in layer}
        pooled = set(re.findall(r'{"(\w+)":"[\w.]+"}', replica.model))
        untried = (set(KINDS["OPERATIONS"]) - used) | (set(KINDS["ROW_POOLINGS"]) - pooled)
        assert not untried, f"not tried: {untried}"
        without = scorer.Scorer(json.dumps({key: value for key, value in cfg.items() if key != "key_seed"}), replica.rows, replica.dense)
        assert all(without.score(s["f"])["click"] != w["click"] for s, w in zip(scored, wanted)), "keys are made with key_seed"


def main():
    with Workspace() as work:
        run_cases(Cases(work), ["fm", "general", "before_statistics_count", "dlrm", "dcn", "din", "esmm", "mmoe", "dien", "every_operation"])


main()
