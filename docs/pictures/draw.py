#!/usr/bin/env python3
"""Draws the pictures of the documents: each NAME.txt here becomes NAME.svg. `draw.py --check` compares instead, for tests/style/texts.

A source is lines of words; what follows a bar is text, a line for each bar. `#` begins a comment.

    size WIDTH HEIGHT
    area X Y WIDTH HEIGHT KIND | title                    a shaded region, drawn first
    box NAME X Y WIDTH HEIGHT KIND | title | line ..      KIND: plain, ours, other, store, state, end
    arrow FROM TO KIND [DX DY] | label | line ..          FROM, TO: NAME.SIDE, a side l r t b with a share of it (`a.r`, `a.b0.25`);
                                                          KIND: flow, back (dashed, taken back), ask (dotted); DX DY move the label
    text X Y KIND | line ..                               KIND: note, head

An arrow between two sides that face each other bends in the middle, one between a horizontal and a vertical side bends once.
"""
import html
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
LINE = 16
FILLS = {"plain": ("#ffffff", "#5b6673"), "ours": ("#e8f1fb", "#2f6fad"), "other": ("#f1f1ee", "#85857c"), "store": ("#fdf3dc", "#b0852a"),
         "state": ("#e9f5ea", "#3f8a49"), "end": ("#fbe9e7", "#b3473a")}
STROKES = {"flow": ("#33404d", ""), "back": ("#b3473a", ' stroke-dasharray="6 4"'), "ask": ("#6a7886", ' stroke-dasharray="2 4"')}
HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" height="{h}" font-family="Helvetica, Arial, sans-serif" font-size="12">
<!-- Drawn by docs/pictures/draw.py from {name}.txt. -->
<defs>{markers}</defs>
<rect width="{w}" height="{h}" fill="#ffffff"/>
"""


def marker(kind):
    return (f'<marker id="{kind}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto-start-reverse">'
            f'<path d="M0 0L10 5L0 10z" fill="{STROKES[kind][0]}"/></marker>')


def text(x, y, lines, anchor="middle", bold=False, color="#1d2730"):
    for i, line in enumerate(lines):
        weight = ' font-weight="bold"' if bold and i == 0 else ""
        yield f'<text x="{x:g}" y="{y + i * LINE:g}" text-anchor="{anchor}" fill="{color}"{weight}>{html.escape(line)}</text>'


def point(boxes, end):
    """(x, y, side) of NAME.SIDE[share]."""
    name, side = end.split(".", 1)
    x, y, w, h = boxes[name]
    share = float(side[1:] or 0.5)
    return {"l": (x, y + h * share), "r": (x + w, y + h * share), "t": (x + w * share, y), "b": (x + w * share, y + h)}[side[0]] + (side[0],)


def route(a, b):
    """Corners of the way, and where its label stands."""
    (x1, y1, s1), (x2, y2, s2) = a, b
    across1, across2 = s1 in "lr", s2 in "lr"
    if across1 and across2:
        middle = (x1 + x2) / 2 if s1 != s2 else (max(x1, x2) + 30 if s1 == "r" else min(x1, x2) - 30)
        corners = [(x1, y1), (middle, y1), (middle, y2), (x2, y2)]
        label = (middle, (y1 + y2) / 2 - 5)
    elif across1 != across2:
        corner = (x2, y1) if across1 else (x1, y2)
        corners = [(x1, y1), corner, (x2, y2)]
        label = ((corner[0] + (x1 if across1 else x2)) / 2, corner[1] - 5)
    else:
        middle = (y1 + y2) / 2 if s1 != s2 else (max(y1, y2) + 30 if s1 == "b" else min(y1, y2) - 30)
        corners = [(x1, y1), (x1, middle), (x2, middle), (x2, y2)]
        label = ((x1 + x2) / 2, middle - 5)
    return corners, label


def drawn(name, source):
    boxes, shapes, over, size = {}, [], [], None
    for line in source.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        words, *lines = [part.strip() for part in line.split("|")]
        what, *words = words.split()
        if what == "size":
            size = words
        elif what == "area":
            x, y, w, h = map(float, words[:4])
            fill, stroke = FILLS[words[4]]
            shapes.append(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="8" fill="{fill}" fill-opacity="0.5" stroke="{stroke}" stroke-opacity="0.4"/>')
            shapes += text(x + 10, y + 18, lines, "start", True, stroke)
        elif what == "box":
            x, y, w, h = map(float, words[1:5])
            fill, stroke = FILLS[words[5]]
            boxes[words[0]] = (x, y, w, h)
            shapes.append(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="5" fill="{fill}" stroke="{stroke}"/>')
            shapes += text(x + w / 2, y + h / 2 + 4 - (len(lines) - 1) * LINE / 2, lines, bold=True)
        elif what == "arrow":
            kind, moved = words[2], [float(v) for v in words[3:5]] or [0, 0]
            corners, (x, y) = route(point(boxes, words[0]), point(boxes, words[1]))
            stroke, dashes = STROKES[kind]
            way = " ".join(f"{a:g},{b:g}" for a, b in corners)
            shapes.append(f'<polyline points="{way}" fill="none" stroke="{stroke}" stroke-width="1.4"{dashes} marker-end="url(#{kind})"/>')
            over += text(x + moved[0], y + moved[1], lines, color=stroke)
        elif what == "text":
            over += text(float(words[0]), float(words[1]), lines, "start", words[2] == "head", "#45525e" if words[2] == "note" else "#1d2730")
        else:
            raise ValueError(f"{name}: {line}")
    head = HEAD.format(w=size[0], h=size[1], name=name, markers="".join(map(marker, STROKES)))
    return head + "\n".join(shapes + over) + "\n</svg>\n"


def main():
    wrong = []
    for path in sorted(HERE.glob("*.txt")):
        picture, svg = path.with_suffix(".svg"), drawn(path.stem, path.read_text())
        if "--check" not in sys.argv:
            picture.write_text(svg)
        elif not picture.exists() or picture.read_text() != svg:
            wrong.append(f"docs/pictures/{picture.name} is not what its source draws: run docs/pictures/draw.py")
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
