"""What a server's endpoints say, and a sentence for everything that can go wrong with asking."""

import json
import shutil
import socket
import subprocess
import time

import pytest
from typer.testing import CliRunner
from vllm_stand_in import metrics_text, serving

from avlab.commands.cli import app
from avlab.vllm.doctor import Traffic
from avlab.vllm.doctor.running import examine_running
from avlab.vllm.metrics import MetricsError, between, fell, read, samples, total
from avlab.vllm.presets import preset
from avlab.vllm.server import Server, ServerError, base_url

KEY = "a-key-that-must-not-appear"


@pytest.mark.parametrize("version", ["0.33", "0.10", "0.8"])
def test_metrics_of_each_version_give_the_same_numbers(version):
    text = metrics_text(1000, drafts=300, by_position=(240, 120, 40), K=3, version=version)
    [(engine, counters)] = read(text).engines.items()
    assert engine == ("some/model", "0")
    assert (counters.running, counters.waiting, counters.cache_usage) == (1, 2, 0.25)
    assert (counters.tokens, counters.prompt_tokens, counters.finished) == (1000, 2000, 101)
    assert (counters.drafts, counters.draft_tokens, counters.accepted) == (300, 900, 400)
    assert counters.accepted_by_position == (240, 120, 40)
    assert (counters.engine_steps, counters.outputs) == (250, 600)
    assert counters.speculates and not counters.missing


def test_a_server_without_speculation_says_so():
    [counters] = read(metrics_text(10)).engines.values()
    assert not counters.speculates and counters.accepted_by_position == ()
    assert {"drafts", "draft_tokens", "accepted"} <= counters.missing


def test_the_difference_of_two_readings_and_the_sum_of_engines():
    before = read(metrics_text(1000, drafts=300, by_position=(240, 120), K=2) + metrics_text(100, engine="1"))
    after = read(metrics_text(1600, drafts=500, by_position=(390, 200), K=2) + metrics_text(150, engine="1"))
    parts = {engine[1]: between(before.engines[engine], after.engines[engine]) for engine in after.engines}
    assert (parts["0"].tokens, parts["0"].drafts, parts["0"].accepted_by_position) == (600, 200, (150, 80))
    assert (parts["1"].tokens, parts["1"].running) == (50, 1)
    both = total(list(parts.values()))
    assert (both.tokens, both.running, both.drafts, both.accepted_by_position) == (650, 2, 200, (150, 80))
    assert both.cache_usage == 0.25


def test_a_restart_is_noticed_by_counters_and_by_the_process():
    before = read(metrics_text(1000))
    assert fell(before, read(metrics_text(10)))
    assert fell(before, read(metrics_text(2000, started=2000.0)))
    assert not fell(before, read(metrics_text(1000)))
    assert not fell(before, read(metrics_text(1001) + metrics_text(5, engine="1")))


def test_labels_with_quotes_and_lines_that_are_no_samples():
    text = 'a{model_name="x \\"y\\" \\\\z",le="+Inf"} 3 1700000000\n# HELP a b\nnonsense\nb NaN\nc{} x\n'
    assert next(samples(text)) == ("a", {"model_name": 'x "y" \\z', "le": "+Inf"}, 3.0)
    assert len(list(samples(text))) == 2


@pytest.mark.parametrize(
    "behind",
    [
        " 1700000000",
        " 1700000000.5",
        " 1.7e12",
        "\t1700000000.5",
        " -1.5",
        ' # {trace_id="a}b c"} 0.5',
        ' # {trace_id="abc"} 67.0 1700000000.5',
    ],
)
def test_timestamps_and_exemplars_leave_every_value_as_it_is(behind):
    text = metrics_text(1000, drafts=300, by_position=(240, 120, 40), K=3)
    lines = [line if line.startswith("#") else line + behind for line in text.splitlines()]
    assert read("\n".join(lines)).engines == read(text).engines


@pytest.mark.parametrize("version", ["0.33", "0.10", "0.8"])
def test_every_sample_has_the_name_it_is_written_with_whatever_its_type(version):
    text = metrics_text(1000, drafts=300, by_position=(240, 120, 40), K=3, version=version)
    written = [line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert [name for name, _, _ in samples(text)] == written
    assert [name for name, _, _ in samples("# TYPE a counter\na 3\n# TYPE b nothing\nb 4\n")] == ["a", "b"]


TOKENS = "vllm:generation_tokens_total"


@pytest.mark.parametrize(
    "line",
    [
        "{",
        '"',
        "}" * 1000,
        "a" * 100_000,
        'a{b="c',
        'a{x="\\\\',
        "a{b=c} 1",
        'a{="x"} 1',
        "a{} 1e999999 x",
        "# TYPE",
        "# HELP",
        "#",
        "# TYPE a b c d",
        TOKENS + '{model_name="some/model"} +Inf',
        TOKENS + '{model_name="some/model"} -Inf',
        TOKENS + '{model_name="some/model"} 1e300',
        TOKENS + '{model_name="some/model"} ' + "9" * 300,
        TOKENS + '{model_name="some/model"} ' + "9" * 5000,
        "{" * 4000,
        "{} 3",
        '{"' + TOKENS + '"} 3',
        TOKENS,
        TOKENS + "{",
        TOKENS + '{model_name="some/model',
        TOKENS + '{model_name="some/model"} ',
        TOKENS + '{model_name="some/model"} x',
        TOKENS + '{model_name="some/model"} 3 4 5 x',
        TOKENS + '{model_name="some/model",model_name="some/model"} 3',
        TOKENS + '{model_name="some/model"} ' + "9" * 4000,
        TOKENS + '{model_name="some/model"} 1_000',
        TOKENS + '{model_name="some/model",engine="0",x="' + "\\" * 8001 + '"} 3',
        TOKENS + '{model_name="some/model",engine="0",' + 'x="",' * 2000 + "} 3",
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{model_name="some/model",position="²"} 3',
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{model_name="some/model",position="999999999999"} 3',
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{model_name="some/model",position="-1"} 3',
        '# TYPE vllm:generation_tokens_total \n# HELP "\n# TYPE\n#',
        "\x00\x1c\u2028\ud800",
    ],
)
def test_a_faulty_line_costs_no_other(line):
    whole = metrics_text(1000, drafts=300, by_position=(240, 120), K=2)
    for text in (f"{line}\n{whole}", f"{whole}{line}\n"):
        assert read(text) == read(whole)
    with pytest.raises(MetricsError, match="has no counters of vLLM"):
        read(line)


def test_megabytes_of_hostile_lines_are_read_in_seconds():
    label = TOKENS + '{model_name="m",' + 'x="",' * 700 + "} 3\n"
    hollow = "#" + " " * 4_000_000 + "\n" + TOKENS + "{" * 4_000_000 + "\n"
    began = time.monotonic()
    with pytest.raises(MetricsError):
        read(label * 1000 + hollow)
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("text", ["", "up 1\n", 'other_total{model_name="m"} 3\n', "<html></html>"])
def test_metrics_of_another_program_are_refused(text):
    with pytest.raises(MetricsError, match=r"has no counters of vLLM.*--disable-log-stats"):
        read(text)


# ---- asking ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("http://host:8000", "http://host:8000"),
        (" https://host/vllm/v1/ ", "https://host/vllm"),
        ("http://host:8000/metrics", "http://host:8000"),
    ],
)
def test_addresses_are_taken_as_people_paste_them(given, address):
    assert base_url(given) == address


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("host:8000", "is no server's address"),
        ("ftp://host", "is no server's address"),
        ("http://", "is no server's address"),
        ("http://host:99999", "is no address"),
        (f"http://me:{KEY}@host", "take them out"),
        (f"http://host/?api_key={KEY}", "take away what stands behind"),
    ],
)
def test_addresses_that_are_none_are_one_sentence_without_the_secret(given, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        base_url(given)
    assert f"{KEY}@" not in str(caught.value)


def refusal(server, path="/metrics"):
    with pytest.raises(ServerError) as caught:
        server.text(path)
    assert KEY not in str(caught.value)
    return caught.value


def test_nobody_listens():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    error = refusal(Server(f"http://127.0.0.1:{port}"))
    assert "Nothing listens" in str(error) and error.passing


def test_no_such_host():
    error = refusal(Server("http://nobody.invalid:8000", timeout=20))
    assert (
        "no host of the name" in str(error) or "cannot be reached" in str(error) or "answered" in str(error)
    )


def test_a_server_that_takes_too_long():
    with serving() as server:
        server.delay = 30.0
        error = refusal(Server(server.url, timeout=0.5))
    assert "did not answer within 0.5 s" in str(error) and error.passing


def test_another_page_a_wrong_path_and_trouble_on_the_other_side():
    with serving() as server:
        assert "has no /metrics" in str(refusal(Server(server.url)))
        server.answers["/metrics"] = (503, "busy")
        error = refusal(Server(server.url))
        assert "answered 503" in str(error) and error.passing
        server.answers["/version"] = "<html>"
        assert Server(server.url).version() is None
        assert Server(server.url).info() is None


def test_a_key_is_sent_and_never_told(monkeypatch):
    with serving() as server:
        server.key, server.answers["/metrics"] = KEY, metrics_text(1)
        assert "wants a key" in str(refusal(Server(server.url)))
        monkeypatch.setenv("SOME_KEY", "another" + KEY)
        asked = Server(server.url, "SOME_KEY")
        assert "does not accept the key in SOME_KEY" in str(refusal(asked))
        monkeypatch.setenv("SOME_KEY", KEY)
        assert read(asked.metrics()).engines
        assert KEY not in repr(asked)
        monkeypatch.setenv("SOME_KEY", "two\nlines")
        assert "that no header may have" in str(refusal(asked))
        monkeypatch.delenv("SOME_KEY")
        assert "SOME_KEY holds no key" in str(refusal(asked))


def test_a_key_is_not_handed_on_by_a_redirect(monkeypatch):
    monkeypatch.setenv("SOME_KEY", KEY)
    with serving() as other, serving() as server:
        server.answers["/metrics"], server.headers = (302, ""), {"Location": other.url + "/metrics"}
        assert f"sends readers on to {other.url}/metrics" in str(refusal(Server(server.url, "SOME_KEY")))
        assert server.seen == [f"Bearer {KEY}"] and other.seen == []


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes a certificate for this test, is not installed")
    folder = tmp_path_factory.mktemp("certificate")
    files = (str(folder / "certificate.pem"), str(folder / "key.pem"))
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names]
    subprocess.run([*command, "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)
    return files


def test_tls_is_verified(certificate):
    with serving(certificate) as server:
        server.answers["/metrics"] = metrics_text(1)
        assert "is not trusted" in str(refusal(Server(server.url))) and "--ca-file" in str(
            refusal(Server(server.url))
        )
        assert read(Server(server.url, ca_file=certificate[0]).metrics()).engines
        plain = refusal(Server(server.url.replace("https", "http"), timeout=2))
        assert "https://" in str(plain) or "did not answer" in str(plain) or "cannot be reached" in str(plain)
        assert "cannot be read" in str(refusal(Server(server.url, ca_file="/no/such/file")))
    with serving() as server:
        assert "does not speak TLS" in str(refusal(Server(server.url.replace("http", "https"))))


def test_a_question_to_workers_ends_by_our_clock_and_never_by_the_server_s():
    bodies = []

    def answer(body):
        bodies.append(json.loads(body))
        return '{"results": [{"next": 3}, {"next": 4}]}'

    with serving() as server:
        server.answers["/collective_rpc"] = answer
        assert Server(server.url).call("avlab_drain", 7, -1) == {"next": 3}
        assert bodies == [{"method": "avlab_drain", "args": [7, -1]}]
        server.delay = 30.0
        with pytest.raises(ServerError, match=r"did not answer within 0\.5 s") as caught:
            Server(server.url, timeout=0.5).call("avlab_begin")
    assert caught.value.passing


@pytest.mark.parametrize("answer", ["<html>", "[]", '{"results": []}', '{"results": ["a"]}', '{"other": 1}'])
def test_workers_answers_that_are_none(answer):
    with serving() as server:
        server.answers["/collective_rpc"] = answer
        with pytest.raises(ServerError, match="does not answer as a vLLM server does"):
            Server(server.url).call("avlab_begin")


def test_a_configuration_that_is_not_told_differs_from_one_that_did_not_come():
    with serving() as server:
        assert Server(server.url).configuration() is None  # not in development mode
        for answer in ((500, ""), "<html>", '{"vllm_config": "as text"}'):
            server.answers["/server_info?config_format=json"] = answer
            with pytest.raises(ServerError):
                Server(server.url).configuration()
            assert Server(server.url).info() is None


# ---- a running server, examined ----------------------------------------------------------------------------------


def told_by(server):
    line = preset("llama-3.1-8b-eagle3").line
    config = {
        "model_config": {"model": line.model, "max_model_len": 4096},
        "scheduler_config": {"max_num_seqs": 256},
        "compilation_config": {"max_cudagraph_capture_size": 512},
        "speculative_config": line.speculative,
    }
    server.answers["/server_info?config_format=json"] = json.dumps({"vllm_config": config, "vllm_env": {}})


def test_a_running_server_is_examined():
    with serving() as server:
        server.answers["/metrics"] = metrics_text(1000, drafts=300, by_position=(240, 120, 40), K=3)
        found = {finding.gate: finding for finding in examine_running(Server(server.url))}
        assert found["version"].reason == "vLLM 0.33.0 answers."
        assert "1 engine of some/model" in found["statistics"].reason
        assert "300 drafts of 3.00 tokens, 44.4%" in found["drafts so far"].reason
        assert found["settings"].verdict == "unknown" and "VLLM_SERVER_DEV_MODE=1" in found["settings"].remedy
        told_by(server)
        told = examine_running(Server(server.url), Traffic(dataset="random"))
        assert {"traffic", "drafter", "captured sizes", "coefficients"} <= {
            f.gate for f in told if f.verdict == "warns"
        }
        assert not [f for f in told if f.verdict == "refuses"]  # it has started
        server.answers["/metrics"] = "up 1\n"
        assert examine_running(Server(server.url))[0].remedy == "Without --disable-log-stats."


def test_acceptance_near_nothing_is_told():
    with serving() as server:
        server.answers["/metrics"] = metrics_text(1000, drafts=900, by_position=(9, 0, 0), K=3)
        [finding] = [f for f in examine_running(Server(server.url)) if f.gate == "drafts so far"]
        assert finding.verdict == "warns" and "broken pair" in finding.remedy


def test_the_command_examines_a_preset_a_command_and_a_server():
    def doctor(*words):
        result = CliRunner().invoke(app, ["doctor", *words])
        return result.exit_code, result.output

    code, said = doctor("--preset", "muse-glimmer-dflash2", "--gpu", "h100")
    assert code == 0 and "Nothing here refuses." in said
    adaptive = ("-sc.method", "dspark", "-sc.enable_adaptive_verification", "true")
    code, said = doctor(
        "--gpu", "h100", "--json", "--", "vllm", "serve", "m", "--enable-lora", "-pp", "2", *adaptive
    )
    gates = [each["gate"] for each in json.loads(said)["findings"] if each["verdict"] == "refuses"]
    assert code == 1 and {"LoRA", "pipeline parallel"} == set(gates)
    with serving() as server:
        server.answers["/metrics"] = metrics_text(1000, drafts=300, by_position=(240, 120, 40), K=3)
        code, said = doctor("--url", server.url)
    assert code == 0 and "300 drafts" in said
    for words in ([], ["--url", "nowhere"], ["--engine", "sglang"], ["--url", "http://h", "--preset", "x"]):
        result = CliRunner().invoke(app, ["doctor", *words])
        assert result.exit_code != 0 and "Traceback" not in result.output
