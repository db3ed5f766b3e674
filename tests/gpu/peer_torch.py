"""The bench's models (learn.c, model.c) in PyTorch on the same card, batches from a ring on the host: one JSON object a line, as gpu_learn prints them.

    python3 tests/gpu/peer_torch.py [--small]

One embedding table with offsets, sparse gradients with Adagrad, dense layers with Adam, f32 without TF32. Ends with 77 where there is no torch or no card."""
import json
import sys
import time

try:
    import torch
except (ImportError, OSError) as why:
    print(f"skipped: no PyTorch: {why}")
    sys.exit(77)

SMALL = "--small" in sys.argv
if not SMALL and not torch.cuda.is_available():
    print("skipped: PyTorch sees no card")
    sys.exit(77)
DEVICE = "cpu" if SMALL else "cuda"
SLOTS, NUMBERS, SECONDS = 26, 13, 0.0 if SMALL else 1.5
MODELS = {"small": (8, [32, 16], 200, [32])} if SMALL else {
    "r16": (16, [512, 256, 64], 100_000, [1024, 4096, 16384, 65536]),
    "wide": (128, [1024, 1024, 512, 256], 100_000, [1024, 4096, 16384, 65536]),
}


def make_ring(size, ids):
    """Ids by Zipf 1.05, as the bench's."""
    weights = torch.arange(1, ids + 1, dtype=torch.float64) ** -1.05
    n = max(4, min(64, (1 << 18) // size))
    ring = []
    for _ in range(n):
        drawn = torch.multinomial(weights, size * SLOTS, replacement=True).view(size, SLOTS) + torch.arange(SLOTS) * ids
        batch = (drawn, torch.rand(size, NUMBERS) - 0.5, (torch.rand(size) < 0.3).float())
        ring.append(tuple(t if SMALL else t.pin_memory() for t in batch))
    return ring


def build(dim, units, ids):
    table = torch.nn.Embedding(SLOTS * ids, dim, sparse=True, device=DEVICE)
    layers, width = [], SLOTS * dim + NUMBERS
    for unit in units:
        layers += [torch.nn.Linear(width, unit), torch.nn.ReLU()]
        width = unit
    net = torch.nn.Sequential(*layers, torch.nn.Linear(width, 1)).to(DEVICE)
    return table, net, torch.optim.Adagrad(table.parameters(), lr=0.05), torch.optim.Adam(net.parameters(), lr=0.001)


def run(name, dim, units, ids, size):
    table, net, rows, dense = build(dim, units, ids)
    ring = make_ring(size, ids)
    loss_of = torch.nn.BCEWithLogitsLoss()

    def step(k):
        drawn, numbers, labels = (t.to(DEVICE, non_blocking=True) for t in ring[k % len(ring)])
        x = torch.cat([table(drawn).flatten(1), numbers], dim=1)
        loss = loss_of(net(x).squeeze(1), labels)
        rows.zero_grad(set_to_none=True)
        dense.zero_grad(set_to_none=True)
        loss.backward()
        rows.step()
        dense.step()

    def settle():
        if DEVICE == "cuda":
            torch.cuda.synchronize()

    for k in range(len(ring)):
        step(k)
    settle()
    begin, steps = time.monotonic(), 0
    while steps == 0 or time.monotonic() - begin < SECONDS:
        for _ in range(8):
            step(steps)
            steps += 1
        settle()
    ms = (time.monotonic() - begin) * 1e3 / steps
    print(json.dumps({"bench": f"PyTorch {torch.__version__}, {name}, batch {size}, from a host ring", "ms": round(ms, 4), "M samples/s": round(size / ms / 1e3, 4)}), flush=True)


torch.backends.cuda.matmul.allow_tf32 = False
try:
    for name, (dim, units, ids, sizes) in MODELS.items():
        for size in sizes:
            run(name, dim, units, ids, size)
except ImportError as why:
    print(f"skipped: PyTorch is not whole: {why}")
    sys.exit(77)
