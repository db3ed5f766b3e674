#!/usr/bin/env python3
"""Prints golden_optimizers.h: six steps of every optimizer in double precision.

PyTorch (2.15.0 wrote the file) runs what it has: sgd, momentum, adagrad, rmsprop, adam, adamw, each also with weight
decay in the gradient where our l2 means the same. The rest is evaluated here from the papers: row-wise Adagrad and
Adam (the mean of the squares in place of g^2), FTRL-Proximal (McMahan et al. 2013), group FTRL (Yue et al. 2021), z
beginning where the closed form gives the first values.
`lazy` is one PyTorch parameter a row, stepped only when the row occurs. `late_accumulator` is PERSIA's Adagrad, which
divides by the accumulator before it adds g^2: what ours must not be.

    python3 golden_optimizers.py > golden_optimizers.h      # needs PyTorch
"""
import math
import torch

START = [1.0, -0.5, 0.25]
GRADIENTS = [[0.5, -2.0, 0.125], [-1.5, 0.25, 0.0], [0.75, 1.0, -3.0], [0.0, 0.0, 0.5], [2.0, -0.125, 0.375],
             [-0.25, 1.5, 1.0]]
PRESENT = [1, 0, 1, 1, 0, 1]  # steps in which the lazy row occurs


def run_torch(make, present=None):
    w = torch.tensor(START, dtype=torch.float64, requires_grad=True)
    optimizer = make([w])
    out = []
    for step, g in enumerate(GRADIENTS):
        if present is None or present[step]:
            w.grad = torch.tensor(g, dtype=torch.float64)
            optimizer.step()
        out.append(w.detach().tolist())
    return out


def run(rule):
    w, state, out = list(START), {}, []
    for step, g in enumerate(GRADIENTS):
        w = rule(step + 1, w, g, state)
        out.append(w)
    return out


def adagrad_rowwise(_, w, g, s):
    s["a"] = s.get("a", 0.0) + sum(x * x for x in g) / len(g)
    return [wi - 0.1 * gi / (math.sqrt(s["a"]) + 1e-8) for wi, gi in zip(w, g)]


def adam_rowwise(t, w, g, s):
    s["m"] = [0.9 * m + 0.1 * x for m, x in zip(s.get("m", [0.0] * 3), g)]
    s["v"] = 0.99 * s.get("v", 0.0) + 0.01 * sum(x * x for x in g) / len(g)
    root = math.sqrt(s["v"] / (1 - 0.99 ** t)) + 1e-8
    return [wi - 0.1 * m / (1 - 0.9 ** t) / root for wi, m in zip(w, s["m"])]


def ftrl(l1, l2, l21):
    alpha, beta = 0.1, 1.0

    def rule(_, w, g, s):
        rate0 = beta / alpha + l2
        stretch = 1 + math.sqrt(len(w)) * l21 / (rate0 * math.sqrt(sum(x * x for x in w))) if "n" not in s else 0
        n = s.get("n", [0.0] * 3)
        z = s.get("z") or [-rate0 * stretch * x - math.copysign(l1, x) for x in w]
        new = [x + y * y for x, y in zip(n, g)]
        sigma = [(math.sqrt(a) - math.sqrt(b)) / alpha for a, b in zip(new, n)]
        z = [a + b - c * d for a, b, c, d in zip(z, g, sigma, w)]
        s["z"], s["n"] = z, new
        shrunk = [0.0 if abs(a) <= l1 else math.copysign(l1, a) - a for a in z]
        norm, bound = math.sqrt(sum(a * a for a in shrunk)), math.sqrt(len(w)) * l21
        factor = 0.0 if norm <= bound else 1 - bound / norm
        return [factor * a / ((beta + math.sqrt(b)) / alpha + l2) for a, b in zip(shrunk, new)]

    return rule


def late_accumulator(_, w, g, s):
    a = s.get("a", [0.01] * 3)
    s["a"] = [x + y * y for x, y in zip(a, g)]
    return [wi - 0.01 * gi / math.sqrt(ai + 1e-10) for wi, gi, ai in zip(w, g, a)]


O = torch.optim
CASES = {
    "sgd": run_torch(lambda p: O.SGD(p, lr=0.1)),
    "sgd_l2": run_torch(lambda p: O.SGD(p, lr=0.1, weight_decay=0.25)),
    "momentum": run_torch(lambda p: O.SGD(p, lr=0.1, momentum=0.9)),
    "adagrad": run_torch(lambda p: O.Adagrad(p, lr=0.1, eps=1e-8)),
    "adagrad_l2_initial": run_torch(
        lambda p: O.Adagrad(p, lr=0.1, eps=1e-8, weight_decay=0.25, initial_accumulator_value=0.5)),
    "rmsprop": run_torch(lambda p: O.RMSprop(p, lr=0.1, alpha=0.9, eps=1e-8)),
    "adam": run_torch(lambda p: O.Adam(p, lr=0.1, betas=(0.9, 0.99), eps=1e-8)),
    "adam_l2": run_torch(lambda p: O.Adam(p, lr=0.1, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.25)),
    "adamw": run_torch(lambda p: O.AdamW(p, lr=0.1, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.25)),
    "adam_lazy": run_torch(lambda p: O.Adam(p, lr=0.1, betas=(0.9, 0.99), eps=1e-8), PRESENT),
    "momentum_lazy": run_torch(lambda p: O.SGD(p, lr=0.1, momentum=0.9), PRESENT),
    "adagrad_rowwise": run(adagrad_rowwise),
    "adam_rowwise": run(adam_rowwise),
    "ftrl": run(ftrl(0.0, 0.0, 0.0)),
    "ftrl_l1_l2": run(ftrl(0.5, 0.25, 0.0)),
    "group_ftrl": run(ftrl(0.5, 0.25, 1.5)),
    "late_accumulator": run(late_accumulator),
}


def table(rows):
    return ",\n".join("    {" + ", ".join("%.9gf" % x if "." in "%.9g" % x or "e" in "%.9g" % x else "%.9g.0f" % x
                                          for x in row) + "}" for row in rows)


print("/* Six steps of every optimizer; written by golden_optimizers.py, which says from what. */")
print("#ifndef FR_TESTS_OPS_GOLDEN_OPTIMIZERS_H\n#define FR_TESTS_OPS_GOLDEN_OPTIMIZERS_H\n")
print("#include <stdint.h>\n")
print("enum { GOLDEN_STEPS = %d, GOLDEN_DIM = %d };\n" % (len(GRADIENTS), len(START)))
print("static const float golden_start[GOLDEN_DIM] = {%s};" % ", ".join("%sf" % x for x in START))
print("static const float golden_gradients[GOLDEN_STEPS][GOLDEN_DIM] = {\n%s};" % table(GRADIENTS))
print("static const uint32_t golden_present[GOLDEN_STEPS] = {%s};" % ", ".join(map(str, PRESENT)))
for name, rows in CASES.items():
    print("static const float golden_%s[GOLDEN_STEPS][GOLDEN_DIM] = {\n%s};" % (name, table(rows)))
print("\n#endif")
