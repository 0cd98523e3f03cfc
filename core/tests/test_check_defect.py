from __future__ import annotations

from kinfolk.check.defect import Defect


def test_a_defect_says_where_what_and_what_to_do() -> None:
    defect = Defect(
        check="dead_parameter",
        where="kernel.py:41",
        problem="nothing reads the parameter 'stride'",
        remedy="remove it, or use it",
    )
    assert str(defect) == "kernel.py:41: nothing reads the parameter 'stride'; remove it, or use it [dead_parameter]"
