"""Every way in which an output can be wrong is a finding of its own; its nearest lawful neighbour is none."""

import numpy as np
import pytest

from kinfolk.check import Expected, Tolerance, compare, poison

VALUE = np.array([[0.0, 1.0], [-2.0, -np.inf]])
BOUND = np.array([[0.0, 0.25], [0.5, 0.0]])


def result(output, value=VALUE):
    return compare("out", "f32", np.asarray(output, np.float32), Expected(value, Tolerance(BOUND)))


def changed(at, number):
    output = VALUE.astype(np.float32)
    output[at] = number
    return output


def test_an_output_within_its_tolerance_passes():
    found = result(changed((0, 1), 1.125))
    assert found.passed
    assert (found.max_abs_err, found.error_there, found.tolerance, found.margin) == (0.125, 0.125, 0.25, 0.5)


def test_error_and_tolerance_are_of_the_element_of_the_margin_and_not_of_the_largest_error():
    output = VALUE.astype(np.float32)
    output[0, 1], output[1, 0] = 1.1875, -2.25
    found = result(output)
    assert found.max_abs_err == 0.25
    assert (found.error_there, found.tolerance, found.margin) == (0.1875, 0.25, 0.75)


WRONG = {
    "untouched": ((1, 0), poison("f32", (1,))[0]),
    "nan": ((1, 0), np.nan),
    "infinite": ((1, 0), np.inf),
    "infinite-missing": ((1, 1), -3e38),
    "infinite-sign": ((1, 1), np.inf),
    "inexact": ((0, 0), np.float32(1e-45)),
    "tolerance": ((1, 0), -2.5000002),
}
LAWFUL = {"minus-zero": ((0, 0), -0.0), "at-the-tolerance": ((1, 0), -2.5), "other-side": ((0, 1), 0.75)}


@pytest.mark.parametrize("code", WRONG)
def test_each_fault_is_one_finding_that_says_where(code):
    at, number = WRONG[code]
    found = result(changed(at, number))
    [finding] = found.findings
    assert (finding.code, finding.output) == (code.partition("-")[0], "out")
    assert str(at) in finding.message
    assert found.margin > 1.0


@pytest.mark.parametrize("case", LAWFUL)
def test_its_lawful_neighbour_passes(case):
    found = result(changed(*LAWFUL[case]))
    assert found.passed and found.margin <= 1.0


def test_what_the_type_cannot_hold_is_expected_as_infinity():
    value = np.array([[0.0, 1.0], [-2.0, -1e40]])
    assert result(VALUE, value).passed
    assert not result(changed((1, 1), -3e38), value).passed


def test_another_shape_is_a_finding():
    assert [finding.code for finding in result(np.zeros(4)).findings] == ["shape"]


def test_an_output_of_no_elements_passes():
    empty = Expected(np.zeros((0, 2)), Tolerance.exact((0, 2)))
    assert compare("out", "f32", np.zeros((0, 2), np.float32), empty).passed
