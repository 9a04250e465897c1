"""A strict reader of the text that Prometheus reads (0.0.4): what it does not allow for sure is an error here."""

from __future__ import annotations

import re

from msgspec import Struct

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}

Labels = tuple[tuple[str, str], ...]


class Family(Struct):
    """One `# TYPE` and all that belongs to it."""

    name: str
    kind: str
    samples: dict[tuple[str, Labels], float]

    def value(self, suffix: str = "", **labels: str) -> float:
        """The only sample that has these labels."""
        found = [
            value
            for (name, has), value in self.samples.items()
            if name == self.name + suffix and labels.items() <= dict(has).items()
        ]
        assert len(found) == 1, (labels, self.samples)
        return found[0]


def read(text: str) -> dict[str, Family]:
    """Every family of a page."""
    assert text.endswith("\n")
    families: dict[str, Family] = {}
    helped: str | None = None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            helped = line.split(" ", 3)[2]
            assert re.fullmatch(r"(?:[^\\]|\\[\\n])*", line.split(" ", 3)[3])
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == helped
            assert name not in families, f"{name} comes twice"
            assert kind in ("counter", "gauge", "histogram")
            assert kind != "counter" or name.endswith("_total")
            families[name] = Family(name, kind, {})
        else:
            found = SAMPLE.fullmatch(line)
            assert found, line
            family = list(families.values())[-1]
            assert found[1] in [family.name + suffix for suffix in SUFFIXES.get(family.kind, ("",))], line
            key = (found[1], _labels(found[2]))
            assert key not in family.samples, f"{line} comes twice"
            family.samples[key] = float(found[3])
            assert family.kind == "gauge" or family.samples[key] >= 0
    for family in families.values():
        assert family.samples
        if family.kind == "histogram":
            _check_histogram(family)
    return families


def _labels(text: str | None) -> Labels:
    if text is None:
        return ()
    labels = [(found[1], found[2]) for found in LABEL.finditer(text)]
    assert ",".join(f'{name}="{value}"' for name, value in labels) == text, text
    assert len({name for name, _ in labels}) == len(labels)
    return tuple((name, re.sub(r"\\(.)", lambda at: "\n" if at[1] == "n" else at[1], value)) for name, value in labels)


def _check_histogram(family: Family) -> None:
    """Buckets rise to the count, and the last of them is without bound."""
    buckets: dict[Labels, list[tuple[float, float]]] = {}
    for (name, labels), value in family.samples.items():
        if name.endswith("_bucket"):
            assert labels[-1][0] == "le"
            buckets.setdefault(labels[:-1], []).append((float(labels[-1][1]), value))
    for labels, found in buckets.items():
        bounds, counts = [bound for bound, _ in found], [count for _, count in found]
        assert bounds == sorted(bounds)
        assert bounds[-1] == float("inf")
        assert counts == sorted(counts)
        assert counts[-1] == family.samples[family.name + "_count", labels]
        assert (family.name + "_sum", labels) in family.samples
