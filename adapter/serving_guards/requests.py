"""In the process with the HTTP server: what a request means."""

from __future__ import annotations

from typing import Any

TIERS = {"low": 50, "high": 75, "max": 100}


def before_convert(chat: Any, request: Any, *arguments: Any, **options: Any) -> Any:
    """Before _convert_to_internal_request. `enable_thinking` is other models' name for V4.1's `thinking`."""
    settings = request.chat_template_kwargs
    if isinstance(settings, dict) and isinstance(settings.get("enable_thinking"), bool):
        settings.setdefault("thinking", settings["enable_thinking"])
    return (chat, request, *arguments), options


def before_encode(encoder: Any, body: Any, *arguments: Any, effort: Any = None, **options: Any) -> Any:
    """Before DeepSeekRecipeChatEncodingAdapter._encode, which takes a whole number for a budget of 100."""
    if encoder._spec == "dsv41" and isinstance(effort, str):
        effort = TIERS.get(effort, effort)
    return (encoder, body, *arguments), {**options, "effort": effort}
