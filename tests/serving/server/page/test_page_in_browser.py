"""The page at `/` in headless Chromium, for people, keyboards and screen readers."""

import contextlib
import json
import os
import shutil
import subprocess
import sys

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

from serving.server import Server
from tests.serving.server.page import page_model

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed on this machine")

# Quotes of both kinds, what shells and HTML read, and letters of one to four bytes.
TEXT = """it's "so" \\ good $HOME `ls` <b>not</b> not café 日本 😀 &amp; fine"""
expect.set_options(timeout=30_000)


@pytest.fixture(scope="module")
def server(tmp_path_factory, free_port):
    """A server of two models; the second one has a version that cannot be loaded."""
    folder = tmp_path_factory.mktemp("page")
    page_model.save(folder / "a" / "1")
    shutil.copytree(folder / "a", folder / "b")
    config = folder / "models.config"
    config.write_text(
        "model_config_list {"
        f"config {{ name: {json.dumps(page_model.NAME)} base_path: '{folder}/a' "
        "model_platform: 'tensorflow' }"
        f"config {{ name: 'other' base_path: '{folder}/b' model_platform: 'tensorflow' }} }}"
    )
    port = free_port()
    options = {"port": 0, "rest_api_port": port, "file_system_poll_wait_seconds": 0}
    with Server(model_config_file=str(config), **options) as server:
        (folder / "b" / "2").mkdir()
        (folder / "b" / "2" / "saved_model.pb").write_bytes(b"<i>broken</i>")
        server.models.poll()
        yield f"http://127.0.0.1:{port}/"


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM)
        yield started
        started.close()


@pytest.fixture
def open_page(browser, server):
    """A function that opens the page in a new window; nothing may go wrong there unsaid."""
    faults, urls = [], []
    with contextlib.ExitStack() as stack:

        def open_in(**options):
            context = stack.enter_context(browser.new_context(**options))
            context.grant_permissions(["clipboard-read", "clipboard-write"])
            page = context.new_page()
            page.on("pageerror", lambda error: faults.append(str(error)))
            page.on("console", lambda message: faults.append(message.text))
            page.on("dialog", lambda dialog: faults.append(dialog.message))
            page.on("request", lambda request: urls.append(request.url))
            page.goto(server)
            expect(page.get_by_label("text", exact=True)).to_be_visible()
            return page

        yield open_in
    assert [url for url in urls if not url.startswith((server, "data:"))] == []
    # Chromium reports every reply that is an error; the page shows those itself.
    assert [fault for fault in faults if "Failed to load resource" not in fault] == []


def ask(page, text=TEXT):
    """Asks about a text."""
    page.get_by_label("text", exact=True).fill(text)
    page.get_by_role("button", name="Ask").click()


def headline(page):
    return page.locator("#headline")


def answer_of(page):
    """The answer in JSON, which the page shows last."""
    return json.loads(page.locator("#answer details pre").last.text_content())


@pytest.mark.slow
def test_an_answer_with_its_scores_and_words(open_page):
    """All is text: what was typed, the labels, the model's name."""
    page = open_page()
    expect(page.get_by_label("Signature")).to_have_value("explain")
    ask(page)
    expect(headline(page)).to_have_text("fine & good 0.867 unsure")
    rows = page.get_by_role("list", name="Scores").get_by_role("listitem")
    assert [row.inner_text().split("\n") for row in rows.all()] == [
        ["fine & good", "0.867"],
        [page_model.LABELS[0], "0.133"],
    ]
    assert page.locator(".words").text_content() == TEXT
    marks = page.locator(".words mark").all()
    assert [mark.text_content() for mark in marks] == TEXT.split(" ")
    against = [m.text_content() for m in marks if m.get_attribute("class") == "against"]
    assert against == ["not"]
    assert [m.get_attribute("title") for m in marks if m.text_content() == "not"] == ["−0.500"]
    expect(page.locator(".legend").last).to_have_text("Against it “not”\u00a0−0.500")
    page.get_by_text("Each word's share").click()
    cells = page.get_by_role("row").last.locator("th, td").all_inner_texts()
    assert cells == ["fine", "text", "+0.250"]
    assert page.title() == "Try a model"
    assert page.locator("main img, main script, main b, main i").count() == 0


def test_an_answer_of_which_nothing_was_read(open_page):
    page = open_page()
    ask(page, "")
    expect(headline(page)).to_contain_text("unsure a text is blank")


def test_choices_are_explained_one_by_one(open_page):
    page = open_page()
    page.get_by_label("Signature").select_option("pick")
    page.get_by_label("choices").fill("maybe\n\nnaïvely")
    ask(page, "Why?")
    expect(headline(page)).to_have_text("naïvely 0.731")
    rows = page.get_by_role("list", name="Scores").get_by_role("listitem")
    assert rows.all_inner_texts() == ["naïvely\n0.731", "maybe\n0.269"]
    headings = page.locator("#answer h3").all_inner_texts()
    assert headings == ["text", "choices, 1", "choices, 2"]
    assert page.locator(".words").all_inner_texts() == ["Why?", "maybe", "naïvely"]
    titles = [mark.get_attribute("title") for mark in page.locator(".words mark").all()]
    assert titles == ["−0.500", "+0.500", "+1.500"]
    page.get_by_text("Each word's share").click()
    cells = page.get_by_role("row").last.locator("th, td").all_inner_texts()
    assert cells == ["naïvely", "choices, 2", "+1.500"]


def test_the_request_to_copy(open_page):
    """In a shell and in Python, what was copied gets the page's answer."""
    page = open_page()
    ask(page)
    expect(headline(page)).to_contain_text("fine & good")
    programs = {"curl": ["bash", "-c"], "Python": [sys.executable, "-I", "-c"]}
    answers = {}
    for name, program in programs.items():
        page.get_by_role("button", name=f"Copy the request as {name}").click()
        expect(page.locator("#copied")).to_have_text("Copied.")
        copied = page.evaluate("navigator.clipboard.readText()")
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "no_proxy": "*"}
        process = subprocess.run(
            [*program, copied], capture_output=True, text=True, env=environment, timeout=60
        )
        assert process.returncode == 0, process.stderr
        answers[name] = process.stdout
    assert json.loads(answers["curl"]) == answer_of(page)
    assert answers["Python"].strip() == str(answer_of(page))


def test_a_field_for_every_kind_of_input(open_page):
    page = open_page()
    page.get_by_label("Signature").select_option("mixed")
    page.get_by_label("text", exact=True).fill("a")
    page.get_by_label("choices").fill("one\n\ntwo's\n")
    page.get_by_label("flag").check()
    page.get_by_label("temperature").fill("-1.5e-3")
    page.get_by_label("scalar").fill("-9007199254740991")
    expect(page.get_by_label("length")).to_have_value("40")
    ask_button = page.get_by_role("button", name="Ask")
    ask_button.click()  # the matrix is missing
    expect(page.get_by_label("matrix")).to_be_focused()
    expect(page.locator("#curl")).to_have_text("Fill in all fields first.")
    page.get_by_label("matrix").fill("[1, 2.5]")
    expect(page.locator("#python")).to_contain_text('"flag": [True]')
    ask_button.click()
    expect(headline(page)).to_have_text("Answered")
    assert answer_of(page)["outputs"] == {
        "choices": [["one", "two's"]],
        "flag": [True],
        "length": [40],
        "matrix": [[1.0, 2.5]],
        "scalar": -9007199254740991,
        "temperature": [-0.0015],
        "text": ["a"],
    }


def test_an_output_alone_and_signatures_that_cannot_be_asked(open_page):
    page = open_page()
    signature = page.get_by_label("Signature")
    assert signature.locator("option").all_inner_texts() == [
        *("explain", "serving_default", "mixed", "only", "pick", "refuse", "unbounded"),
        "classify (takes tf.Examples)",
    ]
    expect(signature.locator("option").last).to_be_disabled()
    page.get_by_label("text", exact=True).fill("on")
    signature.select_option("only")
    page.get_by_role("button", name="Ask").click()  # what was typed is still there
    expect(headline(page)).to_have_text("on and on")


def test_errors_in_words(open_page, server):
    page = open_page()
    alert = page.get_by_role("alert")
    signature = page.get_by_label("Signature")
    signature.select_option("refuse")
    ask(page, "a <i>b</i>")
    expect(alert).to_contain_text("<b>No</b>")
    expect(headline(page)).to_be_empty()
    signature.select_option("unbounded")
    expect(alert).to_be_empty()
    ask(page)
    expect(headline(page)).to_have_text("-Infinity")  # which JSON cannot say, and Python's does
    page.route("**/*:predict", lambda route: route.fulfill(body="<b>Bad gateway</b>", status=502))
    ask(page)
    expect(alert).to_have_text(
        "The server's reply, with status 502, is not JSON: <b>Bad gateway</b>"
    )
    page.unroute("**/*:predict")
    page.route("**/*:predict", lambda route: route.abort())
    ask(page)
    expect(alert).to_have_text("The server does not answer. Is it still running?")


def test_versions_that_are_served_and_one_that_is_not(open_page):
    page = open_page()
    page.get_by_label("Model").select_option("other")
    state = page.locator("#state")
    expect(state).to_contain_text("Version 2 is not served: Cannot load version 2 of model other: ")
    options = page.get_by_label("Version").locator("option")
    assert options.all_inner_texts() == ["latest (1)", "1"]
    page.get_by_label("Version").select_option("1")
    expect(page.locator("#curl")).to_contain_text("/v1/models/other/versions/1:predict")
    ask(page)
    expect(headline(page)).to_contain_text("fine & good")


def test_what_is_asked_while_a_version_is_looked_up_is_not_lost(open_page):
    page, held = open_page(), []
    page.route("**/versions/1/metadata", lambda route: held.append(route))
    with page.expect_request("**/versions/1/metadata"):
        page.get_by_label("Version").select_option("1")
    ask(page)
    held.pop().continue_()
    expect(headline(page)).to_have_text("fine & good 0.867 unsure")


def test_the_keyboard_is_enough(open_page):
    """In the order of the page; the focus is seen, and stays where it was while one asks."""
    page = open_page()

    def next_focus():
        page.keyboard.press("Tab")
        return page.evaluate("document.activeElement.id || document.activeElement.ariaLabel")

    assert [next_focus() for _ in range(4)] == ["model", "version", "signature", "field-0"]
    page.keyboard.type("a very good film")
    page.keyboard.press("Control+Enter")
    expect(headline(page)).to_contain_text("fine & good")
    expect(page.get_by_label("text", exact=True)).to_be_focused()
    assert next_focus() == "ask"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Ask")).to_be_focused()
    expect(headline(page)).to_contain_text("fine & good")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_to_mend(open_page, scheme):
    """Roles, names, contrast: WCAG 2.2 A and AA and axe's best practices."""
    page = open_page(color_scheme=scheme)
    ask(page)
    expect(headline(page)).to_contain_text("fine & good")
    for summary in page.locator("summary").all():
        summary.click()
    found = Axe().run(page)
    assert found.response["passes"]
    assert found.violations_count == 0, found.generate_report()
    assert found.response["incomplete"] == []  # what it could not tell, such as a contrast


@pytest.mark.parametrize("width", [320, 400])
def test_a_phone_scrolls_in_one_direction(open_page, width):
    page = open_page(viewport={"width": width, "height": 640}, has_touch=True, is_mobile=True)
    ask(page, TEXT + " " + "w" * 200)
    expect(headline(page)).to_contain_text("fine & good")
    for summary in page.locator("summary").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth") == width
