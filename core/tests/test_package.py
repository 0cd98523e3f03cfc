"""What `import kinfolk` costs and offers, seen from a fresh interpreter each time."""

import json
import subprocess
import sys

import pytest

HEAVY = ("numpy", "llvmlite", "rich", "click", "importlib_metadata", "pluggy", "attr", "kinfolk.plugins", "kinfolk.cli")


def fresh(code):
    """Return what a fresh interpreter prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", f"import json, sys\n{code}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def loaded_by(statement):
    return fresh(f"before = set(sys.modules)\n{statement}\nprint(json.dumps(sorted(set(sys.modules) - before)))")


def test_importing_kinfolk_imports_no_plugin_and_nothing_heavy():
    loaded = loaded_by("import kinfolk")
    assert [name for name in loaded if name.startswith(("kinfolk_", *HEAVY))] == []
    assert "kinfolk" in loaded


def test_the_check_sees_a_heavy_import():
    """Negative control: the same look at an import that does load them."""
    assert {"pluggy", "kinfolk.plugins"} <= set(loaded_by("import kinfolk.plugins.discovery"))


def test_every_public_name_is_there_and_is_what_it_says():
    names = fresh("import kinfolk\nprint(json.dumps({n: type(getattr(kinfolk, n)).__name__ for n in kinfolk.__all__}))")
    assert {"dispatch", "why", "register", "compose", "Request", "Spec", "Candidate", "Plan", "Refusal"} <= set(names)
    assert names["Request"] == names["NoCandidate"] == "type"


def test_an_unknown_name_is_an_attribute_error():
    import kinfolk

    with pytest.raises(AttributeError, match="no attribute 'dispach'"):
        kinfolk.dispach  # noqa: B018


@pytest.mark.parametrize(
    "first",
    ["import kinfolk", "import kinfolk.dispatch", "from kinfolk.dispatch import why", "from kinfolk import dispatch"],
)
def test_dispatch_is_the_function_and_the_module_in_whichever_order_they_are_asked_for(first):
    code = f"""
{first}
import kinfolk, kinfolk.dispatch as module
from kinfolk import dispatch
from kinfolk.dispatch import dispatch as function
try:
    dispatch("no request", "anywhere")
except TypeError as error:
    reached = "takes a Request" in str(error)
same = module.dispatch is function and module.why is kinfolk.why
print(json.dumps([callable(kinfolk.dispatch), callable(dispatch), same, reached]))
"""
    assert fresh(code) == [True] * 4


def test_help_of_dispatch_begins_with_the_call():
    code = """
import inspect, pydoc, kinfolk
print(json.dumps([str(inspect.signature(kinfolk.dispatch)), pydoc.render_doc(kinfolk.dispatch)[:800]]))
"""
    signature, told = fresh(code)
    assert signature.startswith("(request: 'Request', arch: 'str'")
    assert 'plan = kinfolk.dispatch(request, arch, flavor="llvm22")' in told


def test_version_is_the_distribution_s():
    from importlib.metadata import version

    import kinfolk

    assert kinfolk.__version__ == version("kinfolk-core")
