"""Tables as Parquet files and arrays as .npz, out of snapshots and into `freshet import` (package pyarrow)."""
from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
from typing import Any, Dict, Iterator, List, Optional, Sequence, TextIO, Tuple, Union

import numpy as np

from .deltas import BadRecord, Snapshot

RESERVED = ("key", "id", "slot", "seen_ms", "show", "click")  # columns that are not parts
STATE, SAMPLES = ".state", ".samples"  # <part>.state: the optimizer's state; a dense parameter has both
Path = Union[str, os.PathLike]


def _metadata(snapshot: Snapshot) -> Dict[str, str]:
    return {"freshet.model": snapshot.model_name, "freshet.timeline": str(snapshot.timeline), "freshet.epoch": str(snapshot.epoch), "freshet.fp": str(snapshot.manifest["fp"])}


@contextlib.contextmanager
def _whole(out: Path) -> Iterator[pathlib.Path]:
    """A directory that appears whole or not at all."""
    out = pathlib.Path(out)
    if out.exists():
        raise FileExistsError("%s exists: give another directory" % out)
    out.parent.mkdir(parents=True, exist_ok=True)
    part = pathlib.Path(tempfile.mkdtemp(prefix=out.name + ".", dir=out.parent))
    try:
        yield part
        os.rename(part, out)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def to_parquet(snapshot: Union[Snapshot, Path], out: Path) -> Dict[str, int]:
    """Writes a snapshot as a directory: <table>.parquet with `key` (uint64) and a column float32[dim] for each part, dense.npz, model.json. Returns table -> rows.
    One record is in memory at a time. Files of a snapshot are checked; a damaged snapshot leaves nothing behind (BadRecord)."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    snapshot = snapshot if isinstance(snapshot, Snapshot) else Snapshot(snapshot)
    counts: Dict[str, int] = {}
    with _whole(out) as part:
        for table, parts in snapshot.tables.items():
            fields = [pa.field("key", pa.uint64(), nullable=False)] + [pa.field(name, pa.list_(pa.float32(), dim), nullable=False) for name, dim in parts.items()]
            schema, counts[table] = pa.schema(fields, metadata=_metadata(snapshot)), 0
            with pq.ParquetWriter(part / (table + ".parquet"), schema) as writer:
                for keys, values in snapshot.rows(table):
                    columns = [pa.array(keys)] + [pa.FixedSizeListArray.from_arrays(pa.array(values[name].ravel()), dim) for name, dim in parts.items()]
                    writer.write_table(pa.Table.from_arrays(columns, schema=schema))
                    counts[table] += len(keys)
        stated = {table: sum(f["rows"] for f in snapshot.manifest["files"] if f["table"] == table) for table in counts}
        if stated != counts:
            raise BadRecord("%s has %s rows, and its manifest says %s" % (snapshot.path, counts, stated))
        np.savez(part / "dense.npz", **snapshot.dense)
        (part / "model.json").write_text(json.dumps(snapshot.model, sort_keys=True, separators=(",", ":")) + "\n")
    return counts


# ---- into `freshet import` ----

def _parquet_rows(path: Path) -> Iterator[Dict[str, Any]]:
    """Rows of a Parquet table as lines of `freshet import`."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
        parts = [name for name in names if name not in RESERVED and not name.endswith(STATE)]
        states = [name for name in names if name.endswith(STATE)]
        if not parts or ("key" in names) == ("id" in names):
            raise ValueError("%s: columns %s; expected key or id, and one column of numbers for each part" % (path, ", ".join(names)))
        first = 1
        for batch in file.iter_batches(batch_size=4096):
            columns = {name: batch.column(name) for name in names}
            for name in names:
                if columns[name].null_count:
                    raise ValueError("%s, column %s: a null in rows %d to %d" % (path, name, first, first + len(batch) - 1))
            for name in parts + states:
                if pa.types.is_floating(columns[name].type) or pa.types.is_integer(columns[name].type):
                    columns[name] = [[x] for x in columns[name].to_pylist()]  # a part of one number
            lists = {name: column if isinstance(column, list) else column.to_pylist() for name, column in columns.items()}
            for i in range(len(batch)):
                row: Dict[str, Any] = {name: lists[name][i] for name in names if name in RESERVED}
                if "key" in row:
                    row["key"] = str(row["key"])
                row["parts"] = {name: lists[name][i] for name in parts}
                if states:
                    row["state"] = {name[:-len(STATE)]: lists[name][i] for name in states}
                yield row
            first += len(batch)


def _dense_rows(path: Path) -> Iterator[Dict[str, Any]]:
    with np.load(path, allow_pickle=False) as arrays:
        def numbers(name: str, dimensions: Tuple[int, ...]) -> Any:
            array = np.asarray(arrays[name])
            if array.dtype.kind not in "fiu" or array.ndim not in dimensions:
                raise ValueError("%s: %s is %s %s; expected numbers of %s dimensions" % (path, name, array.dtype, array.shape, " or ".join(map(str, dimensions))))
            return array

        more = {name for name in arrays.files for end in (STATE, SAMPLES) if name.endswith(end)}
        lost = set(more)
        for name in arrays.files:
            if name in more:
                continue
            array = numbers(name, (1, 2))
            line: Dict[str, Any] = {"dense": name, "shape": list(array.shape), "values": array.astype(np.float64).ravel().tolist()}
            if name + STATE in more:
                lost.remove(name + STATE)
                state = numbers(name + STATE, (array.ndim + 1,))
                if state.shape[1:] != array.shape:
                    raise ValueError("%s: %s has the shape %s; expected arrays of %s" % (path, name + STATE, state.shape, array.shape))
                line["state"] = state.astype(np.float64).reshape(len(state), -1).tolist()
            if name + SAMPLES in more:
                lost.remove(name + SAMPLES)
                line["samples"] = int(numbers(name + SAMPLES, (0, 1)).ravel()[0])
            yield line
        if lost:
            raise ValueError("%s: %s is of no parameter here" % (path, ", ".join(sorted(lost))))


def _lines(rows: Iterator[Dict[str, Any]], out: TextIO, path: Path) -> None:
    n = 0
    for n, row in enumerate(rows, 1):
        try:
            out.write(json.dumps(row, allow_nan=False) + "\n")
        except ValueError as error:
            raise ValueError("%s, row %d: a number is not finite" % (path, n)) from error
    out.write(json.dumps({"rows": n}) + "\n")


def import_model(config: Path, tables: Sequence[Tuple[str, Path]], dense: Optional[Path] = None, *, sets: Sequence[str] = (), seen: Optional[str] = None,
                 program: str = "freshet") -> str:
    """Makes the state directory of a configuration from Parquet tables (or JSON Lines) and a .npz file, by `freshet import`; returns the output of that command. Columns: `key` or
    `id` (and `slot`), a column for each part, <part>.state, seen_ms, show, click (docs/python.md). The lines go through temporary files, which end with their
    number of rows, so that half a table is never taken for a whole one. ValueError: what does not fit, with file and row."""
    command: List[str] = [program, "import", "--config", os.fspath(config)]
    with tempfile.TemporaryDirectory(prefix="freshet-import-") as folder:
        ours = []
        for i, (table, path) in enumerate(tables):
            lines = pathlib.Path(folder, "%d.jsonl" % i)
            with open(path, "rb") as file:
                parquet = file.read(4) == b"PAR1"
            if parquet:
                with open(lines, "w") as out:
                    _lines(_parquet_rows(path), out, path)
                ours.append((str(lines), os.fspath(path)))
            command += ["--table", "%s=%s" % (table, lines if parquet else os.fspath(path))]
        if dense is not None:
            lines = pathlib.Path(folder, "dense.jsonl")
            with open(lines, "w") as out:
                _lines(_dense_rows(dense), out, dense)
            ours.append((str(lines), os.fspath(dense)))
            command += ["--dense", str(lines)]
        if len(ours) == len(tables) + (dense is not None):
            command.append("--closed")
        for item in sets:
            command += ["--set", item]
        if seen:
            command += ["--seen", seen]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        except FileNotFoundError as error:
            raise ValueError("the command %s is not there, which makes the state: install Freshet, or name the command (--program build/release/tool/freshet)"
                             % program) from error
        said = done.stdout + done.stderr
        for temporary, path in ours:
            said = said.replace(temporary, path)
        if done.returncode != 0:
            raise ValueError(said.strip() or "freshet import: exit %d" % done.returncode)
        return said
