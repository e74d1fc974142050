import re

import pytest

from broker.server.web_page.static_files import static_files


def test_the_page_and_what_it_needs_are_in_the_package() -> None:
    files = static_files()
    assert files["/"].content_type == "text/html; charset=utf-8"
    page = files["/"].body.decode()
    needed = set(re.findall(r'(?:src|href)="([\w.]+\.(?:js|css))"', page))
    script = files["/page.js"].body.decode()
    needed |= set(re.findall(r'from "\./([\w.]+)"', script))
    assert needed == {path.strip("/") for path in files} - {""}


@pytest.mark.parametrize("path", ["/", "/page.css", "/page.js", "/metrics.js"])
def test_nothing_comes_from_elsewhere_and_nothing_is_written_as_markup(path: str) -> None:
    text = static_files()[path].body.decode()
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text) == []
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|style=|onclick=", text) == []


def test_every_number_of_the_page_has_a_place() -> None:
    page, script = static_files()["/"].body.decode(), static_files()["/page.js"].body.decode()
    places = set(re.findall(r'(?:fill|say)\(\s*"([\w-]+)"', script)) | set(re.findall(r'\$\("([\w-]+)"\)', script))
    assert len(places) > 15
    assert places <= set(re.findall(r'id="([\w-]+)"', page))
