"""A drafter is made on a tiny target from nothing: record, train, resume, export, serve."""

import random
from dataclasses import replace

import pytest
import torch
from tiny_models import CPU, LLAMA, SHAPE, make_engine, outputs, serve, write_llama

from avlab.engine.cache import Batch
from avlab.engine.checkpoint import read_weights
from avlab.engine.model_config import read_config
from avlab.engine.request import Request
from avlab.engine.target import Target
from avlab.training.data import Recordings
from avlab.training.export import export
from avlab.training.generate import Conversation, ShardWriter, generate
from avlab.training.model import DrafterNetwork
from avlab.training.pipeline import Plan, _vocabulary
from avlab.training.train import Schedule, Trainer

V, END, HEADER = LLAMA["vocab_size"], 5, [6, 7, 8]
SCHEDULE = Schedule(updates=76, conversations=8, anchors=8, warm_up=5, new_rate=1e-2, copied_rate=2e-3)


def conversations(n, seed=0):
    rng = random.Random(seed)
    for i in range(n):
        prompt = [rng.randrange(V) for _ in range(rng.randint(3, 12))]
        yield Conversation(
            prompt,
            temperature=rng.choice([0.0, 0.6, 1.0, 1.0]),
            kind="self" if i % 4 == 0 else "chat",
            first=len(prompt),
            limit=len(prompt) + 50,
            question=i % 4 == 0,
            answer_limit=40,
        )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A target and a folder with a few thousand recorded positions in three shards."""
    folder = tmp_path_factory.mktemp("training")
    target = Target(
        write_llama(folder / "target", seed=1, sharpness=2.0, tie_word_embeddings=False), torch.float32
    )
    torch.manual_seed(0)
    with torch.inference_mode():
        generate(
            target,
            conversations(150),
            HEADER,
            END,
            ShardWriter(folder / "data", size=2_000),
            tokens=6_000,
            in_flight=32,
            key_layers=(0, *SHAPE.key_layers),
            state_layers=SHAPE.state_layers,
        )
    return target, folder


def recordings(recorded):
    target, folder = recorded
    c = target.config
    return Recordings([folder / "data"], c.hidden, c.kv_heads, c.head_dim, key_layers=(0, *SHAPE.key_layers))


def make_trainer(recorded, folder, schedule=SCHEDULE):
    target, _ = recorded
    torch.manual_seed(3)
    weights = read_weights(target.folder, torch.float32, CPU)
    network = DrafterNetwork(read_config(target.folder), SHAPE)
    network.start_from(weights)
    data = recordings(recorded)
    plan = Plan(folder, "", 0, 0, 1, SHAPE)
    folder.mkdir(exist_ok=True)
    vocabulary = _vocabulary(plan, data, weights["lm_head.weight"])
    return Trainer(network, data, weights, vocabulary, schedule, folder)


def test_a_recording_is_what_the_target_computes(recorded):
    """States, keys, values and normalisers of a conversation, computed again in one pass; kept in bfloat16."""
    target, _ = recorded
    data, H = recordings(recorded), target.config.hidden
    assert len(data.files) >= 3 and data.held_out and not set(data.held_out) & set(data.train)
    for piece in data.train[:3]:
        batch = data.batch([piece], 6, SHAPE.K, SHAPE.key_layers, 2, random.Random(0))
        tokens = (
            data.files[piece.shard].get_slice("tokens")[piece.offset : piece.offset + piece.length].long()
        )
        cache, n = target.new_cache(1), piece.length
        with torch.inference_mode():
            ragged = Batch.build([0], [0], [n], torch.float32, "cpu")
            final, taps = target.forward(tokens, ragged, cache, SHAPE.state_layers)
            logits = target.logits(final)
        states, close = torch.cat([final, *taps], 1), {"rtol": 1e-2, "atol": 1e-2}
        for i, layer in enumerate(SHAPE.key_layers):
            torch.testing.assert_close(batch.keys[i][0, :, :n], cache.keys[layer][0, :, :n], **close)
            torch.testing.assert_close(batch.values[i][0, :, :n], cache.values[layer][0, :, :n], **close)
        for a in range(6):
            at = int(batch.position[0, a])  # of the newest token
            assert piece.first <= at < n - 1
            assert batch.newest[0, a] == tokens[at]
            torch.testing.assert_close(batch.states[0, a], states[at - 1], **close)
            assert batch.mask[0, a].isfinite().nonzero().squeeze(1).tolist() == list(range(at))
            for k in range(SHAPE.K):
                if not batch.valid[0, a, k]:
                    continue
                assert batch.previous[0, a, k] == tokens[at + k]
                torch.testing.assert_close(batch.final[0, a, k], states[at + k, :H], **close)
                # the distribution that judges draft k, which stands at position at + k + 1
                assert float(batch.log_normaliser[0, a, k]) == pytest.approx(
                    float(logits[at + k].logsumexp(0)), abs=1e-3
                )
        assert batch.valid.any()


def test_sampled_rows_only_are_anchors_and_a_question_gets_its_answer(recorded):
    data = recordings(recorded)
    asked = answered = 0
    for piece in data.train + data.held_out:
        file, rows = data.files[piece.shard], slice(piece.offset, piece.offset + piece.length)
        tokens = file.get_slice("tokens")[rows].tolist()
        known = file.get_slice("log_normaliser")[rows].isfinite()
        assert not known[: piece.first - 1].any() and known[piece.first - 1]
        asked += piece.kind == "self"
        if piece.kind == "self" and END in tokens[piece.first :]:
            at = tokens.index(END, piece.first)
            answered += tokens[at + 1 : at + 4] == HEADER
            assert not known[at : at + 3].any()  # nobody sampled what stands in the header
    assert answered > 0 and asked > 5


def test_training_teaches_resumes_and_serves(recorded, tmp_path):
    target, _ = recorded
    work, said = make_trainer(recorded, tmp_path / "a"), []
    work.recordings.held_out = work.recordings.train[:40]  # what it learns from: a few others say little
    before = work.evaluate()
    work.run(said.append, save_every=38)
    after = work.evaluate()
    assert after["tokens_per_step"] > before["tokens_per_step"] + 0.1
    lines = [line for line in said if line.startswith("update")]
    losses = [float(line.split("loss ")[1].split()[0]) for line in lines]
    assert len(losses) == 3 and losses[2] < losses[0]

    # cut short at the first save, and taken up again: the same network, bit for bit
    class Cut(Exception):
        pass

    def cut(text):
        if text.startswith("held out"):
            raise Cut

    with pytest.raises(Cut):
        make_trainer(recorded, tmp_path / "b").run(cut, save_every=38)
    again = make_trainer(recorded, tmp_path / "b")
    assert again.load() and again.update == 38
    again.run(lambda text: None, save_every=38)
    for name, value in work.network.state_dict().items():
        assert torch.equal(value, again.network.state_dict()[name]), name

    # served: the target's own greedy output; sampled, more tokens a step than untrained, as many as training measured
    greedy = [Request(i, [i + 1, 2 * i, 9], 20, temperature=0.0) for i in range(16)]
    plain = outputs(serve(make_engine(target, max_num_seqs=16), greedy)[0])
    fresh = make_trainer(recorded, tmp_path / "c")
    tokens_per_step = {}
    for name, network in (("trained", work.network), ("fresh", fresh.network)):
        folder = export(network, work.vocabulary, tmp_path / name, {"updates": work.update})
        assert (
            outputs(serve(make_engine(target, "block", folder, "fixed:4", max_num_seqs=16), greedy)[0])
            == plain
        )
        sampled = [Request(i, [i + 1, 2 * i % V, 9], 50, temperature=1.0, seed=i) for i in range(32)]
        _, reports = serve(make_engine(target, "block", folder, "fixed:4", max_num_seqs=32), sampled)
        decoding = [r for r in reports if r.slots is not None]
        tokens_per_step[name] = sum(r.tokens for r in decoding) / sum(r.emitting for r in decoding)
    assert tokens_per_step["trained"] > tokens_per_step["fresh"]
    assert tokens_per_step["trained"] == pytest.approx(after["tokens_per_step"], abs=0.2)


def test_a_trainer_without_a_checkpoint_begins_at_the_start(recorded, tmp_path):
    work = make_trainer(recorded, tmp_path)
    assert not work.load() and work.update == 0


def test_few_conversations_are_enough_to_see_that_it_works(recorded, tmp_path):
    target, _ = recorded
    with torch.inference_mode():
        generate(
            target,
            conversations(4, seed=9),
            HEADER,
            END,
            ShardWriter(tmp_path / "data"),
            tokens=10**9,  # the conversations end first
            in_flight=3,
            key_layers=SHAPE.key_layers,
            state_layers=SHAPE.state_layers,
        )
    c = target.config
    data = Recordings([tmp_path / "data"], c.hidden, c.kv_heads, c.head_dim, key_layers=SHAPE.key_layers)
    assert len(data.held_out) == 1 and 1 <= len(data.train) <= 3
    work = make_trainer(recorded, tmp_path / "work", replace(SCHEDULE, updates=2))
    work.recordings = data
    work.run(lambda text: None, save_every=1)
    assert work.update == 2 and (tmp_path / "work" / "checkpoint.safetensors").exists()


def test_the_draft_vocabulary_is_chosen_once(recorded, tmp_path):
    plan = Plan(tmp_path, "", 0, 0, 1, replace(SHAPE, draft_vocabulary=20))
    data, head = recordings(recorded), recorded[0].head_rows(torch.arange(V))
    ids = _vocabulary(plan, data, head)
    mass = torch.cat([(states.float() @ head.T).softmax(-1) for states in data.final_states(1)]).sum(0)
    rest = torch.ones(V, dtype=torch.bool)
    rest[ids] = False
    assert ids.tolist() == sorted(set(ids.tolist())) and len(ids) == 20
    assert mass[ids].min() >= mass[rest].max() * 0.99  # chosen in the dtype of the machine
    data.final_states = None  # not asked again
    assert torch.equal(_vocabulary(plan, data, head), ids)
    assert [path.name for path in tmp_path.iterdir()] == ["vocabulary.json"]
