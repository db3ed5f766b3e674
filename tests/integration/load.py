"""Learning does not depend on load: one stream in batches of any size, in lockstep and live from Kafka; prints the table.

The stream is synthetic, so that its best AUC is known: a logit that adds effects of four ids (Zipf) and of two numbers. A model has one rule of layers and a logit of
its own for every rule of rows; nothing joins them but the batches, which are therefore the same for all. Every run begins without a state, reads all of the stream, and
has `batch_size` 1024 and no warm-up, so that nothing differs but the batch that happened:

  4, 64, 1024    lockstep of so many records
  backlog        live, everything is in Kafka before the daemon starts
  5,000/s        live, the second half produced at that rate; a batch is what `batch_wait` gathered. The first half is a backlog in a file; with `--all` nothing is
  500/s          likewise, the last 15,000 samples (half a minute); the last 60,000 with `--all`

Asserted of every pair of rules, over a half-life that spans much of the stream and over one that spans the end alone, where the slow live run stands by itself:

- each AUC is within AUC_TOLERANCE of the pair's best, and reaches LEARNT of the attainable AUC's distance from one half: rates that learn nothing cannot pass;
- predictions add up to the labels within CALIBRATION_TOLERANCE. Over the short half-life the labels themselves are off by more than that by chance (the standard error is
  printed: that of the true probabilities' calibration). There the sum of the true probabilities stands in place of the labels' sum, which has no such error.
"""
import concurrent.futures
import itertools
import math
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import *  # noqa: E402,F403

SEED = 8
SAMPLES = 300_000
BATCH_SIZE = 1024
BATCHES = (4, 64, 1024)
LIVE = {5000: 150_000, 500: 15_000}  # a second -> how many of the last samples: half a minute each
LIVE_ALL = {5000: SAMPLES, 500: 60_000}
BEGIN_MS, STEP_MS = 1767225600000, 20  # of event time between samples
HALF_LIVES = {"1h": 180_000, "2m": 6_000}  # in samples
LABELS_TELL = ("1h",)  # calibration is against the labels, elsewhere against the true probabilities
AUC_TOLERANCE = 0.01
CALIBRATION_TOLERANCE = 0.03
LEARNT = 0.6
SLOTS = {"user": (5000, 0.9, 0.8), "item": (2000, 0.9, 0.8), "site": (200, 0.8, 0.4), "hour": (24, 0.0, 0.3)}  # ids, Zipf exponent, scale of effects
BIAS = -1.45  # 30 % positive

ROWS = {
    "ftrl": "{ftrl: {lr: 0.1}}",
    "adagrad": "{adagrad: {lr: 0.05, initial: 0}}",
    "adagrad 0.1": "{adagrad: {lr: 0.05, initial: 0.1}}",
    "sgd": "{sgd: {lr: 0.05}}",
    "momentum": "{momentum: {lr: 0.005}}",
    "rmsprop": "{rmsprop: {lr: 0.002}}",
    "adam": "{adam: {lr: 0.002}}",
}
LAYERS = {"adam": "{adam: {lr: 0.005}}", "adagrad": "{adagrad: {lr: 0.05}}"}


def sigmoid(z):
    return 1 / (1 + math.exp(-z))


def auc(scores, labels):
    """AUC by ranks; scores do not tie."""
    positives, won, negatives = 0, 0, 0
    for _, label in sorted(zip(scores, labels)):
        positives += label
        negatives += not label
        won += negatives if label else 0
    return won / (positives * negatives)


class Stream:
    """Returns lines of JSON, true probabilities and labels."""

    def __init__(self, count):
        rng = random.Random(SEED)
        columns = []
        for ids, exponent, scale in SLOTS.values():
            effects = [rng.gauss(0, scale) for _ in range(ids)]
            drawn = rng.choices(range(ids), [(rank + 1) ** -exponent for rank in range(ids)], k=count)
            columns.append((drawn, effects))
        self.lines, self.truth, self.labels = [], [], []
        for i in range(count):
            keys = [drawn[i] for drawn, _ in columns]
            a, b = rng.gauss(0, 1), rng.gauss(0, 1)
            p = sigmoid(BIAS + sum(effects[key] for key, (_, effects) in zip(keys, columns)) + 0.4 * a + 0.3 * abs(b))
            label = int(rng.random() < p)
            ids = ",".join(f'"{slot}":{key}' for slot, key in zip(SLOTS, keys))
            self.lines.append(f'{{"t":{BEGIN_MS + STEP_MS * i},"f":{{{ids},"numbers":[{a:.4f},{b:.4f}]}},"y":{{"click":{label}}}}}\n')
            self.truth.append(p)
            self.labels.append(label)

    def sums(self, half_life):
        """Decayed over half_life samples: the true probabilities, the labels, the variance of these."""
        expected = happened = variance = 0.0
        for i, (p, label) in enumerate(zip(self.truth, self.labels)):
            weight = 2 ** ((i + 1 - len(self.truth)) / half_life)
            expected += weight * p
            happened += weight * label
            variance += weight * weight * p * (1 - p)
        return expected, happened, variance


def config(layer):
    """Returns the configuration of one rule of layers: its tasks are in the order of ROWS."""
    parts = ", ".join(f"w{i}: {{dim: 1, optimizer: {rule}, init: zeros}}" for i, rule in enumerate(ROWS.values()))
    layers = []
    for i in range(len(ROWS)):
        layers += [f"{{name: wide{i}, sum: [{', '.join(f'{slot}.w{i}' for slot in SLOTS)}]}}", f"{{name: hidden{i}, mlp: numbers, units: [8]}}",
                   f"{{name: deep{i}, dense: hidden{i}, units: 1}}", f"{{name: logit{i}, add: [wide{i}, deep{i}]}}"]
    listed = "\n".join(f"    - {text}" for text in layers)
    tables = "\n".join(f"  {slot}: {{parts: {{{parts}}}}}" for slot in SLOTS)
    slots = "\n".join(f"  {slot}: {{table: {slot}}}" for slot in SLOTS)
    tasks = ", ".join(f"{{name: task{i}, label: click, logit: logit{i}}}" for i in range(len(ROWS)))
    return f"""version: 1
model: load
state_dir: ./state
ingest: {{batch_size: {BATCH_SIZE}, batch_warmup: {{first: 0}}, format: json}}
tables:
{tables}
slots:
{slots}
  numbers: {{kind: dense, dim: 2}}
labels: {{click: {{}}}}
network:
  layers:
{listed}
  optimizer: {LAYERS[layer]}
tasks: [{tasks}]
metrics: {{listen: "127.0.0.1:0", auc_half_life: [{', '.join(HALF_LIVES)}]}}
"""


class Run:
    """One way to read the stream, by the models of all rules of layers at the same time. `values`: (rule of rows, rule of layers, half-life) -> AUC and calibration at
    the end; `batch`: the mean batch."""

    def __init__(self, work, kafka, name):
        self.work, self.kafka, self.name, self.values, self.batch = work, kafka, name, {}, None

    def file(self, kind, lines):
        path = self.work.path / f"{self.name}.{kind}.jsonl"
        path.write_text("".join(lines))
        return path

    def daemon(self, layer, sets, **options):
        path = self.work.path / f"{self.name}-{layer}"
        path.with_suffix(".yaml").write_text(config(layer))
        sets = [f"model={path.name}", f"state_dir={path}", f"ingest.brokers={self.kafka.address}", *sets]
        return self.work.daemon(path.with_suffix(".yaml"), path.with_suffix(".log"), sets, **options)

    def take(self, layer):
        tasks = json.loads(tool("dump", "--state-dir", self.work.path / f"{self.name}-{layer}", "--metrics")[1])["tasks"]
        for i, row in enumerate(ROWS):
            for half_life, decayed in tasks[f"task{i}"]["decayed"].items():
                self.values[row, layer, half_life] = decayed["auc"], decayed["calibration"]

    def lockstep(self, lines, records):
        file = self.file("read", lines)
        for layer in LAYERS:
            sets = [f"ingest.files=[{file}]", f"ingest.lockstep.records={records}", f"ingest.lockstep.epoch_batches={65536 // records}"]
            self.daemon(layer, sets, wait_http=False).expect_exit(0)
            self.take(layer)
        self.batch = records
        return self

    def backlog(self, lines):
        self.produce(lines)
        daemons = {layer: self.daemon(layer, [f"ingest.topic={self.name}"]) for layer in LAYERS}
        return self.finish(daemons, len(lines), len(lines), 0)

    def paced(self, lines, rate, count):
        """Produces the last `count` lines at `rate`, after the others were read from a file."""
        first, last = lines[:len(lines) - count], lines[len(lines) - count:]
        self.produce([])  # makes the topic
        sets = [f"ingest.topic={self.name}", *([f"ingest.files=[{self.file('first', first)}]"] if first else [])]
        daemons = {layer: self.daemon(layer, sets) for layer in LAYERS}
        for daemon in daemons.values():
            wait_until(lambda: trained(daemon) == len(first) and daemon.get("/readyz")[0] == 200, "the file is read, and the topic is empty")
        before = sum(map(batches, daemons.values()))
        self.produce(last, "--rate", rate)
        return self.finish(daemons, len(lines), count, before)

    def finish(self, daemons, total, count, before):
        """Waits for `total` samples; returns the mean batch of the last `count` of them, without the `before` batches that came earlier."""
        for daemon in daemons.values():
            wait_until(lambda: trained(daemon) == total, f"{self.name}: {total} samples")
        self.batch = len(daemons) * count / (sum(map(batches, daemons.values())) - before)
        for layer, daemon in daemons.items():
            daemon.drain()
            self.take(layer)
        return self

    def produce(self, lines, *more):
        file = self.file("produced", lines)
        tool("produce", "--brokers", self.kafka.address, "--topic", self.name, "--file", file, "--partitions", "1", "--format", "json", *more)


def trained(daemon):
    return daemon.json("/status").get("samples", {}).get("trained")


def batches(daemon):
    return daemon.json("/status")["batches"]


def judge(half_life, runs, stream, attainable):
    """Prints the table of a half-life; returns what is out of bounds."""
    expected, happened, variance = stream.sums(HALF_LIVES[half_life])
    against, centre = ("the labels", 1.0) if half_life in LABELS_TELL else ("the true probabilities", expected / happened)
    print(f"\nover {half_life} ({HALF_LIVES[half_life]} samples): AUC, calibration against {against}; standard error of calibration against the labels "
          f"{variance ** 0.5 / expected:.4f}, that of the true probabilities {expected / happened:.4f}")
    print(f"{'rows':<13}{'layers':<9}" + "".join(f"{run.name:>15}" for run in runs) + f"{'spread':>9}")
    failures = []
    for row, layer in itertools.product(ROWS, LAYERS):
        values = [(a, c / centre) for a, c in (run.values[row, layer, half_life] for run in runs)]
        best, worst = max(a for a, _ in values), min(a for a, _ in values)
        wrong = []
        if best - worst > AUC_TOLERANCE:
            wrong.append("AUC")
        if worst - 0.5 < LEARNT * (attainable - 0.5):
            wrong.append("learns nothing")
        if any(abs(c - 1) > CALIBRATION_TOLERANCE for _, c in values):
            wrong.append("calibration")
        print(f"{row:<13}{layer:<9}" + "".join(f"{f'{a:.4f} {c:.3f}':>15}" for a, c in values) + f"{best - worst:>9.4f}  {', '.join(wrong) or 'ok'}", flush=True)
        failures += [f"over {half_life}, rows by {row}, layers by {layer}: {what}" for what in wrong]
    return failures


def main():
    live = LIVE_ALL if "--all" in sys.argv[1:] else LIVE
    with Workspace() as work, concurrent.futures.ThreadPoolExecutor(1) as first:
        starting = first.submit(Kafka)  # takes ten seconds
        stream = Stream(SAMPLES)
        with starting.result() as kafka, concurrent.futures.ThreadPoolExecutor(4) as pool:
            paced = [pool.submit(Run(work, kafka, f"{rate}-a-second").paced, stream.lines, rate, count) for rate, count in live.items()]  # first: they mostly wait
            jobs = [pool.submit(Run(work, kafka, f"batch-{records}").lockstep, stream.lines, records) for records in BATCHES]
            jobs += [pool.submit(Run(work, kafka, "backlog").backlog, stream.lines), *paced]
            runs = [job.result() for job in jobs]
    attainable = auc(stream.truth, stream.labels)
    print(f"{SAMPLES} samples, {sum(stream.labels) / SAMPLES:.3f} positive, attainable AUC {attainable:.4f}; mean batch of what was live: "
          + ", ".join(f"{run.name} {run.batch:.0f}" for run in runs[len(BATCHES):]))
    failures = sum((judge(half_life, runs, stream, attainable) for half_life in HALF_LIVES), [])
    assert not failures, "\n".join(failures)
    print("all passed, 0 failed")


main()
