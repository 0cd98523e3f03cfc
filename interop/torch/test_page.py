"""The page about torch runs as it stands, and prints what its comments say."""

import re
from pathlib import Path

import numpy as np

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "torch.md"
BLOCK = re.compile(r"(<!-- from another page -->\n)?```python\n(.*?)```", re.DOTALL)


def test_the_page_runs_and_prints_what_it_says(capsys):
    blocks = [code for elsewhere, code in BLOCK.findall(PAGE.read_text()) if not elsewhere]
    assert len(blocks) == 5
    names = {}
    for code in blocks:
        exec(compile(code, str(PAGE), "exec"), names)
    said = re.findall(r"print\(.*\)  # (.*)\n", "".join(blocks))
    assert len(said) == 4
    assert capsys.readouterr().out.splitlines() == said
    assert np.isfinite(names["lse"].numpy()).all()
