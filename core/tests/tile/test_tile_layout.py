"""Layouts and contractions over the published maps of real atoms."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from kinfolk.errors import IRError
from kinfolk.ir.meaning import Matrix, OperandMap
from kinfolk.ir.types import BF16, F32
from kinfolk.tile.contraction import Contraction
from kinfolk.tile.layout import Layout, LayoutMismatch, lanes_sharing, per_lane, relabel


def layout(name, operand):
    return Layout.of(name, operand)


def reordered(source, order, name="reordered"):
    return Layout(name, source.rows[:, order], source.columns[:, order])


def test_a_product_is_the_next_b_where_the_maps_say_so(atoms):
    """The published chaining note: C of 16x16 has the map of B of 16x16x16."""
    atom = atoms["16x16x16"]
    assert relabel(layout("scores", atom.c), layout("weights", atom.b)) == (0, 1, 2, 3)


def test_a_product_of_32_rows_is_four_of_the_next_b(atoms):
    """C of 32x32 holds, in its groups of four registers, B of 32x32x8 for four blocks of k."""
    atom = atoms["32x32x8"]
    blocks = Layout(
        "weights",
        np.concatenate([atom.b.rows + 8 * block for block in range(4)], axis=1),
        np.concatenate([atom.b.columns] * 4, axis=1),
    )
    assert relabel(layout("scores", atom.c), blocks) == tuple(range(16))


def test_a_relabel_that_moves_slots_names_the_source_of_each(atoms):
    scores = layout("scores", atoms["16x16x16"].c)
    assert relabel(scores, reordered(scores, [2, 0, 3, 1])) == (2, 0, 3, 1)


def test_a_product_is_not_the_next_a(atoms):
    """Negative: the other operand of the same atom, and the one of twice the k, need data from other lanes."""
    atom = atoms["16x16x16"]
    with pytest.raises(LayoutMismatch, match=r"scores as weights: lane 0 slot 1 needs element \(0, 1\)"):
        relabel(layout("scores", atom.c), layout("weights", atom.a))
    two = Layout(
        "two products",
        np.concatenate([atom.c.rows, atom.c.rows + 16], axis=1),
        np.concatenate([atom.c.columns] * 2, axis=1),
    )
    with pytest.raises(LayoutMismatch, match="lane 0 slot 4"):
        relabel(two, layout("weights", atoms["16x16x32"].b))


def test_one_lane_that_differs_is_found(atoms):
    scores = layout("scores", atoms["16x16x16"].c)
    rows = scores.rows.copy()
    rows[37, [1, 2]] = rows[37, [2, 1]]
    with pytest.raises(LayoutMismatch, match=r"lane 37 slot 1 needs element \(10, 5\), it holds \(9, 5\)"):
        relabel(scores, Layout("target", rows, scores.columns))


def test_layouts_of_different_sizes_are_no_relabel(atoms):
    with pytest.raises(LayoutMismatch, match="scores keeps 16 elements on 64 lanes, weights 4 on 64"):
        relabel(layout("scores", atoms["32x32x8"].c), layout("weights", atoms["32x32x8"].b))


def test_transposing_twice_is_nothing(atoms):
    scores = layout("scores", atoms["16x16x16"].c)
    assert relabel(scores.transposed.transposed, scores) == (0, 1, 2, 3)
    assert (scores.slots, scores.wave_size) == (4, 64)


@pytest.mark.parametrize(("name", "masks"), [("16x16x16", (16, 32)), ("32x32x8", (32,))])
def test_lanes_that_share_a_column(atoms, name, masks):
    columns = per_lane(atoms[name].c.columns, "the column")
    assert lanes_sharing(columns) == masks
    # By definition: lanes reached by those masks, and no others, hold the column.
    for lane in range(64):
        reached = {lane}
        for mask in masks:
            reached |= {other ^ mask for other in reached}
        assert reached == set(np.flatnonzero(columns == columns[lane]))


def test_lanes_that_share_nothing():
    assert lanes_sharing(np.arange(32)) == ()
    assert lanes_sharing(np.zeros(32, np.int64)) == (1, 2, 4, 8, 16)


def test_a_value_per_lane_is_refused_where_the_slots_differ(atoms):
    with pytest.raises(LayoutMismatch, match="the row of C differs between the slots"):
        per_lane(atoms["16x16x16"].c.rows, "the row of C")


@pytest.mark.parametrize(
    ("name", "length", "width"),
    [("16x16x16", 512, 8), ("16x16x16", 64, 8), ("16x16x16", 64, 4), ("32x32x8", 64, 8), ("16x16x32", 512, 8)],
)
def test_a_contraction_uses_each_column_once_and_alike(atoms, name, length, width):
    """Every atom's product is a sum over k of A[m, column] B[column, n] with the same column on both sides."""
    atom = atoms[name]
    contraction = Contraction.of(atom, length, width)
    assert contraction.steps * atom.a.slots == width
    used: list[int] = []
    for read in range(contraction.reads):
        for step in range(contraction.steps):
            column_a = _columns(atom.a.rows, atom.a.columns, contraction.start_a, contraction, read, step)
            column_b = _columns(atom.b.columns, atom.b.rows, contraction.start_b, contraction, read, step)
            assert column_a == column_b
            used += column_a.values()
    assert sorted(used) == list(range(length))


def _columns(row, k, start, contraction, read, step):
    """Return the column that stands at each k of one atom; all rows must agree."""
    found: dict[int, int] = {}
    for lane, slot in np.ndindex(k.shape):
        column = int(start[lane]) + read * contraction.width + step * contraction.slots + slot
        assert found.setdefault(int(k[lane, slot]), column) == column, (lane, slot, int(row[lane, slot]))
    return found


def narrow_atom(a_columns=None):
    """Return an atom whose operands part k differently over 32 lanes: A 16x16 in halves, B 16x8 in quarters."""
    lane, eight, four = np.arange(32)[:, None], np.arange(8)[None, :], np.arange(4)[None, :]
    a = OperandMap(lane % 16 + 0 * eight, 8 * (lane // 16) + eight if a_columns is None else a_columns(lane, eight))
    b = OperandMap(4 * (lane // 8) + four, lane % 8 + 0 * four)
    return Matrix(16, 8, 16, BF16, BF16, F32, a, b, b)


@pytest.mark.parametrize(("length", "width"), [(512, 8), (64, 8), (64, 4), (16, 4)])
def test_operands_that_part_k_differently_read_alike_in_more_pieces(length, width):
    """Half of k on a lane of A is two quarters of B's: two vectors a read, and each column met once on both sides."""
    atom = narrow_atom()
    contraction = Contraction.of(atom, length, width)
    assert (contraction.parts_a, contraction.parts_b) == ((0, length // 4), (0,))
    assert (contraction.slots, contraction.reads) == (4, length // (4 * width))
    used: list[int] = []
    for read in range(contraction.reads):
        for step in range(contraction.steps):
            sides = [
                _columns_in_parts(k, start, parts, contraction, read, step)
                for k, start, parts in (
                    (atom.a.columns, contraction.start_a, contraction.parts_a),
                    (atom.b.rows, contraction.start_b, contraction.parts_b),
                )
            ]
            assert sides[0] == sides[1]
            used += sides[0].values()
    assert sorted(used) == list(range(length))


def _columns_in_parts(k, start, parts, contraction, read, step):
    found: dict[int, int] = {}
    for lane, slot in np.ndindex(k.shape):
        part, place = divmod(slot, contraction.slots)
        column = int(start[lane]) + parts[part] + read * contraction.width + step * contraction.slots + place
        assert found.setdefault(int(k[lane, slot]), column) == column
    return found


def test_parts_that_lie_differently_far_apart_on_lanes_are_refused():
    """The control: lanes of A's upper half hold their two runs of k in the other order."""
    atom = narrow_atom(lambda lane, eight: 8 * (lane // 16) + (eight ^ (lane // 16 * 4)))
    with pytest.raises(IRError, match="operand A do not hold parts of k the same distance apart"):
        Contraction.of(atom, 512, 8)


@pytest.mark.parametrize(("length", "width"), [(16, 8), (520, 8), (64, 6)])
def test_lengths_that_do_not_split_are_refused(atoms, length, width):
    with pytest.raises(IRError, match=f"{length} columns do not split into 4 stretches of vectors of {width}"):
        Contraction.of(atoms["16x16x16"], length, width)


def test_an_atom_that_spreads_k_unequally_is_refused(atoms):
    atom = atoms["16x16x16"]
    wide = attrs.evolve(atom, b=OperandMap(atoms["16x16x32"].b.rows, atoms["16x16x32"].b.columns))
    with pytest.raises(IRError, match="16x16x16 spreads k differently over A and B"):
        Contraction.of(wide, 512, 8)


def test_an_atom_whose_lanes_overlap_in_k_is_refused(atoms):
    atom = atoms["16x16x16"]
    columns = atom.a.columns.copy()
    columns[5] += 1
    with pytest.raises(IRError, match="do not part k into groups"):
        Contraction.of(attrs.evolve(atom, a=OperandMap(atom.a.rows, columns)), 512, 8)
