// The model as a picture: slots with their tables on the left, layers in the order of their inputs, tasks on the right; each box has its shape.
import { element, fillTable } from "./elements.js";

const WIDTH = 158, HEIGHT = 40, GAP_X = 54, GAP_Y = 12, TOP = 26;
const SLOTS_MAX = 20; // beyond, the slots of a table are one box
const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const shape = (thing) => (thing.sequence ? `T × ${thing.width}` : `${thing.width}`);
const cut = (name, most = 21) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);

// Boxes of slots: one each, or one a table where there are many; of[slot name] is the box.
function slotBoxes(model) {
  const dims = Object.fromEntries(model.tables.map((table) => [table.name, table.parts.map((part) => `${part.name} ${part.dim}`).join(", ")]));
  const boxes = new Map(), of = {};
  for (const slot of model.slots) {
    const together = model.slots.length > SLOTS_MAX;
    const key = together ? slot.table ?? "numbers" : slot.name;
    if (!boxes.has(key)) boxes.set(key, { kind: "slot", name: key, rank: 0, count: 0, width: 0, table: slot.table, of: slot });
    const box = boxes.get(key);
    box.count++;
    box.width += slot.width ?? 0;
    of[slot.name] = box;
  }
  for (const box of boxes.values()) {
    const many = box.count > 1 ? `${box.count} slots, ` : "";
    box.shape = box.table ? `${many}${box.count > 1 ? "" : `${box.table}: `}${dims[box.table]}` : `${many}${box.of.kind} ${box.width}`;
  }
  return { boxes: [...boxes.values()], of };
}

function layout(model) {
  const slots = slotBoxes(model), layers = {}, edges = [];
  const boxes = [...slots.boxes];
  for (const layer of model.layers) {
    const box = { kind: "layer", name: layer.name, rank: 1 };
    const units = layer.units.length > 0 ? ` ${layer.units.join("-")}` : "";
    box.shape = `${layer.op}${units} → ${shape(layer)}`;
    for (const read of layer.reads) {
      const from = read.layer ? layers[read.layer] : slots.of[read.slot];
      if (!edges.some(([a, b]) => a === from && b === box)) edges.push([from, box]);
      box.rank = Math.max(box.rank, from.rank + 1);
    }
    layers[layer.name] = box;
    boxes.push(box);
  }
  const last = 1 + Math.max(0, ...boxes.map((box) => box.rank)), tasks = {};
  for (const task of model.tasks) {
    const box = { kind: "task", name: task.name, rank: last, shape: `${task.loss} of ${task.label}` };
    if (task.layer) edges.push([layers[task.layer], box]);
    for (const name of task.product) edges.push([tasks[name], box]);
    if (task.product.length > 0) box.shape = `${task.product.join(" × ")}, ${task.loss}`;
    tasks[task.name] = box;
    boxes.push(box);
  }
  return { boxes, edges, ranks: last + 1 };
}

// Boxes of a column stand in the order of the mean place of what they read, so that lines cross little.
function place({ boxes, edges, ranks }) {
  const columns = Array.from({ length: ranks }, (_, rank) => boxes.filter((box) => box.rank === rank));
  const tallest = Math.max(...columns.map((column) => column.length));
  for (const column of columns) {
    for (const box of column) {
      const from = edges.filter(([, to]) => to === box).map(([a]) => a.y);
      box.wish = from.length > 0 ? from.reduce((a, b) => a + b, 0) / from.length : 0;
    }
    if (column[0]?.rank > 0) column.sort((a, b) => a.wish - b.wish);
    const top = TOP + ((tallest - column.length) * (HEIGHT + GAP_Y)) / 2;
    column.forEach((box, i) => Object.assign(box, { x: 1 + box.rank * (WIDTH + GAP_X), y: top + i * (HEIGHT + GAP_Y) }));
  }
  return { width: ranks * (WIDTH + GAP_X) - GAP_X + 2, height: TOP + tallest * (HEIGHT + GAP_Y) };
}

export function drawModel(model) {
  const plan = layout(model), { width, height } = place(plan), picture = document.getElementById("model-picture");
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  picture.style.maxWidth = `${width * 1.5}px`;
  picture.style.minWidth = `${width * 0.72}px`; // below, the words would be too small: the picture scrolls
  const lines = plan.edges.map(([a, b]) => {
    const x = a.x + WIDTH, y = a.y + HEIGHT / 2, half = (b.x - x) / 2, end = b.y + HEIGHT / 2;
    return svg("path", { d: `M${x} ${y}C${x + half} ${y} ${b.x - half} ${end} ${b.x} ${end}` });
  });
  const drawn = plan.boxes.map((box) =>
    svg("g", { class: box.kind, transform: `translate(${box.x} ${box.y})` },
      svg("title", {}, `${box.name}: ${box.shape}`), svg("rect", { class: "box", width: WIDTH, height: HEIGHT, rx: 5 }),
      svg("text", { x: 10, y: 17 }, cut(box.name)), svg("text", { class: "shape", x: 10, y: 32 }, cut(box.shape, 25))));
  const headings = [["slots", 0], ["layers", 1], ["tasks", plan.ranks - 1]].map(([name, rank]) =>
    svg("text", { class: "heading", x: 1 + rank * (WIDTH + GAP_X), y: 14 }, name));
  picture.replaceChildren(...headings, ...lines, ...drawn);

  const many = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
  document.getElementById("model-summary").textContent =
    `${many(model.slots.length, "slot")} and ${many(model.tables.length, "table")} feed ${many(model.layers.length, "layer")} with ` +
    `${many(model.dense_parameters, "parameter")}, for ${many(model.tasks.length, "task")}. The number after an arrow is a layer's width.`;
  fillTable("layers", ["Layer", "Operation", "Reads", "Gives"], model.layers.map((layer) => [
    layer.name, { text: `${layer.op} ${layer.units.join("-")}`, kind: "text" },
    { kind: "wrap", text: layer.reads.map((read) => `${read.layer ?? read.slot}${read.part ? `.${read.part}` : ""}${read.pooling ? ` (${read.pooling})` : ""}: ${shape(read)}`).join("; ") },
    shape(layer),
  ]));
}
