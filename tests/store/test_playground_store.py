"""What a run keeps of the playground, and that its rates are those of the workload."""

import msgspec
import store_frames as frames
from store_frames import envelopes

from avlab.store import queries, schema
from avlab.store.database import Database
from avlab.store.ids import new_run_id
from avlab.store.recorder import Recorder
from avlab.wire import frames as fr


def tokens(request, step):
    slot = fr.Slot(
        7, " x", "trimmed", q=0.25, estimate=0.5, survival=0.5, draft_top=[fr.Choice(7, " x", 0.25)]
    )
    own = fr.Slot(9, " y", "sampled", p=0.5, target_top=[fr.Choice(9, " y", 0.5)])
    return fr.Tokens(request, step, [9], [" y"], ["sampled"], [slot], own)


def recorded(path, keep):
    """A run in which the playground holds the workload from 1 s to 5 s, the last of its steps at 2 s."""
    run = new_run_id()
    sent = [
        frames.hello(config={"policy": "adaptive", "keep_text": keep}), frames.block(0), frames.steps(0, 10),
        frames.block(1, "fixed:2", "playground", step=10, time=1.0), tokens(-1, 10),
        frames.steps(10, 20, 1, tokens=400, emitting=1), tokens(-1, 12), tokens(-2, 15),
        frames.request(-1, kind="playground", block=1, first=1.1, last=1.9, prompt="why?" if keep else None),
        frames.block(2, step=20, time=5.0),
        *(frames.steps(n, n + 1, 2, time=5.1 + (n - 20) / 10) for n in range(20, 30)),
        frames.request(1, first=0.2, last=0.9, tokens=8), frames.request(2, first=0.5, last=5.5, block=2),
        frames.request(3, first=5.1, last=6.1, tokens=11, block=2), frames.bye(),
    ]  # fmt: skip
    with Database(path) as database:
        recorder = Recorder(database)
        for envelope in envelopes(sent, run):
            recorder.record(envelope)
        recorder.close()
        yield from ((database.cursor(), run),)


def test_its_steps_come_back_as_they_were_sent(tmp_path):
    for con, run in recorded(tmp_path / "lab.duckdb", True):
        first, second = queries.generations(con, run)
        assert (first["request"], first["arm"], first["step"], first["prompt"]) == (-1, "fixed:2", 10, "why?")
        assert (first["temperature"], first["finish"]) == (1.0, "end")
        assert (second["request"], second["arm"], second["prompt"]) == (-2, "fixed:2", None)
        assert queries.generation_steps(con, run, -1) == [tokens(-1, 10), tokens(-1, 12)]


def test_without_kept_text_nothing_of_it_is_there(tmp_path):
    for con, run in recorded(tmp_path / "lab.duckdb", False):
        assert queries.generations(con, run) == [] and queries.generation_steps(con, run, -1) == []


def test_a_recovered_token_of_an_older_run_has_its_name_of_now(tmp_path):
    text = '"fate":"correction"'  # what a model said stays as it was
    slot = fr.Slot(7, text, "rejected", q=0.25, p=0.1)
    own = fr.Slot(9, "correction", "recovered", p=0.5, residual_top=[fr.Choice(9, "correction", 0.5)])
    now = fr.Tokens(-1, 10, [8, 9], [text, "correction"], ["accepted", "recovered"], [slot], own)
    for con, run in recorded(tmp_path / "lab.duckdb", True):
        old = msgspec.json.encode(now).decode().replace('"recovered"', '"correction"')
        con.execute("UPDATE tokens SET detail = ? WHERE request = -1", [old])
        for statement in (each for each in schema.MIGRATIONS[5] if "tokens SET" in each):
            con.execute(statement)
        assert queries.generation_steps(con, run, -1) == [now, now]


def test_headline_numbers_are_the_workloads(tmp_path):
    """Neither the playground's tokens, nor its time, nor the requests that waited for it count."""
    for con, run in recorded(tmp_path / "lab.duckdb", True):
        summary = queries.run_summary(con, run)
        assert (summary["tokens"], round(summary["tokens_per_s"], 6)) == (160, 80.0)
        assert round(summary["tokens_per_s_per_user"], 6) == 10.0 and summary["requests"] == 3
        assert queries.requests_since(con, run)["request"].to_pylist() == [1, 3]
        seconds = {}
        for row in queries.steps_since(con, run).to_pylist():
            seconds[row["block"]] = seconds.get(row["block"], 0.0) + row["seconds"]
        assert {block: round(value, 6) for block, value in seconds.items()} == {0: 1.0, 1: 1.0, 2: 1.0}
