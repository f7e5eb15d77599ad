"""`avlab attach URL --telemetry FOLDER`: a server's own counters, and what its worker writes beside them."""

import pytest
from attach_desk import Desk, watch
from stand_in_runner import INTERVAL, REQUESTS, K, Worker, load, manage, serve
from vllm_stand_in import metrics_text, serving

from avlab.config import ConfigError
from avlab.vllm import extension, telemetry
from avlab.vllm.attach import AttachError, Watch
from avlab.vllm.attach_config import AttachConfig
from avlab.vllm.ring import RingError, RingFile
from avlab.vllm.server import ServerError
from avlab.wire import frames as fr

MODEL = "some/model"


class Server:
    """A stand-in's /metrics and a worker that writes: both go on at every interval."""

    def __init__(self, server, folder, monkeypatch, model=MODEL, engine=0):
        monkeypatch.setenv(extension.TELEMETRY, str(folder))
        monkeypatch.setattr(telemetry, "PERIOD", 0.01)
        self.server, self.tokens = server, 100
        self.file = folder / f"engine-{engine}.ring"
        self.begin(model, engine)

    def begin(self, model=MODEL, engine=0):
        self.worker = Worker()
        self.worker.model_config.served_model_name, self.worker.parallel_config.data_parallel_index = (
            model,
            engine,
        )
        self.worker.init_worker_extension()
        load(self.worker.model_runner)
        manage(self.worker.model_runner)
        self.go_on(3)

    def go_on(self, steps):
        serve(self.worker.model_runner, steps)
        self.tokens += steps * 2 * REQUESTS
        self.server.answers["/metrics"] = metrics_text(
            self.tokens, self.tokens, (self.tokens // 2, 0, 0), K=K
        )
        made = self.worker.avlab_record.number
        while self._kept() != made:
            pass

    def _kept(self):
        try:
            return RingFile(self.file).state().steps_kept
        except RingError:
            return -1


def test_steps_refits_and_calibration_are_the_workers(tmp_path, monkeypatch):
    with serving() as stand_in:
        server = Server(stand_in, tmp_path, monkeypatch)
        desk = watch(stand_in, lambda _: server.go_on(INTERVAL), duration=4, telemetry=str(tmp_path))
    [hello] = desk.of(fr.Hello)
    assert hello.machine["extension"] and hello.K == K and hello.machine["adaptive"]
    told = server.worker.avlab_drain()
    columns = {name: [row[i] for row in told["steps"]] for i, name in enumerate(told["step_fields"])}
    steps = desk.steps()
    assert [step.step for step in steps] == list(range(4 * INTERVAL))
    for name in ("scheduled", "admitted", "accepted", "labelled"):
        assert [list(getattr(step, name)) for step in steps] == columns[name][3:]
    assert [step.verify_ms for step in steps] == columns["verify_ms"][3:]
    refits = desk.of(fr.Refit)
    assert [each.refit for each in refits] == [0, 1, 2, 3, 4] and refits[-1].counts == told["refits_made"][
        -1
    ][5]
    cells = desk.of(fr.Calibration)
    assert {each.source for each in cells} == {"online", "raw"}
    assert sum(sum(each.count) for each in cells if each.source == "online") == 4 * INTERVAL * REQUESTS * 2
    assert len(desk.of(fr.EngineSample)) == 4
    assert not desk.said("warning")


def watch_folder(folder, after, **settings):
    desk = Desk(AttachConfig.make(telemetry=str(folder), **settings), after=after)
    desk.result = Watch(desk).run()
    return desk


def test_a_folder_alone_is_a_run_too(tmp_path, monkeypatch):
    with serving() as stand_in:
        server = Server(stand_in, tmp_path, monkeypatch)
        desk = watch_folder(tmp_path, lambda _: server.go_on(INTERVAL), duration=4)
        [hello] = desk.of(fr.Hello)
        assert hello.machine["extension"] and hello.machine["server"] == str(tmp_path)
        assert (hello.target, hello.K, hello.machine["adaptive"]) == (MODEL, K, True)
        assert [step.step for step in desk.steps()] == list(range(4 * INTERVAL)) and not desk.said("warning")
        samples = desk.of(fr.EngineSample)
        assert [sample.tokens for sample in samples] == [2 * REQUESTS * INTERVAL] * 4
        assert samples[0].accepted_by_position == [REQUESTS * INTERVAL, 0, 0]
        assert samples[0].running == REQUESTS

        def leave(waits):
            if waits == 2:
                server.worker.destroy_worker_extension()

        with pytest.raises(AttachError, match=r"No worker writes telemetry .* silent for 3 s"):
            watch_folder(tmp_path, leave, patience=3)
    with pytest.raises(ServerError, match="holds no telemetry"):
        (tmp_path / "empty").mkdir()
        watch_folder(tmp_path / "empty", lambda _: None)
    with pytest.raises(ConfigError, match="or --telemetry FOLDER"):
        AttachConfig.make()


def test_engines_of_a_folder_are_told_apart(tmp_path, monkeypatch):
    with serving() as stand_in:
        servers = [Server(stand_in, tmp_path, monkeypatch, engine=n) for n in (0, 1)]
        one = watch_folder(tmp_path, lambda _: [each.go_on(2) for each in servers], duration=2, engine="1")
        both = watch_folder(tmp_path, lambda _: [each.go_on(2) for each in servers], duration=2)
    assert one.of(fr.Hello)[0].machine["extension"] and len(one.steps()) == 4
    assert any("--engine N reads one engine's" in each for each in both.said("info"))
    assert [step.tokens for step in both.steps()] == [2 * 2 * 2 * REQUESTS] * 2  # of both, from their sums


def test_a_worker_that_begins_anew_is_a_restart(tmp_path, monkeypatch):
    with serving() as stand_in:
        server = Server(stand_in, tmp_path, monkeypatch)

        def after(waits):
            if waits == 3:
                server.worker.destroy_worker_extension()
                server.tokens = 0
                server.begin()
            server.go_on(5)

        desk = watch(stand_in, after, duration=6, telemetry=str(tmp_path))
    assert any("restarted" in each for each in desk.said("warning"))
    blocks = {step.block for step in desk.steps()}
    assert blocks == {0, 1} and len(desk.steps()) >= 20
    assert not any("only the server's counters" in each for each in desk.said("warning"))


@pytest.mark.parametrize(
    "given, settings, sentence",
    [
        ({"model": "other/model"}, {}, "has telemetry of other/model, and some/model is watched"),
        ({"engine": 1}, {}, "--engine N reads one engine's"),
    ],
)
def test_a_file_of_something_else_is_not_read(tmp_path, monkeypatch, given, settings, sentence):
    with serving() as stand_in:
        server = Server(stand_in, tmp_path, monkeypatch, **given)
        desk = watch(stand_in, lambda _: server.go_on(2), duration=2, telemetry=str(tmp_path), **settings)
    assert any(sentence in each for each in desk.said("info")), desk.said("info")
    assert len(desk.steps()) == 2  # intervals of the counters


def test_a_folder_is_known_by_its_whole_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = AttachConfig.make(url="http://h", telemetry="here")
    assert config.telemetry == str(tmp_path / "here")
    monkeypatch.chdir("/")
    assert AttachConfig.make(config.given()).telemetry == str(tmp_path / "here")
    assert AttachConfig.make(url="http://h", telemetry="").telemetry is None


def test_a_file_whose_worker_has_ended_is_not_read(tmp_path, monkeypatch):
    with serving() as stand_in:
        server = Server(stand_in, tmp_path, monkeypatch)
        server.worker.destroy_worker_extension()
        desk = watch(stand_in, lambda _: None, duration=2, telemetry=str(tmp_path))
        missing = watch(stand_in, lambda _: None, duration=2, telemetry=str(tmp_path / "nowhere"))
    assert any("its server has ended" in each for each in desk.said("info"))
    assert any("cannot be read" in each for each in missing.said("info"))
