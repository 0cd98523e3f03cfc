"""What counts as installed: one distribution once, however often the path leads to it, and what the settings let in."""

import subprocess
import sys

import pytest

CATALOG = "from kinfolk.plugins.discovery import catalog\n"
NAMES = CATALOG + "answer = [str(offer) for offer in catalog().offers.get(('family', 'toy'), ())]"
NOTES = CATALOG + "answer = list(catalog().notes)"
COMPOSING = """
import kinfolk
try:
    kinfolk.compose("{family}", "toyarch")
except kinfolk.PluginError as error:
    answer = str(error)
"""
STATE = """
from kinfolk.plugins.discovery import catalog
known = catalog()
answer = {name: [str(known.standing(o).state) for o in known.offers["family", name]] for name in known.names("family")}
"""


def test_a_path_given_twice_and_a_link_to_it_count_once(environment, sites, tmp_path):
    (tmp_path / "lib64").symlink_to(sites["toy"], target_is_directory=True)
    (tmp_path / "again").symlink_to(tmp_path / "lib64", target_is_directory=True)
    once = environment("toy")
    many = type(once)([sites["toy"], tmp_path / "lib64", sites["toy"], tmp_path / "again"])
    assert many.ask(NAMES) == once.ask(NAMES) == ["family toy (kinfolk-toy 1.0)"]


def test_another_version_of_a_distribution_further_down_the_path_is_hidden_not_a_conflict(environment):
    both = environment("toy", "older")
    assert both.ask(NAMES) == ["family toy (kinfolk-toy 1.0)"]
    assert environment("older", "toy").ask(NAMES) == ["family toy (kinfolk-toy 0.9)"]
    hides = CATALOG + "answer = catalog().offers['family', 'toy'][0].hides"
    [hidden] = both.ask(hides)
    assert hidden.startswith("0.9 in ")


def test_an_editable_install_and_a_venv_with_its_lib64_link_count_once(environment, tmp_path):
    """A venv has lib64 as a link to lib; the editable install adds its source folder to the path as well."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    source = tmp_path / "source"
    (source / "src/acme_edit").mkdir(parents=True)
    (source / "src/acme_edit/__init__.py").write_text("")
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "acme-edit"\nversion = "1.0"\n'
        '[project.entry-points."kinfolk.families"]\nedit = "acme_edit"\n'
        '[project.entry-points."kinfolk.api"]\n"1" = "acme_edit"\n'
        '[tool.hatch.build.targets.wheel]\npackages = ["src/acme_edit"]\n'
    )
    site = next(venv.glob("lib/python*/site-packages"))
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    install = [sys.executable, "-m", "pip", "install", *options, "--target", site, "--editable", source]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (tmp_path / "lib64").symlink_to(venv / "lib", target_is_directory=True)
    here = type(environment())([site, tmp_path / "lib64" / site.relative_to(venv / "lib"), source / "src"])
    ask = CATALOG + "answer = [str(o) for o in catalog().offers['family', 'edit']]"
    assert here.ask(ask) == ["family edit (acme-edit 1.0)"]


@pytest.mark.parametrize(
    "words, allowed",
    [
        ("toy", {"toy"}),
        ("kinfolk-toy", {"toy"}),
        (" Kinfolk_Toy , raises", {"toy", "raises"}),
        (",", set()),
        ("", {"toy", "raises"}),
    ],
)
def test_the_allow_list_names_plugins_or_distributions(environment, words, allowed):
    states = environment("toy", "raises").ask(STATE, KINFOLK_PLUGINS=words)
    assert {name for name in ("toy", "raises") if states[name] == ["ok"]} == allowed
    assert {name for name in ("toy", "raises") if states[name] == ["not allowed"]} == {"toy", "raises"} - allowed


def test_a_word_of_the_allow_list_that_nothing_offers_is_noted(environment):
    assert environment("toy").ask(NOTES, KINFOLK_PLUGINS="toy,tyo") == [
        "KINFOLK_PLUGINS names tyo, which nothing installed offers"
    ]


def test_a_plugin_that_is_not_allowed_is_a_row_and_cannot_be_used(environment):
    here = environment("toy", "toyarch")
    failed = here.ask(
        COMPOSING.format(family="toy"),
        KINFOLK_PLUGINS="toyarch",
    )
    assert failed == (
        "family toy of kinfolk-toy cannot be used (not allowed): KINFOLK_PLUGINS does not name it. "
        "Add kinfolk-toy to it, or unset it."
    )
    assert "not allowed" in here.kinfolk("list", KINFOLK_PLUGINS="toyarch").stdout


def test_discovery_can_be_turned_off_and_core_s_own_verbs_stay(environment):
    here = environment("toy")
    assert here.ask(NAMES, KINFOLK_DISABLE_AUTOLOAD="1") == []
    assert here.ask(NAMES, KINFOLK_DISABLE_AUTOLOAD="0") != []
    done = here.kinfolk("list", KINFOLK_DISABLE_AUTOLOAD="1")
    assert done.returncode == 0
    assert "discovery is off (KINFOLK_DISABLE_AUTOLOAD=1)" in done.stdout


def test_a_setting_that_is_neither_on_nor_off_is_an_error_and_not_a_guess(environment):
    done = environment("toy").kinfolk("list", KINFOLK_DISABLE_AUTOLOAD="yes")
    assert done.returncode == 1
    assert "KINFOLK_DISABLE_AUTOLOAD is 'yes', it takes 1 (discovery off) or 0" in done.stderr
    assert "Traceback" not in done.stderr


def test_damaged_metadata_of_a_stranger_is_left_out_with_a_note(environment, sites, tmp_path):
    damaged = tmp_path / "acme_damaged-1.0.dist-info"
    damaged.mkdir()
    (damaged / "entry_points.txt").write_bytes(b"[kinfolk.families]\nx = \xff\xfe\n")
    nameless = tmp_path / "acme_nameless-1.0.dist-info"
    nameless.mkdir()
    (nameless / "entry_points.txt").write_text("[kinfolk.families]\nnameless = acme_nameless\n")
    here = type(environment())([sites["toy"], tmp_path])
    assert here.ask(NAMES) == ["family toy (kinfolk-toy 1.0)"]
    assert len(here.ask(NOTES)) >= 1


REGISTER = """
import kinfolk, kinfolk_toy.plugin
from kinfolk.plugins.composition import compose
kinfolk.register("family", "toy", kinfolk_toy.plugin, version="1.0")
kinfolk.register("family", "toy", kinfolk_toy.plugin, version="1.0")
kinfolk.register("arch", "toyarch", "kinfolk_toyarch.plugin")
"""


def test_a_frozen_application_registers_what_no_metadata_names(environment):
    here = environment("toy", "toyarch")
    code = (
        REGISTER + "answer = [dict(compose('toy', 'toyarch').versions), "
        "[candidate.name for candidate in compose('toy', 'toyarch').candidates()]]"
    )
    versions, candidates = here.ask(code, KINFOLK_DISABLE_AUTOLOAD="1", KINFOLK_PLUGINS="nothing")
    assert versions == {"kinfolk-core": "0.1.0", "kinfolk_toy": "1.0", "kinfolk_toyarch": "unknown"}
    assert candidates == ["toy.first", "toy.second"]


def test_registering_what_is_installed_too_is_the_same_plugin_not_a_conflict(environment):
    assert environment("toy", "toyarch").ask(REGISTER + "answer = len(compose('toy', 'toyarch').members)") == 3


@pytest.mark.parametrize(
    "call, expected",
    [
        ("'family', 'toy', types.ModuleType('other')", "rejected|conflict"),
        ("'family', 'half', types.ModuleType('half')", "it does not implement kinfolk_request_type"),
        ("'family', 'half', kinfolk_toyarch.plugin", "kinfolk_arch is answered by a plugin of kind arch only"),
        ("'famly', 'half', kinfolk_toy.plugin", "register takes a kind of family"),
        ("'family', 'half', kinfolk_toy.plugin, api=2", "written for kinfolk.api 2"),
        ("'arch', 'half', kinfolk_toyarch.plugin, facts_schema=0", "written for kinfolk.facts_schema 0"),
    ],
)
def test_registration_is_all_or_nothing(environment, call, expected):
    code = f"""
import types, kinfolk, kinfolk_toy.plugin, kinfolk_toyarch.plugin
from kinfolk.plugins.discovery import catalog
before = dict(catalog().offers)
try:
    kinfolk.register({call})
except kinfolk.PluginError as error:
    answer = [str(error), dict(catalog().offers) == before]
"""
    text, unchanged = environment("toy", "toyarch").ask(code)
    assert any(word in text for word in expected.split("|"))
    assert unchanged


def test_a_plugin_that_composes_itself_on_import_is_told_so(environment, tmp_path, sites):
    package = tmp_path / "acme_selfish"
    package.mkdir()
    (package / "__init__.py").write_text("import kinfolk\nkinfolk.compose('selfish', 'toyarch')\n")
    here = type(environment())([sites["toyarch"], tmp_path])
    code = "import kinfolk\nkinfolk.register('family', 'selfish', 'acme_selfish')\n" + COMPOSING.format(
        family="selfish"
    )
    assert "used while it is being imported" in here.ask(code)


def test_names_are_listed_without_importing_any_plugin(environment):
    code = (
        "import sys\n"
        + NAMES
        + "\nanswer = [answer, [m for m in sys.modules if m.startswith(('acme', 'kinfolk_', 'numpy'))]]"
    )
    assert environment("toy", "raises", "hangs").ask(code) == [["family toy (kinfolk-toy 1.0)"], []]
