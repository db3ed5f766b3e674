"""Good out of the box: conf/samples/general.yaml with its slots renamed, and nothing else changed, compared with the best reference run of any model.

Every public stream of 10^4 samples or more is read as a backlog from a topic of one partition on a real Apache Kafka, with default batches: live mode, small
while the model is young, then `batch_size`. A slot of the stream takes the place of the sample's slot of its kind: one id, several ids, numbers. Asserted: the
progressive AUC of the whole stream is at least that of the best reference run of the data folder (`reference.jsonl`, whatever model) less MARGIN.

    out_of_box.py [STREAM...]
"""
import gzip
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import *  # noqa: E402,F403

MARGIN = 0.005
SAMPLE = SOURCE / "conf/samples/general.yaml"
STREAMS = ("adult", "hillstrom", "open_bandit", "ml", "grocery", "globo_200k")
TAGS = {"open_bandit": "obd"}  # names of the reference runs that differ from the stream's
ALIKE = {"hist": "item", "hist_neg": "item", "prev": "item", "hist_cat": "cat"}  # slots that name the same things: one table
ONE, MANY, NUMBERS = "user_id", "history", "numbers"  # the sample's slot of each kind


def slots_of(path):
    """Slot -> kind, and the width of the numbers, from the first lines of a stream."""
    kinds, width = {}, 0
    with gzip.open(path, "rt") as lines:
        for _, line in zip(range(1000), lines):
            sample = json.loads(line)
            for name, value in sample["f"].items():
                if name == "dense":
                    width = len(value)
                else:
                    kinds[name] = MANY if isinstance(value, list) else kinds.get(name, ONE)
    return kinds, width, len(sample["y"]) if isinstance(sample["y"], list) else 1


def renamed(config, kinds, width, n_labels):
    """The sample's text with the stream's slots in place of its own; the rest of the text stays."""
    text = re.sub(r"^ *#.*\n| +#.*$", "", SAMPLE.read_text(), flags=re.M)
    table = text[text.index("  user: &table"):text.index("  item: *table")]
    tables = [name for name in kinds if name not in ALIKE]
    text = text[:text.index("tables:")] + "tables:\n" + table.replace("user:", tables[0] + ":", 1) + "".join(f"  {name}: *table\n" for name in tables[1:]) + "\n" + \
        text[text.index("slots:"):]
    numbers = re.search(r"^  numbers: (.*)$", text, re.M).group(1).replace("dim: 2", f"dim: {width}")
    slots = "".join(f"  {name}: {{table: {ALIKE.get(name, name)}}}\n" for name in kinds) + f"  {NUMBERS}: {numbers}\n".replace(NUMBERS, "dense")
    text = text[:text.index("slots:")] + "slots:\n" + slots + "\n" + text[text.index("labels:"):]
    for part in "wv":
        refs = ", ".join(f"{{mean: {name}.{part}}}" if kind == MANY else f"{name}.{part}" for name, kind in kinds.items())
        text = re.sub(rf"user_id\.{part}.*?device\.{part}", refs, text)
    text = text.replace(NUMBERS, "dense")
    labels = ["click"] + [f"other_{i}" for i in range(1, n_labels)]
    text = re.sub(r"^labels: .*$", "labels: {" + ", ".join(f"{name}: {{}}" for name in labels) + "}", text, flags=re.M)
    text = re.sub(r"^metrics: .*$", "", text, flags=re.M)
    config.write_text(text)


def best_reference(stream_name):
    """(AUC, model) of the best model on the stream's first label: mean over its seeds."""
    runs = {}
    for line in open(DATA.parent / "reference.jsonl"):
        run = json.loads(line)
        if run["tag"] == TAGS.get(stream_name, stream_name) and run["label"] == 0:
            runs.setdefault(run["model"], []).append(run["auc"])
    return max((sum(aucs) / len(aucs), model) for model, aucs in runs.items())


def lifetime(work, kafka, stream_name):
    path = stream(stream_name)
    config = work.path / f"{stream_name}.yaml"
    renamed(config, *slots_of(path))
    tool("produce", "--brokers", kafka.address, "--topic", stream_name, "--file", path, "--partitions", "1", "--format", "msgpack")
    state = work.path / f"{stream_name}-state"
    daemon = work.daemon(config, work.path / f"{stream_name}.log",
                         [f"ingest.brokers={kafka.address}", f"ingest.topic={stream_name}", f"model={stream_name}", f"state_dir={state}"], ["--until", "end"],
                         wait_http=False)
    daemon.expect_exit(0)
    result = json.loads(tool("dump", "--state-dir", state, "--metrics")[1])["tasks"]["click"]["lifetime"]
    shutil.rmtree(state)
    return result


def main():
    if not (DATA.parent / "reference.jsonl").exists():
        skip(f"no reference runs at {DATA.parent / 'reference.jsonl'}")
    failures = []
    with Workspace() as work, Kafka() as kafka:
        print(f"{'stream':<12}{'samples':>9}{'AUC':>9}{'best':>9}  {'of':<9}{'difference':>10}{'log loss':>10}{'calibration':>12}", flush=True)
        for name in sys.argv[1:] or STREAMS:
            mine, (best, model) = lifetime(work, kafka, name), best_reference(name)
            print(f"{name:<12}{mine['weight']:>9.0f}{mine['auc']:>9.4f}{best:>9.4f}  {model:<9}{mine['auc'] - best:>+10.4f}{mine['logloss']:>10.4f}"
                  f"{mine['calibration']:>12.3f}", flush=True)
            if not mine["auc"] >= best - MARGIN:
                failures.append(name)
    assert not failures, f"more than {MARGIN} below the best reference: {', '.join(failures)}"
    print("ok")


if __name__ == "__main__":
    main()
