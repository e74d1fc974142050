"""`python -m tests.support.web_page_picture` writes docs/images/web-page.png: a broker's page during `wherry demo`."""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Final

from broker.demo.layout import METRICS_PORT_OFFSET
from tests.support.chromium import Chromium, why_not_available
from tests.support.demo_process import DemoProcess
from tests.support.patience import eventually

PICTURE: Final = Path(__file__).parents[2] / "docs" / "images" / "web-page.png"
LOOKS: Final = 8  # of the page, every two seconds, until its rates are those of ten seconds


async def take(url: str, directory: Path) -> bytes:
    async with Chromium(directory, width=1440, height=1100) as browser:
        await browser.set_colors("light")
        await browser.open(url)

        async def has_looked() -> bool:
            return int(await browser.evaluate("Number(document.body.dataset.looks ?? 0)")) >= LOOKS

        await eventually(has_looked, f"{LOOKS} looks of the page")
        assert browser.complaints == []
        return await browser.screenshot()


def main() -> int:
    if (reason := why_not_available()) is not None:
        sys.stdout.write(f"{PICTURE.name} is left as it is: {reason}\n")
        return 0
    with tempfile.TemporaryDirectory(prefix="wherry-") as directory, DemoProcess(Path(directory)) as demo:
        demo.wait_for(lambda: float(demo.lines[-1]["tiered_bytes"]) > 0, "segments are tiered")
        picture = asyncio.run(take(f"http://127.0.0.1:{demo.port + METRICS_PORT_OFFSET}/", Path(directory)))
        demo.end()
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_bytes(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
