"""Serves a closed loop with vLLM for the comparison: run by path in an environment of its own, knows nothing of avlab.

Standard input gives JSON lines, each is answered with one on standard output: first the engine's settings, then
{"begin": requests, "top_p": x} to start a loop afresh and {"serve": seconds} to count for so long.
"""

import itertools
import json
import os
import sys
import time


class Loop:
    """A closed loop of requests over given prompts, without end."""

    def __init__(self, order: dict):
        from vllm import LLM, SamplingParams
        from vllm.sampling_params import RequestOutputKind

        self.parameters = lambda top_p: SamplingParams(
            temperature=order["temperature"],
            top_p=top_p,
            max_tokens=order["max_new_tokens"],
            stop_token_ids=order["end_tokens"],
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        self.engine = LLM(
            model=order["model"],
            dtype=order["dtype"],
            max_model_len=order["max_model_len"],
            max_num_seqs=order["max_num_seqs"],
            skip_tokenizer_init=True,
            seed=0,
        ).llm_engine
        self.given = order["prompts"]
        self.numbers = itertools.count()
        self.live: set[str] = set()
        self.requests, self.top_p = 1, 1.0

    def begin(self, requests: int, top_p: float) -> None:
        """Start afresh and serve until every request has emitted."""
        if self.live:
            self.engine.abort_request(list(self.live))
            self.live.clear()
        self.requests, self.top_p, self.prompts = requests, top_p, itertools.cycle(self.given)
        self._fill()
        waiting = set(self.live)
        while waiting:
            waiting -= self._step()[1]

    def serve(self, seconds: float) -> dict:
        """Count for so many seconds; finding prompts is not counted."""
        tokens, steps, began = 0, 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            self._fill()
            tokens, steps = tokens + self._step()[0], steps + 1
        return {"tokens": tokens, "seconds": time.perf_counter() - began, "steps": steps}

    def _fill(self) -> None:
        while len(self.live) < self.requests:
            name = str(next(self.numbers))
            prompt = {"prompt_token_ids": next(self.prompts)}
            self.engine.add_request(name, prompt, self.parameters(self.top_p))
            self.live.add(name)

    def _step(self) -> tuple[int, set[str]]:
        """Tokens that one step emitted, and the requests that emitted them."""
        tokens, emitted = 0, set()
        for output in self.engine.step():
            tokens += len(output.outputs[0].token_ids)
            emitted.add(output.request_id)
            if output.finished:
                self.live.discard(output.request_id)
        return tokens, emitted


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # the engine's own messages go to the log
    loop = Loop(json.loads(sys.stdin.readline()))
    from vllm import __version__

    print(json.dumps({"ready": __version__}), file=answers)
    for line in sys.stdin:
        order = json.loads(line)
        if "begin" in order:
            loop.begin(order["begin"], order["top_p"])
            print(json.dumps({}), file=answers)
        else:
            print(json.dumps(loop.serve(order["serve"])), file=answers)


if __name__ == "__main__":
    main()
