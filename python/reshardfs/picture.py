# SPDX-License-Identifier: Apache-2.0
"""Draws a plan: how source and destination shard each tensor, and what ranks read.

    reshardfs plan --json --slices [OPTIONS] SOURCE | python3 -m reshardfs.picture FILE

FILE is an .svg, .png or .pdf.  Each source rank has a colour, and a slice of the
destination has the colours of the ranks that it is read from.  "x4: 0,2,4,6" means
that these four ranks have the same slice.  Slices of the optimizer shard have dashed
edges, and slices in no file are hatched.  If a source rank has no file, all ranks are
drawn first: those that are there, those whose slices others have, and those of which
something is lost.  The table has the bytes that each destination rank reads from each
source rank.

The last line of the picture says the same.  --dark draws it for a dark page, and --no-table
without the table.

One of several equally sharded tensors is drawn, and at most --tensors (12) in all.
Of more than two dimensions, the two that are split are drawn, or else the last ones.
It needs matplotlib.
"""

import argparse
import json
import sys
from typing import Any, Dict, List, Optional, Set, Tuple

Json = Dict[str, Any]
Box = Tuple[float, float, float, float]  # left, top, width, height; of a tensor: 0 to 1

GROUPS = 24          # rows or columns of the table; more ranks are drawn in groups
LABELLED = 64        # slices of one side; where there are more, they have no labels
WIDTH = 9.0          # of the page, in inches
TENSOR_HEIGHT = 2.3
ROW_HEIGHT = 0.22
RANKS_IN_ROW = 64
EDGE, LOST, THERE = "#444444", "#cc5555", "#5588bb"
LEGEND = ("Colour: the source rank of the bytes. 0, 1 ...: the rank that has the slice; ×2: 0,2: "
          "both have it. Dashed: optimizer shard. Hatched: lost.")


def error(sentence: str) -> "SystemExit":
    return SystemExit(f"reshardfs.picture: {sentence}")


# ---- numbers and sizes ----

def ranks_text(ranks: List[int]) -> str:
    """[0, 1, 2, 5] is "0-2,5"."""
    runs: List[List[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(str(a) if a == b else f"{a},{b}" if b == a + 1 else f"{a}-{b}"
                    for a, b in runs)


def bytes_text(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def shape_text(shape: List[int]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"


def shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length // 2]}…{text[-length // 2 + 1:]}"


# ---- which tensors, and which of their dimensions ----

def look(tensor: Json) -> str:
    """Tensors with equal results have the same drawing."""
    def share(side: Json, part: Json, key: str) -> List[float]:
        return [at / max(size, 1) for at, size in zip(part[key], side["shape"])]

    return json.dumps([[[share(side, s, "offset"), share(side, s, "shape"), s["ranks"],
                         s.get("missing")] for s in side["slices"]]
                       for side in (tensor["source"], tensor["destination"])])


def chosen(tensors: List[Json], most: int) -> Tuple[List[Json], int]:
    """The tensors to draw, with all names that each represents, and the number of others."""
    kinds: Dict[str, Json] = {}
    for tensor in tensors:
        kept = kinds.setdefault(look(tensor), {**tensor, "names": []})
        kept["names"] = kept["names"] + tensor["names"]
    drawn = list(kinds.values())
    return drawn[:most], sum(len(t["names"]) for t in drawn[most:])


def drawn_dimensions(side: Json, other: Json) -> List[int]:
    """The vertical and the horizontal dimension; one for a tensor of one dimension."""
    def cut(of: Json) -> List[int]:
        return [d for d in range(len(of["shape"]))
                if any(s["shape"][d] != of["shape"][d] for s in of["slices"])]

    n = len(side["shape"])
    wanted = cut(side) + (cut(other) if len(other["shape"]) == n else [])
    for d in reversed(range(n)):
        wanted.append(d)
    return sorted(list(dict.fromkeys(wanted))[:2])


def place(side: Json, part: Json, dims: List[int]) -> Optional[Box]:
    """The box of a part; None if the part is not at the start of a hidden dimension."""
    if any(at for d, at in enumerate(part["offset"]) if d not in dims):
        return None
    spans = [(part["offset"][d] / max(side["shape"][d], 1),
              part["shape"][d] / max(side["shape"][d], 1)) for d in dims]
    spans = [(0.0, 1.0)] * (2 - len(spans)) + spans
    (top, height), (left, width) = spans
    return left, top, width, height


# ---- drawing ----

class Page:
    def __init__(self, plan: Json, most: int, dark: bool, table: bool) -> None:
        import matplotlib
        matplotlib.use("Agg")
        # Text is stored as text, and equal plans give equal files.
        matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "reshardfs",
                                    "font.size": 8, "hatch.linewidth": 0.6,
                                    "text.parse_math": False})
        from matplotlib import colormaps, pyplot
        if dark:
            pyplot.style.use("dark_background")
            matplotlib.rcParams.update({"figure.facecolor": "#0d1117",
                                        "axes.facecolor": "#0d1117"})
        self.ink, self.paper = ("#dddddd", "#0d1117") if dark else (EDGE, "white")
        self.pyplot, self.plan, self.has_table = pyplot, plan, table
        self.tensors, self.n_left = chosen(plan["tensors"], most)
        known = {s["rank"] for s in plan["sources"]}
        # Ranks without a file, and those of them that had a slice alone.
        self.absent: Set[int] = set()
        self.needed: Set[int] = set()
        for tensor in plan["tensors"]:
            for part in tensor["source"]["slices"]:
                known.update(part["ranks"], part["missing"])
                self.absent.update(part["missing"])
                if not part["ranks"]:
                    self.needed.update(part["missing"])
        self.sources = sorted(known)
        self.read = {s["rank"] for s in plan["sources"]}
        self.by_source = len(self.sources) > 1
        ranks = self.sources if self.by_source else [f["rank"] for f in plan["files"]]
        colors = colormaps["tab20"] if len(ranks) <= 20 else colormaps["hsv"]
        self.color = {rank: colors((i * 2 % 20 + i // 10) if len(ranks) <= 20
                                   else i / len(ranks)) for i, rank in enumerate(ranks)}

    def rectangle(self, axes: Any, box: Box, **style: Any) -> None:
        left, top, width, height = box
        axes.add_patch(self.pyplot.Rectangle((left, top), width, height, **style))

    def lost(self, axes: Any, box: Box) -> None:
        self.rectangle(axes, box, facecolor=self.paper, edgecolor=LOST, hatch="////", linewidth=0.8)

    def fill(self, axes: Any, side: Json, part: Json, dims: List[int], box: Box) -> None:
        """Fills a slice with the colours of the ranks that its bytes come from."""
        if not part["ranks"]:
            self.lost(axes, box)
            return
        pieces = part.get("from") if self.by_source else None
        if pieces is None:
            known = [r for r in part["ranks"] if r in self.color]
            self.rectangle(axes, box, linewidth=0, alpha=0.6,
                           facecolor=self.color[known[0]] if known else "#eeeeee")
        for piece in pieces or []:
            at = place(side, piece, dims)
            if at and piece["rank"] is None:
                self.lost(axes, at)
            elif at:
                self.rectangle(axes, at, facecolor=self.color[piece["rank"]], alpha=0.6,
                               edgecolor=self.paper, linewidth=0.5)

    def side(self, axes: Any, side: Json, other: Json, what: str) -> None:
        dims = drawn_dimensions(side, other)
        n = len(side["slices"])
        axes.set(xlim=(0, 1), ylim=(1, 0), xticks=[], yticks=[])
        for part in side["slices"]:
            box = place(side, part, dims)
            if box is None:
                continue
            self.fill(axes, side, part, dims, box)
            self.rectangle(axes, box, fill=False, edgecolor=self.ink, linewidth=min(0.8, 16 / n),
                           linestyle="--" if side["optimizer_shards"] > 1 else "-")
            missing = part.get("missing", [])
            copies = len(part["ranks"]) + len(missing)
            label = ranks_text(part["ranks"] or missing)
            if not part["ranks"]:
                label = f"lost: {label}" if label else "lost"
            elif missing:
                label = f"{len(part['ranks'])} of {copies}: {label}"
            elif copies > 1:
                label = f"×{copies}: {label}"
            if n <= LABELLED:
                left, top, width, height = box
                axes.text(left + width / 2, top + height / 2, shortened(label, 28),
                          ha="center", va="center", fontsize=7,
                          rotation=90 if width < 0.1 < height else 0,
                          bbox={"facecolor": self.paper, "alpha": 0.6, "linewidth": 0, "pad": 0.8})
        cut = "whole" if n == 1 else f"{n} slices"
        if n > 1 and len({tuple(s["shape"]) for s in side["slices"]}) == 1:
            cut += f" of {shape_text(side['slices'][0]['shape'])}"
        layout = side["layout"]
        axes.set_title(f"{what}: {cut}" + (f"\n{shortened(layout, 58)}" if layout else "\n"),
                       loc="left", fontsize=8)
        if len(side["shape"]) > 2:
            axes.set_xlabel(f"dimension {dims[1]}")
            axes.set_ylabel(f"dimension {dims[0]}")

    def tensor(self, left: Any, right: Any, tensor: Json) -> None:
        source, destination = tensor["source"], tensor["destination"]
        self.side(left, source, destination, "source")
        self.side(right, destination, source, "destination")
        kind = source["type"]
        if destination["type"] != kind:
            kind += f" as {destination['type']}"
        about = f"{shortened(tensor['names'][0], 48)}   {kind} {shape_text(destination['shape'])}"
        if tensor["made_of"] > 1:
            about += f", made of {tensor['made_of']} tensors, of which one is drawn"
        if len(tensor["names"]) > 1:
            about += f"; {len(tensor['names']) - 1} more are cut so"
        left.text(0, 1.28, about, transform=left.transAxes, fontsize=9, weight="bold")

    def ranks(self, axes: Any) -> None:
        """A square for each source rank: there, replaced by others, or lost."""
        replaced = self.absent - self.needed
        for rank in self.sources:
            box = (rank % RANKS_IN_ROW, rank // RANKS_IN_ROW, 0.8, 0.8)
            if rank in self.needed:
                self.lost(axes, box)
            elif rank in replaced:
                self.rectangle(axes, box, fill=False, edgecolor=self.ink, linestyle=":")
            else:
                self.rectangle(axes, box, facecolor=THERE, linewidth=0)
        axes.set(xlim=(-0.2, RANKS_IN_ROW), ylim=(self.rank_rows(), -0.2), xticks=[],
                 yticks=[y + 0.4 for y in range(self.rank_rows())],
                 yticklabels=[str(y * RANKS_IN_ROW) for y in range(self.rank_rows())])
        axes.tick_params(length=0)
        axes.set_frame_on(False)
        said = [f"{len(self.sources) - len(self.absent)} of {len(self.sources)} source ranks are "
                "there (filled)"]
        said += [f"others have the slices of {ranks_text(list(replaced))} (dotted)"] \
            if replaced else []
        said += [f"slices of {ranks_text(list(self.needed))} are lost (hatched)"] \
            if self.needed else []
        axes.set_title(shortened("; ".join(said), 118), loc="left", fontsize=9, weight="bold")

    def rank_rows(self) -> int:
        return max(self.sources, default=0) // RANKS_IN_ROW + 1

    def table(self, axes: Any) -> None:
        """Bytes that destination ranks (columns) read from source ranks (rows)."""
        files = self.plan["files"]
        down = -(-len(self.sources) // GROUPS) or 1
        across = -(-len(files) // (GROUPS // 2)) or 1
        rows = [self.sources[i:i + down] for i in range(0, len(self.sources), down)]
        columns = [files[i:i + across] for i in range(0, len(files), across)]
        sums = [[sum(s["bytes"] for f in column for s in f["sources"] if s["rank"] in row)
                 for column in columns] for row in rows]
        most = max((max(line, default=0) for line in sums), default=0) or 1
        for y, (row, line) in enumerate(zip(rows, sums)):
            for x, size in enumerate(line):
                self.rectangle(axes, (x, y, 1, 1), fill=False, edgecolor="#dddddd")
                if any(f["lost"] for f in columns[x]):
                    self.lost(axes, (x, y, 1, 1))
                if size:
                    color = self.color[row[0] if self.by_source else columns[x][0]["rank"]]
                    self.rectangle(axes, (x, y + 0.1, max(size / most, 0.02), 0.8),
                                   facecolor=color, alpha=0.6, linewidth=0)
                    axes.text(x + 0.5, y + 0.5, bytes_text(size), ha="center", va="center",
                              fontsize=7)
            if not any(rank in self.read for rank in row):
                axes.text(len(columns) + 0.05, y + 0.5, "not read", va="center", fontsize=7)
        axes.set(xlim=(0, max(len(columns), 1)), ylim=(max(len(rows), 1), 0),
                 yticks=[y + 0.5 for y in range(len(rows))],
                 yticklabels=[ranks_text(row) for row in rows],
                 xticks=[x + 0.5 for x in range(len(columns))],
                 xticklabels=[f"{ranks_text([f['rank'] for f in column])}\n" +
                              ("lost" if any(f["lost"] for f in column) else
                               bytes_text(sum(f["read_bytes"] for f in column)))
                              for column in columns])
        axes.tick_params(length=0)
        axes.set_title("Bytes that each destination rank (across) reads of each source rank "
                       "(down)", loc="left", fontsize=9, weight="bold")

    def draw(self, path: str) -> None:
        rows = min(len(self.sources), GROUPS)
        heights = [TENSOR_HEIGHT] * len(self.tensors)
        if self.has_table:
            heights.append(ROW_HEIGHT * max(rows, 1) + 0.3)
        gap, head, foot = 0.35, 0.5, 0.5
        strip = 0.14 * self.rank_rows() + 0.35 if self.absent else 0
        total = sum(heights) + gap * len(heights) + head + foot + strip
        figure = self.pyplot.figure(figsize=(WIDTH, total))
        at = total - head
        figure.text(0.03, 1 - 0.25 / total, f"{shortened(self.plan['source'], 60)}   "
                    f"{self.plan['step']}", fontsize=11, weight="bold")
        if self.absent:
            at -= strip
            self.ranks(figure.add_axes((0.05, (at + 0.1) / total, 0.91, (strip - 0.35) / total)))
        for tensor, height in zip(self.tensors, heights):
            at -= height
            left, right = (figure.add_axes((x, at / total, 0.42, (height - 0.65) / total))
                           for x in (0.05, 0.54))
            self.tensor(left, right, tensor)
            at -= gap
        if not self.tensors:
            figure.text(0.03, at / total, "No tensor is cut: records are copied as they are.")
        elif self.n_left:
            figure.text(0.03, (at + 0.12) / total, f"{self.n_left} more tensors are cut in other ways; "
                        "--only and --tensors draw them.")
        if self.has_table:
            at -= heights[-1] + gap
            self.table(figure.add_axes((0.1, at / total, 0.8, heights[-1] / total)))
        figure.text(0.03, 0.12 / total, LEGEND, fontsize=7)
        metadata = {"Date": None} if path.endswith(".svg") else None
        figure.savefig(path, metadata=metadata)


def main(words: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python3 -m reshardfs.picture", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE", help="file to write")
    parser.add_argument("--plan", metavar="JSON",
                        help="output of plan --json (default: standard input)")
    parser.add_argument("--tensors", type=int, default=12, metavar="N",
                        help="maximum number of tensors to draw")
    parser.add_argument("--dark", action="store_true", help="draw it for a dark page")
    parser.add_argument("--no-table", action="store_true",
                        help="leave out the table of bytes that ranks read")
    given = parser.parse_args(words)
    try:
        if given.plan:
            with open(given.plan, encoding="utf-8") as f:
                plan = json.load(f)
        else:
            plan = json.load(sys.stdin)
    except (OSError, ValueError) as e:
        raise error(f"{given.plan or 'standard input'}: {e}") from None
    if not isinstance(plan, dict) or "tensors" not in plan:
        raise error(f"{given.plan or 'standard input'}: this is not what `reshardfs plan --json "
                    "--slices` prints")
    try:
        Page(plan, given.tensors, given.dark, not given.no_table).draw(given.file)
    except ImportError as e:
        raise error(f"{e}: install matplotlib") from None
    except (OSError, ValueError) as e:
        raise error(f"{given.file}: {e}") from None
    return 0


if __name__ == "__main__":
    sys.exit(main())
