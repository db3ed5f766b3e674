"""A model trained in PyTorch continues here (`freshet import`): the same scores within 1e-5 in the logit, and training that knows from its first sample what the
model learned. What does not fit is refused with its line, and leaves nothing behind.
"""
import gzip
import math
import os
import pathlib
import random
import sys
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import *  # noqa: E402,F403

os.environ["TORCH_USE_RTLD_GLOBAL"] = "1"  # torch_cpu.py says why
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
if subprocess.run([sys.executable, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode != 0:
    skip("PyTorch is not installed: tests/interop/torch_cpu.py does it")
import torch  # noqa: E402

torch.set_num_threads(1)
USERS, ITEMS, DIM, UNITS, SAMPLES, MORE = 60, 40, 4, 8, 3000, 2000

CONFIG = {
    "version": 1, "epoch": "100ms", "memory_limit": "64MiB", "threads": 1, "metrics": {"listen": "127.0.0.1:0"},
    "tables": {"user": {"dim": DIM, "optimizer": {"adagrad": {"lr": 0.05}}, "expire": {"idle": "30d"}},
               "item": {"parts": {"w": {"dim": 1, "optimizer": {"ftrl": {"lr": 0.1, "l1": 0.5}}}, "v": {"dim": DIM, "optimizer": {"adam": {"lr": 0.01}}}}, "admit": {"count": 2}}},
    "slots": {"user_id": {"table": "user"}, "item_id": {"table": "item"}, "numbers": {"kind": "dense", "dim": 2, "transform": "standardize"}},
    "labels": {"click": {}},
    "network": {"layers": [{"name": "wide", "sum": ["item_id.w"]}, {"name": "h", "mlp": ["user_id", "item_id.v", "numbers"], "units": [UNITS]},
                           {"name": "deep", "dense": "h", "units": 1}, {"name": "out", "add": ["deep", "wide"]}], "optimizer": {"adam": {"lr": 0.001}}},
    "tasks": [{"name": "click", "label": "click", "logit": "out", "loss": "logloss"}],
}


def drawn(count, seed):
    """Samples with a planted signal: (user, item, numbers, click)."""
    rng, taste = random.Random(seed), random.Random(1)
    liking = [[taste.gauss(0, 1.5) for _ in range(ITEMS)] for _ in range(USERS)]
    for _ in range(count):
        user, item, numbers = rng.randrange(USERS), rng.randrange(ITEMS), [rng.gauss(50, 20), rng.gauss(-3, 0.5)]
        logit = liking[user][item] + (numbers[0] - 50) / 20 - 1
        yield user, item, numbers, int(rng.random() < 1 / (1 + math.exp(-logit)))


class Model(torch.nn.Module):
    def __init__(self, numbers):
        super().__init__()
        self.user, self.item, self.item_w = (torch.nn.Embedding(n, d) for n, d in ((USERS, DIM), (ITEMS, DIM), (ITEMS, 1)))
        self.h, self.deep = torch.nn.Linear(2 * DIM + 2, UNITS), torch.nn.Linear(UNITS, 1)
        self.mean, self.variance = numbers.mean(0), numbers.var(0, unbiased=False)

    def forward(self, users, items, numbers):
        standard = (numbers - self.mean) / (self.variance + 1e-6).sqrt()
        x = torch.cat([self.user(users), self.item(items), standard], 1)
        return (self.deep(torch.relu(self.h(x))) + self.item_w(items))[:, 0]


def trained():
    torch.manual_seed(1)
    users, items, numbers, clicks = (torch.tensor(x) for x in zip(*drawn(SAMPLES, 2)))
    model, clicks = Model(numbers), clicks.float()
    parameters, squares = list(model.parameters()), [torch.zeros_like(p) for p in model.parameters()]
    for _ in range(60):  # Adagrad; torch.optim wants packages that torch_cpu.py does not install
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(users, items, numbers), clicks)
        with torch.no_grad():
            for p, square, g in zip(parameters, squares, torch.autograd.grad(loss, parameters)):
                square += g * g
                p -= 0.15 * g / (square.sqrt() + 1e-8)
    return model


def write_lines(path, records, closed=True):
    with gzip.open(path, "wt") if path.suffix == ".gz" else open(path, "w") as file:
        for record in records:
            file.write(json.dumps(record) + "\n")
        if closed:
            file.write(json.dumps({"rows": len(records)}) + "\n")


def dense_lines(model):
    def line(name, tensor):
        return {"dense": name, "shape": list(tensor.shape), "values": tensor.detach().reshape(-1).tolist()}
    return [line("h/0/kernel", model.h.weight.T), line("h/0/bias", model.h.bias), line("deep/kernel", model.deep.weight.T), line("deep/bias", model.deep.bias),
            line("numbers/mean", model.mean), line("numbers/variance", model.variance), line("numbers/count", torch.tensor([float(SAMPLES)]))]


def measured(scores, labels):
    """AUC (ties count half), log loss, calibration: by their definitions."""
    pairs = [(a > b) + (a == b) / 2 for a, y in zip(scores, labels) if y for b, n in zip(scores, labels) if not n]
    loss = -sum(math.log(p if y else 1 - p) for p, y in zip(scores, labels)) / len(labels)
    return sum(pairs) / len(pairs) if pairs else None, loss, sum(scores) / sum(labels) if sum(labels) else None


class Cases:
    def __init__(self, work):
        self.work, self.path, self.model = work, work.path, trained()
        users = [{"id": f"u{u}", "parts": {"v": v.tolist()}, "show": 3, "click": 1} for u, v in enumerate(self.model.user.weight.detach())]
        items = [{"id": i, "parts": {"v": v.tolist(), "w": w.tolist()}} for i, (v, w) in enumerate(zip(self.model.item.weight.detach(), self.model.item_w.weight.detach()))]
        write_lines(self.path / "user.jsonl.gz", users)
        write_lines(self.path / "item.jsonl", items)
        write_lines(self.path / "dense.jsonl", dense_lines(self.model))
        self.users, self.items = users, items
        self.all = ["--table", f"user={self.path}/user.jsonl.gz", "--table", f"item={self.path}/item.jsonl", "--dense", self.path / "dense.jsonl", "--closed"]

    def config(self, name, **changes):
        path = self.path / f"{name}.yaml"
        path.write_text(json.dumps({**CONFIG, "ingest": {"brokers": "127.0.0.1:9", "topic": "none", "batch_size": 64}, "model": name, "state_dir": str(self.path / name), **changes}))
        return path

    def samples(self, name, count, seed):
        path = self.path / f"{name}.jsonl"
        drawing = list(drawn(count, seed))
        path.write_text("".join(json.dumps({"t": 1790000000000 + i, "f": {"user_id": f"u{u}", "item_id": i_, "numbers": x}, "y": {"click": y}}) + "\n"
                                for i, (u, i_, x, y) in enumerate(drawing)))
        return path, drawing

    def the_scores_are_those_of_the_model(self):
        _, out, error = tool("import", "--config", self.config("state"), *self.all)
        assert f"epoch=1 rows={USERS + ITEMS} dense=7 of 7" in out and error == "", (out, error)
        assert "checks passed=true checked=chain,cold,sections,ledger,images" in tool("state", self.path / "state", "--images")[1]
        path, drawing = self.samples("score", 300, 5)
        dump = self.path / "dump.jsonl"
        dump.write_text(tool("dump", "--state-dir", self.path / "state")[1])
        scores = [json.loads(line)["click"] for line in tool("score", "--file", path, "--dump", dump, "--state-dir", self.path / "state")[1].splitlines()]
        users, items, numbers, _ = (torch.tensor(x) for x in zip(*drawing))
        logits = self.model(users, items, numbers).tolist()
        worst = max(abs(math.log(p) - math.log1p(-p) - z) for p, z in zip(scores, logits))
        assert len(scores) == 300 and worst < 1e-5 and max(map(abs, logits)) > 1, worst

    def adam_continues_where_it_was(self):
        """Adam of the layers in PyTorch over batches of 64; here its parameters and moments continue over the next batches as they do there."""
        torch.manual_seed(3)
        width, batch, before, after, lr, rng = 3, 64, 30, 20, 0.01, random.Random(12)
        drawing = [[rng.gauss(0, 1) for _ in range(width)] for _ in range(batch * (before + after))]
        clicks = [int(rng.random() < 1 / (1 + math.exp(-(x[0] * 2 - x[1] * x[2])))) for x in drawing]
        h, out = torch.nn.Linear(width, UNITS), torch.nn.Linear(UNITS, 1)
        parameters = [*h.parameters(), *out.parameters()]
        means, squares = ([torch.zeros_like(p) for p in parameters] for _ in range(2))

        def learn(first, last):
            for step in range(first, last):
                x, y = (torch.tensor(v[step * batch:(step + 1) * batch]) for v in (drawing, clicks))
                loss = torch.nn.functional.binary_cross_entropy_with_logits(out(torch.relu(h(x)))[:, 0], y.float())
                with torch.no_grad():
                    for p, m, v, g in zip(parameters, means, squares, torch.autograd.grad(loss, parameters)):
                        m += 0.1 * (g - m)
                        v += 0.001 * (g * g - v)
                        p -= lr * (m / (1 - 0.9 ** (step + 1))) / ((v / (1 - 0.999 ** (step + 1))).sqrt() + 1e-8)

        def lines(state):
            for name, p, m, v in zip(("h/0/kernel", "h/0/bias", "out/kernel", "out/bias"), parameters, means, squares):
                value, *moments = [t.detach().T if t.dim() == 2 else t.detach() for t in (p, m, v)]
                line = {"dense": name, "shape": list(value.shape), "values": value.reshape(-1).tolist()}
                yield {**line, "state": [t.reshape(-1).tolist() for t in moments], "samples": before * batch} if state else line
        learn(0, before)
        for name, state in (("moments", True), ("afresh", False)):
            write_lines(self.path / f"{name}.dense", list(lines(state)))
        refused = [("state", lambda line: {**line, "state": line["state"][:1]}, "h/0/kernel.state has 1 arrays, and adam has 2"),
                   ("state", lambda line: {**line, "state": [line["state"][0], [-1.0] * width * UNITS]}, "h/0/kernel.state[1][0] is -1, and is never negative with adam"),
                   ("state", lambda line: {**line, "state": [line["state"][0], [1.0]]}, "state[1] has 1 numbers, and values 24"),
                   ("samples", lambda line: {k: v for k, v in line.items() if k != "samples"}, "state and samples or neither"),
                   ("samples", lambda line: {**line, "samples": -1}, '"samples": expected a number')]
        config = {"tables": {}, "slots": {"numbers": {"kind": "dense", "dim": width}},
                  "network": {"layers": [{"name": "h", "mlp": "numbers", "units": [UNITS]}, {"name": "out", "dense": "h", "units": 1}],
                              "optimizer": {"adam": {"lr": lr, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}}}}
        for _, change, text in refused:
            write_lines(self.path / "bad.dense", [change(line) for line in lines(True)])
            rc, _, error = tool("import", "--config", self.config("bad", **config), "--dense", self.path / "bad.dense", check=False)
            assert rc == 1 and text in error and not (self.path / "bad").exists(), (text, error)
        learn(before, before + after)
        wanted = {line["dense"]: line["values"] for line in lines(False)}
        path = self.path / "adam.jsonl"
        path.write_text("".join(json.dumps({"t": 1790000000000 + i, "f": {"numbers": x}, "y": {"click": y}}) + "\n" for i, (x, y) in list(enumerate(zip(drawing, clicks)))[before * batch:]))
        worst = {}
        with Broker() as broker:
            for name in ("moments", "afresh"):
                made = self.config(name, **config, ingest={"brokers": broker.address, "files": [str(path)], "batch_size": batch, "batch_wait": "60s", "batch_warmup": {"first": 0}})
                _, said, _ = tool("import", "--config", made, "--dense", self.path / f"{name}.dense", "--closed")
                assert f"dense=4 of 4 states={4 if name == 'moments' else 0}" in said, said
                self.work.daemon(made, self.path / f"{name}.log", arguments=["--until", "end"], wait_http=False).expect_exit(0)
                got = {line["dense"]: line["values"] for line in map(json.loads, tool("dump", "--state-dir", self.path / name)[1].splitlines()) if "dense" in line}
                assert got.keys() == wanted.keys()
                worst[name] = max(abs(a - b) for key in wanted for a, b in zip(got[key], wanted[key]))
        assert worst["moments"] < 1e-5 < 1e-3 < worst["afresh"], worst

    def training_continues_from_the_import(self):
        path, _ = self.samples("more", MORE, 6)
        ran = {}
        with Broker() as broker:
            for name in ("state", "fresh"):
                config = self.config(name, ingest={"brokers": broker.address, "files": [str(path)], "batch_size": 64, "batch_warmup": {"first": 0}})
                daemon = self.work.daemon(config, self.path / f"{name}.log", arguments=["--until", "end"], wait_http=False)
                daemon.expect_exit(0)
                ran[name] = json.loads(tool("dump", "--state-dir", self.path / name, "--metrics")[1])["tasks"]["click"]["lifetime"]
            assert "event=recovered epoch=1" in (self.path / "state.log").read_text()
            verified = tool("verify", "--state-dir", self.path / "state", "--brokers", broker.address, "--topic", "state.delta")[1]
            assert verified.strip().splitlines()[-1].startswith("verified: timeline 1"), verified
            topic = ["--brokers", broker.address, "--topic", "state.delta"]
            served = json.loads(tool("row", "--slot", "user_id", "--id", "u3", "--config", self.config("state"), *topic)[1])
            stored = json.loads(tool("row", "--slot", "user_id", "--id", "u3", "--state-dir", self.path / "state")[1])
            assert served["parts"] == stored["parts"] and served["epoch"] == stored["epoch"], (served, stored)
            assert "samples=2000" in tool("evaluate", "--config", self.config("state"), "--file", path, *topic)[1]
            rc, _, error = tool("evaluate", "--config", self.config("state", labels={"click": {}, "buy": {}}), "--file", path, *topic, check=False)
            assert rc == 1 and "another model" in error, error
        assert ran["state"]["weight"] == ran["fresh"]["weight"] == MORE
        assert ran["state"]["auc"] > ran["fresh"]["auc"] + 0.05, ran
        assert ran["state"]["logloss"] < ran["fresh"]["logloss"], ran
        assert 0.8 < ran["state"]["calibration"] < 1.25, ran
        print(f"   AUC of {MORE} samples, each before it is learnt: {ran['state']['auc']:.3f} from the import, {ran['fresh']['auc']:.3f} from nothing")

    def evaluations_are_those_of_the_scores(self):
        path, drawing = self.samples("evaluated", 400, 8)
        with open(path, "a") as file:
            file.write('{"f":{"user_id":[["u1"]]}}\n{"f":{"user_id":"u1"},"y":{"click":1},"u":1,"t":1790000000000}\n')
        dump = self.path / "trained.jsonl"
        dump.write_text(tool("dump", "--state-dir", self.path / "state")[1])
        scored = self.path / "scored.jsonl"
        scored.write_text("".join(path.read_text().splitlines(keepends=True)[:400]))
        scores = [json.loads(line)["click"] for line in tool("score", "--file", scored, "--dump", dump, "--state-dir", self.path / "state")[1].splitlines()]
        arguments = ["evaluate", "--config", self.config("state"), "--file", path, "--dump", dump, "--by", "item_id", "--by", "user_id", "--by-label", "click", "--slices", "3"]
        _, out, error = tool(*arguments, "--json")
        result = json.loads(out)
        assert result["lines"] == 402 and result["malformed"] == 1 and result["samples"] == 401 and "line 401: $.f.user_id" in error, (result, error)

        def equal(got, picked):
            wanted = measured([scores[i] for i in picked], [drawing[i][3] for i in picked])
            for name, want in zip(("auc", "logloss", "calibration"), wanted):
                assert got[name] is None if want is None else abs(got[name] - want) < 2e-3, (name, got, wanted)
            assert got["weight"] == len(picked)
        equal(result["tasks"]["click"], range(400))
        for cut, at in ((result["by"][0], 1), (result["by"][1], 0)):
            assert len(cut["shown"]) == 3 and cut["slices"] == len({sample[at] for sample in drawing}) + (at == 1)
            for part in cut["shown"]:
                value = int(part["value"]) if at == 1 else int(part["value"].removeprefix("u"))
                equal(part["tasks"]["click"], [i for i, sample in enumerate(drawing) if sample[at] == value])
        assert {part["value"]: part["samples"] for part in result["by"][2]["shown"]} == {"0": 400 - sum(d[3] for d in drawing), "1": 1 + sum(d[3] for d in drawing)}
        table = tool(*arguments)[1]
        assert re.search(r"^item_id +\d+ +click", table, re.M) and re.search(r"^user_id +u\d+ +click", table, re.M) and "38 more" in table, table
        for more, text in ((["--by", "numbers"], "no slot of ids of this name"), (["--by-label", "what"], "no label of this name"), (["--brokers", "x"], "give --brokers and --topic, or one of")):
            rc, _, error = tool(*arguments, *more, check=False)
            assert rc == 2 and text in error, error

    def a_row_is_found_by_its_raw_id(self):
        state = self.path / "state"
        row = json.loads(tool("row", "--slot", "user_id", "--id", "u3", "--state-dir", state)[1])
        private = [json.loads(line) for line in tool("dump", "--state-dir", state, "--private")[1].splitlines()]
        same, = [line for line in private if line.get("key") == row["key"] and line["table"] == "user"]
        assert row["state"] == "row" and row["parts"]["v"] + row["optimizer"] == same["row"] and row["show"] == same["show"] > 3, (row, same)
        by_key = json.loads(tool("row", "--table", "user", "--key", row["key"], "--state-dir", state)[1])
        assert by_key == {k: v for k, v in row.items() if k not in ("slot", "id")}
        assert json.loads(tool("row", "--slot", "item_id", "--id", "999", "--state-dir", state)[1])["state"] == "none"
        rc, _, error = tool("row", "--slot", "numbers", "--id", "1", "--state-dir", state, check=False)
        assert rc == 1 and "no ids of its own" in error, error

    def what_does_not_fit_is_refused_and_leaves_nothing(self):
        config, row = self.config("refused"), self.users[0]
        dense = dense_lines(self.model)

        def parts(value):
            return {**row, "parts": {"v": value}}
        rows = [([parts([1, 2])], "line 1: parts.v has 2 numbers, and the configuration says 4"), ([row, row], "line 2: key 1"), ([parts([1, 2, 3, 1e39])], "parts.v[3] is 1e+39"),
                ([parts([1, 2, None, 3])], "parts.v[2] is not a number"), ([{**row, "what": 1}], 'unknown key "what"'), ([{"parts": row["parts"]}], 'neither "key" nor "id"'),
                ([{"id": 1}], '"parts" is missing'), ([{**row, "parts": {"w": [1]}}], 'table user has no part "w"'), ([{**row, "state": {"v": [1, 1, 1, -1]}}], "state.v[3] is -1"),
                ([{"key": "-1", "parts": row["parts"]}], '"key": expected a key'), ([{**row, "seen_ms": -5}], '"seen_ms": expected'), ([{**row, "table": "item"}], "another table than user"),
                ([{**row, "id": 1.5}], '"id": expected a string or an integer'), ([], "closing line does not say")]
        cases = [("user", r, text) for r, text in rows]
        cases += [("dense", [{**dense[0], "dense": "x/kernel"}], "no parameter x/kernel"), ("dense", [{**dense[0], "shape": [UNITS, 2 * DIM + 2]}], "the configuration says [10,8] (inputs, outputs)"),
                  ("dense", [dense[0], dense[0]], "line 2: parameter h/0/kernel comes twice"), ("dense", dense[:5], "numbers/mean and numbers/variance belong together"),
                  ("dense", [{**dense[1], "values": [1]}], "h/0/bias has 1 values"), ("dense", dense[4:6] + [{**dense[6], "values": [0]}], "at least 1 sample")]
        broken = self.path / "broken.jsonl"
        for what, records, text in cases:
            write_lines(broken, records or [row], closed=bool(records))
            if not records:
                broken.write_text(json.dumps(row) + '\n{"rows":2}\n')
            arguments = ["--table", f"user={broken}"] if what == "user" else ["--dense", broken]
            rc, out, error = tool("import", "--config", config, *arguments, check=False)
            assert rc == 1 and out == "" and text in error and str(broken) in error or "belong" in error or "at least 1 sample" in error, (text, rc, out, error)
            assert text in error, (text, error)
            assert not list(self.path.glob("refused*[!l]")), list(self.path.glob("refused*"))
        for text, reason in (("PAR1\0\0", "a Parquet file"), ("PK\3\4....", "a zip archive"), ('{"id":1,"parts":{"v":[NaN,1,2,3]}}\n', "not JSON at byte"), ('{"id":1,"pa', "not JSON at byte"),
                             (json.dumps(row) + "\n", "ends without its closing line")):
            broken.write_text(text)
            rc, out, error = tool("import", "--config", config, "--table", f"user={broken}", "--closed", check=False)
            assert rc == 1 and reason in error and not (self.path / "refused").exists(), (reason, error)
        for arguments, text in ((["--table", "nobody=x"], "no such table"), (["--table", "user"], "expected NAME=FILE"), ([], "nothing to import"), (["--dense", "x", "--seen", "soon"], "--seen soon")):
            rc, _, error = tool("import", "--config", config, *arguments, check=False)
            assert rc == 2 and text in error, error
        rc, _, error = tool("import", "--config", self.config("state"), *self.all, check=False)
        assert rc == 1 and "not empty" in error, error

    def run(self):
        names = [n for n in vars(Cases) if n.startswith(("the_", "adam_", "training_", "what_", "evaluations_", "a_"))]
        names = [n for n in names if not sys.argv[1:] or n in sys.argv[1:]]
        for name in names:
            begin = time.monotonic()
            getattr(self, name)()
            print(f"ok {name} ({time.monotonic() - begin:.1f} s)", flush=True)
        print(f"{len(names)} passed, 0 failed")


with Workspace() as test_work:
    Cases(test_work).run()
