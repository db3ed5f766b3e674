"""Freshet beside PyTorch and Vowpal Wabbit: equal samples, equal models, alternate runs; prints rates, processor time, memory and AUC and their ratios, writes JSON.

A row is a model on a stream: `empty`, the whole stream into empty tables, or `steady`, the second half of a stream over fewer ids, most of which are known
by then. `--busy` adds both beside a process that wants a core. Start-up is outside the clock on both sides. A row whose AUCs differ by more than 0.002 is
void. The peer of r16 and light is the fastest of peer_torch.py's variants in a short run, that of lr the faster of peer_vw.py's rules whose AUC is FTRL's.
"""
import argparse
import json
import os
import pathlib
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))
import harness  # noqa: E402
import numpy as np  # noqa: E402
import peer_vw  # noqa: E402
import service  # noqa: E402
import streams  # noqa: E402
from measure import Busy, Failed, Progress, auc, child, say  # noqa: E402

MODELS = ("r16", "r16_bf16", "light", "lr")
PRECISE = {"r16_bf16": ("r16", ["network.precision=bf16"])}  # the model, and what freshetd gets besides its configuration; the peer stays f32
TORCH_VARIANTS = ("sparse", "sparse+passive", "rows", "rows+compile", "rows+compile+passive", "rows+compile+reader", "rows+compile+reader+passive",
                  "fbgemm+compile+reader", "fbgemm+compile+reader+passive")
SAME_AUC = 0.002
PARTITIONS = 4
WHOLE = PARTITIONS * 1024  # samples come in whole batches of whole records, as many from each partition
COMPILED = harness.SOURCE / "build/peers/compiled"
FBGEMM = harness.SOURCE / "build/peers/fbgemm/bin/python"  # FBGEMM's wheel wants a PyTorch of its own


def arguments():
    parser = argparse.ArgumentParser(prog="tests/bench/peers/run", description="Freshet beside PyTorch (CPU) and Vowpal Wabbit.")
    parser.add_argument("--samples", type=int, default=1_500_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2, help="of each side")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--streams", default="empty,steady")
    parser.add_argument("--busy", action="store_true", help="the same beside one other busy process, after the undisturbed rows")
    parser.add_argument("--quick", action="store_true", help="20,000 samples, one turn, the stream `empty`, two variants of PyTorch: whether everything runs")
    parser.add_argument("--ids", type=int, default=1_000_000, help="of each slot; PyTorch's table has 26 times as many rows")
    parser.add_argument("--steady-ids", type=int, default=100_000)
    parser.add_argument("--variants", default=",".join(TORCH_VARIANTS), help="of PyTorch, separated by commas")
    parser.add_argument("--bits", type=int, default=24, help="of Vowpal Wabbit's table")
    parser.add_argument("--limit", type=int, default=1800, help="seconds that one run may take")
    parser.add_argument("--out", type=pathlib.Path, default=harness.SOURCE / "build/peers/result.json")
    given = parser.parse_args()
    if given.quick:
        given.samples, given.turns, given.streams, given.limit = 20_000, 1, "empty", 300
        given.variants = "sparse,rows+compile+reader+passive" if given.variants == ",".join(TORCH_VARIANTS) else given.variants
    given.samples = max(1, -(-given.samples // WHOLE)) * WHOLE
    for name, known in (("models", MODELS), ("streams", ("empty", "steady")), ("variants", TORCH_VARIANTS)):
        chosen = getattr(given, name).split(",")
        if set(chosen) - set(known):
            parser.error(f"--{name}: one or more of {','.join(known)}")
        setattr(given, name, chosen)
    return given


class Torch:
    """The peer of r16 and light."""
    name = "PyTorch"

    def __init__(self, given, source, model):
        self.given, self.source, self.model, self.count = given, source, model, 0
        share = min(given.samples, 60 * 1024)
        rates = {}
        for variant in given.variants:
            try:
                answer = self._run(variant, share, min(given.limit, 600))
                rates[variant] = answer["samples"] / 2 / answer["half_seconds"]  # without the first batches
                say(f"{model}: PyTorch as {variant}: {rates[variant]:,.0f} samples/s in {share:,}")
            except Failed as reason:
                say(f"{model}: PyTorch as {variant} is left out: {reason}")
        if not rates:
            raise Failed("no variant of PyTorch runs")
        self.variant, self.tried = max(rates, key=rates.get), rates

    def _run(self, variant, limit, seconds, seed=1):
        self.count += 1
        asked = {"model": self.model, "brokers": self.source.address, "topic": self.source.topic, "partitions": PARTITIONS, "limit": limit, "variant": variant,
                 "ids": self.source.stream.ids, "threads": self.given.threads, "seed": seed, "name": f"{self.source.topic}-{self.model}-{self.count}"}
        env = {"TORCH_USE_RTLD_GLOBAL": "1", "TORCHINDUCTOR_CACHE_DIR": str(COMPILED), "TORCHINDUCTOR_COMPILE_THREADS": "1",
               "OMP_NUM_THREADS": str(self.given.threads)}
        if "passive" in variant:
            env["OMP_WAIT_POLICY"] = "passive"
        python = FBGEMM if "fbgemm" in variant else sys.executable
        if not pathlib.Path(python).exists():
            raise Failed("FBGEMM is not installed")
        return child([HERE / "peer_torch.py", json.dumps(asked)], seconds, env, python=python)

    def run(self, turn):
        return self._run(self.variant, self.given.samples, self.given.limit, turn + 1)


class Wabbit:
    """The peer of lr. Its order is that of the file and one thread learns, so a variant's AUC is measured once, in a run that writes predictions."""
    name = "Vowpal Wabbit"

    def __init__(self, given, source, model):
        self.given, self.source = given, source
        self.cache = source.folder / f"{source.topic}.cache"
        if not self.cache.exists():
            child([HERE / "peer_vw.py", "cache", source.text, self.cache, given.bits], given.limit)
        predictions, self.tried, self.aucs = source.folder / "predictions", {}, {}
        for variant in peer_vw.VARIANTS:
            answer = self._run(variant, predictions)
            self.aucs[variant] = auc(np.loadtxt(predictions, dtype=np.float32, usecols=0), source.facts.labels)
            self.tried[variant] = answer["samples"] / answer["seconds"]
            say(f"{model}: Vowpal Wabbit as {variant}: {self.tried[variant]:,.0f} samples/s with predictions, AUC {self.aucs[variant]:.4f}")
            predictions.unlink()
        fit = [variant for variant in self.tried if abs(self.aucs[variant] - self.aucs["ftrl"]) <= SAME_AUC]
        self.variant = max(fit, key=self.tried.get)

    def _run(self, variant, *predictions):
        halves = []
        answer = child([HERE / "peer_vw.py", "run", self.cache, variant, self.given.samples, self.given.bits, *predictions], self.given.limit,
                       started=lambda pid: halves.append(peer_vw.Half(pid, self.cache)) or halves[0].start())
        return peer_vw.halved(answer, halves[0])

    def run(self, turn):
        return {**self._run(self.variant), "auc": self.aucs[self.variant]}


class Source:
    """A stream in a topic of its own, and for Vowpal Wabbit in a file."""

    def __init__(self, given, address, folder, kind, with_numbers):
        self.address, self.folder, self.kind = address, folder, kind
        self.topic = f"peers-{kind}-{'full' if with_numbers else 'ids'}"
        self.text = None if with_numbers else folder / f"{self.topic}.txt"
        self.stream = streams.Stream(given.samples, given.ids if kind == "empty" else given.steady_ids)
        self.facts = streams.produce(self.stream, address, self.topic, PARTITIONS, with_numbers, Progress(f"producing {self.topic}", given.samples), self.text)
        attainable = auc(self.facts.probabilities, self.facts.labels)
        say(f"{self.topic}: {given.samples:,} samples, attainable AUC {attainable:.4f}, {self.facts.known_share:.1%} of the second half's ids are known")

    def remove(self):
        streams.remove(self.address, self.topic)
        for path in self.folder.glob(f"{self.topic}.*"):
            path.unlink()


def rate(run, kind):
    return run["samples"] / 2 / run["half_seconds"] if kind == "steady" else run["samples"] / run["seconds"]


def cost(run, kind):
    """Microseconds of processor time a sample."""
    return 1e6 * (run["half_cpu"] / (run["samples"] / 2) if kind == "steady" else run["cpu"] / run["samples"])


def summary(runs, kind):
    """Medians, the least and the largest rate, and the mean of the AUCs: every turn has a seed of its own."""
    rates = [rate(run, kind) for run in runs]
    return {"rate": statistics.median(rates), "rate_least": min(rates), "rate_most": max(rates), "cpu_us": statistics.median(cost(run, kind) for run in runs),
            "peak_bytes": statistics.median(run["peak"] for run in runs), "auc": statistics.mean(run["auc"] for run in runs), "variant": runs[-1]["variant"]}


def report(row):
    label = f"{row['model']} {row['stream']}{' busy' if row['busy'] else ''}"
    if "failed" in row:
        print(f"{label:<18}no result: {row['failed']}", flush=True)
        return
    for name in (row["peer_name"], "freshetd"):
        side = row["freshetd" if name == "freshetd" else "peer"]
        print(f"{label:<18}{name:<15}{side['rate']:>10,.0f} {'(' + format(side['rate_least'], ',.0f') + ' to ' + format(side['rate_most'], ',.0f') + ')':<24}"
              f"{side['cpu_us']:>9.2f}{side['peak_bytes'] / 1e6:>10,.0f}{side['auc']:>9.4f}  {side['variant']}")
    ratio = row["ratio"]
    print(f"{label:<18}{'ratio':<15}{ratio['rate']:>10.2f} {'(' + format(ratio['rate_least'], '.2f') + ' to ' + format(ratio['rate_most'], '.2f') + ')':<24}"
          f"{ratio['cpu_us']:>9.2f}{ratio['peak_bytes']:>10.2f}{ratio['auc_difference']:>+9.4f}  {row['verdict']}", flush=True)


def compare(given, source, model, busy):
    """One row."""
    row = {"model": model, "stream": source.kind, "busy": busy, "known_share": source.facts.known_share}
    runs = {"peer": [], "freshetd": []}
    try:
        base, sets = PRECISE.get(model, (model, []))
        peer = (Wabbit if model == "lr" else Torch)(given, source, base)
        for turn in range(given.turns):
            name = f"{source.topic}-{model}{'-busy' if busy else ''}-{turn + 1}"
            runs["peer"].append(peer.run(turn))
            runs["freshetd"].append(service.run(HERE / f"{base}.yaml", source, given.samples, name, turn + 1, given.threads, given.limit, sets))
            streams.remove(source.address, f"{name}.delta")
            both = [runs[side][-1] for side in ("peer", "freshetd")]
            say(f"{name}: " + ", ".join(f"{who} {rate(run, source.kind):,.0f}/s, {cost(run, source.kind):.2f} us, AUC {run['auc']:.4f}"
                                        for who, run in zip((peer.name, "freshetd"), both)))
    except Failed as reason:
        return {**row, "runs": runs, "failed": str(reason)}
    peers, own = summary(runs["peer"], source.kind), summary(runs["freshetd"], source.kind)
    turns = [rate(b, source.kind) / rate(a, source.kind) for a, b in zip(runs["peer"], runs["freshetd"])]
    ratio = {"rate": own["rate"] / peers["rate"], "rate_least": min(turns), "rate_most": max(turns), "cpu_us": own["cpu_us"] / peers["cpu_us"],
             "peak_bytes": own["peak_bytes"] / peers["peak_bytes"], "auc_difference": own["auc"] - peers["auc"]}
    return {**row, "peer_name": peer.name, "peer_variants": peer.tried, "peer": peers, "freshetd": own, "ratio": ratio, "runs": runs,
            "verdict": "quick: no verdict" if given.quick else "ok" if abs(ratio["auc_difference"]) <= SAME_AUC else "void"}


def kept_beside_busy(rows):
    """What each side keeps of its undisturbed rate."""
    for row in rows:
        quiet = next((other for other in rows if not other["busy"] and (other["model"], other["stream"]) == (row["model"], row["stream"])), None)
        if row["busy"] and "peer" in row and quiet and "peer" in quiet:
            row["kept"] = {side: row[side]["rate"] / quiet[side]["rate"] for side in ("peer", "freshetd")}
            print(f"{row['model']} {row['stream']}: beside a busy process {row['peer_name']} keeps {row['kept']['peer']:.0%} of its rate, "
                  f"freshetd {row['kept']['freshetd']:.0%}")


def write(given, rows):
    machine = {"processor": next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine()),
               "cores": os.cpu_count(), "load": os.getloadavg()}
    asked = {key: str(value) if isinstance(value, pathlib.Path) else value for key, value in vars(given).items()}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    document = {"when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "machine": machine, "asked": asked, "rows": rows}
    given.out.write_text(json.dumps(document, indent=1) + "\n")


def all_rows(given, address, folder):
    rows = []
    for kind in given.streams:
        for with_numbers in (True, False):
            models = [model for model in given.models if (model != "lr") == with_numbers]
            if not models:
                continue
            source = Source(given, address, folder, kind, with_numbers)
            for busy in (False, True) if given.busy else (False,):
                for model in models:
                    if busy:
                        with Busy():
                            rows.append(compare(given, source, model, True))
                    else:
                        rows.append(compare(given, source, model, False))
                    report(rows[-1])
                    write(given, rows)
            source.remove()
    return rows


def needed():
    if not service.PROGRAM.exists():
        harness.skip(f"no freshetd at {service.PROGRAM}; build it, or set FRESHET_BUILD")
    if not shutil.which("java"):
        harness.skip("Kafka needs Java 17 or later")
    if not shutil.which("mvn") and not list((harness.SOURCE / "build/kafka/lib").glob(".complete-*")):
        harness.skip("Kafka's jars need Maven")


def main():
    given = arguments()
    needed()
    for number in (signal.SIGTERM, signal.SIGINT):  # what was started is ended, files are removed
        signal.signal(number, lambda received, _: sys.exit(128 + received))
    COMPILED.mkdir(parents=True, exist_ok=True)
    with harness.Workspace() as work:
        try:
            kafka = harness.Kafka()
        except (subprocess.SubprocessError, OSError) as reason:
            harness.skip(f"Kafka did not start: {reason}")
        with kafka:
            print(f"{'row':<18}{'who':<15}{'samples/s':>10} {'(least to most)':<24}{'CPU us':>9}{'peak MB':>10}{'AUC':>9}  variant", flush=True)
            rows = all_rows(given, kafka.address, work.path)
    kept_beside_busy(rows)
    write(given, rows)
    print("written:", given.out)
    sys.exit(1 if any("failed" in row for row in rows) else 0)


main()
