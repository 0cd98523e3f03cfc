"""Two groups of waves that run the same rounds, the second half a round behind the first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from kinfolk.ir.ops import control
from kinfolk.ir.value import Value


@attrs.frozen(kw_only=True, eq=False)
class Stagger:
    """What makes rounds of two tiles (`slots.round_of`, `tiles=2`) overlap: the waves of group 1 meet once more before
    them, those of group 0 once more behind.

    `group` is 0 or 1, equal on the lanes of a wave; `place` names the barrier at which both groups meet.
    """

    group: Value
    place: str

    def fall_behind(
        self, meanwhile: Callable[[], Sequence[Value]], otherwise: Callable[[], Sequence[Value]]
    ) -> Sequence[Value]:
        """Let group 1 do `meanwhile` what group 0 does in its first half round, and meet it in the midst of that.

        Returns what `meanwhile` gives in group 1 and `otherwise` in group 0, of the same types.
        """
        return self._meeting(1, meanwhile, otherwise)

    def catch_up(self) -> None:
        """Let group 0, which is through, meet group 1 in the midst of its last round."""
        self._meeting(0, tuple, tuple)

    def _meeting(
        self, group: int, first: Callable[[], Sequence[Value]], otherwise: Callable[[], Sequence[Value]]
    ) -> Sequence[Value]:
        def met() -> Sequence[Value]:
            values = first()
            control.meet(self.place)
            return values

        return control.if_else(self.group.eq(group), met, otherwise)
