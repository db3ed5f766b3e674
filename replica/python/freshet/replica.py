"""Replica: rows and scores of a served model, for any number of threads, while one thread feeds it."""
from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import threading
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import msgpack
import numpy as np

from . import _library
from ._library import lib

SCORED_AT_ONCE = 4096


class FreshetError(Exception):
    """A refusal by libfreshet_replica; the text contains the reason."""


class BadInput(FreshetError, ValueError):
    """A malformed record or sample, or an invalid argument."""


class NotFound(FreshetError, KeyError):
    """No such table, part, slot or snapshot."""

    def __str__(self) -> str:
        return str(self.args[0])


class NotReady(FreshetError):
    """No epoch is served yet."""


class OutOfMemory(FreshetError, MemoryError):
    """memory_max, or the system's memory, is used up; nothing has changed."""


class Mismatch(FreshetError):
    """Another model, or two writers: final."""


class Gap(FreshetError):
    """Records are missing: load a snapshot. The replica still serves what it served before."""


class Rewound(Gap):
    """History was rewound: load the snapshot that the text names."""


_ERRORS = {-1: BadInput, -3: OutOfMemory, -4: FreshetError, -6: BadInput, -7: NotFound, -12: Mismatch, -20: Gap, -21: NotReady, -22: Rewound}
_TEXTS = {-1: "not as it must be", -3: "memory was refused", -4: "a file could not be read", -6: "damaged", -7: "not there", -12: "another model, or two writers",
          -20: "records are missing", -21: "no epoch is served yet", -22: "history was rewound"}


def _check(status: int, what: str, problem: str = "") -> None:
    if status != _library.OK:
        raise _ERRORS.get(status, FreshetError)("%s: %s" % (what, problem or _TEXTS.get(status, "status %d" % status)))


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of the served model: its parts with their numbers of floats, and its rows."""
    name: str
    parts: Dict[str, int]
    rows: int


@dataclasses.dataclass(frozen=True)
class Info:
    """The served epoch, and what the replica did so far; times in Unix ms."""
    timeline: int
    epoch: int
    digest: int
    fp: int
    watermark_ms: int
    samples: int
    rows: int
    dense: int
    np: int
    scorable: bool
    epochs_applied: int
    records: int
    duplicates: int
    refused: int
    commit_wall_ms: int
    freshness_ms: int
    newest_epoch: int
    reloads: int
    memory_bytes: int


@dataclasses.dataclass(frozen=True)
class Fed:
    """The effect of one record (struct freshet_event)."""
    again: bool
    applied: int
    duplicate: bool
    stale: bool
    refused: bool
    reloaded: bool
    timeline: int
    epoch: int
    problem: str


def _plain(value: Any) -> Any:
    """Converts NumPy values to types of MessagePack."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError("a sample cannot hold %s" % type(value).__name__)


class Replica:
    """The served copy of a model.

    One thread feeds it (`feed`, `load`, or the thread that `follow` starts); any number of threads read meanwhile. Each call reads one epoch and waits for no other call.
    A context manager: `close` frees it. Arrays that are returned are the caller's own.

    partitions: delta partitions to follow (0 is always among them; None: all); model: its expected name; snapshots: the daemon's folder of snapshots, from which a
    gap or a rewind is repaired; staging_max, memory_max: bytes held of incomplete epochs, and in all (0: 1 GiB, and what the system gives).
    """

    def __init__(self, *, partitions: Optional[Sequence[int]] = None, model: Optional[str] = None, snapshots: Union[str, os.PathLike, None] = None,
                 staging_max: int = 0, memory_max: int = 0) -> None:
        listed = (ctypes.c_uint32 * len(partitions))(*partitions) if partitions is not None else None
        options = _library.Options(listed, len(partitions or ()), model.encode() if model is not None else None, staging_max,
                                   os.fsencode(snapshots) if snapshots is not None else None)
        handle = ctypes.c_void_p()
        self._handle: Optional[ctypes.c_void_p] = None
        _check(lib.freshet_replica_new(ctypes.byref(options), ctypes.byref(handle)), "a new replica")
        self._handle = handle
        self._lock, self._free, self._readers = threading.Condition(), [], 0  # type: Any, List[ctypes.c_void_p], int
        self._following: Any = None
        if memory_max:
            lib.freshet_replica_limit_memory(handle, memory_max)

    @classmethod
    def follow(cls, brokers: str, topic: str, *, timeout: float = 60.0, config: Optional[Mapping[str, Any]] = None, acknowledge: Optional[str] = None,
               acknowledgement_topic: Optional[str] = None, **options: Any) -> "Replica":
        """A replica that a thread feeds from a delta topic (package confluent-kafka), from the newest of `snapshots` on where there is one. Returns once it serves
        what the topic held when it was asked; TimeoutError names what is missing. `config` has further properties of librdkafka; `options` are those of the
        constructor. `problem` has the reason if following has ended. acknowledge: the name under which the replica reports on `acknowledgement_topic` (None: <model>.ack)
        which epoch it serves; None: nothing is written."""
        from .follow import Follower
        replica = cls(**options)
        try:
            replica._following = Follower(replica, brokers, topic, dict(config or {}), options.get("snapshots"), options.get("model") is not None, acknowledge,
                                          acknowledgement_topic)
            replica._following.wait(timeout)
        except BaseException:
            replica.close()
            raise
        return replica

    def wait_caught_up(self, timeout: float = 60.0) -> None:
        """Of a replica that follows: returns once it serves all that the topic holds at the call. TimeoutError names what is missing; an error that ended the following is
        raised."""
        if self._following is None:
            raise ValueError("the replica does not follow a topic (Replica.follow)")
        self._following.wait(timeout)

    @property
    def problem(self) -> str:
        """Why the thread that follows a topic ended, or what it waits for; empty when all is well."""
        return self._following.problem if self._following else ""

    def close(self) -> None:
        """Ends following and frees the replica, after the calls of other threads have returned. A second call does nothing."""
        if self._following:
            self._following.close()
        with self._lock:
            handle, self._handle = self._handle, None
            while self._readers > len(self._free):
                self._lock.wait()
            for reader in self._free:
                lib.freshet_reader_free(reader)
            self._free, self._readers = [], 0
        if handle:
            lib.freshet_replica_free(handle)

    def __enter__(self) -> "Replica":
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()

    # ---- feeding: one thread ----

    def _own(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise ValueError("the replica is closed")
        return self._handle

    def feed(self, partition: int, value: bytes) -> Fed:
        """Takes one record of the topic, in the order of its partition. Fed.again: not taken, feed other partitions first. Gap, Rewound, Mismatch: the replica
        stopped, and still serves what it has."""
        event = _library.Event()
        status = lib.freshet_replica_feed(self._own(), partition, value, len(value), ctypes.byref(event))
        problem = event.problem.decode(errors="replace")
        if status not in (_library.OK, _library.AGAIN):
            _check(status, "partition %d" % partition, problem)
        return Fed(status == _library.AGAIN, event.applied, bool(event.duplicate), bool(event.stale), bool(event.refused), bool(event.reloaded), event.timeline,
                   event.epoch, problem)

    def load(self, snapshot: Union[str, os.PathLike]) -> None:
        """Loads a snapshot directory, or the one that CURRENT in a folder of them names. The snapshot is checked as a whole and then served all at once."""
        problem = ctypes.create_string_buffer(512)
        _check(lib.freshet_replica_load(self._own(), os.fsencode(snapshot), problem, len(problem)), os.fspath(snapshot), problem.value.decode(errors="replace"))

    def next_offset(self, partition: int) -> int:
        """The offset at which to continue reading a delta partition after a load; -1: its beginning."""
        return lib.freshet_replica_next_offset(self._own(), partition)

    @property
    def model(self) -> str:
        """The model's name; empty until a record or a snapshot has shown it."""
        return lib.freshet_replica_model(self._own()).decode()

    # ---- reading: any thread ----

    @property
    def scored(self) -> int:
        """The number of samples that were scored here."""
        return lib.freshet_replica_scored(self._own())

    @contextlib.contextmanager
    def _reader(self) -> Iterator[ctypes.c_void_p]:
        with self._lock:
            own = self._own()
            reader = self._free.pop() if self._free else None
            if reader is None:
                reader = ctypes.c_void_p()
                _check(lib.freshet_reader_new(own, ctypes.byref(reader)), "a new reader")
                self._readers += 1
        try:
            yield reader
        finally:
            lib.freshet_reader_end(reader)
            with self._lock:
                self._free.append(reader)
                self._lock.notify_all()

    @contextlib.contextmanager
    def _epoch(self) -> Iterator[ctypes.c_void_p]:
        """A reader that stays in one epoch."""
        with self._reader() as reader:
            _check(lib.freshet_reader_begin(reader), "reading")
            yield reader

    @property
    def info(self) -> Info:
        with self._reader() as reader:
            info = _library.Info()
            lib.freshet_reader_get_info(reader, ctypes.byref(info))
            return Info(**{name: bool(getattr(info, name)) if name == "scorable" else getattr(info, name) for name, _ in info._fields_})

    @staticmethod
    def _tables(reader: ctypes.c_void_p) -> Dict[str, Table]:
        found = {}
        for t in range(lib.freshet_reader_tables(reader)):
            parts = {lib.freshet_reader_part_name(reader, t, p).decode(): lib.freshet_reader_part_dim(reader, t, p) for p in range(lib.freshet_reader_parts(reader, t))}
            name = lib.freshet_reader_table_name(reader, t).decode()
            found[name] = Table(name, parts, lib.freshet_reader_table_rows(reader, t))
        return found

    @property
    def tables(self) -> Dict[str, Table]:
        """Tables by name, in the model's order."""
        with self._epoch() as reader:
            return self._tables(reader)

    @property
    def slots(self) -> Dict[str, str]:
        """Slot -> the table it reads; '' for a dense slot."""
        with self._epoch() as reader:
            return self._slots(reader)

    @staticmethod
    def _slots(reader: ctypes.c_void_p) -> Dict[str, str]:
        return {lib.freshet_reader_slot_name(reader, s).decode(): lib.freshet_reader_slot_table(reader, s).decode() for s in range(lib.freshet_reader_slots(reader))}

    @property
    def tasks(self) -> List[str]:
        with self._epoch() as reader:
            return self._tasks(reader)

    @staticmethod
    def _tasks(reader: ctypes.c_void_p) -> List[str]:
        return [lib.freshet_reader_task_name(reader, t).decode() for t in range(lib.freshet_reader_tasks(reader))]

    @staticmethod
    def _key(reader: ctypes.c_void_p, slot: str, id: Union[int, str]) -> int:
        key = ctypes.c_uint64()
        if isinstance(id, (int, np.integer)) and not isinstance(id, bool):
            if not -2**63 <= int(id) < 2**64:
                raise BadInput("id %d is not a 64-bit integer" % id)
            status = lib.freshet_reader_key_of_integer(reader, slot.encode(), int(id) % 2**64, ctypes.byref(key))
        elif isinstance(id, str):
            text = id.encode()
            status = lib.freshet_reader_key(reader, slot.encode(), text, len(text), ctypes.byref(key))
        else:
            raise BadInput("an id is an integer or a string, not %s" % type(id).__name__)
        _check(status, "slot %s" % slot)
        return key.value

    def key(self, slot: str, id: Union[int, str]) -> int:
        """The key that a raw id of a slot is looked up by."""
        with self._epoch() as reader:
            return self._key(reader, slot, id)

    @staticmethod
    def _lookup(reader: ctypes.c_void_p, table: str, keys: np.ndarray, part: Optional[str]) -> Tuple[np.ndarray, np.ndarray]:
        lookup = _library.Lookup(table.encode(), part.encode() if part is not None else None)
        what = "table %s" % table + (", part %s" % part if part is not None else "")
        _check(lib.freshet_reader_lookup(reader, ctypes.byref(lookup)), what)  # a lookup of no keys returns the width of a row
        values, found = np.empty((len(keys), lookup.dim), np.float32), np.empty(len(keys), np.uint8)
        lookup.keys, lookup.n, lookup.found, lookup.values, lookup.capacity = keys.ctypes.data, len(keys), found.ctypes.data, values.ctypes.data, values.size
        _check(lib.freshet_reader_lookup(reader, ctypes.byref(lookup)), what)
        return values, found.astype(bool)

    def lookup(self, table: Optional[str] = None, keys: Any = None, *, part: Optional[str] = None, slot: Optional[str] = None,
               ids: Optional[Sequence[Union[int, str]]] = None) -> Tuple[np.ndarray, np.ndarray]:
        """Rows of keys, or of the raw ids of a slot, all of one epoch: (values float32 [n, dim], found bool [n]). The values of an absent row are 0.
        Without `part` a row has all its parts, in their order (`tables`)."""
        if (slot is None) != (ids is None) or (keys is None) == (ids is None) or (keys is not None and table is None):
            raise BadInput("lookup takes a table and keys, or slot= and ids=")
        with self._epoch() as reader:
            if ids is not None:
                keys = np.array([self._key(reader, str(slot), id) for id in ids], np.uint64)
                table = table or self._slots(reader)[str(slot)]
            listed = np.asarray(keys)
            if listed.ndim != 1 or (listed.size and listed.dtype.kind not in "ui") or (listed.dtype.kind == "i" and listed.size and listed.min() < 0):
                raise BadInput("keys are one row of integers from 0 to 2^64 - 1")
            return self._lookup(reader, str(table), np.ascontiguousarray(listed, np.uint64), part)

    def rows(self, table: str, *, part: Optional[str] = None) -> Tuple[np.ndarray, np.ndarray]:
        """All rows of a table at one epoch: (keys uint64 [n] ascending, values float32 [n, dim])."""
        with self._epoch() as reader:
            n = ctypes.c_size_t(0)
            status = lib.freshet_reader_keys(reader, table.encode(), None, ctypes.byref(n))
            if status not in (_library.OK, -1):  # -1: there is at least one
                _check(status, "table %s" % table)
            keys = np.empty(n.value, np.uint64)
            _check(lib.freshet_reader_keys(reader, table.encode(), keys.ctypes.data, ctypes.byref(n)), "table %s" % table)
            return keys, self._lookup(reader, table, keys, part)[0]

    def score(self, samples: Any, *, format: str = "msgpack") -> Dict[str, np.ndarray]:
        """Scores: task -> float32 [n], all of one epoch; a probability, of an mse task the prediction.

        `samples` is a sample, a group, a block or a list of samples and groups as dicts (docs/formats/samples.md; labels are not needed; NumPy values are accepted), or one
        record as bytes of MessagePack, or as text or bytes of JSON with format="json". BadInput has the reason why a record does not decode."""
        if isinstance(samples, (bytes, bytearray, memoryview, str)):
            if isinstance(samples, str) and format == "msgpack":
                format = "json"
            record = samples.encode() if isinstance(samples, str) else bytes(samples)
        else:
            record, format = msgpack.packb(list(samples) if isinstance(samples, tuple) else samples, default=_plain), "msgpack"
        if format not in ("msgpack", "json"):
            raise BadInput("format is msgpack or json, not %s" % format)
        with self._epoch() as reader:
            tasks = self._tasks(reader)
            n = ctypes.c_uint32(SCORED_AT_ONCE)
            for _ in range(2):
                scores = np.empty((n.value, max(len(tasks), 1)), np.float32)
                room = n.value
                status = lib.freshet_reader_score(reader, _library.JSON if format == "json" else _library.MSGPACK, record, len(record), scores.ctypes.data, ctypes.byref(n))
                if status == _library.OK or n.value <= room:
                    break
            _check(status, "samples", lib.freshet_reader_problem(reader).decode(errors="replace"))
            return {task: scores[:n.value, t].copy() for t, task in enumerate(tasks)}

    def score_columns(self, columns: Mapping[str, Any]) -> Dict[str, np.ndarray]:
        """Scores of columns, slot -> one value for each sample: an array of ids or numbers, a list of lists of ids, an array [n, dim] of a dense slot. Arrays of
        integers and floats are passed as they are, without a Python object for each value."""
        sizes = {len(column) for column in columns.values()}
        if len(sizes) != 1:
            raise BadInput("columns of one length are needed, not %s" % sorted(sizes))
        slots = self.slots
        block = {"n": sizes.pop(), "cols": {slot: self._column(slots.get(slot), column) for slot, column in columns.items()}}
        return self.score(block)

    @staticmethod
    def _column(table: Optional[str], column: Any) -> Any:
        array = np.asarray(column) if isinstance(column, np.ndarray) else None
        if array is not None and table == "" and array.dtype.kind in "fiu":
            return {"b": np.ascontiguousarray(array, np.float32).tobytes()}
        if array is not None and table and array.ndim == 1 and array.dtype.kind in "iu":
            return {"b": array.astype(np.int64 if array.dtype.kind == "i" else np.uint64).tobytes()}
        return [value.tolist() if isinstance(value, np.ndarray) else value for value in column] if array is None else array.tolist()

    def ignored(self, samples: Any) -> Tuple[int, List[str]]:
        """Of samples: the number of values under names of slots that the model does not have, and some of these names. A misspelled slot scores as an absent one."""
        with self._epoch() as reader:
            record = msgpack.packb(samples, default=_plain)
            n = ctypes.c_uint32(SCORED_AT_ONCE)
            scores = np.empty((SCORED_AT_ONCE, max(len(self._tasks(reader)), 1)), np.float32)
            _check(lib.freshet_reader_score(reader, _library.MSGPACK, record, len(record), scores.ctypes.data, ctypes.byref(n)), "samples",
                   lib.freshet_reader_problem(reader).decode(errors="replace"))
            names = ctypes.create_string_buffer(1024)
            return lib.freshet_reader_ignored(reader, names, len(names)), names.value.decode(errors="replace").split()

    def dump(self, path: Union[str, os.PathLike]) -> int:
        """Writes the public dump of the served epoch (JSON Lines) and returns its hash."""
        with self._reader() as reader, open(path, "wb") as file:
            digest = ctypes.c_uint64()

            def write(_self: Any, data: int, size: int) -> int:
                try:
                    file.write(ctypes.string_at(data, size))
                    return 0
                except OSError:
                    return -1
            _check(lib.freshet_reader_dump(reader, _library.WRITE(write), None, ctypes.byref(digest)), "the dump")
            return digest.value
