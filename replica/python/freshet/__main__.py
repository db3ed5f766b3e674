"""python -m freshet: snapshots to Parquet and ONNX, models from elsewhere into a new state."""
from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any, Dict, Optional, Tuple

import numpy as np

from . import Snapshot


def _of_dump(dump: str, model: str) -> Tuple[Dict[str, Any], Dict[str, np.ndarray], Dict[str, str]]:
    dense, last = {}, {}  # type: Dict[str, np.ndarray], Dict[str, Any]
    with open(dump) as file:
        for line in file:
            if line.startswith('{"dense"'):
                record = json.loads(line)
                dense[record["dense"]] = np.array(record["values"], np.float32).reshape(record["shape"])
            elif line.startswith('{"tl"'):
                last = json.loads(line)
    if not last:
        raise ValueError("%s is not a whole dump: it has no closing line" % dump)
    with open(model) as file:
        text = file.read().splitlines()[0]  # model.json of a state ends with a line of its checksum
    return json.loads(text), dense, {"freshet.timeline": str(last["tl"]), "freshet.epoch": str(last["epoch"])}


def _to_onnx(source: Optional[str], dump: Optional[str], model: Optional[str], out: str) -> None:
    from .formats import _metadata
    from .network import to_onnx
    if (source is None) == (dump is None) or (dump is None) != (model is None):
        raise ValueError("give a snapshot, or --dump and --model")
    if source is not None:
        snapshot = Snapshot(source)
        config, dense, metadata = snapshot.model, snapshot.dense, _metadata(snapshot)
    else:
        config, dense, metadata = _of_dump(str(dump), str(model))
    proto = to_onnx(config, dense, metadata)
    with open(out + ".tmp", "wb") as file:
        file.write(proto.SerializeToString())
    os.replace(out + ".tmp", out)
    for what, values in (("input", proto.graph.input), ("output", proto.graph.output)):
        for each in values:
            shape = [d.dim_param or d.dim_value for d in each.type.tensor_type.shape.dim]
            print("%s %s %s" % (what, each.name, shape))


def _table(text: str) -> Tuple[str, str]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError("expected NAME=FILE")
    return name, path


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m freshet", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("to-parquet", help="a snapshot as Parquet tables, dense.npz and model.json")
    command.add_argument("snapshot")
    command.add_argument("out", help="directory, which must not exist")
    command = commands.add_parser("to-onnx", help="the dense network as ONNX, embeddings as inputs")
    command.add_argument("snapshot", nargs="?")
    command.add_argument("--dump", help="a dump instead (`freshet dump`), with --model")
    command.add_argument("--model", help="model.json of the state that was dumped")
    command.add_argument("--out", required=True, help="file")
    command = commands.add_parser("import", help="a new state from Parquet tables (or JSON Lines) and a .npz, by `freshet import`")
    command.add_argument("--config", required=True)
    command.add_argument("--table", metavar="NAME=FILE", type=_table, action="append", default=[])
    command.add_argument("--dense", metavar="FILE.npz")
    command.add_argument("--set", dest="sets", metavar="path=value", action="append", default=[])
    command.add_argument("--seen", metavar="TIME")
    command.add_argument("--program", default="freshet", help="the freshet command (default: that of PATH)")
    arguments = parser.parse_args()
    try:
        if arguments.command == "to-onnx":
            _to_onnx(arguments.snapshot, arguments.dump, arguments.model, arguments.out)
            return 0
        from .formats import import_model, to_parquet
        if arguments.command == "to-parquet":
            for table, rows in to_parquet(arguments.snapshot, arguments.out).items():
                print("table %s rows=%d" % (table, rows))
        else:
            print(import_model(arguments.config, arguments.table, arguments.dense, sets=arguments.sets, seen=arguments.seen, program=arguments.program), end="")
    except (ValueError, OSError, ImportError) as error:
        print("freshet: %s" % error, file=sys.stderr)
        return 1
    return 0


sys.exit(main())
