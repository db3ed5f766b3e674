"""PyTorch on the CPU as the peer of r16 and light: confluent-kafka, one table with offsets, sparse gradients, row-wise Adagrad, fused Adam.

A variant is a set of parts: `sparse` (nn.Embedding with sparse gradients), `rows` (gathered rows as a leaf, so that autograd never sees the table) or `fbgemm`
(its table-batched embeddings with their own update), and `compile` (torch.compile of network and loss), `reader` (a thread that fetches and decodes), `passive`
(OpenMP threads that sleep while they wait). Rows and layers start and learn as freshetd's.

    peer_torch.py JSON    {model, brokers, topic, partitions, samples, limit, ids, threads, variant, seed, name}
"""
import json
import logging
import queue
import sys
import threading
import time

import confluent_kafka
import msgpack
import numpy as np
import torch

from measure import Progress, auc, own_cpu, peak_of, result
from streams import BLOCK, NAMES, NUMBERS, SLOTS

BATCH = 1024
MODELS = {"r16": (16, (512, 256, 64)), "light": (8, (64, 32))}
ROW_RATE, LAYER_RATE, EPS, DEVIATION = 0.05, 0.001, 1e-8 / BATCH, 0.01
WARM_BATCHES = 12


# ---- input ----

def fetched(given, limit):
    """Batches of (ids, numbers, labels) as arrays."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": given["brokers"], "group.id": given["name"], "enable.auto.commit": False,
                                         "fetch.min.bytes": 65536, "auto.offset.reset": "earliest"})
    consumer.assign([confluent_kafka.TopicPartition(given["topic"], number, confluent_kafka.OFFSET_BEGINNING) for number in range(given["partitions"])])
    waiting, sent, quiet = [], 0, time.monotonic()
    while sent < limit:
        for message in consumer.consume(BATCH // BLOCK - len(waiting), 0.5):
            if message.error():
                raise RuntimeError(message.error())
            waiting.append(message.value())
            quiet = time.monotonic()
        if len(waiting) == BATCH // BLOCK:
            yield decoded(waiting)
            waiting, sent = [], sent + BATCH
        elif time.monotonic() - quiet > 60:
            raise RuntimeError(f"the topic ended at {sent} samples")
    consumer.close()


def decoded(values):
    ids, numbers, labels = np.empty((BATCH, SLOTS), np.int64), np.empty((BATCH, NUMBERS), np.float32), np.empty(BATCH, np.float32)
    for at, value in zip(range(0, BATCH, BLOCK), values):
        block, part = msgpack.unpackb(value), slice(at, at + BLOCK)
        for slot, name in enumerate(NAMES):
            ids[part, slot] = np.frombuffer(block["cols"][name]["b"], "<i8")
        numbers[part] = np.frombuffer(block["cols"]["dense"]["b"], "<f4").reshape(BLOCK, NUMBERS)
        labels[part] = np.frombuffer(block["y"]["click"]["b"], "<f4")
    return ids, numbers, labels


def beside(batches):
    """The same from a thread."""
    line = queue.Queue(16)

    def work():
        try:
            for batch in batches:
                line.put(batch)
            line.put(None)
        except Exception as error:
            line.put(error)
    threading.Thread(target=work, daemon=True).start()
    while (batch := line.get()) is not None:
        if isinstance(batch, Exception):
            raise batch
        yield batch


# ---- tables ----

class Table:
    """26 slots of `ids` rows each in one matrix, and a row-wise Adagrad with an accumulator a row."""

    def __init__(self, ids, dim, sparse):
        self.dim, self.offsets = dim, torch.arange(SLOTS) * ids
        self.module = torch.nn.Embedding(SLOTS * ids, dim, sparse=True, _weight=torch.empty(SLOTS * ids, dim).normal_(0, DEVIATION)) if sparse else None
        self.weight = self.module.weight.data if sparse else torch.empty(SLOTS * ids, dim).normal_(0, DEVIATION)
        self.squares = torch.zeros(SLOTS * ids)

    def look_up(self, ids):
        places = ids + self.offsets
        if self.module:
            return self.module(places)
        self.places = places.view(-1)
        self.rows = self.weight.index_select(0, self.places).requires_grad_()
        return self.rows.view(len(ids), SLOTS, self.dim)

    def step(self):
        if self.module:
            gradient, self.module.weight.grad = self.module.weight.grad, None
        else:
            gradient = torch.sparse_coo_tensor(self.places[None], self.rows.grad, self.weight.shape, check_invariants=False)
        gradient = gradient.coalesce()
        places, sums = gradient.indices()[0], gradient.values()
        squares = self.squares.index_select(0, places).add_(sums.square().mean(1))
        self.squares.index_copy_(0, places, squares)
        self.weight.index_copy_(0, places, self.weight.index_select(0, places).addcdiv_(sums, squares.sqrt_().add_(EPS)[:, None], value=-ROW_RATE))

    def kept(self, ids):
        places = (ids + self.offsets).view(-1)
        return places, self.weight[places].clone()

    def restore(self, kept):
        self.weight[kept[0]], self.squares[kept[0]] = kept[1], 0.0


class Fbgemm:
    """FBGEMM's CPU tables, one a slot; their update runs inside the backward pass."""

    def __init__(self, ids, dim):
        from fbgemm_gpu.split_embedding_configs import EmbOptimType
        from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
        from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen
        self.dim, self.bounds = dim, torch.arange(SLOTS * BATCH + 1)
        self.module = SplitTableBatchedEmbeddingBagsCodegen([(ids, dim, EmbeddingLocation.HOST, ComputeDevice.CPU)] * SLOTS, learning_rate=ROW_RATE, eps=EPS,
                                                            optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD)
        self.weights = self.module.split_embedding_weights()
        self.squares = [state[0] for state in self.module.split_optimizer_states()]
        for weight in self.weights:
            weight.normal_(0, DEVIATION)

    def look_up(self, ids):
        return self.module(ids.t().reshape(-1), self.bounds).view(len(ids), SLOTS, self.dim)

    def step(self):
        pass

    def kept(self, ids):
        return ids, [weight[ids[:, slot]].clone() for slot, weight in enumerate(self.weights)]

    def restore(self, kept):
        for slot, weight in enumerate(self.weights):
            weight[kept[0][:, slot]], self.squares[slot][kept[0][:, slot]] = kept[1][slot], 0.0


# ---- the model ----

class Network(torch.nn.Module):
    """From rows and numbers to the mean loss and the logits."""

    def __init__(self, model):
        super().__init__()
        dim, units = MODELS[model]
        self.light = model == "light"
        widths, layers = [(2 * dim if self.light else SLOTS * dim) + NUMBERS, *units], []
        for width, unit in zip(widths, widths[1:]):
            layers += [torch.nn.Linear(width, unit), torch.nn.ReLU()]
        self.layers = torch.nn.Sequential(*layers, torch.nn.Linear(widths[-1], 1))

    def forward(self, rows, numbers, labels):
        if self.light:
            total = rows.sum(1)
            rows = torch.cat((total, (total.square() - rows.square().sum(1)) * 0.5), 1)
        logits = self.layers(torch.cat((rows.flatten(1), numbers), 1)).squeeze(1)
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, labels), logits.detach()


class Learner:
    """Row-wise Adagrad from 0 is free of the loss's scale (eps is scaled too), so rows may take the mean's gradient: one backward pass serves both."""

    def __init__(self, given):
        parts = given["variant"].split("+")
        dim = MODELS[given["model"]][0]
        self.table = Fbgemm(given["ids"], dim) if "fbgemm" in parts else Table(given["ids"], dim, "sparse" in parts)
        self.network = Network(given["model"])
        self.run = torch.compile(self.network, dynamic=False) if "compile" in parts else self.network
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=LAYER_RATE, fused=True)

    def step(self, batch):
        ids, numbers, labels = map(torch.from_numpy, batch)
        loss, logits = self.run(self.table.look_up(ids), numbers, labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.table.step()
        return logits

    def warm_up(self, batches):
        """Compiles and touches what it needs, and leaves a learner that has learned nothing."""
        batches = list(batches)
        kept = self.table.kept(torch.from_numpy(np.concatenate([batch[0] for batch in batches])))
        first = {name: value.clone() for name, value in self.network.state_dict().items()}
        for batch in batches:
            self.step(batch)
        self.table.restore(kept)
        self.network.load_state_dict(first)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=LAYER_RATE, fused=True)


def train(given):
    learner, limit = Learner(given), given["limit"]
    learner.warm_up(fetched({**given, "name": given["name"] + "-warm"}, min(WARM_BATCHES * BATCH, limit)))
    logits, labels, done, marks = np.empty(limit, np.float32), np.empty(limit, np.float32), 0, []
    progress = Progress(f"{given['name']} (PyTorch)", limit)
    batches = fetched(given, limit)
    for batch in beside(batches) if "reader" in given["variant"] else batches:
        if not marks:
            marks.append((time.monotonic(), own_cpu()))
        part = slice(done, done + BATCH)
        logits[part], labels[part] = learner.step(batch).numpy(), batch[2]
        done += BATCH
        if done >= limit // 2 and len(marks) == 1:
            marks.append((time.monotonic(), own_cpu()))
        progress.at(done)
    marks.append((time.monotonic(), own_cpu()))
    return result(limit, marks, peak_of(), auc(logits, labels), variant=given["variant"])


def main():
    given = json.loads(sys.argv[1])
    torch.set_num_threads(given["threads"])
    torch.manual_seed(given["seed"])
    logging.disable(logging.CRITICAL)  # of what was not found
    try:
        if "fbgemm" in given["variant"]:
            import fbgemm_gpu  # noqa: F401
        answer = train(given)
    except Exception as error:  # a variant that cannot run here says why
        answer = {"failed": f"{type(error).__name__}: {error}".strip().split("\n")[0][:300]}
    print(json.dumps(answer), flush=True)


main()
