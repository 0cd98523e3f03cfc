"""Tables and sentences at the width of a terminal: broken between words or not at all; whole lines in a pipe."""

import re

import pytest

from kinfolk.cli import output, table
from kinfolk.cli.output import say
from kinfolk.cli.table import print_table


@pytest.fixture
def terminal(monkeypatch):
    def of(width):
        for module in (output, table):
            monkeypatch.setattr(module, "terminal_width", lambda *, err=False: width)

    return of


SENTENCE = "an installed distribution says something at length about itself"
TABLES = {
    "narrow": (("a", "b"), [("x", "y")]),
    "a sentence": (("name", "found"), [("first", f"{SENTENCE}. {SENTENCE}.")]),
    "a sentence without room": (
        ("name", "kind", "distribution", "state", "cause"),
        [("a_long_name_of_a_plugin", "toolchain", "a-long-name-of-a-distribution", "import error", SENTENCE)],
    ),
    "words in every column": (
        ("scenario", "output", "status", "margin", "error there", "tolerance there", "largest error"),
        [("page_plus_one", "out", "pass", "0.000123", "1.23e-06", "0.000123", "1.23e-06")],
    ),
    "many figures": (
        ("kernel", *(f"figure_of_{index}_things" for index in range(9))),
        [(f"kernel_with_a_symbol_{index}", *range(1000, 1009)) for index in range(3)],
    ),
}


@pytest.mark.parametrize("width", [80, 60])
@pytest.mark.parametrize("name", TABLES)
def test_no_line_is_wider_than_the_terminal_and_no_word_is_broken(name, width, terminal, capsys):
    terminal(width)
    columns, rows = TABLES[name]
    print_table("title", columns, rows)
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= width
    words = re.sub(r"[━╇┃│]", " ", told).replace(":", " ").replace(",", " ").split()
    for cell in [*columns, *(cell for row in rows for cell in row)]:
        for word in str(cell).split():
            assert word in words, told


@pytest.mark.parametrize("name", TABLES)
def test_in_a_pipe_a_row_is_a_line(name, capsys):
    columns, rows = TABLES[name]
    print_table("title", columns, rows)
    assert len(capsys.readouterr().out.splitlines()) == 3 + len(rows)


def test_a_word_that_is_wider_than_the_terminal_is_broken_and_all_there(terminal, capsys):
    terminal(40)
    print_table("", ("figure", "kernel"), [("spec", "x" * 90)])
    assert capsys.readouterr().out.count("x") == 90


def test_sentences_wrap_between_words(terminal, capsys):
    terminal(40)
    say(f"  plugin: {SENTENCE}, {'y' * 50}", "  ")
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("  plugin:") and all(line.startswith("    ") for line in rest)
    assert "y" * 50 in rest[-1]
    terminal(None)
    say(SENTENCE * 5)
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_sentences_below_are_told_by_as_many_cells_as_tell_rows_apart(terminal, capsys):
    terminal(60)
    columns = ("what", "name", "state", "found")
    rows = [("library", f"a-library-of-a-long-name-{name}", "ok, as it is", SENTENCE) for name in "ab"]
    print_table("", columns, [*rows, ("tool", "a-tool", "missing", "")])
    told = capsys.readouterr().out
    assert "  library a-library-of-a-long-name-a: an installed" in told
    assert "  library a-library-of-a-long-name-b: an installed" in told and "tool a-tool:" not in told
    print_table("", columns, [rows[0], ("tool", *rows[1][1:])])
    assert "  tool: an installed" in capsys.readouterr().out
    print_table("", columns, [rows[0], rows[0]])
    assert capsys.readouterr().out.count("  library: an installed") == 2
