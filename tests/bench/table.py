"""Lines of the table: a measure, ours, its bound or peer, their ratio, the spread, the target."""
import json
import statistics

HEAD = ("measure", "ours", "bound or peer", "ratio", "spread", "target")
FORM = "{:<46} {:>13} {:>13} {:>7} {:>13}  {}"


def _text(value, unit):
    return "-" if value is None else f"{value:.4g} {unit}".strip()


class Table:
    """Prints each line as soon as it is known, keeps all for the JSON."""

    def __init__(self):
        self.lines = []
        print(FORM.format(*HEAD))

    @staticmethod
    def in_turn(rounds, ours, peer):
        """Pairs of (ours(), peer()), each first in every other pair."""
        pairs = []
        for i in range(rounds):
            if i % 2 == 0:
                o = ours()
                pairs.append((o, peer()))
            else:
                p = peer()
                pairs.append((ours(), p))
        return pairs

    def pairs(self, name, pairs, unit, target, at_least=True):
        """A line from (ours, peer) measured in turn: medians, and the median of their ratios."""
        ratios = [o / p for o, p in pairs]
        self._add(name, statistics.median(o for o, _ in pairs),
                  statistics.median(p for _, p in pairs), unit, ratios, target, at_least)

    def values(self, name, values, unit, limit=None, at_least=False):
        """A line of absolute values with an upper or lower limit, or of information only."""
        ratios = [v / limit for v in values] if limit else []
        self._add(name, statistics.median(values), limit, unit, ratios, 1.0 if limit else None, at_least)

    def note(self, text):
        """Something to read beside the lines; it is in the JSON too."""
        self.lines.append({"note": text})
        print(f"    {text}", flush=True)

    def _add(self, name, ours, peer, unit, ratios, target, at_least):
        ratio = statistics.median(ratios) if ratios else None
        met = None
        if ratio is not None and target is not None:
            met = ratio >= target if at_least else ratio <= target
        self.lines.append({"name": name, "ours": ours, "peer": peer, "unit": unit, "ratio": ratio,
                           "ratios": ratios, "target": target, "at_least": at_least, "met": met})
        print(FORM.format(
            name, _text(ours, unit), _text(peer, unit), "-" if ratio is None else f"{ratio:.3f}",
            f"{min(ratios):.2f}..{max(ratios):.2f}" if len(ratios) > 1 else "-",
            "" if met is None else f"{'>=' if at_least else '<='} {target} {'ok' if met else 'MISSED'}"),
            flush=True)

    def write(self, path):
        with open(path, "w", encoding="utf-8") as f:
            json.dump(self.lines, f, indent=1)
            f.write("\n")
