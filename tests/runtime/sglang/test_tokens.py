"""Token counters out of /metrics."""

from runtime.sglang.tokens import Tokens, read_tokens

TEXT = """# HELP sglang:realtime_tokens_total Total number of tokens processed.
# TYPE sglang:realtime_tokens_total counter
sglang:realtime_tokens_total{engine_type="unified",mode="prefill_compute",model_name="a b",tp_rank="0"} 12.0
sglang:realtime_tokens_total{engine_type="unified",mode="decode",model_name="a b",tp_rank="0"} 1.5e+03
sglang:generation_tokens_total{is_streaming="false",model_name="a b"} 7.0
sglang:prompt_tokens_total{is_streaming="false",model_name="a b"} 5.0
sglang:num_running_reqs{model_name="a b",priority=""} 3.0
sglang:num_running_reqs{model_name="a b",priority="1"} 1.0
sglang:num_queue_reqs{model_name="a b"} 2.0
sglang:gen_throughput{model_name="a b"} NaN
python_gc_objects_collected_total{generation="0"} 900.0
"""


def test_counters_are_summed_and_requests_are_read() -> None:
    assert read_tokens(TEXT) == Tokens(total=1524, decoded=1500, running=3, queued=2)


def test_without_counters_nothing_is_known() -> None:
    assert read_tokens("") is None
    assert read_tokens("sglang:num_running_reqs 1.0\nsglang:realtime_tokens_total{} nonsense\n") is None
