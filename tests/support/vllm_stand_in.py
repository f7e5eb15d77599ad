"""A small HTTP server that answers as a vLLM server does, and texts of /metrics.

The texts are written after vLLM's documentation (docs.vllm.ai, "Production Metrics", of the versions named) and its
`vllm/v1/metrics/loggers.py`; they are no recordings. `make test-vllm` reads a real server's.
"""

import contextlib
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HISTOGRAM = """\
# TYPE {name} histogram
{name}_bucket{{{labels},le="1.0"}} {count}
{name}_bucket{{{labels},le="+Inf"}} {count}
{name}_count{{{labels}}} {count}
{name}_sum{{{labels}}} {sum}
"""


def metrics_text(
    tokens,
    drafts=0,
    by_position=(),
    K=0,
    model="some/model",
    engine="0",
    version="0.33",
    started=1000.0,
    running=1,
):
    """One engine's metrics: so many output tokens, drafts of K tokens, and acceptances by position.

    version: "0.33", "0.10" (time per output token and GPU cache by their old names) or "0.8" (no engine label either).
    Every request-step emits once: outputs = tokens - accepted.
    """
    labels = f'engine="{engine}",model_name="{model}"' if version != "0.8" else f'model_name="{model}"'
    old = version != "0.33"
    later = "vllm:time_per_output_token_seconds" if old else "vllm:inter_token_latency_seconds"
    cache = "vllm:gpu_cache_usage_perc" if old else "vllm:kv_cache_usage_perc"
    accepted = sum(by_position)
    text = f"""\
# HELP python_gc_objects_collected_total Objects collected during gc
# TYPE python_gc_objects_collected_total counter
python_gc_objects_collected_total{{generation="0"}} 411.0
process_start_time_seconds {started}
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{{labels}}} {float(running)}
vllm:num_requests_waiting{{{labels}}} 2.0
{cache}{{{labels}}} 0.25
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{{{labels}}} {float(tokens)}
vllm:generation_tokens_created{{{labels}}} 1.764e+09
vllm:prompt_tokens_total{{{labels}}} {float(2 * tokens)}
vllm:num_preemptions_total{{{labels}}} 0.0
vllm:request_success_total{{{labels},finished_reason="stop"}} {float(tokens // 10)}
vllm:request_success_total{{{labels},finished_reason="length"}} 1.0
"""
    for name, count, seconds in (
        ("vllm:time_to_first_token_seconds", tokens // 10, tokens / 100),
        (later, tokens - accepted - tokens // 10, tokens / 50),
        ("vllm:iteration_tokens_total", tokens // 4, tokens),
    ):
        text += HISTOGRAM.format(name=name, labels=labels, count=float(count), sum=float(seconds))
    if K:
        text += f"""\
# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{{{labels}}} {float(drafts)}
vllm:spec_decode_num_draft_tokens_total{{{labels}}} {float(drafts * K)}
vllm:spec_decode_num_accepted_tokens_total{{{labels}}} {float(accepted)}
"""
        for k in range(K):
            count = by_position[k] if k < len(by_position) else 0
            text += f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="{k}"}} {float(count)}\n'
    return text


class StandIn:
    """A server whose answers can be changed while it runs.

    answers: by path, text or (status, text), or a function of a posted body that gives one. headers: to send with every
    answer. key: what it wants. seen: the Authorization headers that came. delay: seconds before it answers, for
    which `stopping` is waited on. closing: it closes connections without an answer.
    """

    def __init__(self):
        self.answers: dict[str, str | tuple[int, str]] = {"/version": '{"version": "0.33.0"}'}
        self.headers: dict[str, str] = {}
        self.key = ""
        self.seen: list[str | None] = []
        self.delay = 0.0
        self.closing = False
        self.stopping = threading.Event()

    def answer(self, handler):
        authorization = handler.headers.get("Authorization")
        self.seen.append(authorization)
        self.stopping.wait(self.delay)
        if self.closing:
            handler.close_connection = True
            return
        found = self.answers.get(handler.path, (404, "Not Found"))
        posted = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        if callable(found):
            found = found(posted)
        status, text = found if isinstance(found, tuple) else (200, found)
        if self.key and authorization != f"Bearer {self.key}":
            status, text = 401, '{"error": "Unauthorized"}'
        body = text.encode()
        handler.send_response(status)
        for name, value in self.headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        with contextlib.suppress(OSError):  # a reader that went away
            handler.wfile.write(body)


@contextlib.contextmanager
def serving(certificate=None, port=0):
    """A stand-in behind its URL; certificate: (file, key file) for https."""
    stand_in = StandIn()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            stand_in.answer(self)

        def do_POST(self):
            stand_in.answer(self)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    scheme = "http"
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    stand_in.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    try:
        yield stand_in
    finally:
        stand_in.stopping.set()
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def growing(server, **more):
    """The stand-in counts on by itself with every reading."""
    count = 0

    class Growing(dict):
        def get(self, path, default=None):
            nonlocal count
            if path != "/metrics":
                return super().get(path, default)
            count += 1
            return metrics_text(100 * count, 40 * count, (30 * count, 10 * count), K=2, **more)

    server.answers = Growing(server.answers)
    yield
