"""Every door, with whatever hypothesis thinks of: a value, or one sentence of ours; nothing else comes out.

The examples beside each test are the corpus: what was found by readers and by this file.
"""

import contextlib
import io
import json
import math
import re

import pytest
import store_frames as frames
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from avlab import formats
from avlab.cost_file import CostError, read_samples
from avlab.escaping import in_html, in_markdown, in_plotly, in_script, visible
from avlab.machines.description import MachineError, read
from avlab.machines.imported import read_table
from avlab.replay.about import TraceError
from avlab.replay.declared import described
from avlab.replay.rates import of_profile
from avlab.store import archive, log, queries, recorded
from avlab.store.database import Database
from avlab.store.errors import StoreError, TransferError, UnknownRun
from avlab.store.export import import_run
from avlab.store.ids import new_run_id
from avlab.store.recorder import Recorder
from avlab.wire import codec

FEW = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
NUMBERS = st.one_of(st.none(), st.integers(), st.floats(), st.booleans())
PLAIN = st.recursive(
    st.one_of(NUMBERS, st.text(max_size=20)),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(max_size=12), inside, max_size=4),
    max_leaves=12,
)
FIELDS = ("format", "schema_version", "form", "run_id", "state", "tables")
ANY_TEXT = st.text(st.characters(), max_size=200) | st.text("[]()*_`:$~<>|#-+=!&\\ \nabcd/.@", max_size=60)


@FEW
@given(ANY_TEXT)
@example("[/x]")
@example(":material/bolt:")
@example("\ud800\x1b]8;;http://e\x07")
@example("<!--<script>")
def test_escaped_text_is_whole_and_dead(text):
    plain = re.sub(r"[ \t\n]+", " ", visible(text)).strip()
    shown = in_markdown(text)
    assert re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", shown).replace("\u2060", "").replace(
        "\\", ""
    ) == plain.replace("\u2060", "").replace("\\", "")
    assert "\n" not in shown
    assert not re.search("[<>\"']", in_html(text))
    assert "<" not in in_plotly(text)
    made = in_script({"text": text})
    assert not re.search("[<>&]", made) and json.loads(made) == {"text": text}
    visible(text).encode()


@FEW
@given(NUMBERS)
@example(1e300)
@example(10**400)
@example(math.nan)
@example(-math.inf)
def test_formatters_are_total(value):
    for form in (formats.number, formats.share, formats.seconds, formats.moment):
        assert isinstance(form(value), str)


@FEW
@given(st.one_of(st.text(max_size=200), PLAIN.map(json.dumps), st.none()))
@example("[" * 200_000)
@example('{"temperature": "hot", "interval": [], "workload": 7}')
def test_what_a_run_recorded_of_itself_is_read_whatever_it_is(text):
    assert isinstance(recorded.settings(text), dict) and isinstance(recorded.machine(text), dict)
    assert all(isinstance(label, str) for label in recorded.labels(text))
    from avlab.config import sampled

    assert sampled(recorded.settings(text)).words()


@FEW
@given(st.binary(max_size=400))
@example(b"PK\x05\x06" + bytes(18))
@example(b"\x91" * 200_000)
def test_bytes_are_read_or_refused(tmp_path, data):
    for decode in (codec.decode_frame, codec.decode_command):
        with pytest.raises(codec.MessageError):
            decode(data)
    with contextlib.suppress(TransferError):
        archive.unpack(io.BytesIO(data), tmp_path)
    path = tmp_path / "log"
    path.write_bytes(data)
    assert log.damage(path) is None or log.damage(path) >= 0
    for reading, refusal in ((read_samples, CostError), (read, MachineError), (read_table, MachineError)):
        with pytest.raises(refusal) as refused:
            reading(path)
        assert len(str(refused.value)) < 1_500


@FEW
@given(PLAIN)
@example({"draft": [[1, 1, math.inf]], "verify": [[1, math.nan]]})
@example({"draft": [], "verify": [[10**400, 1]]})
@example({"version": 1, "K": 10**9})
def test_json_is_read_or_refused(tmp_path, value):
    path = tmp_path / "file.json"
    text = json.dumps(value)
    path.write_text(text)
    for reading, refusal in (
        (read_samples, CostError),
        (read_table, MachineError),
        (of_profile, TraceError),
    ):
        with contextlib.suppress(refusal):
            reading(path)
    with contextlib.suppress(TraceError):
        described(path, {b"avlab": text.encode()})


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    with Recorder(tmp_path_factory.mktemp("lab") / "lab.duckdb") as recorder:
        for envelope in frames.envelopes(frames.whole_run(), new_run_id()):
            recorder.record(envelope)
        recorder.flush()
        yield recorder.database


@FEW
@given(
    PLAIN,
    st.dictionaries(
        st.sampled_from(["format", "schema_version", "form", "run_id", "state", "tables"]), PLAIN
    ),
)
@example(None, {"format": "avlab run", "schema_version": True})
def test_a_manifest_is_read_or_refused(database, tmp_path, whole, parts):
    for value in (whole, {"format": "avlab run", "schema_version": 6, "form": "parquet", **parts}):
        (tmp_path / "manifest.json").write_text(json.dumps(value))
        with pytest.raises(TransferError):
            import_run(database, tmp_path)


@FEW
@given(ANY_TEXT)
@example("last'; DROP TABLE runs; --")
@example("%")
def test_a_run_is_found_by_any_text_or_not(database, text):
    with database.reading() as con, contextlib.suppress(UnknownRun, StoreError):
        assert queries.find_run(con, text)


@pytest.mark.parametrize("name", ["a?b", "a\0b", "x" * 300, "[red]", "a b", "é.duckdb"])
def test_any_path_is_a_database_or_a_sentence(tmp_path, name):
    try:
        Database(tmp_path / name).close()
    except StoreError as error:
        assert "\n" not in str(error)
