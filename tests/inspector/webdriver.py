"""A small client of the WebDriver protocol: a headless Chromium that tests click in."""

from __future__ import annotations

import json
import re
import subprocess
import time
from base64 import b64decode
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from shutil import which
from typing import Any, Self

_WAIT = 20
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find_browser() -> tuple[str, str] | None:
    """A Chromium and its driver, if both are here."""
    browser = next((path for name in _BROWSERS if (path := which(name))), None)
    driver = which("chromedriver")
    return (browser, driver) if browser and driver else None


class Browser:
    """One page of a headless browser. Every wait ends after some seconds."""

    def __init__(self, folder: Path, size: tuple[int, int] = (1500, 950), *, is_dark: bool = False) -> None:
        found = find_browser()
        assert found is not None
        browser, driver = found
        self.downloads = folder
        self._process = subprocess.Popen(
            [driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._port = self._find_port()
        how = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        how += [f"--window-size={size[0]},{size[1]}", f"--user-data-dir={folder / 'profile'}"]
        how += ["--blink-settings=preferredColorScheme=" + ("0" if is_dark else "1")]
        options = {"binary": browser, "args": how, "prefs": {"download.default_directory": str(folder)}}
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{made['sessionId']}"

    def _find_port(self) -> int:
        assert self._process.stdout is not None
        deadline = time.monotonic() + _WAIT
        while time.monotonic() < deadline:
            line = self._process.stdout.readline()
            if found := re.search(r"started successfully on port (\d+)", line):
                return int(found[1])
        raise TimeoutError("chromedriver does not say on which port it listens")

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None)
            answer = json.loads(connection.getresponse().read())["value"]
        finally:
            connection.close()
        if isinstance(answer, dict) and "error" in answer:
            raise AssertionError(f"{answer['error']}: {answer['message'].splitlines()[0]}")
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *why: object) -> None:
        try:
            self._call("DELETE", self._session)
        finally:
            self._process.terminate()
            self._process.wait(_WAIT)
            assert self._process.stdout is not None
            self._process.stdout.close()

    def open(self, address: str) -> None:
        """Go to a page and wait until it has drawn."""
        self._call("POST", f"{self._session}/url", {"url": address})
        self.wait_for(lambda: self.run("return Number(document.documentElement.dataset.drawn ?? 0) > 0"))

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns."""
        return self._call(
            "POST", f"{self._session}/execute/sync", {"script": script, "args": list(arguments)}
        )

    def wait_for(self, is_so: Callable[[], Any]) -> Any:
        """What the function gives, once it gives something."""
        deadline = time.monotonic() + _WAIT
        while time.monotonic() < deadline:
            if found := is_so():
                return found
            time.sleep(0.02)
        raise AssertionError(f"waited {_WAIT} s in vain; the page says {self.text('#where')!r}")

    def find(self, selector: str) -> list[str]:
        """The elements that a CSS selector is for."""
        query = {"using": "css selector", "value": selector}
        found = self._call("POST", f"{self._session}/elements", query)
        return [one[_ELEMENT] for one in found]

    def click(self, selector: str, at: int = 0) -> None:
        """Click an element, as a person would."""
        self._call("POST", f"{self._session}/element/{self.find(selector)[at]}/click", {})

    def click_at(self, selector: str, x: float, y: float) -> None:
        """Click a place in an element, counted from its upper left corner."""
        left, top = self.run(
            "const e = document.querySelector(arguments[0]); e.scrollIntoView({block: 'center'});"
            "const r = e.getBoundingClientRect(); return [r.left, r.top]",
            selector,
        )
        move = {"type": "pointerMove", "duration": 0, "x": round(left + x), "y": round(top + y)}
        press = [{"type": kind, "button": 0} for kind in ("pointerDown", "pointerUp")]
        mouse = {"type": "pointer", "id": "mouse", "actions": [move, *press]}
        self._call("POST", f"{self._session}/actions", {"actions": [mouse]})

    def type(self, selector: str, text: str) -> None:
        """Type into an element."""
        self._call("POST", f"{self._session}/element/{self.find(selector)[0]}/value", {"text": text})

    def press(self, key: str) -> None:
        """Press a key, wherever the focus is."""
        actions = [{"type": kind, "value": key} for kind in ("keyDown", "keyUp")]
        keyboard = {"type": "key", "id": "keys", "actions": actions}
        self._call("POST", f"{self._session}/actions", {"actions": [keyboard]})

    def text(self, selector: str) -> str:
        """The text of an element."""
        found = self.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector)
        return str(found)

    def texts(self, selector: str) -> list[str]:
        """The texts of all such elements."""
        script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
        return [str(text) for text in self.run(script, selector)]

    def complaints(self) -> list[str]:
        """What the console said since the last call, for worse than information."""
        said = self._call("POST", f"{self._session}/se/log", {"type": "browser"})
        return [line["message"] for line in said if line["level"] in ("SEVERE", "WARNING")]

    def busy_seconds(self) -> float:
        """How much processor time the page's main thread has used since it was opened."""
        ask = f"{self._session}/goog/cdp/execute"
        self._call("POST", ask, {"cmd": "Performance.enable", "params": {"timeDomain": "threadTicks"}})
        found = self._call("POST", ask, {"cmd": "Performance.getMetrics", "params": {}})["metrics"]
        return next(float(one["value"]) for one in found if one["name"] == "TaskDuration")

    def screenshot(self, file: Path) -> None:
        """A picture of the page."""
        file.write_bytes(b64decode(self._call("GET", f"{self._session}/screenshot")))
