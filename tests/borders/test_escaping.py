"""Foreign text is text: what each door gives, and every page, terminal and report that shows a string of a database."""

import json
import re

import pytest
import store_frames as frames
from dashboard import ALL_PAGES, opened, page
from rich.console import Console

from avlab.commands import terminal
from avlab.escaping import figure_without_links, in_html, in_markdown, in_plotly, in_script, visible
from avlab.report import report
from avlab.store import queries
from avlab.store.ids import new_run_id
from avlab.store.recorder import Recorder
from avlab.ui import host

IMAGE = "![l](http://e.example/x)"
HOSTILE = (
    f"{IMAGE} [red]Rich[/red] [/x] :smile: :material/bolt: :red[loud] :blue-badge[b] $x^2$ **bold** _under_ ~~gone~~ "
    "`code` <b>B</b> <a href='http://e.example'>a</a> <!--<script>alert(1)</script> \x1b[31mred\x07 \u202eturned "
    "www.e.example a|b &lt; %{y}"
)
# what a renderer would read, of the text that a page sends: none may stand there unescaped
LIVE = re.compile(
    r"(?<!\\)!?\[l(?<!\\)\]\(|(?<!\\)\[red(?<!\\)\]|:(?:smile|material/bolt):|(?<!\\)\*\*bold|(?<!\\)\$x\^|(?<!\\)<(?:b|a|!--|script)"
    r"|:red\[loud|:blue-badge\[b\]|(?<!\\)~~gone|(?<![\\`])`code|\x1b|\x07|\u202e|(?:http|www)(?:://|\.)"
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (IMAGE, "!\\[l\\](http\u2060://e.example/x)"),
        ("# heading", "\\# heading"),
        ("- item", "\\- item"),
        ("12. item", "12\\. item"),
        ("> quoted", "\\> quoted"),
        ("one\n\n# two", "one # two"),
        (":smile:", "\\:\u2060smile:"),
        ("a -> b", "a -\u2060> b"),
        ("max_num_seqs is 5: raise it.", "max_num_seqs is 5: raise it."),
        ("adaptive:converged+depth+stop", "adaptive:converged+depth+stop"),
        ("5\u00a0%", "5\u00a0%"),
    ],
)
def test_markdown_shows_foreign_text_as_it_is(text, shown):
    assert in_markdown(text) == shown


def test_no_foreign_text_lives_in_markdown():
    assert LIVE.search(HOSTILE) and not LIVE.search(in_markdown(HOSTILE))


def test_a_script_element_holds_no_tag_of_a_value():
    made = in_script({"arm": "<!--<script>", "end": "</script>\u2028&"})
    assert not re.search("[<>&\u2028]", made) and json.loads(made)["arm"] == "<!--<script>"
    assert in_html("<'\">\x1b") == "&lt;&#x27;&quot;&gt;\\x1b"


def test_figures_hold_no_link():
    assert in_plotly("<a href='x'>%{y}</a>").startswith("&lt;a href")
    plain = '{"a": "\\u003cb\\u003eours\\u003c\\u002fb\\u003e<br>\\u003ca href=1\\u003e<IMG src=x>"}'
    assert figure_without_links(plain) == (
        '{"a": "\\u003cb\\u003eours\\u003c\\u002fb\\u003e<br>&lt;a href=1\\u003e&lt;IMG src=x>"}'
    )


def test_what_a_terminal_obeys_is_spelt_out():
    assert (
        visible("a\x1b[2J\x9b\u202e\u2066\ud800\u200b\r") == "a\\x1b[2J\\x9b\\u202e\\u2066\\ud800\\u200b\\x0d"
    )
    assert visible("line\nnext\té 漢 👩\u200d🔬") == "line\nnext\té 漢 👩\u200d🔬"


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """A file with a finished run whose every text is hostile."""
    path = tmp_path_factory.mktemp("hostile") / "lab.duckdb"
    with Recorder(path) as recorder:
        run = new_run_id()
        kept = frames.hello(
            config={"policy": HOSTILE, "workload": HOSTILE, "arrival": HOSTILE, "keep_text": True, HOSTILE: HOSTILE},
            target=HOSTILE, drafter=HOSTILE, code=HOSTILE, machine={"emulated": HOSTILE, HOSTILE: HOSTILE},
        )  # fmt: skip
        for envelope in frames.envelopes([kept, *frames.whole_run()[1:-1], frames.event(HOSTILE)], run):
            recorder.record(envelope)
        recorder.flush()
        con = recorder.database.cursor()
        con.execute("UPDATE blocks SET arm = ?, workload = ?", [HOSTILE, HOSTILE])
        con.execute("UPDATE coefficients SET arm = ?", [HOSTILE])
        con.execute("UPDATE requests SET kind = ?, prompt = ?, output = ?", [HOSTILE, HOSTILE, HOSTILE])
        con.execute("UPDATE calibration SET kind = ?", [HOSTILE])
        con.execute("UPDATE engine_samples SET model = ?, engine = ?", [HOSTILE, HOSTILE])
        con.execute("UPDATE experiments SET arms = ?, baseline = ?", [json.dumps(["none", HOSTILE]), HOSTILE])
        con.execute("UPDATE rounds SET reason = ?", [HOSTILE])
        recorder.end(run, HOSTILE)
    return path


MARKDOWN = (
    "markdown",
    "caption",
    "info",
    "error",
    "warning",
    "success",
    "metric",
    "header",
    "subheader",
    "title",
)
LABELLED = (
    "button", "checkbox", "toggle", "radio", "selectbox", "multiselect", "slider", "text_input", "text_area",
    "number_input", "expander", "tabs", "button_group",
)  # fmt: skip


def markdown_of(app):
    """Every text that the page hands to Streamlit's Markdown: bodies, labels, helps."""
    for kind in (*MARKDOWN, *LABELLED):
        for each in app.get(kind):
            yield kind, str(getattr(each, "label", "") or "")
            if kind in MARKDOWN and kind != "metric":
                yield kind, str(each.value)
            proto = getattr(each, "proto", None)
            yield f"{kind}'s help", str(getattr(proto, "help", "") or "")
            if kind in ("radio", "button_group"):
                for option in getattr(proto, "options", ()):
                    yield f"{kind}'s option", str(getattr(option, "content", option))


@pytest.mark.parametrize("name", ALL_PAGES)
def test_no_page_hands_foreign_text_to_markdown(database, name):
    with opened(database):
        for address in ({}, {"run": HOSTILE, "span": HOSTILE}):
            app = page(name, **address)
            assert not app.exception
            for where, text in markdown_of(app):
                assert not LIVE.search(_ours(text)), (where, text)


def _ours(text):
    """A text without the markup that the pages write themselves."""
    return re.sub(r"https://(?:github|docs|arxiv|huggingface|www\.lmsys|lmsys)[^\s)]*", "", text)


def test_no_figure_holds_a_tag_of_a_name(database):
    with opened(database):
        for name in ("live", "ab", "frontier", "calibration", "coefficients", "budget", "runs"):
            for chart in page(name).get("bidi_component"):
                plain = str(chart.proto).replace("\\", "")
                names = re.findall('"name":"(.*?)"', plain) + re.findall('"text":"(.*?)"', plain)
                assert not [each for each in names if re.search("(?:u003c|<)a href", each)]


def test_the_terminal_shows_foreign_text_as_it_is(database, monkeypatch, capsys):
    with opened(database), host.connection() as con:
        found = queries.runs(con)
        summary = queries.run_summary(con, found[0]["run_id"]) | {"ab": None, "frontier": None}
    monkeypatch.setenv("COLUMNS", "4000")
    monkeypatch.setattr(terminal, "answers", lambda: terminal._Plain(width=4000))
    terminal.show_runs(found)
    terminal.show_summary(summary)
    terminal.fail(HOSTILE)
    console = terminal.errors()
    console.print(HOSTILE)
    said = capsys.readouterr()
    for text in (said.out, said.err):
        assert "[red]Rich[/red] [/x] :smile:" in text and "\\x1b[31mred\\x07 \\u202e" in text
        assert not re.search("[\x1b\x07\u202e]", text)
    assert isinstance(console, Console)


def test_the_report_holds_no_tag_of_a_value(database):
    with opened(database), host.connection() as con:
        made = report(con, queries.newest_run(con))
    body, figures = made.split("<script type='application/json'", 1)
    figures = figures.split("</script>", 1)[0]
    assert "<script>alert" not in body and "<a href" not in body and "<!--" not in body and "<b>B" not in body
    assert "<" not in figures and "\u003ca href" not in figures.replace("\\u003c", "<")
