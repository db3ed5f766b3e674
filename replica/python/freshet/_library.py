"""libfreshet_replica through ctypes: the declarations of freshet/replica.h and freshet/reader.h. FRESHET_REPLICA names a library to use instead of the wheel's."""
import ctypes
import ctypes.util
import os
import pathlib
from ctypes import POINTER, c_char, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

OK, AGAIN = 0, 2
JSON, MSGPACK = 1, 0


class Options(ctypes.Structure):
    _fields_ = [("partitions", POINTER(c_uint32)), ("n_partitions", c_size_t), ("model", c_char_p), ("staging_max", c_uint64), ("snapshots", c_char_p)]


class Event(ctypes.Structure):
    _fields_ = [("applied", c_int), ("duplicate", c_int), ("stale", c_int), ("refused", c_int), ("reloaded", c_int), ("timeline", c_uint64), ("epoch", c_uint64),
                ("record_epoch", c_uint64), ("problem", c_char * 256)]


class Info(ctypes.Structure):
    _fields_ = [("timeline", c_uint64), ("epoch", c_uint64), ("digest", c_uint64), ("fp", c_uint64), ("watermark_ms", c_int64), ("samples", c_uint64), ("rows", c_uint64),
                ("dense", c_uint32), ("np", c_uint32), ("scorable", c_int), ("epochs_applied", c_uint64), ("records", c_uint64), ("duplicates", c_uint64),
                ("refused", c_uint64), ("commit_wall_ms", c_int64), ("freshness_ms", c_int64), ("newest_epoch", c_uint64), ("reloads", c_uint64),
                ("memory_bytes", c_uint64)]


class Lookup(ctypes.Structure):
    _fields_ = [("table", c_char_p), ("part", c_char_p), ("keys", c_void_p), ("n", c_size_t), ("found", c_void_p), ("values", c_void_p), ("capacity", c_size_t),
                ("dim", c_uint32)]


WRITE = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)
FUNCTIONS = {
    "freshet_version": (c_char_p, []),
    "freshet_replica_new": (c_int, [POINTER(Options), POINTER(c_void_p)]),
    "freshet_replica_free": (None, [c_void_p]),
    "freshet_replica_limit_memory": (None, [c_void_p, c_uint64]),
    "freshet_replica_feed": (c_int, [c_void_p, c_uint32, c_char_p, c_size_t, POINTER(Event)]),
    "freshet_replica_load": (c_int, [c_void_p, c_char_p, c_char_p, c_size_t]),
    "freshet_replica_next_offset": (c_int64, [c_void_p, c_uint32]),
    "freshet_replica_model": (c_char_p, [c_void_p]),
    "freshet_replica_scored": (c_uint64, [c_void_p]),
    "freshet_reader_new": (c_int, [c_void_p, POINTER(c_void_p)]),
    "freshet_reader_free": (None, [c_void_p]),
    "freshet_reader_begin": (c_int, [c_void_p]),
    "freshet_reader_end": (None, [c_void_p]),
    "freshet_reader_get_info": (None, [c_void_p, POINTER(Info)]),
    "freshet_reader_lookup": (c_int, [c_void_p, POINTER(Lookup)]),
    "freshet_reader_keys": (c_int, [c_void_p, c_char_p, c_void_p, POINTER(c_size_t)]),
    "freshet_reader_key": (c_int, [c_void_p, c_char_p, c_char_p, c_size_t, POINTER(c_uint64)]),
    "freshet_reader_key_of_integer": (c_int, [c_void_p, c_char_p, c_uint64, POINTER(c_uint64)]),
    "freshet_reader_tables": (c_uint32, [c_void_p]),
    "freshet_reader_table_name": (c_char_p, [c_void_p, c_uint32]),
    "freshet_reader_parts": (c_uint32, [c_void_p, c_uint32]),
    "freshet_reader_part_name": (c_char_p, [c_void_p, c_uint32, c_uint32]),
    "freshet_reader_part_dim": (c_uint32, [c_void_p, c_uint32, c_uint32]),
    "freshet_reader_table_rows": (c_uint64, [c_void_p, c_uint32]),
    "freshet_reader_slots": (c_uint32, [c_void_p]),
    "freshet_reader_slot_name": (c_char_p, [c_void_p, c_uint32]),
    "freshet_reader_slot_table": (c_char_p, [c_void_p, c_uint32]),
    "freshet_reader_tasks": (c_uint32, [c_void_p]),
    "freshet_reader_task_name": (c_char_p, [c_void_p, c_uint32]),
    "freshet_reader_score": (c_int, [c_void_p, c_int, c_char_p, c_size_t, c_void_p, POINTER(c_uint32)]),
    "freshet_reader_problem": (c_char_p, [c_void_p]),
    "freshet_reader_ignored": (c_uint64, [c_void_p, c_char_p, c_size_t]),
    "freshet_reader_dump": (c_int, [c_void_p, WRITE, c_void_p, POINTER(c_uint64)]),
}


def _path():
    own = pathlib.Path(__file__).with_name("libfreshet_replica.so")
    named = os.environ.get("FRESHET_REPLICA")
    return named or (str(own) if own.exists() else ctypes.util.find_library("freshet_replica"))


def load():
    path = _path()
    if path is None:
        raise OSError("libfreshet_replica is neither in this package nor installed; FRESHET_REPLICA may name it")
    library = ctypes.CDLL(path)
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


lib = load()
