"""A load client with many requests in flight, and the coordinator's end of its pipe."""

from __future__ import annotations

import asyncio
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess

import httpx

from geokv.clock import now_ns
from geokv.coordinator.client import Question, Reply, ask
from geokv.errors import RunError
from geokv.lab.enter import enter_netns
from geokv.units import NS_PER_S

_GRACE_S = 5.0
"""What a client's process may take beyond the deadline of its request."""


def run_stream_client(netns: str, orders: Connection) -> None:
    """Process entry: answer each ``Question`` with a ``Reply``, in the order they end, until
    the pipe closes."""
    enter_netns(netns)
    asyncio.run(_serve(orders))


async def _serve(orders: Connection) -> None:
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    asking: set[asyncio.Task[None]] = set()
    limits = httpx.Limits(max_connections=None, keepalive_expiry=None)
    async with httpx.AsyncClient(limits=limits, trust_env=False) as http:

        async def answer(question: Question) -> None:
            reply = await ask(http, question)
            if not over.is_set():
                orders.send(reply)

        def on_readable() -> None:
            try:
                question = orders.recv()
            except (EOFError, OSError):
                loop.remove_reader(orders.fileno())
                over.set()
                return
            task = loop.create_task(answer(question))
            asking.add(task)
            task.add_done_callback(asking.discard)

        loop.add_reader(orders.fileno(), on_readable)
        await over.wait()
        for task in list(asking):
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


class StreamClient:
    """A running load client as the coordinator sees it: many may wait for it at once."""

    def __init__(self, process: ForkServerProcess, orders: Connection) -> None:
        self.process = process
        self._orders = orders
        self._waiting: dict[str, asyncio.Future[Reply]] = {}
        self._listening = False

    async def ask(self, question: Question) -> Reply:
        """Send one question; its reply, whenever it comes.

        Raises:
            RunError: the client's process gave no reply; that is this run's fault, not the
                site's.
        """
        loop = asyncio.get_running_loop()
        if not self._listening:
            loop.add_reader(self._orders.fileno(), self._on_readable)
            self._listening = True
        waiting: asyncio.Future[Reply] = loop.create_future()
        self._waiting[question.request_id] = waiting
        try:
            self._orders.send(question)
            until_s = now_ns() / NS_PER_S + question.deadline_s + _GRACE_S
            async with asyncio.timeout_at(until_s):
                return await waiting
        except TimeoutError:
            raise RunError(
                f"the load client gave no reply to {question.request_id}", "see log.txt"
            ) from None
        except OSError as error:
            raise RunError(f"the load client ended: {error}") from None
        finally:
            self._waiting.pop(question.request_id, None)

    def stop_listening(self) -> None:
        """Before the event loop ends."""
        if self._listening:
            asyncio.get_running_loop().remove_reader(self._orders.fileno())
            self._listening = False

    def _on_readable(self) -> None:
        try:
            reply = self._orders.recv()
        except (EOFError, OSError) as error:
            self.stop_listening()
            for left in self._waiting.values():
                if not left.done():
                    left.set_exception(RunError(f"the load client ended: {error}"))
            return
        waiting = self._waiting.get(reply.request_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(reply)
