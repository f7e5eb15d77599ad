"""A proxy that serves another server below a prefix, which it takes off before it passes a request on."""

import asyncio
import threading


class PrefixProxy:
    """Listens on a free port of this machine; `url` is where the prefix stands. Use as a context manager."""

    def __init__(self, port: int, prefix: str):
        self._target, self._prefix = port, prefix
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.url = ""

    def __enter__(self):
        self._thread.start()
        started = asyncio.start_server(self._serve, "127.0.0.1", 0)
        server = asyncio.run_coroutine_threadsafe(started, self._loop).result(10)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{self._prefix}"
        return self

    def __exit__(self, *_):
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _end(self):
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader, writer):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            method, path, rest = head.split(b" ", 2)
            if not path.startswith(self._prefix.encode()):
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            path = path[len(self._prefix) :] or b"/"
            rest = rest.replace(b"Connection: keep-alive", b"Connection: close")  # one request a connection
            theirs, ours = await asyncio.open_connection("127.0.0.1", self._target)
            ours.write(b" ".join((method, path, rest)))
            await asyncio.gather(self._pass_on(reader, ours), self._pass_on(theirs, writer))
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    async def _pass_on(self, reader, writer):
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()
