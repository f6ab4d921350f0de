# SPDX-License-Identifier: Apache-2.0
"""Plots with two logarithmic axes, as SVG without any library."""

import math
from html import escape

WIDTH, HEIGHT = 860, 400
LEFT, RIGHT, TOP, BOTTOM = 80, 240, 44, 56
COLOURS = ["#1b6ca8", "#c8553d", "#3a7d44", "#7b4b94", "#8a6d1d"]


def bytes_text(value):
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} B"


def rate_text(value):
    return f"{value / 1e9:.3g} GB/s" if value >= 1e9 else f"{value / 1e6:.3g} MB/s"


def seconds_text(value):
    return f"{value:.3g} s" if value >= 1 else f"{value * 1000:.3g} ms"


class Axis:
    """Maps values to places, logarithmically."""

    def __init__(self, values, start, end):
        self._low, self._high = math.log(min(values)), math.log(max(values))
        if self._high - self._low < 1e-9:
            self._low, self._high = self._low - 1, self._high + 1
        self._start, self._end = start, end

    def place(self, value):
        share = (math.log(value) - self._low) / (self._high - self._low)
        return self._start + share * (self._end - self._start)


def decades(values):
    """1, 2 and 5 times powers of ten around the values; few if they are many."""
    low = math.floor(math.log10(min(values)))
    high = math.ceil(math.log10(max(values)))
    steps = (1, 2, 5) if high - low < 3 else (1,)
    ticks = [s * 10.0 ** e for e in range(low, high + 1) for s in steps]
    below = [t for t in ticks if t <= min(values)][-1:]
    above = [t for t in ticks if t >= max(values)][:1]
    return below + [t for t in ticks if min(values) < t < max(values)] + above


def text(x, y, words, **how):
    how = "".join(f' {k.replace("_", "-")}="{v}"' for k, v in how.items())
    return f'<text x="{x:.1f}" y="{y:.1f}"{how}>{escape(words)}</text>'


def line(x1, y1, x2, y2, colour):
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
            f'stroke="{colour}"/>')


def panel(top, title, x_label, series, x_text, y_text):
    """One plot; series is {label: [[x, y], ...]}."""
    points = [point for line_points in series.values() for point in line_points]
    xs = sorted({x for x, _ in points})
    ticks = decades([y for _, y in points])
    bottom, right = top + HEIGHT - BOTTOM, WIDTH - RIGHT
    x_axis = Axis(xs, LEFT, right)
    y_axis = Axis(ticks, bottom, top + TOP)
    out = [text(LEFT, top + 24, title, font_weight="bold", font_size=15),
           text((LEFT + right) / 2, bottom + 42, x_label, text_anchor="middle")]
    for tick in ticks:
        y = y_axis.place(tick)
        out.append(line(LEFT, y, right, y, "#dddddd"))
        out.append(text(LEFT - 8, y + 4, y_text(tick), text_anchor="end"))
    for x in xs:
        place = x_axis.place(x)
        out.append(line(place, bottom, place, bottom + 5, "#444444"))
        out.append(text(place, bottom + 20, x_text(x), text_anchor="middle"))
    out.append(line(LEFT, bottom, right, bottom, "#444444"))
    labels = []
    for (label, line_points), colour in zip(series.items(), COLOURS):
        places = [(x_axis.place(x), y_axis.place(y)) for x, y in line_points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" '
                   'stroke-width="2"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
                for x, y in places]
        labels.append((places[-1][1], label, colour))
    return out + legend(labels, right + 12)


def legend(labels, x):
    """Each line's name beside its last point, apart from each other."""
    out, y = [], -math.inf
    for wanted, label, colour in sorted(labels):
        y = max(wanted + 4, y + 16)
        out.append(text(x, y, label, fill=colour))
    return out


PANELS = [
    ("requests", "Reading a file, warm, by size of a read", "bytes a read", rate_text),
    ("sizes", "Time by size of the checkpoint, warm", "size of the source",
     seconds_text),
]


def plot(path, plots, caption):
    """Write the plots that there are; caption says where they come from."""
    there = [entry for entry in PANELS if plots.get(entry[0])]
    height = HEIGHT * len(there) + 24
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
           f'height="{height}" viewBox="0 0 {WIDTH} {height}" '
           'font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>']
    for i, (name, title, x_label, y_text) in enumerate(there):
        out += panel(i * HEIGHT, title, x_label, plots[name], bytes_text, y_text)
    out += [text(LEFT, height - 8, caption, fill="#666666", font_size=11), "</svg>"]
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(out) + "\n")
