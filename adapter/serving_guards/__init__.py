"""Guards of what is served: answers that go in circles are ended, and requests mean what they say.

That no answer is endless is SGLang's own SGLANG_MAX_NEW_TOKENS_LIMIT, which the profile sets. Each guard is an option.
A loop is ended with SGLang's reason "length", since the answer is not whole, and `"reason": "repetition"` beside it in
`meta_info.finish_reason`; OpenAI's protocol has no word of its own for it.
"""

from __future__ import annotations

from adapter.declare import MAIN, SCHEDULER, Adapter, Option, Options, Symbol

_BATCH = "sglang.srt.managers.schedule_batch"
_CHAT = "sglang.srt.entrypoints.openai.serving_chat:OpenAIServingChat._convert_to_internal_request"
_ENCODER = "sglang.srt.entrypoints.openai.serving_deepseek_recipe:DeepSeekRecipeChatEncodingAdapter._encode"
ADAPTER = Adapter(
    name="serving_guards",
    purpose="ends answers that loop, and takes enable_thinking and named efforts",
    worth="a looping answer otherwise holds one of four places for as long as the context lasts (zurih)",
    processes=frozenset({MAIN, SCHEDULER}),
    symbols=(
        Symbol(f"{_BATCH}:Req.update_finish_state", "5194e6748230d732"),
        Symbol(f"{_BATCH}:FINISH_LENGTH", "eaf3c0f6635b5ac3"),
        Symbol(_CHAT, "a0709a703a870cb5"),
        Symbol(_ENCODER, "70ea3af01a38ee21"),
    ),
    options={
        "abort_loops": Option(True, "ends an answer that repeats itself"),
        "enable_thinking": Option(True, "takes chat_template_kwargs.enable_thinking for V4.1's own `thinking`"),
        "effort_tiers": Option(True, "takes the efforts low, high and max for 50, 75 and 100 of V4.1's 100"),
    },
)


def install(options: Options) -> None:
    from adapter.frame import hook, process
    from adapter.serving_guards import finish, requests

    if process() == SCHEDULER:
        if options["abort_loops"]:
            hook(ADAPTER.symbol(f"{_BATCH}:Req.update_finish_state"), finish.after_update, "after")
        return
    if options["enable_thinking"]:
        hook(ADAPTER.symbol(_CHAT), requests.before_convert, "before")
    if options["effort_tiers"]:
        hook(ADAPTER.symbol(_ENCODER), requests.before_encode, "before")
