"""The questions that are under way to the engine's HTTP server."""

import select

from runtime.environment import Endpoint
from runtime.sglang.client import Answer, Request
from runtime.sglang.config import EngineConfig
from runtime.sglang.health import Ask, question


class Asking:
    """At most one request per kind of question, followed in a poll set of the caller's."""

    def __init__(self, endpoint: Endpoint, config: EngineConfig, poll: select.poll) -> None:
        self._endpoint = endpoint
        self._config = config
        self._poll = poll
        self._bearer = config.argument("--api-key")
        self._requests: dict[Ask, Request] = {}

    def ask(self, ask: Ask, seconds: float, now: float) -> None:
        put = question(ask, self._config)
        request = Request(self._endpoint, put.path, now + seconds, put.body, self._bearer)
        self._requests[ask] = request
        self._poll.register(request, request.events)

    def step(self, now: float) -> list[tuple[Ask, Answer]]:
        """Go on with all of them; what has been answered, or has failed."""
        answers: list[tuple[Ask, Answer]] = []
        for ask, request in list(self._requests.items()):
            number = request.fileno()
            answer = request.step(now)
            if answer is None:
                self._poll.modify(number, request.events)
                continue
            self._poll.unregister(number)
            del self._requests[ask]
            answers.append((ask, answer))
        return answers

    def close(self) -> None:
        for request in self._requests.values():
            self._poll.unregister(request.fileno())
            request.close()
        self._requests.clear()
