"""The page on bringing up an arch lists the facts that the toolkit reads, as it reads them."""

import re
from pathlib import Path

import pytest

from kinfolk_amdgcn.facts import FACTS_READ, PAGE

ROOT = Path(__file__).resolve().parent.parent


def test_the_page_lists_every_fact_with_its_meaning_and_values():
    listed = re.findall(r"^ +\| `(\w+)` \| (.*?) \| (.*?) \|$", (ROOT / PAGE).read_text(), re.MULTILINE)
    told = [row for row in listed if row[0] in FACTS_READ]
    assert told == [(name, read.meaning, read.allowed) for name, read in FACTS_READ.items()]


@pytest.mark.parametrize("name", FACTS_READ)
def test_the_edge_of_what_is_allowed(name):
    read = FACTS_READ[name]
    good, bad = (("cdna3",), ("cdna4", "", 1, None)) if read.words else ((1, 8), (0, -8, True, 8.0, "8", None))
    assert all(read.allows(value) for value in good)
    assert not any(read.allows(value) for value in bad)
