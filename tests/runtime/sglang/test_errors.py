"""The first error in a log, whatever several processes write around it."""

import pytest

from runtime.sglang.errors import FirstError, Found, Kind

TP0 = "[2026-11-20 08:01:00 TP0] "
MAIN = "[2026-11-20 08:01:00] "


def first(text: str, starting: bool = False) -> Found:
    errors = FirstError()
    for line in text.splitlines():
        errors.feed(line, starting)
    assert errors.found is not None
    return errors.found


ONE = f"""{TP0}Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/x/sglang/srt/managers/scheduler.py", line 6350, in run_scheduler_process
    scheduler = Scheduler(server_args, port_args)
  File "/opt/x/sglang/srt/model_loader/loader.py", line 533, in load
    raise ValueError(
ValueError: heads 64 are not divisible by 3

{MAIN}Received sigquit from a child process. It usually means the child failed.
"""
LATER = """Traceback (most recent call last):
  File "/opt/x/sglang/launch_server.py", line 72, in <module>
    run_server(server_args)
RuntimeError: Initialization failed. Please see the error messages above.
"""


def test_the_first_exception_comes_with_its_process_and_its_line_of_code() -> None:
    found = first(ONE + LATER)
    assert found.sentence() == "ValueError: heads 64 are not divisible by 3 (TP0, loader.py:533 in load)"


def test_mixed_tracebacks_of_three_processes_keep_the_first_and_name_no_code() -> None:
    mixed = """[2026-11-20 08:01:00 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/x/a.py", line 1, in a
[2026-11-20 08:01:00 TP1] Scheduler hit an exception: Traceback (most recent call last):
  File "/x/b.py", line 2, in b
[2026-11-20 08:01:00 TP2] an ordinary record
Traceback (most recent call last):
  File "/x/c.py", line 3, in c
torch.distributed.DistBackendError: the first
    raise KeyError
KeyError: 'the second'
RuntimeError: the third
"""
    found = first(mixed)
    assert (found.name, found.text) == ("DistBackendError", "the first")
    assert ".py" not in found.origin


def test_a_chain_tells_the_cause_and_what_it_led_to() -> None:
    chain = """Traceback (most recent call last):
  File "/x/hub.py", line 154, in check
HFValidationError: Repo id must be in the form 'a/b': '/nope'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/x/cfg.py", line 1, in get
OSError: Can't load the configuration of '/nope'.
"""
    assert first(chain).sentence() == (
        "HFValidationError: Repo id must be in the form 'a/b': '/nope' (hub.py:154 in check); "
        "it led to OSError: Can't load the configuration of '/nope'."
    )


def test_what_the_engine_went_on_from_gives_way_to_what_ended_it() -> None:
    errors = FirstError()
    for line in LATER.replace("RuntimeError", "ImportError").splitlines():
        errors.feed(line, True)
    errors.got_on()
    assert errors.found is not None
    assert errors.found.name == "ImportError"
    for line in ONE.splitlines():
        errors.feed(line, False)
    assert errors.found.name == "ValueError"


@pytest.mark.parametrize(
    "harmless",
    [
        "/x/a.py:3: UserWarning: 'python -m' is deprecated\n  warnings.warn(\n",
        "Exception ignored in: <function X.__del__ at 0x7f>\nTraceback (most recent call last):\n"
        '  File "/x/a.py", line 1, in __del__\nAttributeError: x\n',
        "ValueError: a line of a request, outside of any traceback\n",
        "Traceback (most recent call last):\nFutureWarning: soon\n",
        MAIN + "ValueError: told in a record\n",
    ],
)
def test_warnings_are_no_errors(harmless: str) -> None:
    errors = FirstError()
    for line in harmless.splitlines():
        errors.feed(line, True)
    assert errors.found is None
    assert first(harmless + ONE).text == "heads 64 are not divisible by 3"


def test_the_argument_parser_speaks_only_at_the_start() -> None:
    usage = "usage: sglang serve [-h]\n                    [--model-path X]\nsglang serve: error: "
    for said in ("unrecognized arguments: --foo", "argument --load-format: invalid choice: 'x' (choose from 'auto')"):
        assert first(usage + said, starting=True) == Found(Kind.ARGUMENTS, said)
    errors = FirstError()
    errors.feed("curl: error: something later", starting=False)
    assert errors.found is None


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (MAIN + "Subprocess scheduler_0 (pid=4711) crashed with exit code -9. Triggering SIGQUIT for cleanup...", -9),
        (MAIN + "Scheduler or DataParallelController 4711 terminated with -11", -11),
        (
            "Traceback (most recent call last):\n"
            "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9",
            -9,
        ),
    ],
)
def test_a_crash_is_one_of_a_process(line: str, code: int) -> None:
    found = first(line)
    assert (found.kind, found.code) == (Kind.CRASH, code)


def test_a_scheduler_does_not_go_on_from_its_last_words_and_the_engine_may_from_others() -> None:
    errors = FirstError()
    for line in LATER.splitlines():
        errors.feed(line, True)
    ends = [errors.fatal]
    for line in ONE.splitlines() + LATER.splitlines():
        errors.feed(line, True)
    ends.append(errors.fatal)
    # What has ended a process counts for more than what was said before and what follows.
    assert errors.found is not None
    assert errors.found.name == "ValueError"
    errors.got_on()
    ends.append(errors.fatal)
    assert ends == [False, True, False]


def test_what_was_said_before_the_engine_served_has_not_ended_it() -> None:
    errors = FirstError()
    for line in LATER.splitlines():
        errors.feed(line, True)
    errors.got_on()
    errors.forget()
    assert errors.found is None


def test_an_orderly_end_of_a_scheduler_is_an_end() -> None:
    found = first(MAIN + "Scheduler or DataParallelController 4711 terminated with 0")
    assert (found.kind, found.code, found.fatal) == (Kind.CRASH, 0, True)


def test_what_native_code_says_counts() -> None:
    assert first("Fatal Python error: Segmentation fault").sentence() == "Fatal Python error: Segmentation fault"
    assert first("terminate called after throwing an instance of 'c10::DistBackendError'").name == (
        "c10::DistBackendError"
    )
