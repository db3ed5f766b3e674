"""Sample records of every form with every field, and what they decode to by docs/formats/samples.md alone; checked through `freshet decode`.

tests/golden/messages.jsonl holds some whose bytes must never change their meaning: {"name", "format", "text" (json) or "hex" (msgpack), "expected": samples}, against
messages.yaml. `messages.py --write` writes that file again. The test also draws many random records. Needs no Kafka."""
import functools
import itertools
import json
import pathlib
import random
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import keys  # noqa: E402
import samples  # noqa: E402

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"
CONFIG = GOLDEN / "messages.yaml"
T0 = 1700000000000
# slot -> (namespace, raw, ids kept), or the default of a dense slot of that width
IDS = {"user_id": ("user", False, 1024), "item_id": ("item", False, 1024), "history": ("item", False, 4), "tags": ("tags", False, 3), "context": ("context", True, 1024)}
DENSE = {"price": [1.5], "vector": [-0.25] * 3, "length": [None]}
BUCKETS = {"price_bucket": ("price", [0, 3]), "length_bucket": ("length", [-0.5, 0, 0.5])}
CROSSES = {"pair": (("user_id", "price_bucket"), 1024), "triple": (("tags", "context", "length_bucket"), 5)}
INDEX = {"user_id": 0, "item_id": 1}
CARRIED = ("click", "buy")
TASKS = {"click": "click", "cvr": "bought", "buy": "buy"}
DRAWN = 600


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def decoded_ids(slot, value):
    """Returns (keys, weights) of an entry; the weights are None when the entry has none."""
    namespace, raw, kept = IDS[slot]
    weights = None
    if isinstance(value, dict):
        value, weights = value["i"], [f32(w) for w in value["w"]]
    ids = [] if value is None else value if isinstance(value, list) else [value]
    return [str(keys.key_of(i, namespace, raw)) for i in ids][-kept:], weights and weights[-kept:]


def decoded_slots(f):
    out = {}
    for slot in IDS:
        ids, weights = decoded_ids(slot, f.get(slot))
        out[slot] = {"i": ids, "w": weights if weights is not None else [1.0] * len(ids)}
    for slot, default in DENSE.items():
        value = f.get(slot)
        out[slot] = default if value is None else [f32(x) for x in (value if isinstance(value, list) else [value])]
    for slot, (of, boundaries) in BUCKETS.items():
        ids = [] if f.get(of) is None else [str(keys.key_of(sum(b <= out[of][0] for b in boundaries), slot))]
        out[slot] = {"i": ids, "w": [1.0] * len(ids)}
    for slot, (sources, kept) in CROSSES.items():
        pairs = [list(zip(out[source]["i"], out[source]["w"])) for source in sources]
        every = list(itertools.product(*pairs))[-kept:]
        out[slot] = {"i": [str(keys.cross_of([int(key) for key, _ in each], slot)) for each in every],
                     "w": [functools.reduce(lambda a, b: f32(a * b), (w for _, w in each)) for each in every]}
    return out


def decoded(sample):
    """Returns what `freshet decode` must print of a single sample, whose labels and weights are maps."""
    y = {label: sample["y"].get(label) for label in CARRIED}
    y = {label: None if value is None else f32(value) for label, value in y.items()}
    y["bought"] = y["buy"] if y["click"] == 1 else None
    w = sample.get("w", 1)
    w = {label: f32(w.get(label, 1) if isinstance(w, dict) else w) for label in CARRIED}
    w["bought"] = w["buy"]
    use = sample.get("u", 3)
    masked = all(y[label] is None for label in TASKS.values())
    served = sample.get("p", {})
    return {"t": sample["t"], "u": use, "role": "masked" if masked else "train" if use & 1 else "metrics_only", "s": f32(sample.get("s", 1)), "y": y, "w": w,
            "p": {task: f32(served[task]) if served.get(task) is not None else None for task in TASKS}, "f": decoded_slots(sample["f"])}


def rounded(value):
    """Returns the value with each number, printed as %.9g, read back as the f32 that it was."""
    if isinstance(value, float):
        return f32(value)
    if isinstance(value, dict):
        return {key: rounded(v) for key, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, list) else value


def plain(answer):
    """Returns the samples that `freshet decode` printed, with the weights of every slot written out."""
    for sample in answer["samples"]:
        for slot in (*IDS, *BUCKETS, *CROSSES):
            if isinstance(sample["f"][slot], list):
                sample["f"][slot] = {"i": sample["f"][slot], "w": [1.0] * len(sample["f"][slot])}
    return rounded(answer["samples"])


# ---- drawing ----

def draw_f(rng, slots):
    f = {}
    for slot in slots:
        if rng.random() < 0.25:
            continue
        if slot in DENSE:
            numbers = [rng.choice([0, 7, round(rng.gauss(0, 3), 5), -1e-3]) for _ in DENSE[slot]]
            f[slot] = numbers if slot == "vector" or rng.random() < 0.3 else numbers[0]
            continue
        kinds = {"ints": lambda: rng.choice([0, 5, 127, 128, 255, 65536, (1 << 64) - 1, rng.getrandbits(40)]), "texts": lambda: rng.choice(["5", "05", "Grüße", "中文", "x" * 40, ""]),
                 "mixed": lambda: rng.choice([-1, -(1 << 63), 3.0, "-7", "a"])}
        draw = kinds[rng.choice(list(kinds))]
        ids = [draw() for _ in range(rng.choice([0, 1, 1, 2, 6]))]
        f[slot] = rng.choice([ids, ids[0] if len(ids) == 1 else ids, {"i": ids, "w": [round(rng.gauss(0, 1), 3) for _ in ids]}, None])
    return f


def draw_item(rng, slots, block):
    item = {"f": draw_f(rng, slots), "y": {label: rng.choice([0, 1, 0.25, None]) for label in CARRIED if rng.random() < 0.9}, "t": T0 + rng.randrange(5)}
    for name, values in (("w", [0, 0.5, 2, {"click": 3}, {"buy": 0, "click": 0.1}]), ("u", [1, 2, 3]), ("s", [1, 0.5, 1e-3])):
        if rng.random() < 0.3:
            item[name] = rng.choice(values)
    if not block and rng.random() < 0.3:
        item["p"] = {"click": rng.random(), "buy": rng.choice([0, 1])}
    return item


def draw(rng, form):
    """Groups for one record of the form."""
    block = form in ("block", "packed")
    shared = rng.random() < 0.6 and form != "sample"
    groups = []
    slots = list(IDS) + list(DENSE)
    ours = rng.sample(slots, rng.randrange(1, len(slots)))
    for _ in range(1 if form in ("sample", "group") else rng.randrange(1, 5)):
        items = [draw_item(rng, [s for s in slots if s not in ours] if shared else slots, block) for _ in range(rng.randrange(1, 6) if shared else 1)]
        groups.append({"shared": draw_f(rng, ours) if shared else {}, "items": items})
    if shared and block and not any(group["shared"] for group in groups):
        groups[0]["shared"] = {"user_id": 1} if "user_id" in ours else {ours[0]: None}
    if form == "sample":
        groups = groups[:1]
    return groups


def spelled_slots(rng, f, codec):
    """Names some slots by their declared index, an integer key; JSON has no such keys."""
    return {INDEX[slot] if codec == "msgpack" and slot in INDEX and rng.random() < 0.3 else slot: value for slot, value in f.items()}


def spelled(rng, value, codec):
    """Returns the same record in other words: labels as an array, slots by index, keys that are ignored."""
    if isinstance(value, list):
        return [spelled(rng, each, codec) for each in value]
    out = {key: spelled_slots(rng, each, codec) if key in ("f", "shared", "cols") else each for key, each in value.items()}
    if "f" in out:
        labels = [out["y"].get(label) for label in CARRIED]
        while labels and labels[-1] is None and rng.random() < 0.5:
            labels.pop()  # shorter: the rest is masked
        if rng.random() < 0.3:
            out["y"] = labels
        elif not labels and rng.random() < 0.5:
            out["y"] = None
        if rng.random() < 0.2:
            out["id"] = rng.choice([7, "x", [1, {"any": None}]])
    if "items" in out:
        out["items"] = [spelled(rng, item, codec) for item in out["items"]]
    if rng.random() < 0.2:
        out["x_trace"] = {"ignored": [1, 2]}
    keys = list(out)
    rng.shuffle(keys)  # maps have no order
    return {key: out[key] for key in keys}


def draw_messages(rng, count):
    ways = [(form, codec) for form in samples.FORMS for codec in ("msgpack", "json") if (form, codec) != ("packed", "json")]
    for number in range(count):
        form, codec = ways[number % len(ways)]
        groups = draw(rng, form)
        value, = samples.records(groups, form, codec, len(groups), tuple(DENSE))
        value = samples.encode(spelled(rng, samples.decode(value, codec), codec), codec)
        yield {"name": f"{form} {number}", "format": codec, "text" if codec == "json" else "hex": value.decode() if codec == "json" else value.hex(),
               "expected": [decoded(sample) for group in groups for sample in samples.expanded(group)]}


# ---- the test ----

def check(tool, path, messages):
    """Each message through `freshet decode`; both codecs in a file of their own."""
    for codec in ("msgpack", "json"):
        mine = [message for message in messages if message["format"] == codec]
        path.write_text("".join((message["text"] if codec == "json" else message["hex"]) + "\n" for message in mine))
        code, out, err = tool("decode", "--config", CONFIG, "--file", path, "--format", codec, check=False)
        answers = [json.loads(line) for line in out.splitlines()]
        assert len(answers) == len(mine), f"{len(answers)} answers to {len(mine)} messages; {err}"
        for message, answer in zip(mine, answers):
            assert "malformed" not in answer, f"{message['name']}: {answer['malformed']}\n{message.get('text') or message['hex']}"
            for i, (got, expected) in enumerate(zip(plain(answer), message["expected"])):
                assert got == expected, f"{message['name']} sample {i}:\n{got}\nexpected\n{expected}\n{message.get('text') or message['hex']}"
            assert len(answer["samples"]) == len(message["expected"]) == sum(answer["groups"]), message["name"]
        assert code == 0, err


def check_names(tool, path):
    """Unknown names are printed with each record that has them."""
    path.write_text('{"t":1700000000000,"y":{"click":1,"later":1},"f":{"user_id":1,"foo":2,"bar":3},"kind":"a"}\n{"t":1700000000000,"y":{"click":1},"f":{"user_id":1,"foo":2}}\n')
    first, second = [json.loads(line) for line in tool("decode", "--config", CONFIG, "--file", path, "--format", "json")[1].splitlines()]
    assert first["slots"] == {"foo": 1, "bar": 1} and first["keys"] == {"y.later": 1, "kind": 1}, first
    assert second["slots"] == {"foo": 1} and "keys" not in second, second


def main():
    golden = GOLDEN / "messages.jsonl"
    if "--write" in sys.argv[1:]:
        golden.write_text("".join(json.dumps(message, ensure_ascii=True) + "\n" for message in draw_messages(random.Random(1), 36)))
        return
    from harness import Workspace, tool
    with Workspace() as work:
        fixed = [json.loads(line) for line in open(golden)]
        check(tool, work.path / "golden", fixed)
        seed = random.randrange(1 << 32)
        print("random messages of seed", seed)
        check(tool, work.path / "drawn", list(draw_messages(random.Random(seed), DRAWN)))
        check_names(tool, work.path / "names")
    print(f"{len(fixed)} golden and {DRAWN} drawn messages decode as docs/formats/samples.md says")
    print("3 passed, 0 failed")


main()
