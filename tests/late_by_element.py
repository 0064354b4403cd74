"""Late elements in plain Python, one at a time: what core/late_elements.py must agree with."""

from collections.abc import Hashable
from dataclasses import dataclass

from recension.core.events import Element, Insert, Retract
from recension.testing.model import payload_key


@dataclass
class Shown:
    """How an event is shown: from ``start`` to ``end``; with no start not at all."""

    start: int | None
    end: int


class LateByElement:
    """Late elements one at a time: the stream's identity of an event leads to what is shown instead of it."""

    def __init__(self, *, adjusts: bool) -> None:
        self.adjusts = adjusts
        self.altered: dict[Hashable, list[Shown]] = {}
        self.output: list[Element] = []
        self.lost: list[Element] = []
        self.moved = 0

    def take(self, element: Insert | Retract, cti: int) -> None:
        shown = self.named(element, cti)
        if shown is None:
            self.output.append(element)
            return
        told = element.new_ve if isinstance(element, Retract) else element.ve
        now = Shown(shown.start, max(told, cti))
        if told > element.vs:
            self.altered.setdefault(identity(element, told), []).append(now)
        meant = change(element, shown, now)
        if meant is None:
            self.lost.append(element)
            return
        self.moved += str(meant) != str(element)
        self.output.append(meant)

    def named(self, e: Insert | Retract, cti: int) -> Shown | None:
        """The altered event that an element is about, as it is shown until then; None if it is none."""
        if isinstance(e, Retract) and (known := self.altered.get(identity(e, e.ve))):
            found = known.pop()
            return found if found.end >= cti else Shown(None, found.end)
        if (min(e.ve, e.new_ve) if isinstance(e, Retract) else e.vs) >= cti:
            return None
        if not self.adjusts or e.ve < cti:
            return Shown(None, e.ve)
        return Shown(e.vs, e.ve) if isinstance(e, Retract) else Shown(cti, cti)


def identity(e: Insert | Retract, end: int) -> Hashable:
    return e.vs, end, payload_key(e.payload)


def change(element: Insert | Retract, old: Shown, new: Shown) -> Element | None:
    """The element that takes an event from one way to be shown to the other."""
    if old.start is None or old.end == new.end:
        return None
    if old.end == old.start:
        return Insert(element.payload, old.start, new.end)
    return Retract(element.payload, old.start, old.end, new.end)
