"""The page in Debian's chromium: it speaks, stops, tells what went wrong, in both languages."""

from __future__ import annotations

import shutil
import wave
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from legato.errors import EngineError, Overloaded

from .fakes import FakeEngine, Plan, Server, serving, wait_for

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium or its driver is not installed"),
]

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    *("--autoplay-policy=no-user-gesture-required", "--window-size=1000,900"),
)


class Page:
    """The page as a person has it: fields, buttons and what is written on it."""

    def __init__(self, browser: webdriver.Chrome, server: Server) -> None:
        self.browser, self.server = browser, server

    def open(self) -> None:
        self.browser.get(self.server.url)
        wait_for(lambda: self.get("model-name").text == self.server.engine.model.name)

    def get(self, name: str):
        return self.browser.find_element("id", name)

    @property
    def state(self) -> str:
        return self.get("status").get_attribute("data-state")

    def figure(self, name: str) -> float | None:
        value = self.get(name).get_attribute("data-value")
        return float(value) if value else None

    def speak(self, text: str) -> None:
        self.get("text").clear()
        self.get("text").send_keys(text)
        self.get("speak").click()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chromium")


@pytest.fixture(scope="module")
def browser(folder: Path) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    options.add_experimental_option("prefs", {"download.default_directory": str(folder)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield browser
    browser.quit()


@pytest.fixture
def page(browser: webdriver.Chrome, server: Server) -> Page:
    page = Page(browser, server)
    page.open()
    return page


def test_it_speaks_without_a_gap(page: Page, folder: Path) -> None:
    plan = page.server.engine.plan = Plan(chunks=20, before_first_s=0.1, between_s=0.05)
    page.speak("A sentence that is played while it is being made.")
    wait_for(lambda: page.state == "playing")
    assert page.server.engine.runs[-1].made_chunks < 20
    wait_for(lambda: page.state == "done")
    assert int(page.get("wave").get_attribute("data-played")) == plan.samples
    assert page.figure("underrun") == 0
    assert page.figure("total") == pytest.approx(plan.samples / 24000)
    assert 100 < page.figure("first-sound") < 1500
    assert 0.5 < page.figure("rtf") < 1.0
    page.get("download").click()
    saved = folder / "legato-ada.wav"
    wait_for(saved.exists)
    with wave.open(str(saved)) as file:
        assert (file.getnframes(), file.getframerate()) == (plan.samples, 24000)
    assert [entry["message"] for entry in page.browser.get_log("browser")] == []


def test_it_speaks_with_the_embedded_voice(
    browser: webdriver.Chrome, real: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page plays as well as the engine delivers: on a busy machine that is not always without an underrun."""
    streams, submit = [], real.engine.submit
    monkeypatch.setattr(real.engine, "submit", lambda request: streams.append(submit(request)) or streams[-1])
    page = Page(browser, real)
    page.open()
    page.speak("Good morning. This is Legato.")
    wait_for(lambda: page.state == "done", limit_s=30)
    report = streams[-1].report
    assert page.figure("total") == pytest.approx(report.audio_s)
    assert int(page.get("wave").get_attribute("data-played")) == round(report.audio_s * 24000)
    assert page.figure("underrun") <= report.underrun_s * 1000 + 50
    assert page.figure("first-sound") >= report.ttfa_s * 1000
    assert page.figure("rtf") > 0


def test_it_counts_the_silence_of_a_server_that_is_too_slow(page: Page) -> None:
    page.server.engine.plan = Plan(chunks=4, between_s=0.3)
    page.speak("Slow.")
    wait_for(lambda: page.state == "done")
    missing_ms = 3 * (300 - 1921 / 24)
    assert page.figure("underrun") == pytest.approx(missing_ms, abs=150)


def test_stopping_cancels_in_the_server(page: Page) -> None:
    page.server.engine.plan = Plan(chunks=100, between_s=0.05)
    page.speak("A long story.")
    wait_for(lambda: page.state == "playing")
    page.get("stop").click()
    run = page.server.engine.runs[-1]
    assert run.cancelled.wait(1) and run.made_chunks < 100
    assert page.state == "stopped"
    assert page.get("download").is_enabled() and not page.get("stop").is_enabled()


def test_errors_are_words(page: Page) -> None:
    page.server.engine.plan = Plan(refuse=Overloaded(9, 9))
    page.speak("Hello.")
    wait_for(lambda: page.state == "failed")
    assert "9 requests are waiting" in page.get("problem").text
    page.server.engine.plan = Plan(fail_after=3, failure=EngineError("out of memory"))
    page.speak("Hello.")
    wait_for(lambda: "broke off" in page.get("problem").text)
    page.server.engine.plan = Plan()
    page.speak("Hello.")
    wait_for(lambda: page.state == "done")
    assert not page.get("problem").is_displayed()


def test_it_speaks_chinese(page: Page) -> None:
    page.get("language").click()
    assert page.browser.find_element("css selector", "html").get_attribute("lang") == "zh-CN"
    assert page.get("speak").text == "朗读"
    page.server.engine.plan = Plan(refuse=Overloaded(9, 9))
    page.speak("你好。")
    wait_for(lambda: page.get("problem").text == "服务器正忙，请稍后再试。")
    page.get("language").click()
    assert page.get("speak").text == "Speak"


def test_keys_of_the_keyboard(page: Page) -> None:
    from selenium.webdriver.common.keys import Keys

    page.server.engine.plan = Plan(chunks=100, between_s=0.05)
    page.get("text").send_keys(Keys.CONTROL, Keys.ENTER)
    wait_for(lambda: page.state == "playing")
    page.get("text").send_keys(Keys.ESCAPE)
    assert page.state == "stopped"


def test_it_asks_for_the_key(browser: webdriver.Chrome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEGATO_TEST_KEY", "sesame")
    with serving(FakeEngine(), api_key_env="LEGATO_TEST_KEY") as server:
        page = Page(browser, server)
        browser.get(server.url)
        wait_for(lambda: page.get("key").is_displayed())
        page.get("key").send_keys("sesame\t")
        wait_for(lambda: page.get("model-name").text == "fake")
        page.speak("Open.")
        wait_for(lambda: page.state == "done")
        assert httpx.get(server.url + "/v1/models").status_code == 401
