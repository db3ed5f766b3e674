"""Every configuration of conf/samples learns what it is for, through real Kafka; the examples of README.md and docs decode.

Each configuration runs as it is in the tree (only addresses, topics and the state directory are set) on a stream with a planted signal of its kind: weights and a
product of ids with a bend of a number for the general model, products of ids for the factorization machine, ids with numbers for DLRM and DCN-v2, a candidate that
is in the history for DIN, conversions after clicks for ESMM, related labels for MMoE. The best attainable AUC is that of the true probabilities. Asserted of every
task: the AUC within 5 minutes of event time at the end, and the AUC that `freshet score` reaches from the delta topic on samples that were never trained.
`freshet verify` must say verified.

Asserted too: every part learns. The same configuration with rates of next to nothing, over the first records of the stream, gives the values that rows and layers begin
with. Of each part of each table at least LEARNED of the rows must hold values other than zeros that differ by MOVED from these; every parameter of a layer by STEPPED.
"""
import math
import pathlib
import random
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))
import confluent_kafka  # noqa: E402
import confluent_kafka.admin  # noqa: E402
import samples  # noqa: E402
from harness import *  # noqa: E402,F403

BEGIN_MS = 1767225600000
STEP_MS = 10  # of event time between impressions: 5 minutes are 30,000 of them
HELD_OUT = 4000  # impressions that are scored and never trained
PARTITIONS = 2


def sigmoid(z):
    return 1 / (1 + math.exp(-z))


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def auc(scores, labels):
    """AUC by ranks; a tie counts half."""
    order = sorted(zip(scores, labels))
    won, negatives, at = 0.0, 0, 0
    while at < len(order):
        end = at
        while end < len(order) and order[end][0] == order[at][0]:
            end += 1
        positive = sum(y for _, y in order[at:end])
        won += positive * (negatives + 0.5 * (end - at - positive))
        negatives += end - at - positive
        at = end
    return won / (negatives * (len(order) - negatives))


class Stream:
    """Groups as tests/interop/samples.py takes them; `truth`: of every impression, task -> (true probability, label), None where the task does not look."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.groups, self.truth, self.t = [], [], BEGIN_MS

    def vectors(self, count, dim=2):
        return [[self.rng.gauss(0, 1) for _ in range(dim)] for _ in range(count)]

    def toss(self, p):
        return int(self.rng.random() < p)

    def make(self, impression, size, user=None):
        """Groups of `size` impressions: user() gives (shared values, what impression() needs of them); impression(user) gives (f, y, truth)."""
        while len(self.truth) < IMPRESSIONS + HELD_OUT:
            shared, about = user() if user else ({}, None)
            items = []
            for _ in range(size):
                f, y, truth = impression(about)
                items.append({"t": self.t, "f": f, "y": y})
                self.truth.append(truth)
                self.t += STEP_MS
            self.groups.append({"shared": shared, "items": items})
        return self

    def split(self):
        """(groups to train, groups to score, truth of these)."""
        held = HELD_OUT // len(self.groups[0]["items"])
        rest = self.groups[-held:]
        return self.groups[:-held], rest, self.truth[-sum(len(g["items"]) for g in rest):]


def general(stream):
    """Weights and the product of two ids, and a number that matters most near 20, which takes a layer to learn; a tenth of the users are seen only a few times."""
    users, items, hours = stream.vectors(400), stream.vectors(250), [stream.rng.gauss(0, 0.4) for _ in range(24)]
    appeal, rng = [stream.rng.gauss(0, 0.5) for _ in range(250)], stream.rng

    def impression(_):
        user, item, hour, numbers = some_user(rng), rng.randrange(250), rng.randrange(24), [rng.gauss(20, 5), rng.expovariate(0.1)]
        taste = 1.2 * dot(users[user], items[item]) if user < 400 else 0
        p = sigmoid(taste + appeal[item] + hours[hour] + 2 * math.exp(-(((numbers[0] - 20) / 3) ** 2)) - 0.03 * numbers[1] - 1)
        f = {"user_id": f"u{user}", "item_id": item, "history": [rng.randrange(250) for _ in range(rng.randrange(4))], "hour": hour,
             "device": rng.choice(["phone", "desktop", "tv"]), "numbers": numbers}
        click = stream.toss(p)
        return f, {"click": click}, {"click": (p, click)}

    return stream.make(impression, 1)


def some_user(rng):
    """Draws a user: one of 400 in nine of ten impressions, otherwise one of 6000 who come back about three times."""
    return rng.randrange(400) if rng.random() < 0.9 else 400 + rng.randrange(6000)


def fm(stream):
    """The product of two ids, and a weight of one: neither id alone is informative. For users who are seen only a few times, only the hour is."""
    users, items, hours = stream.vectors(400), stream.vectors(250), [stream.rng.gauss(0, 0.4) for _ in range(24)]
    rng = stream.rng

    def impression(_):
        user, item, hour = some_user(rng), rng.randrange(250), rng.randrange(24)
        p = sigmoid((1.5 * dot(users[user], items[item]) if user < 400 else 0) + hours[hour] - 0.5)
        f = {"user_id": f"u{user}", "item_id": item, "tags": [item % 5, 100 + item % 7], "hour": hour, "device": rng.choice(["phone", "desktop", "tv"])}
        click = stream.toss(p)
        return f, {"click": click}, {"click": (p, click)}

    return stream.make(impression, 1)


def criteo(stream):
    """The product of two ids, one id alone and two counts of 26 and 13; the rest is noise."""
    a, b, c = stream.vectors(200, 1), stream.vectors(100, 1), [stream.rng.gauss(0, 0.7) for _ in range(50)]
    rng = stream.rng

    def impression(_):
        ids = [int(rng.random() * size) for size in (200, 100, 50, *[10 + 20 * i for i in range(23)])]
        counts = [int(math.exp(rng.random() * 6)) for _ in range(13)]
        p = sigmoid(1.5 * dot(a[ids[0]], b[ids[1]]) + c[ids[2]] + 0.5 * math.log1p(counts[0]) - 0.3 * math.log1p(counts[1]) - 1.6)
        click = stream.toss(p)
        return {**{f"C{i + 1}": key for i, key in enumerate(ids)}, "counts": counts}, {"click": click}, {"click": (p, click)}

    return stream.make(impression, 1)


def din(stream):
    """A click is likely when the candidate, or its category, is in the history; popularity is not informative."""
    rng = stream.rng

    def user():
        history = [rng.randrange(60) for _ in range(rng.randrange(3, 9))]
        return {"user_id": rng.randrange(2000), "history": history, "history_categories": [item % 12 for item in history], "hour": rng.randrange(24)}, history

    def impression(history):
        item = rng.choice(history) if rng.random() < 0.3 else rng.randrange(60)
        p = 0.8 if item in history else 0.35 if any(item % 12 == other % 12 for other in history) else 0.08
        click = stream.toss(p)
        return {"item_id": item, "category_id": item % 12, "price": round(rng.random() * 90, 2)}, {"click": click}, {"click": (p, click)}

    return stream.make(impression, 8, user)


def esmm(stream):
    """A click by user and item; its conversion by user, item and price, with other effects than for clicks."""
    users, items = stream.vectors(300), stream.vectors(200)
    rng = stream.rng

    def user():
        number = rng.randrange(300)
        return {"user_id": number, "history": [rng.randrange(200) for _ in range(rng.randrange(5))]}, number

    def impression(number):
        item, price = rng.randrange(200), round(math.exp(rng.random() * 5), 2)
        (activity, wealth), (appeal, worth) = users[number], items[item]
        p, after = sigmoid(0.8 * activity + appeal - 0.5), sigmoid(0.6 * wealth + worth + 2 - 0.8 * math.log1p(price))
        click = stream.toss(p)
        conversion = click * stream.toss(after)
        truth = {"click": (p, click), "after_click": (after, conversion) if click else None, "conversion": (p * after, conversion)}
        return {"item_id": item, "price": price}, {"click": click, "conversion": conversion}, truth

    return stream.make(impression, 4, user)


def mmoe(stream):
    """Clicks by user and appeal of the video, likes by appeal and depth; watch time is by depth and length, and against appeal: the tasks agree in part."""
    users, videos = stream.vectors(300), stream.vectors(200)
    rng = stream.rng

    def user():
        number = rng.randrange(300)
        return {"user_id": f"u-{number}", "watched": [rng.randrange(200) for _ in range(rng.randrange(6))]}, number

    def impression(number):
        video, length = rng.randrange(200), round(math.exp(1 + rng.random() * 5))
        (activity, kindness), (appeal, depth) = users[number], videos[video]
        p, like = sigmoid(0.8 * activity + appeal), sigmoid(0.5 * kindness + 0.6 * appeal + 0.8 * depth - 2.2)
        long = sigmoid(depth - 0.5 * appeal + 0.8 * math.log1p(length) - 3)
        click, liked, watched = stream.toss(p), stream.toss(like), stream.toss(long)
        y = {"click": click, "like": liked, "seconds": (rng.randrange(30, 300) if watched else rng.randrange(30)) if click else None}
        truth = {"click": (p, click), "long_view": (long, watched) if click else None, "like": (like, liked)}
        return {"video_id": video, "length": length}, y, truth

    return stream.make(impression, 4, user)


# Configuration: its stream, form on the wire, share of the attainable AUC above 0.5 that each task must reach at the end.
MODELS = {
    "general": (general, "array", {"click": 0.85}),
    "fm": (fm, "array", {"click": 0.85}),
    "dlrm": (criteo, "packed", {"click": 0.85}),
    "dcn": (criteo, "packed", {"click": 0.85}),
    "din": (din, "group", {"click": 0.85}),
    "esmm": (esmm, "packed", {"click": 0.85, "after_click": 0.85, "conversion": 0.85}),
    "mmoe": (mmoe, "array", {"click": 0.85, "long_view": 0.85, "like": 0.85}),
}
IMPRESSIONS = 200000  # trained
DENSE = ("counts", "price", "length", "numbers")  # slots that are packed as numbers
BEGUN = 400  # records of the stream whose rows are looked at for their first values
LEARNED = 0.95  # share of a part's rows
COUNTED = ("/mean", "/variance", "/count")  # parameters that no loss reaches: statistics of the samples
STEPPED = 1e-5  # a parameter: one bias of several may return to about where it began
MOVED = 0.001  # by this much at least, in some element


class Cases:
    def __init__(self, work, kafka):
        self.work, self.kafka, self.count = work, kafka, 0

    def produce(self, topic, values):
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.kafka.address})
        for future in admin.create_topics([confluent_kafka.admin.NewTopic(topic, PARTITIONS, 1)]).values():
            future.result(PATIENCE)
        producer = confluent_kafka.Producer({"enable.idempotence": True, "bootstrap.servers": self.kafka.address, "linger.ms": 20, "queue.buffering.max.messages": 500000})
        for number, value in enumerate(values):
            producer.produce(topic, value, partition=number % PARTITIONS)
        assert producer.flush(PATIENCE) == 0

    def learns(self, name, stream, form, shares):
        train, rest, truth = stream.split()
        records = list(samples.records(train, form, "msgpack", 64, DENSE))
        self.produce(name, records)
        self.produce(f"{name}.begin", records[:BEGUN * (1 if form != "group" else 8)])
        state, begin = self.work.path / name, time.monotonic()
        sets = [f"ingest.brokers={self.kafka.address}", f"ingest.topic={name}", f"state_dir={state}"]
        self.work.daemon(SOURCE / f"conf/samples/{name}.yaml", self.work.path / f"{name}.log", sets, ["--until", "end"], wait_http=False).expect_exit(0)
        seconds = time.monotonic() - begin
        _, out, _ = tool("verify", "--state-dir", state, "--brokers", self.kafka.address, "--topic", f"{name}.delta")
        assert out.startswith("verified:"), out
        tasks = json.loads(tool("dump", "--state-dir", state, "--metrics")[1])["tasks"]
        self.all_parts_learned(name, state)
        queries = self.work.path / f"{name}.jsonl"
        queries.write_bytes(b"\n".join(samples.records(rest, "group" if form == "group" else "block", "json", 16)))
        scores = [json.loads(line) for line in tool("score", "--brokers", self.kafka.address, "--topic", f"{name}.delta", "--file", queries)[1].splitlines()]
        assert len(scores) == len(truth) and set(tasks) == set(scores[0]) == set(truth[0])
        for task, share in shares.items():
            seen = [(score[task], *about[task]) for score, about in zip(scores, truth) if about[task]]
            labels = [y for *_, y in seen]
            best = auc([p for _, p, _ in seen], labels)
            scored, trained = auc([score for score, *_ in seen], labels), tasks[task]["decayed"]["5m"]["auc"]
            line = (f"{name}, {task}: attainable {best:.4f}, at the end of the stream {trained:.4f}, lifetime {tasks[task]['lifetime']['auc']:.4f}, "
                    f"scored by a replica {scored:.4f} ({IMPRESSIONS} impressions in {seconds:.1f} s)")
            print(line, flush=True)
            for reached in (trained, scored):
                assert reached - 0.5 >= share * (best - 0.5), line
        shutil.rmtree(state)

    def values(self, state):
        """Returns (table, part) -> key -> values and parameter -> values of a state, as published."""
        rows, layers = {}, {}
        for line in map(json.loads, tool("dump", "--state-dir", state)[1].splitlines()):
            if "parts" in line:
                for part, values in line["parts"].items():
                    rows.setdefault((line["table"], part), {})[line["key"]] = values
            elif "dense" in line:
                layers[line["dense"]] = line["values"]
        return rows, layers

    def first_values(self, name):
        """Returns the same for a run whose rates move nothing; `--print-config` writes out all of them."""
        done = subprocess.run([BUILD / "daemon/freshetd", "--config", SOURCE / f"conf/samples/{name}.yaml", "--print-config"], capture_output=True, text=True, timeout=PATIENCE)
        config, state = self.work.path / f"{name}.begin.yaml", self.work.path / f"{name}.begin"
        config.write_text(re.sub(r"\blr: [^,}\s]+", "lr: 1e-30", done.stdout))
        sets = [f"ingest.brokers={self.kafka.address}", f"ingest.topic={name}.begin", f"state_dir={state}", f"model={name}-begin", "ingest.batch_warmup.first=0",
                f"export.brokers={self.kafka.address}", f"export.topic={name}.begin.delta"]
        self.work.daemon(config, self.work.path / f"{name}.begin.log", sets, ["--until", "end"], wait_http=False).expect_exit(0)
        values = self.values(state)
        shutil.rmtree(state)
        return values

    def all_parts_learned(self, name, state):
        (first_rows, first_layers), (rows, layers) = self.first_values(name), self.values(state)
        assert first_rows.keys() == rows.keys() and first_layers.keys() == layers.keys()

        def learned(values, first, moved=MOVED):
            return any(values) and max(abs(a - b) for a, b in zip(values, first)) >= moved

        for part, first in first_rows.items():
            known = first.keys() & rows[part].keys()
            share = sum(learned(rows[part][key], first[key]) for key in known) / len(known)
            print(f"{name}, {part[0]}.{part[1]}: {share:.3f} of {len(known)} rows learned", flush=True)
            assert share >= LEARNED, f"{name}: {part[0]}.{part[1]}: {share:.3f} of {len(known)} rows learned"
        still = [parameter for parameter, first in first_layers.items() if not learned(layers[parameter], first, STEPPED) and not parameter.endswith(COUNTED)]
        assert not still, f"{name}: parameters where they began: {still}"

    def every_sample_configuration_is_accepted(self):
        files = sorted((SOURCE / "conf/samples").glob("*.yaml"))
        assert {file.stem for file in files} == set(MODELS), "one stream for each configuration"
        for file in (*files, SOURCE / "conf/freshet.yaml"):
            done = subprocess.run([BUILD / "daemon/freshetd", "--config", file, "--check"], capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode == 0, f"{file}: {done.stdout}{done.stderr}"

    def the_check_warns_of_a_task_whose_loss_reaches_nothing(self):
        file = self.work.path / "stopped.yaml"
        file.write_text("""version: 1
model: m
state_dir: nowhere
ingest: {brokers: "127.0.0.1:1", topic: t}
tables: {user: {dim: 4}}
slots: {user_id: {table: user}}
labels: {click: {}}
network:
  layers:
    - {name: out, dense: user_id, units: 1}
    - {name: stopped, add: [{stop_gradient: out}]}
tasks: [{name: learns, label: click, logit: out}, {name: behind, label: click, logit: stopped}]
export: {topic: d}
""")
        done = subprocess.run([BUILD / "daemon/freshetd", "--config", file, "--check"], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0 and "task `behind`: its loss reaches no parameter" in done.stdout, done
        assert "task `learns`" not in done.stdout, done

    def the_check_names_what_begins_at_zero_and_cannot_leave_it(self):
        """A product of two parts that begin at zero learns nothing; with another first value for one of them, both learn."""
        file = self.work.path / "zeros.yaml"
        text = """
version: 1
model: zeros
state_dir: zeros
ingest: {brokers: "127.0.0.1:9", topic: t}
tables:
  user: {parts: {w: {dim: 1, optimizer: ftrl}, v: {dim: 4, optimizer: ftrl, init: zeros}}}
  item: {dim: 4, init: zeros}
slots: {user_id: {table: user}, item_id: {table: item}}
labels: {click: {}}
network:
  layers:
    - {name: wide, sum: [user_id.w]}
    - {name: pairs, fm: [user_id.v, item_id]}
    - {name: out, add: [wide, pairs]}
tasks: [{name: click, label: click, logit: out}]
export: {topic: d}
"""
        for init, stuck in (("init: zeros", True), ("init: {normal: 0.01}", False)):
            file.write_text(text.replace("item: {dim: 4, init: zeros}", f"item: {{dim: 4, {init}}}"))
            done = subprocess.run([BUILD / "daemon/freshetd", "--config", file, "--check"], capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode == 0 and "ok" in done.stdout, done
            for part in ("table `user`, part `v`", "table `item`, part `v`"):
                said = f"{part}: begins at zero and can never learn: all that layer `pairs` multiplies it with is zero too" in done.stdout
                assert said == stuck, done
            assert ("set init: {normal: 0.01}" in done.stdout) == stuck and "part `w`" not in done.stdout, done

    def readme(self, language):
        texts = [(SOURCE / "README.md").read_text()] + [path.read_text() for path in sorted((SOURCE / "docs").rglob("*.md"))]
        return [block for text in texts for block in re.findall(rf"```{language}\n(.*?)```", text, re.S)]

    def the_json_examples_of_the_readme_decode(self):
        examples = [" ".join(value.split("\n")) for block in self.readme("json") for value in block.strip().split("\n\n")]
        file = self.work.path / "readme.jsonl"
        file.write_text("".join(example + "\n" for example in examples))
        out = tool("decode", "--config", SOURCE / "conf/freshet.yaml", "--format", "json", "--file", file)[1].splitlines()
        decoded = [json.loads(line) for line in out]
        assert sorted(record["groups"] for record in decoded) == [[1], [1], [1, 2], [2], [2, 1]], out
        assert all(record["unknown_slots"] == record["unknown_keys"] == 0 for record in decoded), out
        for record in decoded:
            for sample in record["samples"]:
                assert sample["y"]["click"] in (0, 1) and sample["f"]["user_id"] and sample["f"]["item_id"] and sample["f"]["price"][0] > 0, sample

    def the_configuration_examples_of_the_readme_are_accepted(self):
        whole = (SOURCE / "conf/freshet.yaml").read_text()
        examples = self.readme("yaml")
        assert examples
        for example in examples:
            config = whole
            for part in re.findall(r"^\w.*\n(?:[ #].*\n)*", example, flags=re.M):
                config = re.sub(rf"^{part.split(':')[0]}:.*?\n\n", "", config, flags=re.M | re.S) + "\n" + part
            assert config != whole
            file = self.work.path / "readme.yaml"
            file.write_text(re.sub(r"(ssl\.ca\.location): \S+", r"\1: probe", config))  # the check opens a file that is named
            done = subprocess.run([BUILD / "daemon/freshetd", "--config", file, "--check"], capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{config}"

    def run(self, only):
        names = only or [name for name in dir(self) if name.startswith(("every_", "the_"))] + list(MODELS)
        streams = {}
        for name in names:
            begin = time.monotonic()
            if name in MODELS:
                make, form, shares = MODELS[name]
                if make not in streams:
                    streams = {make: make(Stream(1))}
                self.learns(name, streams[make], form, shares)
            else:
                getattr(self, name)()
            print(f"ok {name} ({time.monotonic() - begin:.1f} s)", flush=True)
            self.count += 1
        print(f"{self.count} passed, 0 failed")


if __name__ == "__main__":
    with Workspace() as test_work, Kafka() as test_kafka:
        Cases(test_work, test_kafka).run(sys.argv[1:])
