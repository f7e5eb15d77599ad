"""Foreign text is text: one door for each medium that would read it as something else.

Foreign is whatever stands in a database, a file, an address or an answer: names of runs, models, folders and arms,
reasons, events. Whoever shows it takes the door of the medium.
"""

import html
import json
import re
import unicodedata
from typing import Any

JOINER = "\u2060"  # word joiner: shows nothing, and parts what a renderer would put together
# what Markdown and Streamlit's additions to it read where it stands inside a line
_MARKS = re.compile(
    r"([\\`*\[\]$~|]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|<(?=[A-Za-z/!?])|&(?=[#A-Za-z])|^[#>+=-])"
)
_SHORTCODE = re.compile(
    r":(?=[\w+/-]+[:\[{])"
)  # :smile: and :material/bolt: are made of the text that escapes leave
_ADDRESS = re.compile(
    r"(?<=[a-z])(?=://)|(?<=\bwww)(?=\.)|(?<=\w@)(?=[\w-]+\.)", re.I
)  # becomes a link by itself
_NUMBERED = re.compile(r"^(\d{1,9})([.)])")
_ARROW = re.compile(r"(?<!\S)(<|-|>|~)(?=->|-|>|=)")  # -> and the like become signs


def in_markdown(text: object) -> str:
    """Text that Streamlit's Markdown shows as it is, in one line."""
    line = _MARKS.sub(r"\\\1", _in_one_line(text))
    line = _NUMBERED.sub(r"\1\\\2", line)
    line = _SHORTCODE.sub(f"\\\\:{JOINER}", line)
    line = _ARROW.sub(rf"\1{JOINER}", line)
    return _ADDRESS.sub(JOINER, line)


def _in_one_line(text: object) -> str:
    return re.sub(r"[ \t\n]+", " ", visible(str(text))).strip()


def in_html(text: object) -> str:
    """Text between the tags of HTML, or in an attribute."""
    return html.escape(visible(str(text)), quote=True)


def in_script(value: Any) -> str:
    """A value as JSON that may stand in a script element: no tag and no comment begins in it."""
    plain = json.dumps(value)
    for sign in "<>&\u2028\u2029":
        plain = plain.replace(sign, f"\\u{ord(sign):04x}")
    return plain


def in_plotly(text: object) -> str:
    """Text of a figure: plotly reads some tags, entities and %{templates}."""
    line = html.escape(visible(str(text)), quote=False)
    return line.replace("%{", f"%{JOINER}{{")


# in the JSON of a figure, where plotly spells < and > so: a tag that is none of those that we write ourselves
_STRANGE = re.compile(r"(?:<|\\u003c)(?!(?:/|\\u002f)?(?:b|br|i|sup|sub|extra)\s*(?:>|\\u003e))", re.I)


def figure_without_links(text: str) -> str:
    """The JSON of a figure, with no link and no element in its texts but those that we write ourselves."""
    return _STRANGE.sub("&lt;", text)


def visible(text: str) -> str:
    """Text without what a terminal obeys or what turns the line about: control and format characters are spelt out.

    Line breaks and tabs stay, and the joiners of emoji and of scripts that need them.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_spelt(sign) if _acts(sign) else sign for sign in text)


def _acts(sign: str) -> bool:
    if sign in "\n\t\u200c\u200d\u2060":
        return False
    return unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _spelt(sign: str) -> str:
    return f"\\x{ord(sign):02x}" if ord(sign) < 256 else f"\\u{ord(sign):04x}"
