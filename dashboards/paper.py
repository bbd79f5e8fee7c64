"""What every static page is made with: its files, its template engine, scripts that may run, figures as safe JSON."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib import resources

import jinja2
import plotly.graph_objects as go
import plotly.io
from markupsafe import Markup


def script_json(picture: go.Figure) -> Markup:
    """The figure as JSON that cannot end the script element it stands in, nor open a comment there."""
    text = plotly.io.to_json(picture, engine="json", validate=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def script_hash(script: str) -> str:
    """The value that lets exactly this inline script run under the page's Content-Security-Policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def asset(name: str) -> str:
    """The text of a file in `dashboards/data`."""
    return resources.files("dashboards").joinpath("data", name).read_text(encoding="utf-8")


def environment() -> jinja2.Environment:
    """Templates of `dashboards/data`: every text escaped, every missing name an error."""
    found = jinja2.Environment(
        loader=jinja2.FunctionLoader(asset),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters["breakable"] = _breakable
    return found


def _breakable(text: str) -> Markup:
    """`text` escaped, with places to break the line between the parts of a name and none inside a number."""
    parts = re.split(r"(?<=_)|(?<=[./])(?=[A-Za-z])", text.replace("\u2009", "\u202f"))
    return Markup("<wbr>").join(parts)
