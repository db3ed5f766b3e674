"""The stream: 26 id slots by Zipf 1.05, 13 numbers, a label that a planted model explains; packed blocks of 256 for Kafka, lines for Vowpal Wabbit.

A function of (seed, chunk). Ids are ranks: what is frequent lies together in a table by offsets, which helps that table.
"""
import msgpack
import numpy as np

SLOTS, NUMBERS, BLOCK, CHUNK = 26, 13, 256, 16384
NAMES = [f"s{slot:02d}" for slot in range(SLOTS)]
EXPONENT = 1.05
EXPLAINING = 8  # slots whose ids have weights; the others are noise
START_MS = 1767225600000


class Stream:
    def __init__(self, samples, ids, seed=1):
        self.samples, self.ids, self.seed = samples, ids, seed
        self.cumulated = np.cumsum(np.arange(1, ids + 1, dtype=np.float64) ** -EXPONENT)
        self.cumulated /= self.cumulated[-1]
        draw = np.random.default_rng([seed, 0])
        amplitude = 0.6 / (1 + np.arange(ids) / 1000)  # nobody learns the weight of an id seen three times
        self.weights = draw.standard_normal((EXPLAINING, ids)) * amplitude
        self.slopes = draw.standard_normal(NUMBERS) * 0.8

    def chunks(self):
        """(ids [n, slots], numbers [n, 13], labels [n], probabilities [n])"""
        for chunk in range(0, self.samples, CHUNK):
            n, draw = min(CHUNK, self.samples - chunk), np.random.default_rng([self.seed, 1, chunk])
            ids = np.minimum(np.searchsorted(self.cumulated, draw.random((n, SLOTS))), self.ids - 1)
            numbers = (draw.random((n, NUMBERS)) - 0.5).astype(np.float32)
            logits = numbers @ self.slopes - 1
            for slot in range(EXPLAINING):
                logits += self.weights[slot, ids[:, slot]]
            probabilities = 1 / (1 + np.exp(-logits))
            yield ids, numbers, (draw.random(n) < probabilities).astype(np.float32), probabilities


def record(ids, numbers, labels, t):
    columns = {name: {"b": ids[:, slot].astype("<u8").tobytes()} for slot, name in enumerate(NAMES)}
    if numbers is not None:
        columns["dense"] = {"b": numbers.astype("<f4").tobytes()}
    return msgpack.packb({"n": len(labels), "t": t, "cols": columns, "y": {"click": {"b": labels.astype("<f4").tobytes()}}})


LINE = "%d " + " ".join(f"|{chr(ord('a') + slot)} %d" for slot in range(SLOTS)) + "\n"


def lines(ids, labels):
    signs = np.where(labels > 0.5, 1, -1)
    return "".join([LINE % tuple(row) for row in np.column_stack((signs, ids)).tolist()])


class Facts:
    """Of a stream as a whole: labels in order, the AUC of the planted model, the share of occurrences in the second half whose id the first half had."""

    def __init__(self, stream):
        self.stream, self.labels, self.probabilities = stream, [], []
        self.seen, self.at, self.known, self.asked = np.zeros((SLOTS, stream.ids), bool), 0, 0, 0

    def add(self, ids, labels, probabilities):
        slots = np.arange(SLOTS)[None, :]
        if self.at >= self.stream.samples // 2:
            self.known += int(self.seen[slots, ids].sum())
            self.asked += ids.size
        else:
            self.seen[slots, ids] = True
        self.at += len(labels)
        self.labels.append(labels)
        self.probabilities.append(probabilities)

    def done(self):
        self.labels, self.probabilities, self.seen = np.concatenate(self.labels), np.concatenate(self.probabilities), None
        self.known_share = self.known / max(1, self.asked)
        return self


def produce(stream, address, topic, partitions, with_numbers, progress, text=None):
    """Fills a new topic, and the file `text` where one is named; returns the stream's Facts."""
    import confluent_kafka
    import confluent_kafka.admin
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": address})
    admin.create_topics([confluent_kafka.admin.NewTopic(topic, partitions, 1)])[topic].result(120)
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 20, "queue.buffering.max.kbytes": 65536})
    failures, facts, number = [], Facts(stream), 0
    on_delivery = lambda error, _: failures.append(error) if error else None  # noqa: E731
    file = open(text, "w") if text else None
    for ids, numbers, labels, probabilities in stream.chunks():
        for at in range(0, len(labels), BLOCK):
            part = slice(at, at + BLOCK)
            value = record(ids[part], numbers[part] if with_numbers else None, labels[part], START_MS + facts.at + at)
            while True:
                try:
                    producer.produce(topic, value, partition=number % partitions, on_delivery=on_delivery)
                    break
                except BufferError:
                    producer.poll(0.1)
            number += 1
        producer.poll(0)
        if file:
            file.write(lines(ids, labels))
        facts.add(ids, labels, probabilities)
        progress.at(facts.at)
    if file:
        file.close()
    if producer.flush(300) or failures:
        raise AssertionError(f"the topic could not be filled: {failures[:1]}")
    return facts.done()


def remove(address, topic):
    import confluent_kafka.admin
    confluent_kafka.admin.AdminClient({"bootstrap.servers": address}).delete_topics([topic])[topic].exception(60)
