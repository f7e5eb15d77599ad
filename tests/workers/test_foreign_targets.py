"""A run on a target of the reader's own: what is replaced or not understood stands in its record, or ends it."""

import json

import pytest
from tiny_models import write_llama, write_tokenizer

from avlab.config import ConfigError, RunConfig
from avlab.lab.lab import Lab


@pytest.fixture
def target(tmp_path):
    folder = write_llama(tmp_path / "target", eos_token_id=None, wandb_run="x1")
    write_tokenizer(folder)
    (folder / "generation_config.json").write_text('{"repetition_penalty": 1.05, "temperature": 0.6}')
    return folder


@pytest.fixture
def serve(tmp_path, target):
    def serve(**values):
        costs = tmp_path / "costs.json"
        draft = [[1, 1, 0.1], [1, 4, 0.2], [8, 4, 0.4]]
        costs.write_text(json.dumps({"draft": draft, "verify": [[1, 1.0], [64, 2.0]]}))
        given = {
            "target": str(target), "max_num_seqs": 2, "max_model_len": 64, "arrival": "closed:2", "requests": 2,
            "max_new_tokens": 4, "costs": str(costs), "threads": 1, "dtype": "float32", "K": 4,
        }  # fmt: skip
        with Lab(tmp_path / "lab.duckdb") as lab:
            run = lab.run(RunConfig.make(given | values))
            assert lab.supervisor.wait(120), lab.supervisor.log_tail()
            status = lab.supervisor.status()
            if not any(each["run_id"] == run for each in lab.runs()):
                return status, None
            with lab.database.cursor() as con:
                (config,) = con.execute("SELECT config FROM runs").fetchone()
            return status, lab.show(run) | {"config": json.loads(config)}

    return serve


def warnings(summary):
    return [event["text"] for event in summary["events"] if event["level"] == "warning"]


def prompts(tmp_path, *entries):
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in entries))
    return f"file:{path}"


def test_a_default_that_gives_way_is_said_and_recorded_as_what_served(serve, tmp_path):
    entries = ({"prompt": "the of"}, {"prompt": ""}, {"prompt": "a", "stop": ["x"], "tools": [{"name": "t"}]})
    status, summary = serve(workload=prompts(tmp_path, *entries))
    assert (status.outcome, status.error) == ("done", "")
    assert (summary["policy"], summary["drafter"], summary["K"]) == ("none", None, 0)
    assert (summary["config"]["policy"], summary["config"]["drafter"]) == ("none", "none")
    said = warnings(summary)
    for part in (
        "No drafts: the shipped drafter does not fit target, so this run serves by policy none in place of adaptive",
        "config.json has settings that the engine does not know, and serves as if they were not there: wandb_run",
        "generation_config.json recommends what the engine does not do: repetition_penalty 1.05",
        "mine.jsonl: 2 prompts to serve, passed over 1; first: the prompt of line 2",
        "served without it: stop (1, first line 3 of mine.jsonl)",
        "Prompts bring tools, which the target's chat template does not read",
    ):
        assert sum(part in each for each in said) == 1, (part, said)


def test_a_policy_that_was_chosen_is_refused_where_no_drafter_fits(serve):
    status, summary = serve(policy="adaptive")
    assert summary is None and status.outcome == "failed"
    assert status.error == (
        "policy adaptive needs a drafter, and the shipped drafter does not fit target: give a small Llama of the same "
        "vocabulary with --drafter FOLDER, or take --policy none."
    )


def test_an_arm_of_a_head_that_the_drafter_lacks_is_refused(serve, tmp_path):
    draft = write_llama(tmp_path / "draft", seed=1)
    status, summary = serve(policy="adaptive:head", drafter=str(draft))
    assert summary is None and "does not exist for this drafter, which has no confidence head" in status.error
    with pytest.raises(ConfigError, match="needs the drafter's confidence head, which is off"):
        RunConfig.make(policy="adaptive:head", head=False)


def test_what_was_left_open_stays_open_on_its_way_to_the_worker():
    config = RunConfig.make(target="x", K=3).changed(database="y")
    assert set(config.given()) & {"policy", "drafter", "K", "target"} == {"K", "target"}
    assert RunConfig.make(config.given()) == config
    assert "policy" in RunConfig.make(policy="adaptive").changed(K=2).given()
