"""A thread that feeds a replica from its delta topic, by confluent-kafka. It joins no consumer group and commits nothing."""
from __future__ import annotations

import collections
import os
import threading
from typing import Any, Deque, Dict, Optional, Tuple, Union, TYPE_CHECKING

import msgpack

try:
    import confluent_kafka
except ImportError as error:
    raise ImportError("following a topic needs the package confluent-kafka: pip install 'freshet[kafka]'") from error

from .acknowledge import Acknowledger
from .deltas import BadRecord, Snapshot, read_record

if TYPE_CHECKING:
    from .replica import Fed, Replica

POLL_SECONDS, ANSWER_SECONDS, REFRESH_SECONDS, ENDED_SECONDS = 0.1, 10.0, 1.0, 0.5
HEAD_BYTES = 32  # of a record: they contain its kind, because writers keep the order of keys


class Follower:
    def __init__(self, replica: "Replica", brokers: str, topic: str, config: Dict[str, Any], snapshots: Union[str, os.PathLike, None] = None, named: bool = False,
                 acknowledge: Optional[str] = None, acknowledgement_topic: Optional[str] = None) -> None:
        self.replica, self.topic, self.problem = replica, topic, ""
        self.error: Optional[BaseException] = None
        self._stop, self._changed = threading.Event(), threading.Condition()
        self._asked, self._refreshed, self._caught_up = 0, 0, 0  # numbers of wait() calls: all, covered by the known ends, served
        self._held: Dict[int, Deque[bytes]] = {}  # records not taken yet, of partitions that are ahead of the others
        self._snapshots, self._not_loaded, self._hinted = snapshots, "", False  # hinted: the topic is read from the snapshot's offsets
        # named: the caller gave the topic's model. Otherwise the snapshot must name the topic, or it waits for a record that shows the model (unproven).
        self._named, self._unproven = named, False
        self._acknowledger = Acknowledger(replica, acknowledge, acknowledgement_topic, brokers, config) if acknowledge is not None else None
        self._load()
        self.consumer = confluent_kafka.Consumer({"enable.auto.commit": False, "auto.offset.reset": "error", "isolation.level": "read_uncommitted", **config,
                                                  "bootstrap.servers": brokers, "group.id": "freshet.reader", "enable.partition.eof": True})
        try:
            self._assign()
        except BaseException:
            self.consumer.close()
            raise
        self._thread = threading.Thread(target=self._run, name="freshet-follow", daemon=True)
        self._thread.start()

    def _load(self) -> None:
        """Loads the newest snapshot, if there is a folder of them. The topic alone may be enough, so a snapshot that cannot be loaded is not a failure."""
        from .replica import FreshetError
        if self._snapshots is None:
            return
        try:
            snapshot = Snapshot(self._snapshots)
            self._unproven = not self._named and not self.replica.info.np and snapshot.manifest.get("topic") != self.topic
            if self._unproven:
                raise BadRecord("%s is a snapshot of model %s, whose deltas are on topic %s, and no record of %s has shown yet that it is of that model; if it is, name the model (model=NAME)"
                                % (snapshot.path, snapshot.model_name, snapshot.manifest.get("topic"), self.topic))
            self.replica.load(snapshot.path)
            self._hinted = self._named = True
        except (BadRecord, FreshetError, OSError) as error:
            self._not_loaded = str(error)

    def _watermarks(self, partition: int, seconds: float) -> Tuple[int, int]:
        found = self.consumer.get_watermark_offsets(confluent_kafka.TopicPartition(self.topic, partition), seconds)
        if found is None:
            raise ConnectionError("topic %s: brokers do not say where partition %d ends" % (self.topic, partition))
        return found

    def _assign(self) -> None:
        """Opens all partitions at the snapshot's offsets, or at the first record of the log."""
        topic = self.consumer.list_topics(self.topic, ANSWER_SECONDS).topics[self.topic]
        if topic.error or not topic.partitions:
            raise ConnectionError("topic %s: %s" % (self.topic, topic.error or "no partitions"))
        self._low: Dict[int, int] = {}
        self._end: Dict[int, int] = {}
        self._position: Dict[int, int] = {}
        self._committed: Dict[int, Tuple[int, int]] = {partition: (0, 0) for partition in topic.partitions}  # the newest commit: timeline, epoch
        self._deleted = ""
        for partition in topic.partitions:
            low, high = self._watermarks(partition, ANSWER_SECONDS)
            hint = self.replica.next_offset(partition)
            if 0 <= hint < low and not self._deleted:
                info = self.replica.info
                self._deleted = ("topic %s, partition %d: the records that follow the snapshot of timeline %d, epoch %d, offsets %d to %d, were deleted: later epochs may be "
                                 "missing. Load a newer snapshot. A running daemon also publishes its whole state again within a minute, unless its snapshots cover the loss "
                                 "(export.retention: snapshots)"
                                 % (self.topic, partition, info.timeline, info.epoch, hint, low - 1))
            known = self._hinted and low < hint <= high
            self._low[partition], self._end[partition] = low, high
            self._position[partition] = hint - 1 if known else low  # the record before it shows whether the hint is true
        self.problem = self._deleted
        self.consumer.assign([confluent_kafka.TopicPartition(self.topic, p, begin) for p, begin in self._position.items()])

    def wait(self, timeout: float) -> None:
        """Waits until all that the topic holds now is served."""
        with self._changed:
            self._asked += 1
            mine = self._asked
            self._changed.wait_for(lambda: self._caught_up >= mine or self.error is not None or self._stop.is_set(), timeout)
            if self.error is not None:
                raise self.error
            if self._caught_up < mine:
                raise TimeoutError("what topic %s holds is not served within %g s: %s" % (self.topic, timeout, self._waits_for()))

    def _waits_for(self) -> str:
        if self.problem:
            return self.problem
        emptied = [p for p in self._end if 0 < self._low[p] >= self._end[p]]
        if self.replica.info.epoch == 0 and emptied:
            return ("it holds nothing: its records up to offset %d were deleted. Begin with a snapshot of the daemon that publishes here (snapshots=DIR)%s"
                    % (self._end[emptied[0]] - 1, ", which could not be loaded: " + self._not_loaded if self._not_loaded else ""))
        if self.replica.info.epoch == 0:
            return "no epoch is complete: look whether the daemon publishes here (outbox.problem in its /status)"
        return "records are being read"

    def close(self) -> None:
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    # ---- the thread ----

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._answer()
                self._turn()
                self._acknowledge()
        except BaseException as error:  # reported by wait() and `problem`: nothing else watches this thread
            self.error, self.problem = error, str(error)
        finally:
            with self._changed:
                self._changed.notify_all()
            self.consumer.close()
            while self._acknowledger and not self._stop.wait(ENDED_SECONDS):  # the replica still serves what it has
                self._acknowledge()
            if self._acknowledger:
                self._acknowledger.close()

    def _acknowledge(self) -> None:
        if self._acknowledger:
            self._acknowledger.step(self.problem)

    def _answer(self) -> None:
        """Requests the ends by which waiting calls are measured: those that brokers report after the call."""
        with self._changed:
            asked = self._asked
        if asked == self._caught_up:
            return
        if asked != self._refreshed:
            try:
                self._end = {partition: self._watermarks(partition, REFRESH_SECONDS)[1] for partition in self._end}
            except (ConnectionError, confluent_kafka.KafkaException) as error:
                self.problem = str(error)
                return
            self._refreshed = asked
        if self._is_caught_up():
            with self._changed:
                self._caught_up = self._refreshed
                self._changed.notify_all()

    def _is_caught_up(self) -> bool:
        """Whether the topic is read to its end and the newest epoch that is complete there is served."""
        if self._deleted or any(self._held.values()) or any(self._position[p] < end for p, end in self._end.items()):
            return False
        info = self.replica.info
        complete = min(committed for partition, committed in self._committed.items() if partition < info.np or not info.np)
        return bool(info.epoch > 0 and info.scorable and (info.timeline, info.epoch) >= complete)

    def _turn(self) -> None:
        message = self.consumer.poll(POLL_SECONDS)
        if message is None:
            return
        error = message.error()
        if error and error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            self._position[message.partition()] = max(self._position[message.partition()], message.offset())
        elif error and (error.fatal() or error.code() in (confluent_kafka.KafkaError._AUTO_OFFSET_RESET, confluent_kafka.KafkaError.OFFSET_OUT_OF_RANGE)):
            raise ConnectionError("topic %s: %s" % (self.topic, error.str()))
        elif error:
            self.problem = error.str()  # librdkafka tries again
        else:
            self.problem = self._deleted
            value = message.value() or b""
            if self._misleads(message.partition(), message.offset(), value):
                self._read_again()
                return
            self._position[message.partition()] = message.offset() + 1
            self._take(message.partition(), value)

    def _misleads(self, partition: int, offset: int, value: bytes) -> bool:
        """Whether a record before the hint is later than the snapshot. Such a hint would leave a gap, or let an old epoch be served until more records come."""
        if not self._hinted or offset >= self.replica.next_offset(partition):
            return False
        try:
            record, info = read_record(value), self.replica.info
            return bool((record["tl"], record["e"]) > (info.timeline, info.epoch))
        except (BadRecord, KeyError, TypeError):
            return False  # the replica judges records

    def _read_again(self) -> None:
        """Reads all partitions from their first records, because the snapshot's offsets may be of another topic. Loading the served snapshot again ends the gap."""
        if self._hinted:
            self._load()
        self._hinted = False
        self._held = {}
        self._assign()

    def _note_commit(self, partition: int, value: bytes) -> None:
        if b"\xa6commit" not in value[:HEAD_BYTES]:
            return
        try:
            record = msgpack.unpackb(value, strict_map_key=False)
            self._committed[partition] = max(self._committed[partition], (record["tl"], record["e"]))
        except (KeyError, TypeError, ValueError, msgpack.UnpackException):
            pass  # the replica judges records

    def _feed(self, partition: int, value: bytes) -> Optional["Fed"]:
        """None: records are missing at the offsets that the snapshot gives."""
        from .replica import Gap
        try:
            return self.replica.feed(partition, value)
        except Gap:
            if not self._hinted:
                raise
            return None

    def _take(self, partition: int, value: bytes) -> None:
        waiting = self._held.setdefault(partition, collections.deque())
        waiting.append(value)
        moved = True
        while moved:  # a record that was taken may let other partitions continue
            moved = False
            for other, values in self._held.items():
                while values and not self._stop.is_set():
                    fed = self._feed(other, values[0])
                    if fed is None:
                        self._read_again()
                        return
                    proven = self._unproven and self.replica.info.np > 0
                    if proven:
                        self._load()
                    if fed.reloaded or (proven and self._hinted):
                        self._hinted = True
                        self._held = {}
                        self._assign()
                        return
                    if fed.again:
                        break
                    self._note_commit(other, values.popleft())
                    moved = True
                    if fed.applied:
                        self._deleted = self.problem = ""
                    if fed.refused:
                        self.problem = fed.problem
        place = [confluent_kafka.TopicPartition(self.topic, partition)]
        if waiting:
            self.consumer.pause(place)
        for other, values in self._held.items():
            if not values:
                self.consumer.resume([confluent_kafka.TopicPartition(self.topic, other)])
