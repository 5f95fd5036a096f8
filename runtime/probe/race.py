"""Run several things until the first ends."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


async def race(*contenders: Coroutine[object, object, T]) -> T:
    """The result, or the exception, of whichever ends first; of several at once, of the one named first.

    The others are cancelled and awaited before this returns, so nothing is left running.
    """
    tasks = [asyncio.ensure_future(contender) for contender in contenders]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        winner = next(task for task in tasks if task.done())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return winner.result()
