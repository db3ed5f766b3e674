"""Writes to the acknowledgement topic which epoch a replica serves (docs/formats/acknowledgements.md). Records may be lost, and nothing waits for them."""
from __future__ import annotations

import json
import logging
import time
from typing import Any, Dict, Optional, TYPE_CHECKING

import confluent_kafka

if TYPE_CHECKING:
    from .replica import Replica

PACE_SECONDS, HEARTBEAT_SECONDS = 1.0, 10.0  # between two records; the longest time without one
LOOK_SECONDS, ANSWER_SECONDS, LEAVE_SECONDS = 10.0, 0.5, 0.5  # between two searches for the topic; for the brokers' answer; for the last record
NAME_BYTES_MAX, PROBLEM_BYTES_MAX = 128, 256


class Acknowledger:
    """Belongs to the thread that feeds the replica. The name is the replica's own; topic None: <model>.ack."""

    def __init__(self, replica: "Replica", name: str, topic: Optional[str], brokers: str, config: Dict[str, Any]) -> None:
        if not 1 <= len(name.encode()) <= NAME_BYTES_MAX or any(ord(c) < 0x20 or ord(c) == 0x7f for c in name):
            raise ValueError("the name of a replica has 1 to %d bytes of UTF-8 without control characters" % NAME_BYTES_MAX)
        self._replica, self._name, self._topic = replica, name, topic
        self._producer = confluent_kafka.Producer({"message.timeout.ms": 10000, "queue.buffering.max.messages": 100, **config, "bootstrap.servers": brokers})
        self._found, self._look, self._written, self._scored = False, 0.0, 0.0, 0
        self._last: Dict[str, Any] = {}

    def step(self, problem: str) -> None:
        """Writes a record if one is due. Waits at most half a second, and only while the topic is looked for."""
        self._producer.poll(0)
        now = time.monotonic()
        if self._last and now < self._written + PACE_SECONDS:
            return
        said = self._describe(problem)
        changed = any(said.get(key) != self._last.get(key) for key in ("tl", "e", "problem"))
        if not (changed or now >= self._written + HEARTBEAT_SECONDS) or not said["m"] or not self._is_there(said["m"], now):
            return
        scored = self._replica.scored
        if self._last:
            said["scores"] = (scored - self._scored) / (now - self._written)
        self._write(said)
        self._last, self._written, self._scored = said, now, scored

    def close(self) -> None:
        if self._last and self._found:
            self._write({**self._last, "leaving": True})
            self._producer.flush(LEAVE_SECONDS)
        del self._producer  # ends its connections

    def _describe(self, problem: str) -> Dict[str, Any]:
        info = self._replica.info
        said = {"v": 1, "m": self._replica.model, "name": self._name, "tl": info.timeline, "e": info.epoch, "t": int(time.time() * 1000)}
        if info.epoch:
            said.update(cut=info.commit_wall_ms, wm=max(info.watermark_ms, 0), rows=info.rows)
        if problem:
            said["problem"] = problem.encode()[:PROBLEM_BYTES_MAX].decode(errors="ignore")
        return said

    def _is_there(self, model: str, now: float) -> bool:
        """Whether the topic exists. It is looked up in the list of all topics, because a producer's query that names a topic creates it."""
        self._topic = self._topic or model + ".ack"
        if self._found or now < self._look:
            return self._found
        try:
            self._found = self._topic in self._producer.list_topics(timeout=ANSWER_SECONDS).topics
        except confluent_kafka.KafkaException:
            pass  # looked for again
        if not self._found and not self._look:
            logging.getLogger("freshet").warning("the topic %s for acknowledgements is not found yet: set export.acknowledgements of the daemon, which makes it, "
                                                 "or make it; looking again every %.0f s", self._topic, LOOK_SECONDS)
        self._look = time.monotonic() + LOOK_SECONDS
        return self._found

    def _write(self, said: Dict[str, Any]) -> None:
        try:
            self._producer.produce(self._topic, json.dumps(said), key=self._name, on_delivery=self._on_delivery)
        except BufferError:
            pass  # lost, as one that its broker does not take
        except confluent_kafka.KafkaException:
            self._found = False  # the topic was deleted, for example: it is looked for again

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self._found = False
