"""Takes the pictures of the server's page that docs/server.md shows, with Chromium.

    python -m examples.quickstart --serve
    python docs/take_page_pictures.py http://localhost:PORT/

It needs `playwright` and Chromium, which the tests of the page need too.
"""

import io
import pathlib
import shutil
import sys

from PIL import Image
from playwright.sync_api import FloatRect, Page, sync_playwright

FOLDER = pathlib.Path(__file__).parent
TEXT = (
    "The rooms were cold and the breakfast dull, but the staff were kind and the view was lovely."
)
MARGIN = 12
# For each picture: colours, width, and pixels per unit of width.
PICTURES = {"light": ("light", 800, 1.5), "dark": ("dark", 800, 1.5), "phone": ("light", 360, 2)}


def main() -> None:
    chromium = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        for name, (scheme, width, scale) in PICTURES.items():
            page = browser.new_page(
                viewport={"width": width, "height": 640},
                color_scheme=scheme,
                device_scale_factor=scale,
                has_touch=name == "phone",
                is_mobile=name == "phone",
            )
            page.goto(sys.argv[1])
            page.get_by_label("text", exact=True).fill(TEXT)
            page.get_by_role("button", name="Ask").click()
            page.locator("#headline:not(:empty)").wait_for()
            _save(page.screenshot(full_page=True), name)
            if name == "light":
                _save(page.screenshot(full_page=True, clip=_answer(page)), "answer")
        browser.close()


def _answer(page: Page) -> FloatRect:
    """Returns the box of the answer with its explanation."""
    first = page.locator("#headline").bounding_box()
    last = page.locator(".legend").last.bounding_box()
    assert first and last
    return {
        "x": first["x"] - MARGIN,
        "y": first["y"] - MARGIN,
        "width": first["width"] + 2 * MARGIN,
        "height": last["y"] + last["height"] - first["y"] + 2 * MARGIN,
    }


def _save(picture: bytes, name: str) -> None:
    """Writes a picture with few colours, which a page has; the file is a third as long."""
    image = Image.open(io.BytesIO(picture)).convert("RGB").quantize(128)
    image.save(FOLDER / f"page_{name}.png", optimize=True)


if __name__ == "__main__":
    main()
