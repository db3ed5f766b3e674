"""Records of the delta topic and of snapshots as dicts with NumPy arrays, read by the format alone (docs/formats): no library, no replica rules."""
from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
import stat
import struct
from typing import Any, BinaryIO, Dict, Iterator, Optional, Tuple, Union

import crc32c
import msgpack
import numpy as np

CRC_TAIL = b"\xa3crc\xce"
RECORD_MAX = 1 << 30
MANIFEST_SUM = re.compile(rb',\n"sha256":"([0-9a-f]{64})"}\n\Z')
MANIFEST_SUM_SIZE = len(b',\n"sha256":""}\n') + 64


class BadRecord(ValueError):
    """A record or a file of a snapshot that is damaged or of another format."""


def read_values(kind: str, values: bytes, scale: Optional[bytes] = None, dim: int = 1) -> np.ndarray:
    """float32 of a column that is f32, f16, bf16 or i8 (then with one scale a row of `dim`)."""
    if kind == "f32":
        return np.frombuffer(values, "<f4").astype(np.float32)
    if kind == "f16":
        return np.frombuffer(values, "<f2").astype(np.float32)
    if kind == "bf16":
        return (np.frombuffer(values, "<u2").astype(np.uint32) << 16).view(np.float32)
    if kind == "i8" and scale is not None:
        return np.frombuffer(values, np.int8).astype(np.float32) * np.repeat(np.frombuffer(scale, "<f4"), dim)
    raise BadRecord("quantization %s is not known" % kind)


def read_record(value: bytes) -> Dict[str, Any]:
    """One record as a dict, its crc checked: the keys of docs/formats/deltas.md, with `keys` uint64 [r], `why` uint8 [r], `parts` (of rows: part -> float32 [r, dim]) and
    `values` (of dense: float32) in place of the packed columns. `cfg` stays text."""
    if len(value) < 9 or value[-9:-4] != CRC_TAIL:
        raise BadRecord("no crc at the end: not a delta record")
    if crc32c.crc32c(value[:-9]) != struct.unpack(">I", value[-4:])[0]:
        raise BadRecord("the crc differs: the record is damaged")
    try:
        record = msgpack.unpackb(value, raw=False, strict_map_key=False)
        if record["v"] != 1:
            raise BadRecord("format version %r is not known" % record["v"])
        if "keys" in record:
            record["keys"] = np.frombuffer(record["keys"], "<u8").astype(np.uint64)
        if "why" in record:
            record["why"] = np.frombuffer(record["why"], np.uint8)
        if record["k"] == "rows":
            n = len(record["keys"])
            record["parts"] = {s["part"]: read_values(s["q"], s["vals"], s.get("sc"), s["dim"]).reshape(n, s["dim"]) for s in record.pop("seg")}
        if record["k"] == "dense":
            record["values"] = read_values(record["q"], record.pop("vals"))
    except (KeyError, TypeError, ValueError, msgpack.UnpackException) as error:
        if isinstance(error, BadRecord):
            raise
        raise BadRecord("not a delta record: %s" % error) from error
    return record


def _open_regular(path: pathlib.Path) -> BinaryIO:
    """Refuses what is not a regular file: opening a pipe would block without end."""
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise BadRecord("%s is not a regular file" % path)
    return file


def _read_regular(path: pathlib.Path) -> bytes:
    with _open_regular(path) as file:
        return file.read()


class Snapshot:
    """A snapshot directory, or the one that CURRENT in a folder of them names. Every file is compared with the manifest's size and SHA-256 before its last
    record is returned."""

    def __init__(self, path: Union[str, os.PathLike]) -> None:
        self.path = pathlib.Path(path)
        current = self.path / "CURRENT"
        if current.exists():
            words = _read_regular(current).decode(errors="replace").split()
            name = words[0] if words else ""
            if not name or "/" in name or name.startswith("."):
                raise BadRecord("%s does not name a snapshot" % current)
            self.path = self.path / name
        text = _read_regular(self.path / "MANIFEST.json")
        said = MANIFEST_SUM.search(text[-MANIFEST_SUM_SIZE:])  # older manifests have no sum
        if said and hashlib.sha256(text[:-MANIFEST_SUM_SIZE]).hexdigest().encode() != said[1]:
            raise BadRecord("%s is damaged: its SHA-256 is not the one at its end" % (self.path / "MANIFEST.json"))
        try:
            self.manifest: Dict[str, Any] = json.loads(text)
            if self.manifest["v"] != 1:
                raise BadRecord("%s: format version %r is not known" % (self.path, self.manifest["v"]))
            self.timeline, self.epoch, self.model_name = self.manifest["tl"], self.manifest["e"], self.manifest["model"]
            self._files = [(f["name"], f["table"], f["bytes"], f["sha256"]) for f in self.manifest["files"]]
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, BadRecord):
                raise
            raise BadRecord("%s is not a manifest: %s" % (self.path / "MANIFEST.json", error)) from error

    def records(self, table: Union[str, None, type] = ...) -> Iterator[Dict[str, Any]]:
        """The records of all files, of one table's (its name), or of those without rows (None), in the manifest's order."""
        for name, of, size, digest in self._files:
            if (table is ... or table == of) and "/" not in name and not name.startswith("."):
                yield from self._file(name, size, digest)

    def _file(self, name: str, size: int, digest: str) -> Iterator[Dict[str, Any]]:
        total, hasher, held = 0, hashlib.sha256(), None
        with _open_regular(self.path / name) as file:
            while True:
                head = file.read(4)
                if not head:
                    break
                length = struct.unpack("<I", head)[0] if len(head) == 4 else RECORD_MAX + 1
                value = file.read(length) if length <= RECORD_MAX else b""
                if len(value) != length:
                    raise BadRecord("%s: the file is cut short or not a snapshot's" % (self.path / name))
                hasher.update(head)
                hasher.update(value)
                total += 4 + length
                if held is not None:
                    yield read_record(held)
                held = value
        if total != size or hasher.hexdigest() != digest:
            raise BadRecord("%s is not as the manifest says (%d bytes, SHA-256 %s)" % (self.path / name, total, hasher.hexdigest()))
        if held is not None:
            yield read_record(held)

    def rows(self, table: str) -> Iterator[Tuple[np.ndarray, Dict[str, np.ndarray]]]:
        """Rows of a table, one record at a time: (keys uint64 [r], part -> float32 [r, dim])."""
        for record in self.records(table):
            if record["k"] == "rows":
                yield record["keys"], record["parts"]

    @property
    def tables(self) -> Dict[str, Dict[str, int]]:
        """Table -> part -> dim, of the model."""
        return {t["name"]: {p["name"]: p["dim"] for p in t["parts"]} for t in self.model["tables"]}

    @property
    def model(self) -> Dict[str, Any]:
        """The model's canonical JSON (docs/formats/deltas.md), parsed."""
        return self._whole()[0]

    @property
    def dense(self) -> Dict[str, np.ndarray]:
        """Dense parameters by name, in their shapes."""
        return self._whole()[1]

    def _whole(self) -> Tuple[Dict[str, Any], Dict[str, np.ndarray]]:
        if not hasattr(self, "_cached"):
            model, dense = None, {}  # type: Optional[Dict[str, Any]], Dict[str, np.ndarray]
            for record in self.records(None):
                if record["k"] == "model":
                    model = json.loads(record["cfg"])
                if record["k"] == "dense":
                    flat = dense.setdefault(record["name"], np.full(int(np.prod(record["shape"])), np.nan, np.float32).reshape(record["shape"])).reshape(-1)
                    flat[record["off"]:record["off"] + len(record["values"])] = record["values"]
            if model is None:
                raise BadRecord("%s has no model" % self.path)
            self._cached = model, dense
        return self._cached
