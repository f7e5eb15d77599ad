"""A server that streams completions at a pace of its own, with the usage that vLLM puts into every chunk."""

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from vllm_stand_in import metrics_text


class Streaming:
    """token_s: seconds of a chunk. per_chunk: tokens in one. refuse: what it answers instead, as (status, text)."""

    def __init__(self, token_s=0.01, per_chunk=1):
        self.token_s, self.per_chunk = token_s, per_chunk
        self.refuse = None
        self.usage = True
        self.cut = False  # it closes streams in the middle
        self.tokens = self.open = 0
        self.bodies = []
        self.lock = threading.Lock()


@contextlib.contextmanager
def streaming(**settings):
    """Such a server behind its `url`."""
    stand_in = Streaming(**settings)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            text = metrics_text(stand_in.tokens).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if stand_in.refuse:
                status, text = stand_in.refuse
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())
                return
            with stand_in.lock:
                stand_in.bodies.append(body)
                stand_in.open += 1
            try:
                self.send_response(200)
                self.end_headers()
                self.stream(body["max_tokens"])
            except OSError:
                pass
            finally:
                with stand_in.lock:
                    stand_in.open -= 1

        def stream(self, limit):
            sent = 0
            while sent < limit:
                time.sleep(stand_in.token_s)
                if stand_in.cut and sent:
                    return
                sent = min(sent + stand_in.per_chunk, limit)
                with stand_in.lock:
                    stand_in.tokens += stand_in.per_chunk
                usage = {"prompt_tokens": 3, "completion_tokens": sent} if stand_in.usage else None
                chunk = {"choices": [{"text": "x"}], "usage": usage}
                self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    stand_in.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield stand_in
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
