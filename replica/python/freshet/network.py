"""The dense network of a model as an ONNX graph whose inputs are embeddings: what a serving stack with an embedding store of its own needs besides the tables.

Inputs are float32. `<pooling>(<slot>.<part>)` [N, dim] is the pooled rows of a slot (sum, mean, sqrtn or max; rows that are not there are zeros, docs/models.md), `<slot>` [N, dim]
of a dense slot its numbers as samples carry them, NaN where the value is missing. A sequence that is read step by step comes as `<slot>.<part>` [N, T, dim] with the
newest step last, `<slot>.there` bool [N, T] (there is such a step) and `<slot>.masked` bool [N, T] (its row is not there); all sequences of a call have one T >= 1.
Outputs are the scores, by task, and `logit(<task>)`."""
from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from ._kinds import LOSSES, OPERATIONS, STEP_POOLINGS

OPSET = 17
STANDARDIZE_EPSILON, STANDARDIZE_LIMIT, STANDARDIZE_COUNT_MIN = 1e-6, 10.0, 100.0
LAYER_NORM_EPSILON, DICE_EPSILON, LEAK = 1e-5, 1e-9, 0.01


class Unsupported(ValueError):
    """A layer or a transform that the graph cannot express; the text names it."""


class Steps(NamedTuple):
    """A sequence: values [N, T, n], which steps exist, and which of them count (bool [N, T])."""
    values: str
    there: str
    counts: str


class _Graph:
    def __init__(self, model: Mapping[str, Any], dense: Mapping[str, np.ndarray]) -> None:
        import onnx
        self.onnx, self.model, self.dense = onnx, model, dense
        self.nodes: List[Any] = []
        self.inputs: Dict[str, Any] = {}
        self.constants: Dict[str, Any] = {}
        self.slots = {slot["name"]: slot for slot in model["slots"]}
        self.dims = {(t["name"], p["name"]): p["dim"] for t in model["tables"] for p in t["parts"]}
        self.layers: Dict[str, Any] = {}
        self.widths: Dict[str, int] = {}

    # ---- pieces ----

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = "%s_%d" % (op.lower(), len(self.nodes))
        self.nodes.append(self.onnx.helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def constant(self, value: Any, kind: Any = np.float32) -> str:
        name = "constant_%d" % len(self.constants)
        self.constants[name] = self.onnx.numpy_helper.from_array(np.asarray(value, kind), name)
        return name

    def parameter(self, name: str) -> str:
        if name not in self.dense:
            raise ValueError("the parameter %s is missing" % name)
        if name not in self.constants:
            self.constants[name] = self.onnx.numpy_helper.from_array(np.ascontiguousarray(self.dense[name], np.float32), name)
        return name

    def input(self, name: str, shape: Tuple[Any, ...], kind: str = "FLOAT") -> str:
        self.inputs.setdefault(name, self.onnx.helper.make_tensor_value_info(name, getattr(self.onnx.TensorProto, kind), list(shape)))
        return name

    def together(self, op: str, values: List[str]) -> str:
        for other in values[1:]:
            values = [self.node(op, values[0], other)]
        return values[0]

    def wide(self, mask: str) -> str:
        """bool [N, T] -> [N, T, 1]"""
        return self.node("Unsqueeze", mask, self.constant([2], np.int64))

    # ---- references ----

    def rows(self, ref: str) -> Tuple[str, str, int]:
        slot, part = ref.split(".")
        return slot, part, self.dims[self.slots[slot]["table"], part]

    def is_steps(self, ref: Any) -> bool:
        return isinstance(ref, str) and ("." in ref or isinstance(self.layers.get(ref), Steps))

    def width(self, ref: Any) -> int:
        if isinstance(ref, dict):
            return self.rows(next(iter(ref.values())))[2]
        if "." in ref:
            return self.rows(ref)[2]
        return self.widths[ref]

    def vector(self, ref: Any) -> str:
        if isinstance(ref, dict):
            (pooling, read), = ref.items()
            slot, part, dim = self.rows(read)
            return self.input("%s(%s.%s)" % (pooling, slot, part), ("N", dim))
        if ref in self.slots and ref not in self.layers:
            self.layers[ref] = self.numbers(self.slots[ref])
        return self.layers[ref]

    def steps(self, ref: str) -> Steps:
        if ref in self.layers:
            return self.layers[ref]
        slot, part, dim = self.rows(ref)
        there, masked = self.input(slot + ".there", ("N", "T"), "BOOL"), self.input(slot + ".masked", ("N", "T"), "BOOL")
        return Steps(self.input("%s.%s" % (slot, part), ("N", "T", dim)), there, self.node("And", there, self.node("Not", masked)))

    def numbers(self, slot: Mapping[str, Any]) -> str:
        name, dim = slot["name"], slot["dim"]
        x = self.input(name, ("N", dim))
        lost = self.node("IsNaN", x)
        missing = self.node("Cast", lost, to=self.onnx.TensorProto.FLOAT)
        if "default" in slot:
            x = self.node("Where", lost, self.constant(slot["default"]), x)
        width = dim
        written = slot["transform"]
        for step in written if isinstance(written, list) else [written]:
            kind, argument = next(iter(step.items())) if isinstance(step, dict) else (step, None)
            if kind == "clip":
                x = self.node("Clip", x, self.constant(argument[0]), self.constant(argument[1]))
            elif kind == "log1p":
                x = self.node("Log", self.node("Add", x, self.constant(1.0)))
            elif kind == "standardize":
                x = self.standardized(x, name)
            elif kind == "bucketize":
                x, width = self.buckets(x, argument, dim), dim * (len(argument) + 1)
            elif kind != "none":
                raise Unsupported("slot %s: the transform %s needs more than float32; give its two numbers by a model without it" % (name, kind))
        if slot["indicator"]:
            x, width = self.node("Concat", x, self.node("ReduceMax", missing, axes=[1], keepdims=1), axis=1), width + 1
        self.widths[name] = width
        return x

    def standardized(self, x: str, name: str) -> str:
        if float(np.ravel(self.dense[name + "/count"])[0]) < STANDARDIZE_COUNT_MIN:
            return self.node("Mul", self.node("Where", self.node("IsNaN", x), self.constant(0.0), x), self.constant(0.0))
        spread = self.constant(np.sqrt(self.dense[name + "/variance"].astype(np.float32) + np.float32(STANDARDIZE_EPSILON)))
        x = self.node("Div", self.node("Sub", x, self.parameter(name + "/mean")), spread)
        x = self.node("Clip", x, self.constant(-STANDARDIZE_LIMIT), self.constant(STANDARDIZE_LIMIT))
        return self.node("Where", self.node("IsNaN", x), self.constant(0.0), x)

    def buckets(self, x: str, boundaries: List[float], dim: int) -> str:
        above = self.node("GreaterOrEqual", self.node("Unsqueeze", x, self.constant([2], np.int64)), self.constant(boundaries))
        place = self.node("ReduceSum", self.node("Cast", above, to=self.onnx.TensorProto.INT64), self.constant([2], np.int64), keepdims=0)
        one_hot = self.node("OneHot", place, self.constant(len(boundaries) + 1, np.int64), self.constant([0.0, 1.0]), axis=-1)
        return self.node("Reshape", one_hot, self.constant([-1, dim * (len(boundaries) + 1)], np.int64))

    def joined(self, refs: List[Any]) -> Any:
        """Concatenates references; for sequences, the first one decides which steps exist."""
        if not self.is_steps(refs[0]):
            values = [self.vector(ref) for ref in refs]
            return self.node("Concat", *values, axis=1) if len(values) > 1 else values[0]
        first, *others = [self.steps(ref) for ref in refs]
        values = [first.values] + [self.node("Where", self.wide(first.there), other.values, self.constant(0.0)) for other in others]
        return first._replace(values=self.node("Concat", *values, axis=2) if others else first.values)

    # ---- layers ----

    def activate(self, x: str, kind: str, prefix: str) -> str:
        if kind == "gelu":
            inner = self.node("Mul", self.constant(math.sqrt(2 / math.pi)), self.node("Add", x, self.node("Mul", self.constant(0.044715), self.together("Mul", [x, x, x]))))
            return self.node("Mul", self.node("Mul", self.constant(0.5), x), self.node("Add", self.constant(1.0), self.node("Tanh", inner)))
        if kind == "leaky_relu":
            return self.node("LeakyRelu", x, alpha=LEAK)
        if kind == "prelu":
            return self.node("Where", self.node("Greater", x, self.constant(0.0)), x, self.node("Mul", self.parameter(prefix + "/alpha"), x))
        if kind == "dice":
            spread = self.constant(np.sqrt(self.dense[prefix + "/variance"].astype(np.float32) + np.float32(DICE_EPSILON)))
            p = self.node("Sigmoid", self.node("Div", self.node("Sub", x, self.parameter(prefix + "/mean")), spread))
            leaked = self.node("Mul", self.node("Sub", self.constant(1.0), p), self.node("Mul", self.parameter(prefix + "/alpha"), x))
            return self.node("Add", self.node("Mul", p, x), leaked)
        return x if kind == "none" else self.node({"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh"}[kind], x)

    def linear(self, x: str, prefix: str, kernel: str = "kernel", bias: Optional[str] = "bias") -> str:
        x = self.node("MatMul", x, self.parameter("%s/%s" % (prefix, kernel)))
        return self.node("Add", x, self.parameter("%s/%s" % (prefix, bias))) if bias and "%s/%s" % (prefix, bias) in self.dense else x

    def mlp(self, x: str, layer: Mapping[str, Any], prefix: str) -> str:
        for i in range(len(layer["units"])):
            x = self.activate(self.linear(x, "%s/%d" % (prefix, i)), layer["activation"], "%s/%d" % (prefix, i))
        return x

    def add(self, layer: Mapping[str, Any]) -> None:
        op, = [key for key in layer if key in OPERATIONS]
        build = getattr(self, "op_" + op, None)
        if build is None:
            raise Unsupported("layer %s: %s is not known here" % (layer["name"], op))
        name, argument = layer["name"], layer[op]
        self.layers[name] = build(layer, argument)
        first = argument if isinstance(argument, list) else argument["gate" if op == "mixture" else "keys"]
        total = sum(self.width(ref) for ref in first)
        self.widths[name] = {"mlp": lambda: layer["units"][-1], "dense": lambda: layer["units"][-1], "gru": lambda: layer["units"][-1], "fm": lambda: 1,
                             "dot_interaction": lambda: len(first) * (len(first) - 1) // 2, "experts": lambda: layer["count"] * layer["units"][-1],
                             "mixture": lambda: self.width(argument["experts"][0]) // self.dense[name + "/kernel"].shape[1]}.get(
                                 op, lambda: self.width(first[0]) if op in ("bi_interaction", "add", "multiply", *STEP_POOLINGS) else total)()

    def op_concat(self, layer: Any, refs: Any) -> Any:
        return self.joined(refs)

    op_dropout = op_stop_gradient = op_concat  # as served

    def op_mlp(self, layer: Any, refs: Any) -> Any:
        return self.mlp(self.joined(refs), layer, layer["name"])

    def op_dense(self, layer: Any, refs: Any) -> Any:
        x, name = self.joined(refs), layer["name"]
        if not isinstance(x, Steps):
            return self.activate(self.linear(x, name), layer["activation"], name)
        y = self.activate(self.linear(x.values, name), layer["activation"], name)
        return x._replace(values=self.node("Where", self.wide(x.there), y, self.constant(0.0)))

    def op_bi_interaction(self, layer: Any, refs: Any) -> Any:
        values = [self.vector(ref) for ref in refs]
        total, squares = self.together("Add", values), self.together("Add", [self.node("Mul", v, v) for v in values])
        return self.node("Mul", self.node("Sub", self.node("Mul", total, total), squares), self.constant(0.5))

    def op_fm(self, layer: Any, refs: Any) -> Any:
        return self.node("ReduceSum", self.op_bi_interaction(layer, refs), self.constant([1], np.int64), keepdims=1)

    def op_add(self, layer: Any, refs: Any) -> Any:
        return self.together("Add", [self.vector(ref) for ref in refs])

    def op_multiply(self, layer: Any, refs: Any) -> Any:
        return self.together("Mul", [self.vector(ref) for ref in refs])

    def op_sum(self, layer: Any, refs: Any) -> Any:
        return self.pooled(refs[0], "sum") if self.is_steps(refs[0]) else self.op_add(layer, refs)

    def op_mean(self, layer: Any, refs: Any) -> Any:
        return self.pooled(refs[0], "mean")

    def op_sqrtn(self, layer: Any, refs: Any) -> Any:
        return self.pooled(refs[0], "sqrtn")

    def op_max(self, layer: Any, refs: Any) -> Any:
        x = self.steps(refs[0])
        counts = self.wide(x.counts)
        counted = self.node("ReduceMax", self.node("Cast", counts, to=self.onnx.TensorProto.FLOAT), axes=[1], keepdims=0)
        largest = self.node("ReduceMax", self.node("Where", counts, x.values, self.constant(-np.inf)), axes=[1], keepdims=0)
        return self.node("Where", self.node("Greater", counted, self.constant(0.0)), largest, self.constant(0.0))

    def op_last(self, layer: Any, refs: Any) -> Any:
        return self.node("Gather", self.steps(refs[0]).values, self.constant(-1, np.int64), axis=1)

    def pooled(self, ref: str, pooling: str) -> str:
        x = self.steps(ref)
        total = self.node("ReduceSum", self.node("Where", self.wide(x.counts), x.values, self.constant(0.0)), self.constant([1], np.int64), keepdims=0)
        if pooling == "sum":
            return total
        there = self.node("Cast", x.there, to=self.onnx.TensorProto.FLOAT)
        length = self.node("Max", self.node("ReduceSum", there, self.constant([1], np.int64), keepdims=1), self.constant(1.0))
        return self.node("Div", total, self.node("Sqrt", length) if pooling == "sqrtn" else length)

    def op_dot_interaction(self, layer: Any, refs: Any) -> Any:
        values = [self.vector(ref) for ref in refs]
        dots = [self.node("ReduceSum", self.node("Mul", values[a], values[b]), self.constant([1], np.int64), keepdims=1) for b in range(len(values)) for a in range(b)]
        return self.node("Concat", *dots, axis=1) if len(dots) > 1 else dots[0]

    def op_cross(self, layer: Any, refs: Any) -> Any:
        first = x = self.joined(refs)
        for i in range(layer["depth"]):
            prefix = "%s/%d" % (layer["name"], i)
            down = self.linear(x, prefix, "down", None) if layer["rank"] else x
            x = self.node("Add", self.node("Mul", first, self.linear(down, prefix, "up" if layer["rank"] else "kernel")), x)
        return x

    def op_bias(self, layer: Any, refs: Any) -> Any:
        return self.node("Add", self.joined(refs), self.parameter(layer["name"] + "/bias"))

    def op_layer_norm(self, layer: Any, refs: Any) -> Any:
        name = layer["name"]
        return self.node("LayerNormalization", self.joined(refs), self.parameter(name + "/scale"), self.parameter(name + "/bias"), axis=-1, epsilon=LAYER_NORM_EPSILON)

    def op_activate(self, layer: Any, refs: Any) -> Any:
        return self.activate(self.joined(refs), layer["activation"], layer["name"])

    def op_attention(self, layer: Any, roles: Any) -> Any:
        name, keys = layer["name"], self.joined(roles["keys"])
        query = self.node("Unsqueeze", self.joined(roles["query"]), self.constant([1], np.int64))
        query = self.node("Add", query, self.node("Mul", keys.values, self.constant(0.0)))
        x = self.node("Concat", query, keys.values, self.node("Sub", query, keys.values), self.node("Mul", query, keys.values), axis=2)
        scores, counts = self.linear(self.mlp(x, layer, name), name + "/score"), self.wide(keys.counts)
        scores = self.softmax(scores, counts) if layer["softmax"] else self.node("Where", counts, scores, self.constant(0.0))
        weighted = self.node("Mul", scores, self.node("Where", counts, keys.values, self.constant(0.0)))
        return self.node("ReduceSum", weighted, self.constant([1], np.int64), keepdims=0)

    def softmax(self, scores: str, counts: str) -> str:
        """Pools the steps that count; zeros if there are none."""
        scores = self.node("Softmax", self.node("Where", counts, scores, self.constant(-1e30)), axis=1)
        return self.node("Where", counts, scores, self.constant(0.0))

    def recurrence(self, x: Steps, name: str, units: int, scores: Optional[str] = None) -> Steps:
        """Step by step by ONNX's Scan, whose body is a graph of its own that reads the recurrent parameters from this one; a step that does not count keeps the state."""
        helper, kinds = self.onnx.helper, self.onnx.TensorProto
        own, counts = self.linear(x.values, name), self.wide(x.counts)
        scores = scores or self.node("Cast", counts, to=kinds.FLOAT)
        rows = self.node("Gather", self.node("Shape", own), self.constant([0], np.int64), axis=0)
        zeros = self.node("ConstantOfShape", self.node("Concat", rows, self.constant([units], np.int64), axis=0), value=self.onnx.numpy_helper.from_array(np.zeros(1, np.float32)))
        sizes = self.constant([units] * 3, np.int64)
        kernel, bias, one = self.parameter(name + "/recurrent_kernel"), self.parameter(name + "/recurrent_bias"), self.constant(1.0)
        make, body = helper.make_node, []

        def step(op: str, inputs: List[str], outputs: int = 1, **attributes: Any) -> Any:
            names = ["%s_step_%d_%d" % (name, len(body), i) for i in range(outputs)]
            body.append(make(op, inputs, names, **attributes))
            return names if outputs > 1 else names[0]

        state, input_, score, there = ["%s_%s" % (name, what) for what in ("state", "input", "score", "there")]
        past = step("Split", [step("Add", [step("MatMul", [state, kernel]), bias]), sizes], 3, axis=1)
        now = step("Split", [input_, sizes], 3, axis=1)
        r, z = [step("Sigmoid", [step("Add", [now[i], past[i]])]) for i in range(2)]
        n = step("Tanh", [step("Add", [now[2], step("Mul", [r, past[2]])])])
        moved = step("Mul", [step("Mul", [step("Sub", [one, z]), score]), step("Sub", [n, state])])
        after = step("Where", [there, step("Add", [state, moved]), state])
        given = step("Identity", [after])
        values = [helper.make_tensor_value_info(value, kind, ["N", width])
                  for value, kind, width in ((state, kinds.FLOAT, units), (input_, kinds.FLOAT, 3 * units), (score, kinds.FLOAT, 1), (there, kinds.BOOL, 1))]
        ends = [helper.make_tensor_value_info(value, kinds.FLOAT, ["N", units]) for value in (after, given)]
        graph = helper.make_graph(body, name + "_step", values, ends)
        last, states = name + "_last", name + "_states"
        self.nodes.append(make("Scan", [zeros, own, scores, counts], [last, states], body=graph, num_scan_inputs=3, scan_input_axes=[1, 1, 1], scan_output_axes=[1]))
        return x._replace(values=states)

    def op_gru(self, layer: Any, refs: Any) -> Any:
        return self.recurrence(self.joined(refs), layer["name"], layer["units"][-1])

    def op_augru(self, layer: Any, roles: Any) -> Any:
        keys, name = self.joined(roles["keys"]), layer["name"]
        query = self.node("Unsqueeze", self.joined(roles["query"]), self.constant([2], np.int64))
        scores = self.softmax(self.node("MatMul", self.linear(keys.values, name, "attention", None), query), self.wide(keys.counts))
        steps = self.recurrence(keys, name, self.dense[name + "/recurrent_kernel"].shape[0], scores)
        return self.node("Gather", steps.values, self.constant(-1, np.int64), axis=1)

    def op_experts(self, layer: Any, refs: Any) -> Any:
        x = self.joined(refs)
        return self.node("Concat", *[self.mlp(x, layer, "%s/%d" % (layer["name"], e)) for e in range(layer["count"])], axis=1)

    def op_mixture(self, layer: Any, roles: Any) -> Any:
        count = self.dense[layer["name"] + "/kernel"].shape[1]
        gates = self.node("Softmax", self.linear(self.joined(roles["gate"]), layer["name"]), axis=1)
        shape = self.constant([-1, count, self.width(roles["experts"][0]) // count], np.int64)
        experts = self.node("Reshape", self.vector(roles["experts"][0]), shape)
        weighted = self.node("Mul", self.node("Unsqueeze", gates, self.constant([2], np.int64)), experts)
        return self.node("ReduceSum", weighted, self.constant([1], np.int64), keepdims=0)

    # ---- tasks ----

    def wanted(self) -> set:
        """Layers that a task reads, directly or not."""
        named = {layer["name"]: layer for layer in self.model["layers"]}
        seen: set = set()
        walk = [task["logit"] for task in self.model["tasks"] if "logit" in task]
        while walk:
            name = walk.pop()
            if name in named and name not in seen:
                seen.add(name)
                argument, = [value for key, value in named[name].items() if key in OPERATIONS]
                walk += [ref for refs in (argument.values() if isinstance(argument, dict) else [argument]) for ref in refs if isinstance(ref, str)]
        return seen

    def tasks(self) -> List[Any]:
        scores, outputs = {}, []
        for task in self.model["tasks"]:
            name = task["name"]
            if "logit" in task:
                self.nodes.append(self.onnx.helper.make_node("Reshape", [self.vector(task["logit"]), self.constant([-1], np.int64)], ["logit(%s)" % name]))
                outputs.append("logit(%s)" % name)
                if task["loss"] not in LOSSES:
                    raise Unsupported("task %s: the loss %s is not known here" % (name, task["loss"]))
                score = outputs[-1] if LOSSES[task["loss"]] == "value" else self.node("Sigmoid", outputs[-1])
            else:
                score = self.together("Mul", [scores[other] for other in task["prob"]])
            scores[name] = score
            self.nodes.append(self.onnx.helper.make_node("Identity", [score], [name]))
            outputs.append(name)
        return [self.onnx.helper.make_tensor_value_info(name, self.onnx.TensorProto.FLOAT, ["N"]) for name in outputs]


def to_onnx(model: Mapping[str, Any], dense: Mapping[str, np.ndarray], metadata: Optional[Mapping[str, str]] = None) -> Any:
    """An onnx.ModelProto of a model (its canonical JSON, parsed) and its dense parameters (package onnx). Unsupported names what ONNX cannot express: slots of times."""
    graph = _Graph(model, dense)
    onnx, wanted = graph.onnx, graph.wanted()
    for layer in model["layers"]:
        if layer["name"] in wanted:
            graph.add(layer)
    outputs = graph.tasks()
    proto = onnx.helper.make_model(onnx.helper.make_graph(graph.nodes, "freshet", list(graph.inputs.values()), outputs, list(graph.constants.values())),
                                   opset_imports=[onnx.helper.make_opsetid("", OPSET)], producer_name="freshet", ir_version=8)
    onnx.helper.set_model_props(proto, {**(metadata or {})})
    onnx.checker.check_model(proto)
    return proto
