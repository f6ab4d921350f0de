# SPDX-License-Identifier: Apache-2.0
"""Wrong strategies of right trees, as people come to them.

    for kind, stages, wanted in mistakes(numbers, network, way): ...

`stages` is the strategy that is taken for the tree's own; `wanted` what it is
converted to, None for whole tensors.
"""

import copy
import dataclasses

import layouts
from random_jobs import ways_of

KINDS = {"another mesh": 26, "swapped": 14, "fewer cards": 12, "more cards": 8,
         "optimizer shard": 12, "stages": 12, "vocabulary": 2, "far apart": 2,
         "experts": 4, "other axis": 2, "other dimension": 0.5}
# After so many vain attempts another kind is drawn.
ATTEMPTS = 20


class Mistakes:
    def __init__(self, numbers, network, way):
        self.numbers, self.network, self.way = numbers, network, way
        self.right = network.layouts(way)

    def draw(self):
        """(kind, stages, wanted)"""
        while True:
            kind = self.numbers.choices(list(KINDS), KINDS.values())[0]
            for _ in range(ATTEMPTS):
                made = getattr(self, "_" + kind.replace(" ", "_"))()
                if made and made != self.right:
                    return kind, made, self.right if kind == "swapped" else None

    def _other(self, cards, **changes):
        """Layouts of a way of so many cards with the job's habits."""
        way = ways_of(self.numbers, cards, pp=changes.pop("pp", self.way.pp),
                      experts=self.network.experts,
                      like=self.way if self.numbers.random() < 0.8 else None)
        return self.network.layouts(way)

    def _with(self, **changes):
        return self.network.layouts(dataclasses.replace(self.way, **changes))

    def _another_mesh(self):
        return self._other(self.way.cards)

    def _swapped(self):
        factor = self.numbers.choice((0.5, 1, 1, 2))
        cards = int(self.way.cards * factor)
        pp = self.numbers.choice([n for n in (1, 2, self.way.pp)
                                  if n <= self.network.layers])
        return cards and self._other(cards, pp=pp)

    def _fewer_cards(self):
        less = self.numbers.choice((2, 2, 4))
        if self.way.dp % less == 0 and self.numbers.random() < 0.5:
            dp = self.way.dp // less
            return self._with(dp=dp, ep=min(self.way.ep, dp))
        return self.way.cards % less == 0 and self._other(self.way.cards // less)

    def _more_cards(self):
        more = self.numbers.choice((2, 2, 4))
        if self.numbers.random() < 0.5:
            return self._with(dp=self.way.dp * more)
        return self._other(self.way.cards * more)

    def _optimizer_shard(self):
        return self._with(opt=self.numbers.choice((0, 0, -1, -1, 2, 4)),
                          opt_small=self.numbers.random() < 0.3)

    def _stages(self):
        files = self.right
        kind = self.numbers.choice(("another number", "exchanged", "first alone", "dealt"))
        if kind == "another number" or len(files) == 1:
            total = self.way.cards * self.way.pp
            pp = self.numbers.choice([n for n in (1, 2, 4) if n <= self.network.layers])
            return total % pp == 0 and self._other(total // pp, pp=pp)
        if kind == "exchanged":
            return dict(zip(files, list(files.values())[::-1]))
        if kind == "first alone":
            return {0: files[0]}
        files = {stage: dict(held) for stage, held in files.items()}
        layer = self.numbers.randrange(self.network.layers)
        stage = next(s for s in files if f"layers.{layer}.attention_norm.weight" in files[s])
        other = stage + 1 if stage + 1 in files else stage - 1
        for name in [n for n in files[stage] if f"layers.{layer}." in n]:
            files[other][name] = files[stage].pop(name)
        return files if all(files.values()) else None

    def _vocabulary(self):
        return self._with(vocabulary=not self.way.vocabulary)

    def _far_apart(self):
        return self._with(form="plain" if self.way.form == "turned" else "turned")

    def _experts(self):
        if not self.network.experts:
            return None
        return self._with(ep=self.numbers.choice(
            [n for n in (1, 2, 4, 8) if self.way.dp % n == 0 and self.network.experts % n == 0]))

    # Of one module's weights, in all layers and optimizer states.

    def _changed(self, change):
        module = self.numbers.choice(("wq.weight", "wo.weight", "w1.weight", "w2.weight",
                                      "lm_head.weight", "embedding.weight"))
        files = copy.deepcopy(self.right)
        states = self.numbers.random() < 0.7
        for held in files.values():
            for name, layout in held.items():
                if name.endswith(module) and (states or name.startswith(("layers.", module))):
                    change(layout)
        try:
            for held in files.values():
                for layout in held.values():
                    layouts.cuts(layout)
        except layouts.ReshardError:
            return None
        return files

    def _other_axis(self):
        """The mesh's axes exchanged: data parallel ranks hold the parts."""
        def change(layout):
            n = len(layout.dev_matrix)
            layout.tensor_map = [
                [n - 1 - a for a in e] if isinstance(e, list) and e != [-1]
                else e if e in (-1, [-1]) else n - 1 - e for e in layout.tensor_map]
        return self._changed(change)

    def _other_dimension(self):
        return self._changed(lambda layout: layout.tensor_map.reverse())
