"""What the engine says of itself in ``/server_info``, and of its model in ``/v1/models``."""

import re
from dataclasses import dataclass

from runtime.openai.client import Client
from runtime.openai.document import at, list_at, parse, positive_at, text_at
from runtime.openai.exchange import Deadline, RequestFailed

# Values behind these options are for nobody's eyes.
SECRET = re.compile(r"(--(?:\S*api-key|\S*password|\S*token|\S*secret)[= ]+)\S+")


@dataclass(frozen=True)
class Facts:
    """Limits are None where the engine does not say or has none; tokens, but for ``running_requests``.

    ``why_not``: why nothing is known; empty if something is. ``arguments``: the command line, without secrets.
    """

    version: str = ""
    model_path: str = ""
    arguments: str = ""
    running_requests: int | None = None
    chunked_prefill: int | None = None
    page: int | None = None
    context: int | None = None
    total_tokens: int | None = None
    speculative: str = ""
    why_not: str = ""

    @property
    def longest(self) -> int | None:
        """How many tokens one request may have, prompt and answer together."""
        known = [limit for limit in (self.context, self.total_tokens) if limit]
        return min(known) if known else None


def read_facts(client: Client, deadline: Deadline) -> Facts:
    """Ask the engine. An engine that does not know ``/server_info`` is no failure, one that is silent is.

    :raises RequestFailed: unreachable or silent.
    """
    context = None
    try:
        status, body = client.get("/v1/models", deadline)
        context = positive_at(parse(body), "data", 0, "max_model_len") if status == 200 else None
        status, body = client.get("/server_info", deadline)
        if status != 200:
            return Facts(context=context, why_not=f"GET /server_info was answered with {status}")
        return _facts(parse(body), context)
    except RequestFailed as failure:
        if failure.gone:
            raise
        return Facts(context=context, why_not=failure.sentence)
    except ValueError as error:
        return Facts(context=context, why_not=f"GET /server_info: the answer {error}")


def _facts(info: object, context: int | None) -> Facts:
    state = next(iter(list_at(info, "internal_states")), None)
    command = at(info, "launch_command")
    return Facts(
        version=text_at(info, "version"),
        model_path=text_at(info, "model_path"),
        arguments=SECRET.sub(r"\1...", command) if isinstance(command, str) else "",
        # What was asked for may be more than the memory allows; the scheduler knows what it came to.
        running_requests=positive_at(state, "effective_max_running_requests_per_dp")
        or positive_at(info, "max_running_requests"),
        chunked_prefill=positive_at(info, "chunked_prefill_size"),
        page=positive_at(info, "page_size"),
        context=context or positive_at(info, "context_length"),
        total_tokens=positive_at(info, "max_total_num_tokens"),
        speculative=text_at(info, "speculative_algorithm"),
    )
