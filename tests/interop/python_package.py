"""The Python package, built as a wheel and installed: a replica that follows a topic, from several threads; deltas and snapshots by the format alone; Parquet and back
into a new state; the dense network in ONNX with scores equal within 1e-5 in the logit, by onnxruntime.
"""
import concurrent.futures
import hashlib
import math
import os
import pathlib
import random
import runpy
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import *  # noqa: E402,F403

import numpy as np  # noqa: E402

SAMPLES, CHECKED = 1500, 200
USERS, ITEMS, DIM = 50, 40, 4
RESERVE = "127.0.0.1:9"

KINDS = runpy.run_path(str(SOURCE / "replica/python/freshet/_kinds.py"))  # what the package knows of losses

LAYERS = [
    {"name": "x", "concat": ["user_id", "item_id.v", {"mean": "tags.v"}, "price", "age", "plain"]},
    {"name": "f", "fm": ["user_id", "item_id.v", {"sqrtn": "tags.v"}]},
    {"name": "bi", "bi_interaction": ["user_id", "item_id.v", {"sum": "history.v"}, {"max": "tags.v"}]},
    {"name": "dot", "dot_interaction": ["user_id", "item_id.v", "bi", {"mean": "tags.v"}]},
    {"name": "att", "attention": {"query": "item_id.v", "keys": "history.v"}, "units": [6]},
    {"name": "soft", "attention": {"query": "item_id.v", "keys": "history.v"}, "units": [5], "activation": "sigmoid", "softmax": True},
    {"name": "full", "cross": "x", "depth": 2},
    {"name": "low", "cross": "x", "depth": 1, "rank": 3},
    {"name": "mul", "multiply": ["user_id", "item_id.v"]},
    {"name": "norm", "layer_norm": "x"},
    {"name": "shift", "bias": "mul"},
    {"name": "soften", "activate": "shift", "activation": "gelu"},
    {"name": "drop", "dropout": "soften", "rate": 0.2},
    {"name": "stop", "stop_gradient": "mul"},
    {"name": "steps", "dense": ["history.v"], "units": 4, "activation": "leaky_relu"},
    {"name": "mean_steps", "mean": "steps"},
    {"name": "root_steps", "sqrtn": "steps"},
    {"name": "all_steps", "sum": "steps"},
    {"name": "max_steps", "max": "steps"},
    {"name": "last_step", "last": "steps"},
    {"name": "states", "gru": ["history.v"], "units": 5},
    {"name": "last_state", "last": "states"},
    {"name": "mean_state", "mean": "states"},
    {"name": "interest", "augru": {"query": ["item_id.v", "price"], "keys": "states"}},
    {"name": "ex", "experts": "x", "count": 2, "units": [5, 3]},
    {"name": "mix", "mixture": {"gate": "x", "experts": "ex"}},
    {"name": "h", "mlp": ["x", "f", "dot", "att", "soft", "full", "low", "norm", "drop", "stop", "mean_steps", "root_steps", "all_steps", "max_steps", "last_step", "last_state", "mean_state", "interest", "mix"],
     "units": [8, 6], "activation": "dice"},
    {"name": "g", "dense": "h", "units": 5, "activation": "prelu"},
    {"name": "z", "dense": ["g", "norm"], "units": 1},
    {"name": "wide", "sum": ["item_id.w", {"sum": "history.w"}]},
    {"name": "out", "add": ["z", "wide"]},
    {"name": "t", "dense": "g", "units": 4, "activation": "tanh"},
    {"name": "buy_out", "dense": "t", "units": 1},
    {"name": "stars", "dense": "x", "units": 1},
    {"name": "any", "dense": "mul", "units": 1},
]
CONFIG = {
    "version": 1, "epoch": "100ms", "memory_limit": "64MiB", "threads": 1, "metrics": {"listen": "127.0.0.1:0"},
    "tables": {"user": {"dim": DIM}, "item": {"parts": {"w": {"dim": 1, "optimizer": {"ftrl": {"lr": 0.1}}}, "v": {"dim": DIM, "init": {"normal": 0.3}}}}},
    "slots": {"user_id": {"table": "user"}, "item_id": {"table": "item"}, "tags": {"table": "item", "namespace": "tags"}, "history": {"table": "item", "kind": "sequence", "max_len": 6, "admit": "never"},
              "price": {"kind": "dense", "dim": 2, "transform": ["log1p", "standardize"], "indicator": True},
              "age": {"kind": "dense", "dim": 1, "transform": {"bucketize": [18, 40, 65]}, "default": 30}, "plain": {"kind": "dense", "dim": 1, "transform": {"clip": [-1, 1]}, "default": 0.5}},
    "labels": {"click": {}, "buy": {}, "rating": {}}, "network": {"layers": LAYERS, "optimizer": {"adam": {"lr": 0.005}}},
    "tasks": [{"name": "click", "label": "click", "logit": "out"}, {"name": "buy", "label": "buy", "logit": "buy_out"}, {"name": "both", "label": "buy", "prob": ["click", "buy"]},
              {"name": "rating", "label": "rating", "logit": "stars", "loss": "mse"},
              *({"name": "of_" + loss, "label": "click", "logit": "any", "loss": loss} for loss in KINDS["LOSSES"])],
}


def samples(count, seed):
    rng = random.Random(seed)
    for i in range(count):
        user, item = rng.randrange(USERS), rng.randrange(ITEMS)
        f = {"user_id": f"u{user}", "item_id": item, "tags": [f"tag{rng.randrange(9)}" for _ in range(rng.randrange(4))], "history": [rng.randrange(ITEMS + 9) for _ in range(rng.randrange(8))],
             "price": [rng.random() * 90, rng.random() * 5], "age": rng.randrange(80), "plain": rng.uniform(-2, 2)}
        for slot in ("price", "age", "plain"):
            if rng.random() < 0.1:
                del f[slot]
        click = int(rng.random() < 1 / (1 + math.exp(-math.sin(user * 3 + item))))
        yield {"t": 1790000000000 + i, "f": f, "y": {"click": click, "buy": click * rng.randrange(2), "rating": rng.randrange(5)}}


def installed(work):
    """The wheel, built from this tree and unpacked as pip does."""
    environment = {**os.environ, "FRESHET_BUILD": str(BUILD)}
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    source = work.path / "source/replica/python"  # a copy, so that nothing is left in the tree
    shutil.copytree(SOURCE / "replica/python", source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", work.path / "wheel", source], check=True, env=environment)
    wheel, = (work.path / "wheel").glob("freshet-*-py3-none-linux_*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", work.path / "site", wheel], check=True)
    sys.path.insert(0, str(work.path / "site"))
    library = work.path / "site/freshet/libfreshet_replica.so"
    assert library.exists() and (work.path / "site/freshet/py.typed").exists()
    needed = subprocess.run(["readelf", "-d", library], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert not re.search("NEEDED.*freshet", needed) and str(BUILD) not in needed, "all of Freshet is in it, and nothing points into the build tree: " + needed
    import freshet
    assert pathlib.Path(freshet.__file__).is_relative_to(work.path)
    loaded = set(re.findall(r"\S*libfreshet\S*", pathlib.Path("/proc/self/maps").read_text()))
    assert loaded == {str(library)}, loaded


class Cases:
    def __init__(self, work, broker):
        self.work, self.path, self.broker = work, work.path, broker
        self.samples = list(samples(SAMPLES, 1))
        self.file = self.path / "samples.jsonl"
        self.file.write_text("".join(json.dumps(s) + "\n" for s in self.samples))
        self.config = self.write_config("state")
        work.daemon(self.config, self.path / "daemon.log", arguments=["--until", "end"], wait_http=False).expect_exit(0)
        self.dump = self.path / "dump.jsonl"
        self.dump.write_text(tool("dump", "--state-dir", self.path / "state")[1])
        self.lines = [json.loads(line) for line in self.dump.read_text().splitlines()]
        self.replica = freshet.Replica.follow(broker.address, "state.delta")

    def write_config(self, name, **changes):
        path = self.path / f"{name}.yaml"
        path.write_text(json.dumps({**CONFIG, "model": name, "state_dir": str(self.path / name), "ingest": {"brokers": self.broker.address, "files": [str(self.file)],
                                    "batch_size": 32, "batch_warmup": {"first": 0}}, **changes}))
        return path

    def a_replica_follows_the_topic(self):
        self.replica.dump(self.path / "served.jsonl")
        assert (self.path / "served.jsonl").read_text() == self.dump.read_text()
        info, last = self.replica.info, self.lines[-1]
        assert info.epoch == last["epoch"] and info.scorable and info.samples == SAMPLES and self.replica.problem == "", info
        assert self.replica.tasks[:4] == ["click", "buy", "both", "rating"] and self.replica.slots["price"] == "" and self.replica.slots["tags"] == "item"
        assert self.replica.tables["item"].parts == {"w": 1, "v": DIM} and self.replica.tables["item"].rows == sum(line.get("table") == "item" for line in self.lines)

    def rows_are_those_of_the_dump(self):
        wanted = {int(line["key"]): line["parts"]["w"] + line["parts"]["v"] for line in self.lines if line.get("table") == "item"}
        keys, values = self.replica.rows("item")
        assert values.dtype == np.float32 and list(map(int, keys)) == sorted(wanted)
        np.testing.assert_array_equal(values, np.array([wanted[int(key)] for key in keys], np.float32))
        some = np.array([int(keys[3]), 12345, int(keys[0])], np.uint64)
        picked, found = self.replica.lookup("item", some, part="v")
        assert found.tolist() == [True, False, True] and not picked[1].any()
        np.testing.assert_array_equal(picked[[0, 2]], values[[3, 0]][:, 1:])
        row = json.loads(tool("row", "--slot", "user_id", "--id", "u7", "--state-dir", self.path / "state")[1])
        by_id, found = self.replica.lookup(slot="user_id", ids=["u7", "nobody"])
        assert found.tolist() == [True, False] and by_id[0].tolist() == np.array(row["parts"]["v"], np.float32).tolist()
        assert self.replica.key("user_id", "u7") == int(row["key"]) and self.replica.key("item_id", 5) == self.replica.key("item_id", "5")

    def scores_are_those_of_the_tool(self):
        lines = tool("score", "--file", self.file, "--dump", self.dump, "--state-dir", self.path / "state")[1].splitlines()
        wanted = {task: np.array([json.loads(line)[task] for line in lines], np.float32) for task in self.replica.tasks}
        forms = {"a list": self.replica.score(self.samples[:CHECKED]), "JSON": self.replica.score(json.dumps(self.samples[:CHECKED])),
                 "columns": self.replica.score({"n": CHECKED, "cols": {slot: [s["f"].get(slot) for s in self.samples[:CHECKED]] for slot in self.replica.slots}})}
        for form, got in forms.items():
            for task in wanted:
                assert got[task].dtype == np.float32 and got[task].tolist() == wanted[task][:CHECKED].tolist(), (form, task)
        everything = self.replica.score(self.samples * 4)  # more than have room at once
        assert len(everything["click"]) == 4 * SAMPLES and everything["click"][-SAMPLES:].tolist() == wanted["click"].tolist()
        one = self.replica.score({"f": {"user_id": np.str_("u7"), "item_id": np.int64(3), "plain": np.float32(0.25), "history": np.array([1, 2])}})
        assert one["click"].shape == (1,)
        columns = self.replica.score_columns({"item_id": np.arange(5), "user_id": [f"u{i}" for i in range(5)], "price": np.ones((5, 2)), "plain": np.linspace(-1, 1, 5)})
        same = self.replica.score([{"f": {"item_id": i, "user_id": f"u{i}", "price": [1, 1], "plain": -1 + i / 2}} for i in range(5)])
        assert columns["both"].tolist() == same["both"].tolist()
        assert self.replica.ignored({"f": {"user": 1, "user_id": 2}}) == (1, ["user"])

    def many_threads_read_while_one_feeds(self):
        wanted = self.replica.score(self.samples[:40])["click"].tolist()
        records = self.records()
        with freshet.Replica() as replica, concurrent.futures.ThreadPoolExecutor(4) as pool:
            try:
                replica.score(self.samples[:1])
                raise AssertionError("nothing is served yet")
            except freshet.NotReady:
                pass
            waiting = list(records)
            while waiting:
                partition, value = waiting.pop(0)
                if replica.feed(partition, value).again:
                    waiting.append((partition, value))
            scored = [pool.submit(lambda: replica.score(self.samples[:40])["click"].tolist()) for _ in range(40)]
            looked = [pool.submit(lambda: replica.rows("item")[0].size) for _ in range(40)]
            for partition, value in records:  # duplicates, and what was applied
                assert not replica.feed(partition, value).applied
            assert all(f.result() == wanted for f in scored) and {f.result() for f in looked} == {self.replica.tables["item"].rows}
        replica.close()
        for call in (lambda: replica.info, lambda: replica.feed(0, b"")):
            try:
                call()
                raise AssertionError("closed")
            except ValueError:
                pass

    def records(self):
        import delta
        return [(partition, value) for partition, values in delta.read_topic(self.broker.address, "state.delta").items() for _, value in values]

    def what_is_wrong_is_said(self):
        r = self.replica
        piped = {name: self.path / f"piped-{name}" for name in ("CURRENT", "MANIFEST.json")}
        for name, folder in piped.items():  # an ordinary open would wait for a writer without end
            folder.mkdir()
            os.mkfifo(folder / name)
        cases = [(lambda: freshet.Snapshot(piped["CURRENT"]), freshet.BadRecord, "is not a regular file"),
                 (lambda: freshet.Snapshot(piped["MANIFEST.json"]), freshet.BadRecord, "is not a regular file"),
                 (lambda: r.lookup("nothing", [1]), freshet.NotFound, "table nothing"), (lambda: r.lookup("item", [1], part="x"), freshet.NotFound, "part x"),
                 (lambda: r.lookup("item", [-1]), freshet.BadInput, "integers from 0"), (lambda: r.lookup("item"), freshet.BadInput, "takes a table and keys"),
                 (lambda: r.lookup("item", [1.5]), freshet.BadInput, "integers from 0"), (lambda: r.key("price", 1), freshet.NotFound, "slot price"),
                 (lambda: r.key("user_id", 1.5), freshet.BadInput, "integer or a string"), (lambda: r.key("user_id", 2**64), freshet.BadInput, "64-bit"),
                 (lambda: r.score({"f": {"user_id": [[1]]}}), freshet.BadInput, "$.f.user_id"), (lambda: r.score("{"), freshet.BadInput, "samples"),
                 (lambda: r.score({"f": {}}, format="xml") and r.score(b"", format="xml"), freshet.BadInput, "not xml"), (lambda: r.score_columns({"user_id": [1], "item_id": [1, 2]}), freshet.BadInput, "one length"),
                 (lambda: r.score([{"f": {"user_id": object()}}]), TypeError, "cannot hold object"), (lambda: r.load(self.path / "nothing"), freshet.NotFound, "nothing"),
                 (lambda: freshet.Replica(model="other").feed(*self.records()[0]), freshet.Mismatch, "partition"), (lambda: freshet.read_record(b"x" * 20), freshet.BadRecord, "no crc"),
                 (lambda: freshet.Replica.follow(self.broker.address, "state.delta", model="other"), freshet.Mismatch, "model")]
        for call, kind, text in cases:
            try:
                call()
            except kind as error:
                assert text in str(error), (text, str(error))
            else:
                raise AssertionError(f"no {kind.__name__}: {text}")

    def a_wrong_hint_of_a_snapshot_is_met_by_reading_from_the_beginning(self):
        import confluent_kafka
        import delta
        self.work.daemon(self.write_config("hinted", epoch="1ms"), self.path / "hinted.log", arguments=["--until", "end"], wait_http=False).expect_exit(0)
        records = {p: [value for _, value in of] for p, of in delta.read_topic(self.broker.address, "hinted.delta").items()}
        epochs = {p: [freshet.read_record(value)["e"] for value in of] for p, of in records.items()}
        behind = {p: of.index(2) for p, of in epochs.items()}  # epoch 1
        assert all(max(of) > 3 for of in epochs.values())
        producer, odd = confluent_kafka.Producer({"bootstrap.servers": self.broker.address}), {}
        for p, of in records.items():  # a commit of epoch 1 again behind epoch 2, as a resend leaves it
            odd[p] = epochs[p].index(3) + 1
            for value in [*of[:odd[p] - 1], of[behind[p] - 1], *of[odd[p] - 1:]]:
                producer.produce("odd.delta", value, partition=p)
        assert producer.flush(60) == 0
        hints = {"the end": ("hinted.delta", {p: len(of) for p, of in records.items()}),
                 "epoch 3": ("hinted.delta", {p: of.index(3) for p, of in epochs.items()}),
                 "behind a commit of epoch 1": ("odd.delta", odd)}
        for number, (hint, (topic, offsets)) in enumerate(hints.items()):
            snapshot = self.snapshot("hinted", f"hint{number}", [offsets[p] for p in sorted(offsets)])
            with freshet.Replica.follow(self.broker.address, topic, snapshots=snapshot, config={"fetch.wait.max.ms": 20}) as replica:
                assert replica.info.epoch == max(epochs[0]) and replica.problem == "", (hint, replica.info)

    def snapshot(self, name, folder=None, offsets=()):
        """A snapshot by the text of docs/formats/snapshots.md, of an epoch 1 that holds all of the state: its first one, or the one that an import is published with."""
        import delta
        state, model, files = self.path / (folder or name), {}, []  # files: [partition, table, records with their rows], one for each run of records of a table
        state.mkdir()
        for partition, values in delta.read_topic(self.broker.address, f"{name}.delta").items():
            for record, value in sorted(((freshet.read_record(value), value) for _, value in values), key=lambda r: r[0]["i"]):
                if record["e"] == 1:
                    model.update(fp=record["fp"], dig=record["dig"], np=record["np"], model=record["m"])
                    if not files or files[-1][:2] != [partition, record.get("tb")]:
                        files.append([partition, record.get("tb"), []])
                    files[-1][2].append((value, len(record.get("keys", ()))))
        listed = []
        for i, (partition, table, records) in enumerate(files):
            data = b"".join(struct.pack("<I", len(value)) + value for value, _ in records)
            (state / f"part.{i}").write_bytes(data)
            listed.append({"name": f"part.{i}", "table": table, "partition": partition, "rows": sum(n for _, n in records), "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})
        manifest = {"v": 1, "model": model["model"], "fp": str(model["fp"]), "tl": 1, "e": 1, "dig": str(model["dig"]), "t": 0, "wm": 0, "np": model["np"], "topic": f"{name}.delta", "off": {},
                    "delta_offsets": list(offsets), "parent": None, "files": listed}
        (state / "MANIFEST.json").write_text(json.dumps(manifest))
        return state

    def tables_go_to_parquet_and_back(self):
        import pyarrow.parquet as pq
        # the trained rows as Parquet and the layers as .npz, from the replica; they become a state, its topic a snapshot, and that Parquet again
        first = self.path / "tables"
        first.mkdir()
        import pyarrow as pa
        for name, table in self.replica.tables.items():
            keys, values = self.replica.rows(name)
            columns, at = {"key": pa.array(keys)}, 0
            for part, dim in table.parts.items():
                columns[part] = pa.array(values[:, at:at + dim].tolist(), pa.list_(pa.float64()))
                at += dim
            pq.write_table(pa.table(columns), first / f"{name}.parquet", row_group_size=17)
        np.savez(first / "dense.npz", **{line["dense"]: np.array(line["values"], np.float32).reshape(line["shape"]) for line in self.lines if "dense" in line})
        command = [sys.executable, "-m", "freshet"]
        environment = {**os.environ, "PYTHONPATH": str(self.path / "site")}

        def run(*arguments):
            return subprocess.run([*command, *map(str, arguments)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        config = self.write_config("warm", ingest={"brokers": self.broker.address, "topic": "warm"})
        tables = [f"--table=user={first / 'user.parquet'}", f"--table=item={first / 'item.parquet'}"]
        done = run("import", "--config", config, *tables, "--dense", first / "dense.npz", "--program", BUILD / "tool/freshet")
        assert done.returncode == 0 and f"dense={sum('dense' in line for line in self.lines)} of" in done.stdout, done
        again = [json.loads(line) for line in tool("dump", "--state-dir", self.path / "warm")[1].splitlines()]
        assert again[:-1] == self.lines[:-1], "the same rows and parameters"
        dense = {line["dense"]: np.array(line["values"], np.float32).reshape(line["shape"]) for line in self.lines if "dense" in line}
        trained = {name: array for name, array in dense.items() if name.split("/")[-1] not in ("mean", "variance", "count")}
        states = {name + ".state": np.ones((2, *array.shape)) for name, array in trained.items()}
        np.savez(first / "states.npz", **dense, **states, **{name + ".samples": 640 for name in trained})
        moments = self.write_config("moments", ingest={"brokers": self.broker.address, "topic": "moments"})
        done = run("import", "--config", moments, *tables, "--dense", first / "states.npz", "--program", BUILD / "tool/freshet")
        assert done.returncode == 0 and f"states={len(trained)} " in done.stdout, done
        done = run("import", "--config", self.write_config("refused"), "--dense", first / "dense.npz", "--program", self.path / "nowhere")
        assert done.returncode == 1 and "nowhere is not there" in done.stderr and "--program" in done.stderr, done
        counts = [float(array[0]) for name, array in dense.items() if name.endswith("/count")]
        assert max(counts) > 100, "a state that is made of it continues its statistics"
        hashes = [line for name in ("warm", "moments") for line in tool("dump", "--state-dir", self.path / name, "--private")[1].splitlines() if line.startswith('{"dense_state"')]
        assert len(hashes) == 2 and hashes[0] != hashes[1], hashes
        np.savez(first / "lost.npz", **{"x/kernel.state": np.ones((2, 3))})
        done = run("import", "--config", self.write_config("refused"), "--dense", first / "lost.npz", "--program", BUILD / "tool/freshet")
        assert done.returncode == 1 and "x/kernel.state is of no parameter here" in done.stderr, done
        daemon = self.work.daemon(config, self.path / "warm.log")
        wait_until(lambda: daemon.json("/status").get("acked") == 1, "the import is published")
        daemon.drain()
        (self.path / "warm").rename(self.path / "warm.state")
        snapshot = self.snapshot("warm")
        with freshet.Replica() as replica:
            replica.load(snapshot)
            assert replica.score(self.samples[:9])["click"].tolist() == self.replica.score(self.samples[:9])["click"].tolist()
        scored = tool("score", "--file", self.file, "--snapshot", snapshot)[1]
        assert scored == tool("score", "--file", self.file, "--dump", self.dump, "--state-dir", self.path / "state")[1]
        arguments = ["evaluate", "--file", self.file, "--by-label", "buy"]
        of_dump = tool(*arguments, "--config", self.path / "state.yaml", "--dump", self.dump)[1].splitlines()
        assert tool(*arguments, "--config", config, "--snapshot", snapshot)[1].splitlines()[1:] == of_dump[1:] and len(of_dump) > 10
        rc, _, error = tool("score", "--file", self.file, "--snapshot", self.path, check=False)
        assert rc == 1 and "MANIFEST.json" in error, error
        done = run("to-parquet", snapshot, self.path / "out")
        assert done.returncode == 0, done
        for name, table in self.replica.tables.items():
            read = pq.read_table(self.path / "out" / f"{name}.parquet")
            order = np.argsort(read.column("key").to_numpy())
            keys, values = self.replica.rows(name)
            flat = np.concatenate([np.array(read.column(part).to_pylist(), np.float32) for part in table.parts], 1)
            assert read.column("key").to_numpy()[order].tolist() == keys.tolist() and flat[order].tolist() == values.tolist(), name
            assert read.schema.metadata[b"freshet.epoch"] == b"1"
        with np.load(self.path / "out/dense.npz") as arrays:
            assert {name: arrays[name].ravel().tolist() for name in arrays.files} == {line["dense"]: np.array(line["values"], np.float32).tolist() for line in self.lines if "dense" in line}
        done = run("to-parquet", snapshot, self.path / "out")
        assert done.returncode == 1 and "exists" in done.stderr, done
        part, = [snapshot / f["name"] for f in json.loads((snapshot / "MANIFEST.json").read_text())["files"] if f["table"] == "user"][:1]
        for damage, reason in ((lambda b: b[:-3], "cut short"), (lambda b: b[:40] + bytes([b[40] ^ 1]) + b[41:], "crc")):
            whole = part.read_bytes()
            part.write_bytes(damage(whole))
            done = run("to-parquet", snapshot, self.path / "damaged")
            assert done.returncode == 1 and (reason in done.stderr or "manifest says" in done.stderr) and not list(self.path.glob("damaged*")), done
            part.write_bytes(whole)
        table = pa.table({"key": pa.array([1, 1], pa.uint64()), "v": pa.array([[1.0] * DIM] * 2)})
        pq.write_table(table, first / "twice.parquet")
        pq.write_table(pa.table({"key": pa.array([1], pa.uint64()), "v": pa.array([[1.0, float("nan"), 1, 1]])}), first / "nan.parquet")
        pq.write_table(pa.table({"what": [1]}), first / "what.parquet")
        for name, text in (("twice", "twice.parquet, line 2: key 1 of table user comes twice"), ("nan", "nan.parquet, row 1: a number is not finite"), ("what", "expected key or id"), ("none", "none.parquet")):
            done = run("import", "--config", self.write_config("refused"), f"--table=user={first / name}.parquet", "--program", BUILD / "tool/freshet")
            assert done.returncode == 1 and text in done.stderr and not (self.path / "refused").exists(), done

    def the_network_in_onnx_scores_the_same(self):
        import onnx
        import onnxruntime
        from freshet.network import Unsupported, _Graph, to_onnx
        missing = [op for op in KINDS["OPERATIONS"] if not hasattr(_Graph, "op_" + op)]
        assert not missing, f"freshet/network.py has no op_{missing[0]}"
        done = subprocess.run([sys.executable, "-m", "freshet", "to-onnx", "--dump", self.dump, "--model", self.path / "state/model.json", "--out", self.path / "net.onnx"],
                              env={**os.environ, "PYTHONPATH": str(self.path / "site")}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 0 and "input mean(tags.v) ['N', 4]" in done.stdout, done
        outputs = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("output ")]
        of_losses = ["of_" + loss for loss in KINDS["LOSSES"]]
        assert outputs == ["logit(click)", "click", "logit(buy)", "buy", "both", "logit(rating)", "rating", *(name for of in of_losses for name in (f"logit({of})", of))], outputs
        session = onnxruntime.InferenceSession(str(self.path / "net.onnx"), providers=["CPUExecutionProvider"])
        picked = self.samples[:CHECKED]
        read = {i.name for i in session.get_inputs()}
        untried = [op for op in KINDS["OPERATIONS"] if not any(op in layer for layer in LAYERS)]
        untried += [pooling for pooling in KINDS["ROW_POOLINGS"] if not any(name.startswith(pooling + "(") for name in read)]
        assert not untried, f"not tried: {untried}"
        inputs = self.inputs(read, picked)
        names = [o.name for o in session.get_outputs()]
        got = dict(zip(names, session.run(names, inputs)))
        wanted = self.replica.score(picked)
        for task in ("click", "buy"):
            p = wanted[task].astype(np.float64)
            worst = np.abs(got[f"logit({task})"] - np.log(p / (1 - p))).max()
            assert worst < 1e-5 and np.abs(got[f"logit({task})"]).max() > 0.5, (task, worst)
        assert np.abs(got["both"] - wanted["both"]).max() < 1e-5 and np.abs(got["rating"] - wanted["rating"]).max() < 1e-5 * (1 + np.abs(wanted["rating"]).max())
        for of in of_losses:
            assert np.abs(got[of] - wanted[of]).max() < 1e-5 * (1 + np.abs(wanted[of]).max()), of
        model = json.loads((self.path / "state/model.json").read_text().splitlines()[0])
        dense = {line["dense"]: np.array(line["values"], np.float32).reshape(line["shape"]) for line in self.lines if "dense" in line}
        try:
            to_onnx({**model, "slots": [{**slot, "transform": "time_of_day"} if slot["name"] == "plain" else slot for slot in model["slots"]]}, dense)
            raise AssertionError("a time cannot be said")
        except Unsupported as error:
            assert "slot plain: the transform time_of_day" in str(error)
        try:
            to_onnx({**model, "tasks": [{**task, "loss": "hinge"} for task in model["tasks"]]}, dense)
            raise AssertionError("what a score of this loss is nobody knows")
        except Unsupported as error:
            assert "task click: the loss hinge" in str(error)
        steps = [node.op_type for node in onnx.load(self.path / "net.onnx").graph.node].count("Scan")
        assert steps == 2, "gru and augru step by step"
        some = self.replica.lookup(slot="history", ids=list(range(ITEMS + 9)), part="v")[1]
        assert some.any() and not some.all(), "masked steps among them"

    def what_evaluate_measures_is_what_a_replica_serves(self):
        """Of every loss: what freshet evaluate takes for a prediction is the score, and a value has a squared error in place of an AUC."""
        result = json.loads(tool("evaluate", "--file", self.file, "--json", "--config", self.path / "state.yaml", "--dump", self.dump)[1])
        scores = self.replica.score(self.samples)
        for loss, predicts in KINDS["LOSSES"].items():
            measured = result["tasks"]["of_" + loss]
            assert abs(measured["prediction_mean"] - scores["of_" + loss].mean()) < 1e-4, (loss, measured)
            assert ("mse" in measured) == (predicts == "value") and (measured["auc"] is None) == (predicts == "value"), (loss, measured)

    def inputs(self, names, picked):
        """What the graph reads, from the replica's rows."""
        n, steps, out = len(picked), 6, {}
        features = [s["f"] for s in picked]
        for name in names:
            if name in ("price", "age", "plain"):
                dim = {"price": 2}.get(name, 1)
                out[name] = np.array([np.broadcast_to(np.float32(f.get(name, math.nan)), dim) for f in features], np.float32)
            elif "(" in name:
                pooling, read = name[:-1].split("(")
                slot, part = read.split(".")
                rows = []
                for f in features:
                    ids = f.get(slot)
                    ids = (ids if isinstance(ids, list) else [] if ids is None else [ids])[-6 if slot == "history" else -1024:]
                    dim = {"w": 1}.get(part, DIM)
                    values, found = self.replica.lookup(slot=slot, ids=ids, part=part) if ids else (np.zeros((0, dim), np.float32), np.zeros(0, bool))
                    if pooling == "max":
                        rows.append(values[found].max(0) if found.any() else np.zeros(dim, np.float32))
                        continue
                    rows.append(values.sum(0) / {"sum": 1, "mean": max(len(ids), 1), "sqrtn": math.sqrt(max(len(ids), 1))}[pooling])
                out[name] = np.array(rows, np.float32)
            elif name == "history.v":
                values, there, masked = np.zeros((n, steps, DIM), np.float32), np.zeros((n, steps), bool), np.zeros((n, steps), bool)
                for i, f in enumerate(features):
                    ids = f["history"][-steps:]
                    if ids:
                        values[i, -len(ids):], found = self.replica.lookup(slot="history", ids=ids, part="v")
                        there[i, -len(ids):], masked[i, -len(ids):] = True, ~found
                out.update({"history.v": values, "history.there": there, "history.masked": masked})
        return out

    def run(self):
        names = [n for n in vars(Cases) if n.startswith(("a_", "rows_", "scores_", "many_", "what_", "tables_", "the_"))]
        names = [n for n in names if not sys.argv[1:] or n in sys.argv[1:]]
        for name in names:
            begin = time.monotonic()
            getattr(self, name)()
            print(f"ok {name} ({time.monotonic() - begin:.1f} s)", flush=True)
        self.replica.close()
        print(f"{len(names)} passed, 0 failed")


with Workspace() as test_work, Broker() as test_broker:
    installed(test_work)
    import freshet  # noqa: E402
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    Cases(test_work, test_broker).run()
