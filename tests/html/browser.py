"""A real browser for tests: chromium, driven over chromedriver's WebDriver protocol with the standard library alone."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
]
START_TIMEOUT_S = 20.0


def missing() -> str:
    """Why there is no browser to test with; "" where there is one."""
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"{' and '.join(absent)} not installed" if absent else ""


class Browser:
    """One headless chromium with one page."""

    def __init__(self) -> None:
        self.profile = tempfile.mkdtemp(prefix="gradscope-browser-")
        port = _free_port()
        self.driver = subprocess.Popen(
            [shutil.which("chromedriver") or "chromedriver", f"--port={port}", "--log-level=OFF"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.url = f"http://127.0.0.1:{port}"
        self._wait()
        options = {
            "binary": shutil.which("chromium"),
            "args": [*FLAGS, f"--user-data-dir={self.profile}"],
            "perfLoggingPrefs": {"enableNetwork": True, "enablePage": False},
        }
        wanted = {
            "alwaysMatch": {
                "goog:chromeOptions": options,
                "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            }
        }
        self.session = f"/session/{self._send('POST', '/session', {'capabilities': wanted})['sessionId']}"

    def close(self) -> None:
        """End the browser."""
        try:
            self._send("DELETE", self.session)
        finally:
            self.driver.terminate()
            self.driver.wait(10)
            shutil.rmtree(self.profile, ignore_errors=True)

    def open(self, path: Path) -> None:
        """Open a file from a clean log."""
        self.log("browser"), self.log("performance")
        self._send("POST", f"{self.session}/url", {"url": path.as_uri()})

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page (outside its content-security policy) and return its result."""
        return self._send("POST", f"{self.session}/execute/sync", {"script": script, "args": list(arguments)})

    def run_async(self, script: str, *arguments: Any) -> Any:
        """Run a script that calls its last argument with the result."""
        return self._send("POST", f"{self.session}/execute/async", {"script": script, "args": list(arguments)})

    def wait_for(self, condition: str, timeout_s: float = 10.0) -> None:
        """Wait until a JavaScript expression is true."""
        end = time.monotonic() + timeout_s
        while not self.run(f"return Boolean({condition})"):
            if time.monotonic() > end:
                raise TimeoutError(f"never true: {condition}; console: {self.log('browser')}")
            time.sleep(0.02)

    def log(self, kind: str) -> list[dict[str, Any]]:
        """Return and empty a log: "browser" (console) or "performance" (network)."""
        return list(self._send("POST", f"{self.session}/se/log", {"type": kind}))

    def requests(self) -> list[str]:
        """Every address the page asked for since it was opened, beside itself and inline data."""
        found = []
        for entry in self.log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = message["params"]["request"]["url"]
                if not url.startswith(("data:", "blob:")):
                    found.append(url)
        return found

    def cdp(self, command: str, **parameters: Any) -> Any:
        """Send a DevTools command."""
        return self._send("POST", f"{self.session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def size(self, width: int, height: int, *, mobile: bool = False, scale: float = 1) -> None:
        """Set the size of the page in CSS pixels."""
        self.cdp(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile
        )

    def scheme(self, name: str, media: str = "") -> None:
        """Prefer "light" or "dark"; `media` may be "print"."""
        self.cdp("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": name}])

    def scripts(self, *, on: bool) -> None:
        """Switch the page's scripts on or off."""
        self.cdp("Emulation.setScriptExecutionDisabled", value=not on)

    def keys(self, *keys: str) -> None:
        """Press keys, one after the other."""
        actions = [
            action for key in keys for action in ({"type": "keyDown", "value": key}, {"type": "keyUp", "value": key})
        ]
        self._send(
            "POST", f"{self.session}/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]}
        )

    def screenshot(self, path: Path, *, full: bool = False) -> None:
        """Save what is seen, or the full page."""
        options: dict[str, Any] = {"captureBeyondViewport": full}
        if full:
            box = self.cdp("Page.getLayoutMetrics")["cssContentSize"]
            options["clip"] = {"x": 0, "y": 0, "width": box["width"], "height": box["height"], "scale": 1}
        path.write_bytes(base64.b64decode(self.cdp("Page.captureScreenshot", **options)["data"]))

    def pdf(self) -> bytes:
        """Print the page."""
        return base64.b64decode(self._send("POST", f"{self.session}/print", {"page": {"width": 21.0, "height": 29.7}}))

    def _wait(self) -> None:
        end = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                if self._send("GET", "/status")["ready"]:
                    return
            except (urllib.error.URLError, ConnectionError):
                if time.monotonic() > end:
                    raise
            time.sleep(0.05)

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if method in ("GET", "DELETE") else json.dumps(body or {}).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from None


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
