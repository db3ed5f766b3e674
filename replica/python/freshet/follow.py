"""A thread that feeds a replica from its delta topic, by confluent-kafka. It joins no consumer group and commits nothing."""
from __future__ import annotations

import collections
import threading
import time
from typing import Any, Deque, Dict, Optional, Set, TYPE_CHECKING

try:
    import confluent_kafka
except ImportError as error:
    raise ImportError("following a topic needs the package confluent-kafka: pip install 'freshet[kafka]'") from error

if TYPE_CHECKING:
    from .replica import Replica

POLL_SECONDS, ANSWER_SECONDS = 0.1, 10.0


class Follower:
    def __init__(self, replica: "Replica", brokers: str, topic: str, config: Dict[str, Any]) -> None:
        self.replica, self.topic, self.problem = replica, topic, ""
        self.error: Optional[BaseException] = None
        self._stop, self._caught_up = threading.Event(), threading.Event()
        self._held: Dict[int, Deque[bytes]] = {}  # of partitions that are ahead of the others: not taken yet
        self.consumer = confluent_kafka.Consumer({"enable.auto.commit": False, "auto.offset.reset": "error", "isolation.level": "read_committed", **config,
                                                  "bootstrap.servers": brokers, "group.id": "freshet.reader", "enable.partition.eof": True})
        try:
            self._behind = self._assign()
        except BaseException:
            self.consumer.close()
            raise
        self._thread = threading.Thread(target=self._run, name="freshet-follow", daemon=True)
        self._thread.start()

    def _assign(self) -> Set[int]:
        """All partitions, from what the replica asks for or the first record there is; which of them have records."""
        topic = self.consumer.list_topics(self.topic, ANSWER_SECONDS).topics[self.topic]
        if topic.error or not topic.partitions:
            raise ConnectionError("topic %s: %s" % (self.topic, topic.error or "no partitions"))
        places, behind = [], set()
        for partition in topic.partitions:
            low, high = self.consumer.get_watermark_offsets(confluent_kafka.TopicPartition(self.topic, partition), ANSWER_SECONDS)
            begin = max(self.replica.next_offset(partition), low)
            places.append(confluent_kafka.TopicPartition(self.topic, partition, begin))
            if begin < high:
                behind.add(partition)
        self.consumer.assign(places)
        return behind

    def wait(self, timeout: float) -> None:
        if not self._caught_up.wait(timeout):
            raise TimeoutError("topic %s is not read to its end within %g s%s" % (self.topic, timeout, ": " + self.problem if self.problem else ""))
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    # ---- the thread ----

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                if not self._behind and not any(self._held.values()):
                    self._caught_up.set()
                self._turn()
        except BaseException as error:  # told by wait() and `problem`: nobody else looks at this thread
            self.error, self.problem = error, str(error)
        finally:
            self._caught_up.set()
            self.consumer.close()

    def _turn(self) -> None:
        message = self.consumer.poll(POLL_SECONDS)
        if message is None:
            return
        error = message.error()
        if error and error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            self._behind.discard(message.partition())
        elif error and (error.fatal() or error.code() in (confluent_kafka.KafkaError._AUTO_OFFSET_RESET, confluent_kafka.KafkaError.OFFSET_OUT_OF_RANGE)):
            raise ConnectionError("topic %s: %s" % (self.topic, error.str()))
        elif error:
            self.problem = error.str()  # librdkafka tries again
        else:
            self.problem = ""
            self._take(message.partition(), message.value() or b"")

    def _take(self, partition: int, value: bytes) -> None:
        waiting = self._held.setdefault(partition, collections.deque())
        waiting.append(value)
        moved = True
        while moved:  # what was taken may let others go on
            moved = False
            for other, values in self._held.items():
                while values and not self._stop.is_set():
                    fed = self.replica.feed(other, values[0])
                    if fed.reloaded:
                        self._held = {}
                        self._behind |= self._assign()
                        return
                    if fed.again:
                        break
                    values.popleft()
                    moved = True
                    if fed.refused:
                        self.problem = fed.problem
        place = [confluent_kafka.TopicPartition(self.topic, partition)]
        if waiting:
            self.consumer.pause(place)
        for other, values in self._held.items():
            if not values:
                self.consumer.resume([confluent_kafka.TopicPartition(self.topic, other)])
