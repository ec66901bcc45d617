"""The connection to a cluster. Only this module uses Dask's client."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from pfedes.config.runtime import RuntimeConfig
from pfedes.errors import ClusterError, ConfigError
from pfedes.fleet.dask.rpc import pack, perform

try:
    import distributed
except ImportError:
    raise ConfigError(
        "a cluster needs the extra 'cluster': pip install 'pfedes[cluster]'"
    ) from None

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger(__name__)

PATIENCE = 5  # seconds, for the scheduler to answer at all
LONGEST_PAUSE = 30  # seconds in which a busy one may not; one that is gone is noticed at once


class Connection:
    """One driver's line to a scheduler, and from there to every worker."""

    def __init__(self, runtime: RuntimeConfig) -> None:
        self.address = runtime.cluster
        # Its messages are for people who know Dask; our own messages say what matters.
        for name in ("distributed", "distributed.client"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        if self.address.startswith("tcp://"):
            log.warning(
                "%s is not encrypted: whoever reaches it can run code on its nodes", self.address
            )
        try:
            self._client = distributed.Client(
                self.address,
                timeout=PATIENCE,
                security=_security(runtime),
                set_as_default=False,
                direct_to_workers=True,  # states need not pass through the scheduler
            )
        except (OSError, RuntimeError, TypeError, ValueError) as error:
            raise ClusterError(f"no connection to {self.address}: {_reason(error)}") from None

    def ask_for_workers(self) -> "Future[dict[str, int]]":
        """The addresses of all workers there are now, each with its number of threads."""
        return self.start(self._workers())

    def check(self) -> None:
        """Raises a ClusterError if the scheduler is gone."""
        if self._client.status != "running":
            raise self._gone()

    def start(self, work: Coroutine[Any, Any, R]) -> "Future[R]":
        """Lets work begin beside everything else that is under way."""
        loop: Any = self._client.loop  # tornado's, around the real one
        return asyncio.run_coroutine_threadsafe(work, loop.asyncio_loop)

    async def call(
        self,
        worker: str,
        function: Callable[P, R],
        *arguments: P.args,
        **_: P.kwargs,
    ) -> R:
        """What a function returns on one worker and on no other, called once and never repeated."""
        answer: R = await self._perform(worker, function, arguments, [])
        return answer

    async def call_with(
        self,
        worker: str,
        function: Callable[Concatenate[bytes, P], R],
        data: bytes,
        *arguments: P.args,
        **_: P.kwargs,
    ) -> R:
        """The same with many bytes, which do not pass through the scheduler."""
        place = await self._client.scatter(data, workers=[worker], direct=True, hash=False)
        answer: R = await self._perform(worker, function, arguments, [place])
        return answer

    async def _perform(
        self,
        worker: str,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        placed: list[Any],
    ) -> Any:
        task = self._client.submit(
            perform,
            *pack(function, arguments),
            *placed,
            workers=[worker],
            allow_other_workers=False,
            pure=False,
            retries=0,
        )
        try:
            return await task
        finally:
            task.release()

    def listen(self, topic: str, hear: Callable[[Any], None]) -> None:
        """Calls `hear` with everything that is said on any worker about a topic."""
        self._client.subscribe_topic(topic, lambda event: hear(event[1]))

    def close(self) -> None:
        """Cancels all calls and disconnects."""
        try:
            self._client.close(timeout=PATIENCE)
        except (OSError, TimeoutError) as error:
            log.info("leaving %s: %s", self.address, error)

    async def _workers(self) -> dict[str, int]:
        try:
            return await asyncio.wait_for(self._client.nthreads(), LONGEST_PAUSE)
        except (OSError, TimeoutError, asyncio.CancelledError) as error:
            raise self._gone() from error

    def _gone(self) -> ClusterError:
        return ClusterError(f"the scheduler at {self.address} is gone: start it again")


def _security(runtime: RuntimeConfig) -> "distributed.Security | None":
    if not runtime.tls_ca:
        if not runtime.cluster.startswith("tls://"):
            return None
        theirs = distributed.Security()  # as Dask's own configuration has it
        if theirs.get_connection_args("client").get("ssl_context") is None:
            raise ConfigError(
                f"{runtime.cluster} needs certificates: --tls DIR, or runtime.tls_ca, tls_cert "
                "and tls_key, or Dask's own configuration"
            )
        return theirs
    files = {"tls_ca": runtime.tls_ca, "tls_cert": runtime.tls_cert, "tls_key": runtime.tls_key}
    for key, name in files.items():
        try:
            Path(name).open("rb").close()
        except OSError as error:
            raise ConfigError(f"runtime.{key} = {name!r}: {error.strerror}") from None
    return distributed.Security(
        tls_ca_file=runtime.tls_ca,
        tls_client_cert=runtime.tls_cert,
        tls_client_key=runtime.tls_key,
        require_encryption=True,
    )


def _reason(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if "certificate" in text.lower():
        return "another authority issued its certificate than yours (runtime.tls_ca, tls_cert)"
    if "Timed out" in text:
        return f"nothing answers there within {PATIENCE} s; is the scheduler running?"
    if "(closed)" in text:
        return (
            "it closed the connection; does it expect tls://, and a certificate of its own "
            "authority?"
        )
    return text
