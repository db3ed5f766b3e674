"""The served copy of a Freshet model: rows and scores from a delta topic, a snapshot or records; readers of deltas and snapshots. See docs/python.md."""
from .deltas import BadRecord, Snapshot, read_record
from .replica import (BadInput, FreshetError, Gap, Info, Mismatch, NotFound, NotReady, OutOfMemory, Replica, Rewound, Table)

__all__ = ["BadInput", "BadRecord", "FreshetError", "Gap", "Info", "Mismatch", "NotFound", "NotReady", "OutOfMemory", "Replica", "Rewound", "Snapshot", "Table",
           "read_record"]
__version__ = "0.1.0"
