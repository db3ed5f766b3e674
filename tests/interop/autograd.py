"""Random networks learn a few batches in `freshetd` and in PyTorch (autograd on the CPU, double precision): the whole state must be the same after the last one.

    autograd.py                          the seeds of CI; then some errors put into the PyTorch side, each of which must be found
    autograd.py --errors                 the same with all errors
    autograd.py --seeds 100:1000         other seeds, no seeded errors
    autograd.py --seed 7                 one; a difference is made small and its files are kept
    autograd.py --seed 7 --mutate 'rows by adam'     2 % on one term: must be reported as a difference
    autograd.py --seed 7 --show          prints the model and what it contains

autograd_draw.py draws models and streams, autograd_network.py has the layers and losses, autograd_rules.py the optimizers, autograd_learner.py learns a batch.
Compared are all parameters and all rows with their optimizer state; the optimizer state of layers shows in the batches after the first. A tensor may differ by
half a percent of what it moved. Where that is not met, the PyTorch side learns once more in f32, with rounding noise on its gradients: what that moves by more than
a tenth of the difference is cancellation (a gradient that is 0 except for rounding, under a rule that divides by its size), not an error; such tensors are counted.
"""
import argparse
import collections
import concurrent.futures
import copy
import os
import pathlib
import runpy
import sys
import time
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import *  # noqa: E402,F403

os.environ["TORCH_USE_RTLD_GLOBAL"] = "1"  # torch_cpu.py says why
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
if subprocess.run([sys.executable, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode != 0:
    installed = subprocess.run([sys.executable, SOURCE / "tests/interop/torch_cpu.py"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if installed.returncode != 0:
        skip("PyTorch cannot be installed: " + (installed.stdout.strip().splitlines() or ["no reason given"])[-1])
import torch  # noqa: E402

import autograd_draw  # noqa: E402
import autograd_learner  # noqa: E402
import autograd_rules  # noqa: E402

KINDS = runpy.run_path(str(SOURCE / "replica/python/freshet/_kinds.py"))
SEEDS = (1, 101)  # of CI
DAEMONS = 8  # at once: a run waits for acknowledgements most of its time
NOISE_SHARE_MAX = 0.02  # of all tensors: those too near to rounding to be compared
NOISES = 3
ERRORS_EVERY = 5  # in CI, of all seeded errors
MUTATED_CASES = 8  # in which a seeded error may show
SHRINK_SECONDS = 60
CHANGE, SIZE, FLOOR = 5e-3, 3e-6, 1e-7  # a tensor may differ by these shares of its largest change and number, or by this

torch.set_num_threads(1)
sys.stdout.reconfigure(line_buffering=True)


# ---- one case ----

Case = collections.namedtuple("Case", "seed drawing learner")
Difference = collections.namedtuple("Difference", "times name got wanted begin")


def drawn(seed):
    """The first tame drawing of a seed, with its learner after the last batch."""
    for attempt in range(100):
        drawing = autograd_draw.case(seed * 1000 + attempt)
        try:
            return Case(seed, drawing, autograd_learner.Learner(drawing).run())
        except autograd_learner.Wild:
            continue
    raise AssertionError(f"seed {seed}: no tame drawing")


def run_daemon(drawing, path, name, address):
    """Trains the drawing in freshetd; returns (parameters, rows) of the dump after the last batch."""
    path.mkdir()
    file = path / "samples.jsonl"
    file.write_text("".join(json.dumps(group) + "\n" for group in drawing["records"]))
    ingest = {**drawing["ingest"], "brokers": address, "files": [str(file)], "batch_warmup": {"first": 0}, "lockstep": {"records": drawing["per_batch"], "epoch_batches": 64}}
    conf = {"version": 1, "model": name, "state_dir": str(path / "state"), "memory_limit": "64MiB", "threads": 1, "ingest": ingest,
            "metrics": {"listen": "127.0.0.1:0"}, **drawing["conf"]}
    (path / "model.yaml").write_text(json.dumps(conf, indent=1))
    done = subprocess.run([BUILD / "daemon/freshetd", "--config", path / "model.yaml"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE)
    assert done.returncode == 0, f"freshetd exited {done.returncode}\n{done.stdout[-2000:]}"
    parameters, rows = {}, {}
    for line in tool("dump", "--state-dir", path / "state", "--private")[1].splitlines():
        record = json.loads(line)
        if "dense" in record:
            parameters[record["dense"]] = record["values"]
        elif "row" in record:
            rows[record["table"], int(record["key"])] = record["row"]
        elif "trainer" in record:
            assert record["trainer"]["quarantined_batches"] == 0, "a batch was quarantined"
    return parameters, rows


def tensors(learner, parameters, rows):
    """Returns the numbers of the dump by the names of Learner.state. A dumped row has the values of its parts, then their states."""
    got = {name: torch.tensor(x, dtype=torch.float64) for name, x in parameters.items()}
    for (table, key), numbers in rows.items():
        numbers, at = torch.tensor(numbers, dtype=torch.float64), 0
        places = [(f"{table} {key} {part}", spec["dim"]) for part, spec in learner.network.parts_of(table).items()]
        for part, spec in learner.network.parts_of(table).items():
            state = learner.row_rules[table, part].start(torch.zeros(1, spec["dim"]))
            places += [(f"{table} {key} {part} {name}", x.shape[1]) for name, x in state.items()]
        for name, width in places:
            got[name] = numbers[at:at + width]
            at += width
        assert at == len(numbers), f"a row of {table} has {len(numbers)} numbers, expected {at}"
    return got


def differences(learner, dumped):
    got, wanted, found = tensors(learner, *dumped), learner.state(), []
    assert set(got) == set(wanted), f"only in freshetd: {sorted(set(got) - set(wanted))[:5]}; only here: {sorted(set(wanted) - set(got))[:5]}"
    for name, (want, begin) in wanted.items():
        allowed = CHANGE * float((want - begin).abs().max()) + SIZE * float(want.abs().max()) + FLOOR
        error = float((got[name] - want).abs().max())
        if not error <= allowed:
            found.append(Difference(error / allowed, name, got[name], want, begin))
    return sorted(found, key=lambda d: -d.times)


def without_noise(drawing, found, mutation=None):
    """Returns the differences that rounding does not explain."""
    if not found:
        return found
    for seed in range(NOISES):  # with a single noise the number may happen to end where it was without
        noisy = autograd_learner.Learner(drawing, torch.float32, mutation, values_max=1e30, noise=2e-7, noise_seed=seed).run().state()
        found = [d for d in found if not float((d.got - d.wanted).abs().max()) <= 10 * float((noisy[d.name][0] - d.wanted).abs().max())]
        if not found:
            break
    return found


# ---- a difference made small ----

def smaller(drawing):
    """Yields drawings that lack a part of this one, the largest parts first."""
    def changed(change):
        other = copy.deepcopy(drawing)
        return other if change(other) is not False else None

    conf, size = drawing["conf"], drawing["per_batch"]
    read = {k[0] for k in autograd_learner.autograd_network.Network(conf).reached if isinstance(k, tuple) and k[0] in conf["slots"]}
    read |= {source for slot in read for source in conf["slots"][slot].get("cross", ())}
    yield changed(lambda d: [drop_slot(d, slot) for slot in conf["slots"] if slot not in read and conf["slots"][slot].get("kind") != "dense"])
    for first in range(0, len(drawing["records"]), size):
        yield changed(lambda d: d["records"].__delitem__(slice(first, first + size)))
    for kind in ("losses", "tasks"):
        for i in range(len(conf.get(kind, []))):
            yield changed(lambda d: d["conf"][kind].pop(i))
    names = [layer["name"] for layer in conf["network"]["layers"]]
    for i, layer in enumerate(conf["network"]["layers"]):
        op = next(key for key in layer if key in autograd_learner.autograd_network.OPERATIONS)
        if isinstance(layer[op], list) and len(layer[op]) > 1:
            for j in range(len(layer[op])):
                yield changed(lambda d: d["conf"]["network"]["layers"][i][op].pop(j))
        for option in ("optimizer", "init", "activation"):
            if option in layer:
                yield changed(lambda d: d["conf"]["network"]["layers"][i].pop(option))
        yield changed(lambda d: read_past(d["conf"], names[i], layer[op]))
    yield changed(lambda d: d["conf"]["network"].update(optimizer={"sgd": {"lr": 0.1}}))
    for table, spec in conf["tables"].items():
        for part in ([spec] if "dim" in spec else spec["parts"].values()):
            if part["optimizer"] != {"sgd": {"lr": 0.1}}:
                yield changed(lambda d: [p.update(optimizer={"sgd": {"lr": 0.1}}) for p in [d["conf"]["tables"][table]] if "dim" in p] or
                              [p.update(optimizer={"sgd": {"lr": 0.1}}) for p in d["conf"]["tables"][table]["parts"].values()])
        if "admit" in spec:
            yield changed(lambda d: d["conf"]["tables"][table].pop("admit"))
    for slot in conf["slots"]:
        yield changed(lambda d: drop_slot(d, slot))
        for option in ("transform", "namespace", "admit", "touch", "max_len", "max_ids", "default", "indicator"):
            if option in conf["slots"][slot]:
                yield changed(lambda d: d["conf"]["slots"][slot].pop(option))
    for label, spec in conf["labels"].items():
        if "given" in spec:
            yield changed(lambda d: d["conf"]["labels"][label].pop("given"))
    for field in ("w", "s", "u"):
        if any(field in item for group in drawing["records"] for item in group["items"]):
            yield changed(lambda d: [item.pop(field, None) for group in d["records"] for item in group["items"]])
    for i, group in enumerate(drawing["records"]):
        for j in range(len(group["items"])):
            if len(group["items"]) > 1:
                yield changed(lambda d: d["records"][i]["items"].pop(j))


def read_past(conf, name, argument):
    """Readers of a layer read what it read."""
    if isinstance(argument, dict):
        return False
    first = argument[0] if isinstance(argument, list) else argument

    def replaced(x):
        if isinstance(x, dict):
            return {key: replaced(value) for key, value in x.items()}
        return [replaced(value) for value in x] if isinstance(x, list) else first if x == name else x

    for layer in conf["network"]["layers"]:
        for key in layer:
            if key in autograd_learner.autograd_network.OPERATIONS:
                layer[key] = replaced(layer[key])
    for loss in conf.get("losses", []):
        loss.update({key: replaced(loss[key]) for key in ("mse", "next_step") if key in loss})


def drop_slot(drawing, slot):
    del drawing["conf"]["slots"][slot]
    for group in drawing["records"]:
        group["shared"].pop(slot, None)
        for item in group["items"]:
            item["f"].pop(slot, None)


def pruned(drawing):
    """Removes layers that nothing reads, and tables that no slot names."""
    conf = drawing["conf"]
    if not conf.get("losses"):
        conf.pop("losses", None)
    live = autograd_learner.autograd_network.Network(conf).live_layers()
    conf["network"]["layers"] = [layer for layer in conf["network"]["layers"] if layer["name"] in live]
    for table in set(conf["tables"]) - {spec.get("table") for spec in conf["slots"].values()}:
        del conf["tables"][table]
    return drawing


def shrink(drawing, still_differs, pool):
    """Returns a smaller drawing that still differs: leaves out one part after the other as long as it differs."""
    deadline, tried, at, again = time.monotonic() + SHRINK_SECONDS, 0, 0, False
    while time.monotonic() < deadline:
        candidates = [c for c in smaller(drawing) if c]
        futures = [pool.submit(still_differs, c, f"smaller-{tried + i}") for i, c in enumerate(candidates[at:at + DAEMONS])]
        tried += len(futures)
        better = next((i for i, future in enumerate(futures) if future.result()), None)
        if better is not None:
            drawing, at, again = futures[better].result(), at + better, True
        else:
            at += len(futures)
        if at >= len(candidates):
            if not again:
                break
            at, again = 0, False
    return drawing


# ---- the checks ----

class Check:
    def __init__(self, work, broker, pool):
        self.work, self.broker, self.pool = work, broker, pool
        self.tensors = self.noisy = 0
        self.shrunk = False
        self.results = []  # (case, what was dumped)

    def differs(self, drawing, name, mutation=None):
        """Returns the drawing if it differs by more than noise; None if it does not, or is no valid model."""
        try:
            drawing = pruned(drawing)
            learner = autograd_learner.Learner(drawing, mutation=mutation).run()
            dumped = run_daemon(drawing, self.work.path / name, name, self.broker.address)
            return drawing if without_noise(drawing, differences(learner, dumped), mutation) else None
        except Exception:  # a name that is gone, a width that does not fit, a loss without a task: not smaller but broken
            return None

    def report(self, case, found, mutation):
        print(f"seed {case.seed}: {len(found)} tensors differ; times the tolerance, freshetd, here, at the beginning:")
        for d in found[:6]:
            print(f"  {d.times:9.1f}  {d.name}: {numbers(d.got)} | {numbers(d.wanted)} | {numbers(d.begin)}  {rule_of(case.learner, d.name)}")
        mutate = f" --mutate '{mutation[0]}'" if mutation else ""
        print(f"  again: FRESHET_BUILD={BUILD} {sys.executable} {pathlib.Path(__file__)} --seed {case.seed}{mutate}")
        if self.shrunk:
            return
        self.shrunk = True  # the first is enough: the others are mostly the same
        small = shrink(case.drawing, lambda drawing, name: self.differs(drawing, f"{case.seed}-{name}", mutation), self.pool)
        path = self.work.path / f"seed-{case.seed}"
        learner = autograd_learner.Learner(small, mutation=mutation).run()
        dumped = run_daemon(small, path, f"seed_{case.seed}", self.broker.address)
        print(f"  smallest found ({path}/model.yaml, samples.jsonl), {small['per_batch']} records a batch, ingest {json.dumps(small['ingest'])}:")
        for key, value in small["conf"].items():
            print(f"    {key}: {json.dumps(value)}")
        for group in small["records"]:
            print("    ", json.dumps(group))
        for d in without_noise(small, differences(learner, dumped), mutation)[:6]:
            print(f"  {d.times:9.1f}  {d.name}: {numbers(d.got)} | {numbers(d.wanted)} | {numbers(d.begin)}")

    def seeds(self, seeds, mutation=None):
        """How many of the seeds differ."""
        bad, running = 0, collections.deque()
        for seed in seeds:
            case = drawn(seed)
            running.append((case, self.pool.submit(run_daemon, case.drawing, self.work.path / str(seed), f"m{seed}", self.broker.address)))
            if len(running) > 2 * DAEMONS:
                bad += self.finish(*running.popleft(), mutation)
        while running:
            bad += self.finish(*running.popleft(), mutation)
        return bad

    def finish(self, case, future, mutation):
        learner = autograd_learner.Learner(case.drawing, mutation=mutation).run() if mutation else case.learner
        try:
            dumped = future.result()
            found = differences(learner, dumped)
        except AssertionError as error:
            print(f"seed {case.seed}: {error}\n  again: FRESHET_BUILD={BUILD} {sys.executable} {pathlib.Path(__file__)} --seed {case.seed}")
            return 1
        errors = without_noise(case.drawing, found, mutation)
        self.tensors, self.noisy = self.tensors + len(learner.state()), self.noisy + len(found) - len(errors)
        if errors:
            self.report(case, errors, mutation)
        else:
            self.results.append((case, dumped))
        return bool(errors)

    def seeded_errors(self, every):
        """Every term, or each of so many, of the PyTorch side, wrong by 2 % (an option by 30 %), is found in one of the cases that have it; returns those that were not."""
        where = collections.defaultdict(list)
        for case, dumped in self.results:
            for what in autograd_draw.mentions(case.drawing):
                where[what].append((case, dumped))
        missed = []
        terms = sorted(set(where) | set(autograd_draw.TERMS))[::every]
        for what in terms:
            factor = 0.7 if what.startswith("option ") else 1.02
            if not any(self.shows(case, dumped, (what, factor)) for case, dumped in where[what][:MUTATED_CASES]):
                missed.append(f"{what} (in {len(where[what])} cases)")
        print(f"{len(terms)} seeded errors, {len(missed)} not found")
        return missed

    def shows(self, case, dumped, mutation):
        learner = autograd_learner.Learner(case.drawing, mutation=mutation, values_max=1e30).run()
        return bool(without_noise(case.drawing, differences(learner, dumped), mutation))


def numbers(x):
    return " ".join(f"{v:.7g}" for v in x.tolist()[:5]) + (" .." if len(x) > 5 else "")


def rule_of(learner, name):
    words = name.split()
    rule = learner.rules.get(name) if len(words) == 1 else learner.row_rules[words[0], words[2]]
    return f"{rule.kind} {({k: v for k, v in rule.o.items() if v})}" if rule else ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", help="FIRST:END")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--mutate", metavar="WHAT", help="a term of --show")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--errors", action="store_true", help="all seeded errors")
    parser.add_argument("--whole", action="store_true", help="differences are not made small")
    options = parser.parse_args()
    if options.show:
        case = drawn(options.seed)
        print(json.dumps(case.drawing["conf"], indent=1))
        print(*sorted(autograd_draw.mentions(case.drawing)), sep="\n")
        return
    seeds = range(*SEEDS)
    if options.seeds:
        seeds = range(*map(int, options.seeds.split(":")))
    elif options.seed is not None:
        seeds = [options.seed]
    network = autograd_learner.autograd_network
    unknown = (set(KINDS["OPERATIONS"]) - set(network.OPERATIONS)) | (set(KINDS["ROW_POOLINGS"]) - set(network.POOLINGS))
    assert not unknown, f"operations and poolings that the PyTorch side lacks: {unknown}"
    mutation = (options.mutate, 0.7 if options.mutate.startswith("option ") else 1.02) if options.mutate else None
    begin = time.monotonic()
    with Workspace() as work, Broker() as broker, concurrent.futures.ThreadPoolExecutor(DAEMONS) as pool:
        check = Check(work, broker, pool)
        check.shrunk = options.whole
        bad = check.seeds(seeds, mutation)
        print(f"{len(seeds)} networks, {check.tensors} tensors, {check.noisy} of them too near to rounding, {bad} networks differ, {time.monotonic() - begin:.0f} s")
        if options.seeds is None and options.seed is None:
            assert check.noisy <= NOISE_SHARE_MAX * check.tensors, "too many tensors are not compared"
            missed = check.seeded_errors(1 if options.errors else ERRORS_EVERY)
            assert not missed, f"seeded errors that do not show: {missed}"
            print(f"{time.monotonic() - begin:.0f} s in all")
        assert not bad, f"{bad} networks differ"
    print("1 passed, 0 failed")


main()
