"""A headless Chromium that is told what to do over its DevTools protocol."""

import asyncio
import base64
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

from tests.support.patience import PATIENCE_S, eventually

NAMES: Final = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")


def why_not_available() -> str | None:
    """None when a browser can be started."""
    return None if chromium_command() else "Chromium is missing: install Debian's package chromium"


def chromium_command() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


class Chromium:
    """One window.  `complaints` has what pages said on the console at level error, uncaught exceptions, and refusals of
    their content security policy.  Use it as an asynchronous context manager."""

    def __init__(self, directory: Path, *, width: int = 1280, height: int = 900) -> None:
        self.complaints: list[str] = []
        self._profile = directory / "chromium"
        self._size = (width, height)
        self._process: subprocess.Popen[bytes] | None = None
        self._session = aiohttp.ClientSession()
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._numbers = iter(range(1, 1 << 30))

    async def __aenter__(self) -> Self:
        command = chromium_command()
        assert command is not None, why_not_available()
        self._profile.mkdir(parents=True)
        width, height = self._size
        arguments = [
            *("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--lang=en"),
            *([] if os.getuid() else ["--no-sandbox"]),  # its sandbox refuses root
            f"--window-size={width},{height}",
            f"--user-data-dir={self._profile}",
            "--remote-debugging-port=0",
            "about:blank",
        ]
        with (self._profile / "output").open("wb") as output:
            # A group of its own: it has many processes, and all must end.
            self._process = subprocess.Popen([command, *arguments], stdout=output, stderr=output, process_group=0)
        try:
            await self._connect()
            for domain in ("Page", "Runtime", "Log"):
                await self._order(f"{domain}.enable")
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._socket is not None:
            await self._socket.close()
        await self._session.close()
        if self._process is not None:
            os.killpg(self._process.pid, 9)
            self._process.wait()

    async def open(self, url: str) -> None:
        """And wait until its scripts have begun."""
        await self._order("Page.navigate", url=url)
        await eventually(self._is_complete, f"{url} is loaded", lambda: "\n".join(self.complaints))

    async def _is_complete(self) -> bool:
        return bool(await self.evaluate("document.readyState") == "complete")

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = await self._order("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def text(self, selector: str = "body") -> str:
        """What a reader sees of the first element; empty while there is none."""
        found = await self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        return str(found)

    async def text_when(self, is_there: Callable[[str], bool], selector: str = "body") -> str:
        """The text, once it is what somebody waits for."""
        text = ""

        async def comes() -> bool:
            nonlocal text
            text = await self.text(selector)
            return is_there(text)

        def shown() -> str:
            return f"{text}\nand the browser said: " + "\n".join(dict.fromkeys(self.complaints))

        await eventually(comes, f"the text of {selector} comes", shown)
        return text

    async def set_colors(self, scheme: str) -> None:
        """`light` or `dark`."""
        await self._order("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def screenshot(self) -> bytes:
        """The whole page, as a PNG."""
        answer = await self._order("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(answer["data"])

    # -- the protocol -----------------------------------------------------------------------------------------------

    async def _connect(self) -> None:
        address = self._profile / "DevToolsActivePort"

        def output() -> str:
            return (self._profile / "output").read_text(errors="replace")

        async def listens() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, f"Chromium ended:\n{output()}"
            return address.exists() and len(address.read_text().split()) >= 2

        await eventually(listens, "Chromium listens", output)
        port = address.read_text().split()[0]

        async def pages() -> list[dict[str, str]]:
            async with self._session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                return [target for target in await answer.json() if target["type"] == "page"]

        (page,) = await eventually(pages, "Chromium has its page", output)  # it listens before it has one
        self._socket = await self._session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0)

    async def _order(self, method: str, **parameters: Any) -> Any:
        assert self._socket is not None
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(PATIENCE_S):
            while True:
                message = await self._socket.receive_json()
                if message.get("id") == number:
                    assert "error" not in message, f"{method}: {message['error']}"
                    return message["result"]
                self._note(message)

    def _note(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(parameters["exceptionDetails"]))
        elif event.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.complaints.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")
        elif event.get("method") == "Runtime.consoleAPICalled" and parameters["type"] == "error":
            self.complaints.append(json.dumps(parameters["args"]))
