"""What `kinfolk new` writes: the same text under another name; names and folders that it does not take."""

import json
import keyword
import os
import re
import tomllib
from pathlib import Path, PurePosixPath

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import kinfolk
from kinfolk.cli.new_command import command
from kinfolk.errors import Refused
from kinfolk.hooks import REQUIRED, facts_schema, kinfolk_api
from kinfolk.templates import NAME, TEMPLATES, Template, check_name, forms

KINDS = tuple(TEMPLATES)
INTEGERS = {"kinfolk.api": kinfolk_api, "kinfolk.facts_schema": facts_schema}


@pytest.fixture(params=KINDS)
def template(request):
    return TEMPLATES[request.param]


def test_a_copy_differs_in_nothing_but_the_name(template):
    """Put back, the name gives the very text: nothing else was exchanged, and nothing of the old name is left."""
    copy = template.renamed("quite_another9")
    back = {
        str(path).replace("quite_another9", template.name): text.replace("quite_another9", template.name)
        .replace("quite-another9", forms(template.name)[1])
        .replace("QuiteAnother9", forms(template.name)[2])
        for path, text in copy.items()
    }
    assert back == {str(path): text for path, text in template.files().items()}
    told = "\n".join([*map(str, copy), *copy.values()])
    assert not [form for form in forms(template.name) if form in told]


def test_what_tools_leave_in_a_folder_is_not_copied(tmp_path):
    for name in ("kept.py", ".cache/database", "__pycache__/kept.cpython-311.pyc", "src/kept.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"1")
    assert set(Template("family", str(tmp_path), "row_softmax").files()) == {
        PurePosixPath("kept.py"),
        PurePosixPath("src/kept.json"),
    }


def test_a_copy_is_a_whole_distribution(template):
    copy = {str(path): text for path, text in template.renamed("column_scale").items()}
    project = tomllib.loads(copy["pyproject.toml"])["project"]
    package = "kinfolk_column_scale"
    assert project["name"] == "kinfolk-column-scale"
    groups = project["entry-points"]
    module = groups.pop({"family": "kinfolk.families", "arch": "kinfolk.archs"}[template.kind])["column_scale"]
    assert groups == {group: {str(INTEGERS[group]): package} for group in groups}
    assert set(groups) == {"family": {"kinfolk.api"}, "arch": set(INTEGERS)}[template.kind]
    plugin = copy[f"src/{module.replace('.', '/')}.py"]
    assert all(f"def {hook}(" in plugin for hook in REQUIRED[template.kind])
    assert {f"src/{package}/py.typed", f"src/{package}/__init__.py", "README.md"} <= set(copy)
    assert any(re.fullmatch(r"tests/test_\w+\.py", path) for path in copy)
    ours = re.findall(r"kinfolk-(?:core|runtime)\S*==([\w.]+)", copy["pyproject.toml"])
    assert ours and set(ours) == {kinfolk.__version__}


def test_every_file_that_a_readme_names_is_there_and_none_is_forgotten(template):
    files = {path.name: text for path, text in template.files().items()}
    named = set(re.findall(r"`(\w+\.(?:py|json))`", files["README.md"]))
    there = {name for name in files if name.endswith((".py", ".json"))} - {"__init__.py"}
    assert named == there


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("ColumnScale", "column_scale"),
        ("column-scale", "column_scale"),
        ("2d", "d"),
        ("_private", "private"),
        ("a__b", "a_b"),
        ("x.y", "x_y"),
        ("é", "column_scale"),
        ("", "column_scale"),
        ("class", "column_scale"),
        ("../up", "up"),
        ("name\n", "name"),
        ("a" * 41, "a" * 40),
    ],
)
def test_what_is_no_name_is_refused_with_one_that_is(name, instead):
    with pytest.raises(Refused) as caught:
        check_name("family", name)
    [refusal] = caught.value.refusals
    assert (refusal.code, refusal.field, refusal.value) == ("new.name", "name", name)
    assert "joined by single underscores" in refusal.limit and refusal.remedy.endswith(f" {instead}.")
    check_name("family", instead)


@settings(deadline=None)
@given(st.from_regex(NAME, fullmatch=True).filter(lambda name: len(name) <= 40 and not keyword.iskeyword(name)))
def test_a_name_gives_a_package_a_distribution_and_a_class(name):
    module, distribution, title = forms(name)
    assert f"kinfolk_{module}".isidentifier() and title.isidentifier()
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", distribution)
    assert title.lower() == name.replace("_", "")


@pytest.mark.parametrize("kind", KINDS)
def test_a_distribution_that_is_installed_is_not_written_again(kind):
    with pytest.raises(Refused, match="kinfolk-core is installed"):
        check_name(kind, "core")


def test_a_plugin_that_is_offered_is_not_written_again(monkeypatch):
    from kinfolk import templates
    from kinfolk.plugins.discovery import Catalog, Offer

    offer = Offer(kind="family", name="columns", value="theirs.plugin", distribution="theirs", version="1")
    monkeypatch.setattr(templates, "catalog", lambda: Catalog(offers={("family", "columns"): (offer,)}))
    with pytest.raises(Refused, match="theirs offers this family"):
        check_name("family", "columns")
    check_name("arch", "columns")


def test_a_name_that_would_mean_two_things_is_refused(template, monkeypatch):
    """A function of the template is `emit_NAME` or like it; another of that name already would be lost."""
    files = template.files()
    path = next(path for path in files if path.name == "plugin.py")
    files[path] += "\ndef emit_other(): ...\ndef emit_row_softmax(): ...\n".replace("row_softmax", template.name)
    monkeypatch.setattr(type(template), "files", lambda self: files)
    with pytest.raises(Refused, match=r"plugin\.py would call two things emit_other"):
        template.renamed("other")
    assert template.renamed("others")


def test_a_folder_that_exists_is_left_as_it_is(template, tmp_path):
    for taken in (tmp_path / "folder", tmp_path / "file", tmp_path / "link"):
        if taken.name == "folder":
            taken.mkdir()
        elif taken.name == "file":
            taken.write_text("mine")
        else:
            taken.symlink_to(tmp_path / "nowhere")
        with pytest.raises(Refused, match="nothing that lies there is overwritten") as caught:
            template.write("column_scale", taken)
        assert caught.value.refusals[0].field == "folder"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "link"]
    assert (tmp_path / "file").read_text() == "mine" and not list((tmp_path / "folder").iterdir())


def test_what_cannot_be_written_whole_is_not_there(template, tmp_path, monkeypatch):
    written = []

    def full(self, *given, **how):
        written.append(self)
        if len(written) == 5:
            raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        template.write("column_scale", tmp_path / "deep" / "folder")
    assert list((tmp_path / "deep").iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_verb_writes_and_says_what_is_next(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(command, [kind, "column_scale"])
    assert done.exit_code == 0, done.output
    written = {str(path.relative_to("column_scale")) for path in Path("column_scale").rglob("*") if path.is_file()}
    assert written == set(map(str, TEMPLATES[kind].renamed("column_scale")))
    assert (
        f"wrote column_scale, {len(written)} files of a distribution that offers the {kind} column_scale" in done.output
    )
    assert "cd column_scale\n" in done.output and "pip install -e '.[test]'\n" in done.output
    assert not os.access(tmp_path / "column_scale" / "pyproject.toml", os.X_OK)
    done = CliRunner().invoke(command, [kind, "column_scale", "--json"])
    document = json.loads(done.stdout)
    assert (done.exit_code, document["status"], document["refusals"][0]["field"]) == (1, "refused", "folder")
    done = CliRunner().invoke(command, [kind, "column_scale", "-o", "a/b", "--json"])
    document = json.loads(done.stdout)
    assert (document["status"], document["folder"], set(document["files"])) == ("pass", "a/b", written)


def test_the_verb_refuses_a_name_in_a_sentence():
    done = CliRunner().invoke(command, ["family", "Column-Scale"])
    assert done.exit_code == 1
    assert "name is Column-Scale, supported: words of a-z and 0-9" in done.stdout
    assert "Name it column_scale." in done.stdout
