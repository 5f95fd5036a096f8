"""Which of an engine's series pass, whatever it says."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from sparkd.reconcile.engineseries import MOST_SAMPLES, SERIES, chosen
from tests.runtime.fake_metrics import FakeMetrics


def read(text: str) -> dict[str, tuple[str, dict[str, float]]]:
    """Type and samples of each family, by Prometheus' own parser."""
    families = list(text_string_to_metric_families(chosen(text)))  # type: ignore[no-untyped-call]
    assert len({family.name for family in families}) == len(families), "a family comes twice"
    return {
        family.name: (family.type, {f"{s.name}{sorted(s.labels.items())}": s.value for s in family.samples})
        for family in families
    }


def test_key_series_pass_with_their_types() -> None:
    engine = FakeMetrics()
    engine.count("generation_tokens_total", 40)
    engine.count("num_running_reqs", 2)
    engine.count("something_else_total", 1)
    engine.first(0.3)
    engine.between(0.02, 2)
    found = read(engine.text())
    assert {name: kind for name, (kind, _) in found.items()} == {
        "sglang:generation_tokens": "counter",
        "sglang:num_running_reqs": "gauge",
        "sglang:time_to_first_token_seconds": "histogram",
        "sglang:inter_token_latency_seconds": "histogram",
    }
    labels = [("engine_type", "unified"), ("model_name", 'tiny {1}, "x"')]
    assert found["sglang:generation_tokens"][1] == {f"sglang:generation_tokens_total{labels}": 40}
    assert found["sglang:time_to_first_token_seconds"][1][f"sglang:time_to_first_token_seconds_count{labels}"] == 1
    assert all(words for _, words in SERIES.values())


def test_what_prometheus_could_not_read_is_left_out() -> None:
    good = 'sglang:num_running_reqs{a="1"} 2'
    hostile = [
        'sglang:num_running_reqs{a="1"} 3',  # the same series again
        'sglang:num_running_reqs{a="} 3',
        "sglang:num_running_reqs 1 2 3",
        "sglang:num_running_reqs 1e",
        "sglang:num_running_reqs{} x",
        'sglang:num_running_reqs{a="\\q"} 1',
        "sglang:num_running_reqs_bucket 1",
        "sglang:time_to_first_token_seconds 1",
        "sparkd_ring_phase 1",
        "# TYPE sglang:num_running_reqs histogram",
        "sglang:num_running_reqs 1\r",
        'sglang:num_running_reqs{a\u00e9="1"} 1',
        "sglang:num_running_reqs \u0661",
        "sglang:num_running_reqs 1e999",
        'sglang:num_running_reqs{b="1",b="2"} 1',
        'sglang:num_running_reqs{__name__="sparkd_ring_phase"} 1',
        "",
    ]
    assert read("\n".join([good, *hostile])) == {"sglang:num_running_reqs": ("gauge", {read_key(): 2.0})}


def read_key() -> str:
    return "sglang:num_running_reqs[('a', '1')]"


def test_an_answer_without_end_is_cut() -> None:
    text = "\n".join(f'sglang:num_running_reqs{{n="{number}"}} 1' for number in range(MOST_SAMPLES * 3))
    ((_, samples),) = read(text).values()
    assert len(samples) == MOST_SAMPLES


def test_nothing_is_nothing() -> None:
    assert (chosen(""), chosen("\x00\n# HELP\nsglang:\n")) == ("", "")
