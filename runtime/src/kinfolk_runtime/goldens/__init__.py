"""What every kernel was when a person last approved of it: digests of its IR and figures of its compiled code.

They ship with the family as package data, in its folder `goldens`: per arch `ARCH.digests.json` and
`ARCH.figures.json`, and one `ledger.json` that says why each of these files is what it is. `check` compares them with
what is emitted and compiled now; `bless` writes them anew, with a reason.
"""

from __future__ import annotations

from kinfolk_runtime.goldens.bless import Blessed, bless
from kinfolk_runtime.goldens.check import Checked, Lane, check
from kinfolk_runtime.goldens.compare import Finding
from kinfolk_runtime.goldens.document import GoldenError

__all__ = ["Blessed", "Checked", "Finding", "GoldenError", "Lane", "bless", "check"]
