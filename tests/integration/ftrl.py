"""Logistic regression with FTRL-Proximal (McMahan et al. 2013) over a stream of samples in batches, written from the paper for reference_auc.py. It computes what
the daemon's `ftrl` must reach at batch sizes for which the data folder has no run.

Every sample of a batch is scored with the weights before it; then each feature takes one step on the sum of its gradients. Features are those of the reference runs: one
per id of a slot (value 1/n for each of n ids), one per number of `dense`, a bias; all weights begin at 0.
"""
import gzip
import json
import math

ALPHA, BETA, L2 = 0.3, 1.0, 1.0
SCORE_MIN = 1e-7  # log losses of the reference runs are cut there


def features(slots):
    values = {("bias", 0): 1.0}
    for slot, value in slots.items():
        if slot == "dense":
            values.update({(slot, i): x for i, x in enumerate(value)})
        else:
            ids = value if isinstance(value, list) else [value]
            for key in ids:
                values[slot, key] = values.get((slot, key), 0.0) + 1.0 / len(ids)
    return values.items()


class Model:
    def __init__(self):
        self.z, self.n, self.weights = {}, {}, {}

    def score(self, values):
        z = sum(self.weights.get(key, 0.0) * x for key, x in values)
        return 1 / (1 + math.exp(-max(-35.0, min(35.0, z))))

    def step(self, sums):
        for key, gradient in sums.items():
            before = self.n.get(key, 0.0)
            n = self.n[key] = before + gradient * gradient
            sigma = (math.sqrt(n) - math.sqrt(before)) / ALPHA
            z = self.z[key] = self.z.get(key, 0.0) + gradient - sigma * self.weights.get(key, 0.0)
            self.weights[key] = -z / ((BETA + math.sqrt(n)) / ALPHA + L2)


def auc(scored):
    """AUC by ranks; a tie counts half."""
    scored, won, negatives, at = sorted(scored), 0.0, 0, 0
    while at < len(scored):
        end = at
        while end < len(scored) and scored[end][0] == scored[at][0]:
            end += 1
        positive = sum(label for _, label in scored[at:end])
        won += positive * (negatives + 0.5 * (end - at - positive))
        negatives += end - at - positive
        at = end
    return won / (negatives * (len(scored) - negatives))


def progressive(path, batch):
    """Returns AUC and log loss of one pass over the first label of a stream."""
    model, scored, sums = Model(), [], {}
    with gzip.open(path, "rt") as lines:
        for number, line in enumerate(lines, 1):
            sample = json.loads(line)
            y = sample["y"]
            label = y if isinstance(y, (int, float)) else (y[0] if isinstance(y, list) else next(iter(y.values())))
            values = features(sample["f"])
            p = model.score(values)
            scored.append((p, label))
            for key, x in values:
                sums[key] = sums.get(key, 0.0) + (p - label) * x
            if number % batch == 0:
                model.step(sums)
                sums = {}
    loss = -sum(math.log(max(p if label else 1 - p, SCORE_MIN)) for p, label in scored) / len(scored)
    return auc(scored), loss
