"""The page as one file that can be mailed: style, program and data are in it, and nothing is fetched.

The program of the page is plain ES modules. In one file they stand one after the other, in the order of their
imports, without the words ``import`` and ``export``: their top-level names differ, which a test checks. The
policy names the digests of the one style and the one script; the data is a block that is not executed.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final

FILES: Final = ("index.html", "style.css", "main.js")
_IMPORT: Final = re.compile(r'^import \{[^}]*\} from "\./([a-z_]+\.js)";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export ", re.MULTILINE)


def read_page_file(name: str) -> str:
    """A file of the page."""
    return files("recension.inspector").joinpath("page", name).read_text(encoding="utf-8")


def modules(first: str = "main.js") -> dict[str, str]:
    """The modules of the page, each after those it imports."""
    found: dict[str, str] = {}

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(f"{name} imports itself, by way of {' and '.join(above)}")
        if name not in found:
            text = read_page_file(name)
            for other in _IMPORT.findall(text):
                visit(other, (*above, name))
            found[name] = text

    visit(first, ())
    return found


def page_in_one_file(data: dict[str, Any]) -> str:
    """The whole page with its data."""
    program = "\n".join(_EXPORT.sub("", _IMPORT.sub("", text)) for text in modules().values())
    style = read_page_file("style.css")
    policy = (
        f"default-src 'none'; script-src {_source_of(program)}; style-src {_source_of(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    page = read_page_file("index.html")
    for old, new in (
        ('<meta name="policy">', head),
        ('<link rel="stylesheet" href="style.css">', f"<style>{style}</style>"),
        (
            '<script type="module" src="main.js"></script>',
            f'<script type="application/json" id="data">{_inert(data)}</script>\n'
            f'<script type="module">{program}</script>',
        ),
    ):
        if page.count(old) != 1:
            raise ValueError(f"the page has not exactly one {old}")
        page = page.replace(old, new)
    return page


def _source_of(text: str) -> str:
    """A script or style as a policy names it."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode('ascii')}'"


def _inert(data: dict[str, Any]) -> str:
    """JSON in which no tag can begin or end."""
    return (
        json.dumps(data, ensure_ascii=True, separators=(",", ":"))
        .replace("<", "\\u003c")
        .replace(">", "\\u003e")
    )
