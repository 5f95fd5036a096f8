"""What a profile and the site's overrides come to, and which file, key and words faulty ones are answered with."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.smoke import CHECKS
from sparkd.config.launch import LAUNCH, SMOKE
from sparkd.config.owned import TUNING
from sparkd.config.profiles import folders, listed, resolve, site_file
from sparkd.config.resolved import DEFAULT, Resolved, Setting, Value, words
from tests.architecture.repository import ROOT
from tests.config.etc import unprivileged
from tests.engine.site import PROFILE, Site

EXAMPLE = (
    PROFILE
    + """
context-length = { value = 262144, why = "cheap", source = "measured" }
enable-metrics = true
sleep-on-idle = false
cuda-graph-bs-decode = [1, 2]
chunked-prefill-size = -1
json-model-override-args = '{"a": "it''s"}'
chat-template = "-odd"
[environment]
PYTORCH_CUDA_ALLOC_CONF = "expandable_segments:False"
SGLANG_PORT = 3000
[launch]
stall_seconds = { value = 300, why = "local disk" }
""".replace("it''s", "it\\u0027s")
)


def test_options_become_words(site: Site) -> None:
    """true is the option alone, false none, an array several words, and what begins with a dash no word of its own."""
    site.profile(EXAMPLE)
    assert site.resolve().arguments == (
        *("--model-path", "/srv/models/tiny", "--context-length", "262144", "--enable-metrics"),
        *("--cuda-graph-bs-decode", "1", "2", "--chunked-prefill-size", "-1"),
        *("--json-model-override-args", '{"a": "it\\u0027s"}', "--chat-template=-odd"),
    )


def test_a_rank_is_given_everything_as_json(site: Site) -> None:
    site.profile(EXAMPLE)
    told = json.loads(site.resolve().config("/opt/x/bin/python", "0.5.23"))
    assert list(told) == ["profile", "python", "version", "arguments", "environment", "launch"]
    assert (told["profile"], told["python"], told["version"]) == ("tiny", "/opt/x/bin/python", "0.5.23")
    assert told["environment"] == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False", "SGLANG_PORT": "3000"}
    assert told["launch"] == {
        "transport": "ib",
        "init_stuck_seconds": 120,
        "stall_seconds": 300,
        "load_cap_seconds": 3600,
        "canary_idle_seconds": 10,
        "canary_timeout_seconds": 20,
        "hung_seconds": 60,
        "smoke": ["arithmetic"],
        "smoke_required": True,
        "plugins": [],
    }


def test_an_allowed_version_is_the_one_a_rank_is_told(site: Site) -> None:
    site.override('allow_sglang = ["0.5.24"]')
    resolved = site.resolve()
    assert [json.loads(resolved.config("/p", version))["version"] for version in ("0.5.24", "0.5.25", "")] == [
        "0.5.24",
        "0.5.23",
        "0.5.23",
    ]
    assert [resolved.accepts(version) for version in ("0.5.23", "0.5.24", "0.5.25", "")] == [True, True, False, False]


def test_the_site_overrides_single_values_and_what_was_there_is_kept(site: Site) -> None:
    profile = site.profile(EXAMPLE)
    override = site.override(
        '[arguments]\ncontext-length = {value = 4096, why = "less memory"}\nnew = 1\n[launch]\nhung_seconds = 90\n'
    )
    settings = {setting.key: setting for setting in site.resolve().settings}
    was = Setting("arguments", "context-length", 262144, str(profile), "cheap", "measured")
    assert settings["arguments.context-length"] == Setting(
        "arguments", "context-length", 4096, str(override), "less memory", "", was
    )
    assert settings["arguments.new"] == Setting("arguments", "new", 1, str(override))
    assert settings["launch.hung_seconds"] == Setting("launch", "hung_seconds", 90, str(override))
    assert settings["launch.stall_seconds"] == Setting("launch", "stall_seconds", 300, str(profile), "local disk")
    assert settings["launch.transport"].origin == DEFAULT
    assert settings["arguments.model-path"].origin == str(profile)


def test_a_profile_in_etc_takes_the_place_of_the_packages_whole(site: Site) -> None:
    site.profile(EXAMPLE)
    own = site.write("etc/sparkd/profiles/tiny.toml", PROFILE)
    assert site.resolve().file == str(own)
    assert site.resolve().arguments == ("--model-path", "/srv/models/tiny")
    site.profile(name="other")
    assert list(listed(folders(site.etc, site.share)).items()) == [
        ("other", site.share / "other.toml"),
        ("tiny", own),
    ]


def test_every_value_has_a_digest_of_its_own(site: Site) -> None:
    site.profile(EXAMPLE)
    told = site.resolve().digests()
    assert (told["engine.profile"], told["engine.sglang"]) == ("tiny", "0.5.23")
    assert told["engine.arguments.context-length"] == "262144"
    assert told["engine.arguments.enable-metrics"] == "true"
    assert told["engine.environment.SGLANG_PORT"] == "3000"
    assert told["engine.launch.stall_seconds"] == "300"
    site.override("[arguments]\ncontext-length = 1\n")
    other = site.resolve().digests()
    assert {key for key in told | other if told.get(key) != other.get(key)} == {"engine.arguments.context-length"}


def test_every_user_of_every_host_may_read_the_digests_and_no_secret_is_in_them(site: Site) -> None:
    site.profile(EXAMPLE)
    variables = ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "SOME_PASSWORD")
    told = {}
    for place, secret in enumerate(("hunter2x", "hunter3x")):
        lines = [*(f'{name} = "{secret}"' for name in variables), f'HTTPS_PROXY = "http://me:{secret}@proxy:3128"']
        lines += ['SGLANG_MAX_NEW_TOKENS_LIMIT = "32768"', 'HF_ENDPOINT = "https://mirror.example"']
        site.override("\n".join(["[arguments]", "max-total-tokens = 65536", "[environment]", *lines, ""]))
        told[place] = site.resolve().digests()
        assert secret not in str(told[place])
        assert told[place]["engine.arguments.max-total-tokens"] == "65536"
        assert told[place]["engine.environment.SGLANG_MAX_NEW_TOKENS_LIMIT"] == "32768"
        assert told[place]["engine.environment.HF_ENDPOINT"] == "https://mirror.example"
    differ = {key for key in told[0] if told[0][key] != told[1][key]}
    assert differ == {f"engine.environment.{name}" for name in (*variables, "HTTPS_PROXY")}, (
        "they are compared all the same"
    )
    assert all(re.fullmatch("a secret, [0-9a-f]{8}", told[0][key]) for key in differ)


def test_reasons_make_no_difference_between_hosts(site: Site) -> None:
    site.profile(EXAMPLE)
    told = site.resolve().digests()
    site.profile(EXAMPLE.replace("cheap", "because").replace("A model", "Another model"))
    assert site.resolve().digests() == told


REFUSED = [
    ("arguments", "tp-size = 3", "sparkd gives --tp-size to each rank itself, from the number of [[cluster.node]]"),
    ("arguments", "tensor-parallel-size = 3", "sparkd gives --tensor-parallel-size to each rank itself"),
    ("arguments", "nnodes = 3", "sparkd gives --nnodes to each rank itself"),
    ("arguments", "node-rank = 0", "sparkd gives --node-rank to each rank itself"),
    ("arguments", 'dist-init-addr = "x:1"', "from rank 0's address and [engine] rendezvous_port"),
    ("arguments", 'nccl-init-addr = "x:1"', "from rank 0's address and [engine] rendezvous_port"),
    ("arguments", 'host = "0.0.0.0"', "sparkd gives --host to each rank itself, from [engine] api"),
    ("arguments", 'api-key = "secret"', "the API is plain HTTP on the loopback address; a proxy"),
    ("arguments", 'ssl-keyfile = "/k"', "the API is plain HTTP on the loopback address; a proxy"),
    ("arguments", 'admin = "secret"', "SGLang would take --admin for --admin-api-key"),
    ("arguments", "port = 30000", "sparkd gives --port to each rank itself, from [engine] api"),
    (
        "arguments",
        'dist-init = "x:1"',
        "an option: SGLang would take --dist-init for --dist-init-addr",
    ),
    ("arguments", 'config = "/x.yaml"', "--config has SGLang read options that nobody has checked"),
    ("arguments", "--context-length = 1", '"context-length"? an option of SGLang without its dashes in front'),
    ("arguments", "context_length = 1", '"context-length"? an option of SGLang without its dashes in front'),
    ("arguments", 'x = ""', "found an empty text, expected a number, text of one line, an array of these, true"),
    ("arguments", 'x = "a\\nb"', 'found "a\\nb", expected a number, text of one line'),
    ("arguments", "x = nan", "found nan, expected a number"),
    ("arguments", "x = []", "found a list of 0, expected at least one element"),
    ("arguments", "x = [[1]]", "found a list of 1, expected at least one element, each a number or text"),
    ("arguments", "x = [true]", "found a list of 1, expected at least one element, each a number or text"),
    (
        "arguments",
        'x = ["-a"]',
        "found a list of 1, expected at least one element, each a number or text that does not",
    ),
    ("arguments", "x = 1979-05-27", "found 1979-05-27, expected a number"),
    (
        "arguments",
        "x = {value = 1, val = 1}",
        'x.val: found an unknown key, expected "value"? Known keys: value, why, source',
    ),
    ("arguments", 'x = {why = "y"}', 'x.value: found nothing, expected a table {value = ..., why = "...", source'),
    ("arguments", "x = {value = 1, why = 2}", "x.why: found 2, expected text"),
    ("environment", "SPARKD_RANK = 1", "sparkd sets the variables SPARKD_* itself"),
    ("environment", 'NCCL_IB_HCA = "mlx5_0"', "sparkd plans the way between the ranks; only NCCL's tuning may be set"),
    ("environment", 'NCCL_SOCKET_IFNAME = "eth0"', "sparkd plans the way between the ranks"),
    ("environment", 'GLOO_SOCKET_IFNAME = "eth0"', "sparkd plans the way between the ranks"),
    ("environment", 'NCCL_DEBUG = "WARN"', "the proof of the transport is read from what NCCL logs"),
    ("environment", 'NCCL_DEBUG_FILE = "/x"', "the proof of the transport is read from what NCCL logs"),
    ("environment", 'NOTIFY_SOCKET = "/x"', "systemd sets NOTIFY_SOCKET"),
    ("environment", "WORLD_SIZE = 3", "WORLD_SIZE would contradict the rank that sparkd gives to SGLang"),
    ("environment", "A-B = 1", "the name of an environment variable"),
    ("environment", "X = true", 'found true, expected a number or text of one line, as the variable is read: "1" or'),
    ("environment", 'X = ""', "found an empty text, expected a number or text of one line"),
    ("environment", 'X = "a\\u0000b"', "expected a number or text of one line"),
    ("environment", 'X = "a\\rb"', "expected a number or text of one line"),
    ("launch", "stal_seconds = 3", '"stall_seconds"? Known keys: transport, init_stuck_seconds'),
    ("launch", "stall_seconds = 3", "found 3, expected seconds from 30 to 86400"),
    ("launch", "stall_seconds = true", "found true, expected seconds from 30 to 86400"),
    ("launch", "stall_seconds = inf", "found inf, expected seconds from 30 to 86400"),
    ("launch", 'transport = "tcp"', 'found "tcp", expected one of ib, any'),
    ("launch", "smoke_required = 1", "found 1, expected true or false"),
    ("launch", 'smoke = ["poetry"]', "found a list of 1, expected a list of health, completion"),
    ("launch", 'smoke = ["tools", "tools"]', "found a list of 2, expected a list of health, completion"),
    ("launch", 'plugins = "x"', 'found "x", expected a list of names'),
    ("launch", "hung_seconds = 20", "found 20, expected hung_seconds above canary_timeout_seconds, which is 20"),
]


@pytest.mark.parametrize(("table", "line", "words"), REFUSED, ids=lambda value: value[:40])
@pytest.mark.parametrize("file", ["tiny.toml", "engine.toml"])
def test_what_cannot_be_is_refused_in_both_files_with_file_key_and_reason(
    site: Site, file: str, table: str, line: str, words: str
) -> None:
    text = f"{line}\n" if table == "arguments" and file == "tiny.toml" else f"[{table}]\n{line}\n"
    if file == "tiny.toml":
        site.profile(PROFILE + text)
    else:
        site.override(text)
    (problem,) = site.problems()
    assert problem.startswith(f"{file}: {table}.{line.partition(' ')[0]}")
    assert words in problem


@pytest.mark.parametrize("name", sorted(TUNING))
def test_tuning_of_nccl_may_be_set(site: Site, name: str) -> None:
    site.override(f"[environment]\n{name} = 1\n")
    assert site.resolve().environment == {name: "1"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "tiny.toml: sglang: found nothing, expected the version of SGLang that this is written for"),
        ('sglang = "new"', 'tiny.toml: sglang: found "new", expected the version of SGLang'),
        ('sglang = "0.5.23"', "tiny.toml: arguments.model-path: found nothing, expected the path or the name of the"),
        ('sglang = "0.5.23"\narguments = 1', "tiny.toml: arguments: found 1, expected one [arguments] table"),
        ('sglang = "0.5.23"\nenv = 1', "tiny.toml: env: found an unknown key, expected one of description, sglang"),
        ("sglang = x\n", "tiny.toml: line 1, column 10: found a syntax error"),
    ],
)
def test_a_faulty_profile_says_where(site: Site, text: str, expected: str) -> None:
    site.profile(text)
    assert site.problems()[0].startswith(expected)


def test_a_faulty_site_file_says_where(site: Site) -> None:
    site.override('allow_sglang = "0.5.24"\nsglang = "0.5.24"\n')
    assert site.problems() == [
        "engine.toml: sglang: found an unknown key, expected "
        '"allow_sglang"? Known keys: allow_sglang, arguments, environment, adapters, launch',
        'engine.toml: allow_sglang: found "0.5.24", expected a list of versions of SGLang, such as ["0.5.24"]',
    ]


def test_all_problems_are_told_at_once(site: Site) -> None:
    site.profile(PROFILE + "tp-size = 3\n[launch]\ntransport = 'x'\n")
    site.override("[environment]\nRANK = 1\n")
    assert [problem.split(": ")[:2] for problem in site.problems()] == [
        ["tiny.toml", "arguments.tp-size"],
        ["tiny.toml", "launch.transport"],
        ["engine.toml", "environment.RANK"],
    ]


def test_a_profile_that_is_not_there_says_where_it_was_looked_for(site: Site) -> None:
    (problem,) = site.problems("none")
    assert problem == f"none.toml: file: found nothing, expected a profile, here or in {site.share}"


@pytest.mark.parametrize("name", ["", "../tiny", "a/b", ".hidden", "a" * 64])
def test_a_name_leads_nowhere_else(site: Site, name: str) -> None:
    (problem,) = site.problems(name)
    assert "expected a name of letters, digits, _ . and -" in problem


def test_a_profile_that_may_not_be_read_is_not_passed_over(site: Site) -> None:
    site.write("etc/sparkd/profiles/tiny.toml", PROFILE).chmod(0)
    for folder in [site.root, *site.root.parents]:
        if folder.stat().st_uid == 0 and str(folder).count("/") > 1:
            folder.chmod(folder.stat().st_mode | 0o055)
    with unprivileged():
        (problem,) = site.problems()
    assert problem == "tiny.toml: file: found no permission to read it, expected a readable TOML file"


def test_too_much_for_one_variable_is_refused(site: Site) -> None:
    site.profile(PROFILE + f'x = "{"a" * 100_000}"\n')
    (problem,) = site.problems()
    assert problem.endswith("bytes of settings, expected at most 100000")


# Properties.

scalars = st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, categories=["L", "N", "P", "S"]), min_size=1)
values = scalars | st.booleans() | texts
names = st.from_regex(r"x[a-z0-9]{0,8}(-[a-z0-9]{1,5})?", fullmatch=True)
tables = st.dictionaries(names, values, max_size=5)


def toml(value: Value) -> str:
    """JSON's forms of numbers, texts and truths are TOML's; its integers of floats are not."""
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def below(root: Path, profile: dict[str, Value], site: dict[str, Value]) -> Resolved:
    files = Site(root)
    files.profile(PROFILE + "".join(f"{name} = {toml(value)}\n" for name, value in profile.items()))
    files.override("[arguments]\n" + "".join(f"{name} = {toml(value)}\n" for name, value in site.items()))
    return files.resolve()


@given(profile=tables, site=tables)
def test_merging_takes_each_key_from_the_site_if_it_is_there(
    tmp_path_factory: pytest.TempPathFactory, profile: dict[str, Value], site: dict[str, Value]
) -> None:
    resolved = below(tmp_path_factory.mktemp("site"), profile, site)
    assert dict(resolved.table("arguments")) == {"model-path": "/srv/models/tiny", **profile, **site}
    for setting in resolved.settings:
        if setting.table == "arguments" and setting.name != "model-path":
            assert setting.origin.endswith("engine.toml" if setting.name in site else "tiny.toml")
            assert (setting.replaced is not None) == (setting.name in site and setting.name in profile)


@given(value=values)
def test_the_words_of_a_value_give_it_back(value: Value) -> None:
    found = list(words("x", value))
    if isinstance(value, bool):
        assert found == (["--x"] if value else [])
    elif isinstance(value, str):
        assert found in (["--x", value], [f"--x={value}"])
        assert len(found) == 1 or not value.startswith("-")
    else:
        assert found[0] == "--x"
        assert type(value)(found[1]) == value


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_the_configuration_of_a_rank_can_stand_between_single_quotes_and_is_read_back(told: list[str]) -> None:
    resolved = Resolved("p", "f", "", "1", (), (Setting("arguments", "x", tuple(told), "f"),))
    config = resolved.config("/p", "1")
    assert re.fullmatch(r"[ -&(-~]*", config)
    assert json.loads(config)["arguments"] == ["--x", *told]


def test_the_defaults_of_launch_are_in_their_own_ranges(site: Site) -> None:
    assert site_file(site.etc).exists() is False
    for name, rule in LAUNCH.items():
        default = list(rule.default) if isinstance(rule.default, tuple) else rule.default
        assert rule.fits(default), name
    assert resolve("tiny", folders(site.etc, site.share), site_file(site.etc)).table("launch")["hung_seconds"] == 60


def test_the_smoke_tests_that_may_be_named_are_those_that_there_are() -> None:
    assert tuple(CHECKS) == SMOKE


def test_the_manual_has_every_key_that_may_be_set() -> None:
    manual = (ROOT / "packaging/man/sparkd.8").read_text()
    chapter = manual[manual.index(".SH THE ENGINE") : manual.index(".SH MEASURING")]
    assert {name for name in (*TUNING, *LAUNCH, *SMOKE) if not re.search(rf"\b{name}\b", chapter)} == set()
    assert set(re.findall(r"\bNCCL_[A-Z0-9_]+", chapter)) - {"NCCL_"} == set(TUNING)
