"""The polkit rule, evaluated by the engine that polkit has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.packaging.built import Package, run

# What polkitd gives to a rule: an object to register it with, and an action that is asked for details.
HARNESS = """
var rule, polkit = {Result: {YES: "yes", NOT_HANDLED: null}, addRule: function (given) { rule = given; }};
function decide(question) {
    var details = question.details;
    return rule({id: question.action, lookup: function (key) { return details[key]; }}, {user: question.user});
}
"""
MANAGE = "org.freedesktop.systemd1.manage-units"
RANK = "sparkd-rank@7.service"
Question = dict[str, object]


def question(action: str = MANAGE, user: str = "sparkd", **details: str) -> Question:
    return {"action": action, "user": user, "details": details}


def decide(package: Package, directory: Path, asked: Question) -> object:
    """The rule's answer: "yes", or None if it leaves the decision to others."""
    script = directory / "rule.js"
    rule = package.text("/usr/share/polkit-1/rules.d/50-sparkd.rules")
    script.write_text(f"{HARNESS}\n{rule}\nprint(JSON.stringify({{answer: decide({json.dumps(asked)})}}));\n")
    answer: object = json.loads(run(["duk", str(script)], "duktape").stdout)["answer"]
    return answer


@pytest.mark.parametrize("verb", ["start", "stop", "kill", "reset-failed"])
@pytest.mark.parametrize(
    "unit", [RANK, "sparkd-rank@0.service", "sparkd-rank@4294967296.service", "sparkd-measure@7.service"]
)
def test_the_daemon_manages_its_ranks(package: Package, tmp_path: Path, unit: str, verb: str) -> None:
    assert decide(package, tmp_path, question(unit=unit, verb=verb)) == "yes"


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(question(user="root", unit=RANK, verb="start"), id="another user"),
        pytest.param(question(user="sparkd-rank", unit=RANK, verb="stop"), id="the rank itself"),
        pytest.param(question("org.freedesktop.systemd1.manage-unit-files", unit=RANK, verb="start"), id="unit files"),
        pytest.param(question("org.freedesktop.systemd1.reload-daemon"), id="reload"),
        pytest.param(question("org.freedesktop.login1.reboot"), id="reboot"),
        pytest.param(question(), id="a transient unit: no details"),
        pytest.param(question(verb="start"), id="no unit"),
        pytest.param(question(unit=RANK), id="no verb"),
        *[
            pytest.param(question(unit=RANK, verb=verb), id=verb)
            for verb in ("restart", "reload", "set-property", "ref", "clean", "freeze", "mount-image", "Start", "")
        ],
        *[
            pytest.param(question(unit=unit, verb="start"), id=repr(unit))
            for unit in (
                "sparkd.service",
                "sparkd-rank@.service",
                "sparkd-rank@seven.service",
                "sparkd-rank@7.service\n",
                "sparkd-rank@7.service.d",
                "sparkd-rank@7.timer",
                "sparkd-measure@.service",
                "sparkd-measures@7.service",
                "sparkd-@7.service",
                "sparkd-rank@7xservice",
                "sparkd-rank@7-8.service",
                "sparkd-rank@-7.service",
                "sparkd-rank@٣.service",
                "xsparkd-rank@7.service",
                "ssh.service\nsparkd-rank@7.service",
                "dbus.service",
            )
        ],
    ],
)
def test_everything_else_is_left_to_the_defaults(package: Package, tmp_path: Path, asked: Question) -> None:
    assert decide(package, tmp_path, asked) is None
