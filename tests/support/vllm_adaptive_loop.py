"""Run by vLLM's interpreter: its real adaptive loop on a tiny target, with the extension or without. JSON in, JSON out.

Order: target, drafter (folders), K, requests, tokens, refit (steps), draft_curve, verify_curve, extension (its name, or
""), holds (lengths to hold verification at, each for one batch of requests; -1 is vLLM's rule), late (hook in only
after the first batch).
Answer: outputs [batch][request] token ids; drains; about; probes of vLLM's own: every slot that its estimator was
taught with, what each allocation was made of, and the coefficients after each refit.
"""

import json
import sys

order = json.load(sys.stdin)
import vllm_interpreted  # noqa: E402

vllm_interpreted.without_graphs(order["draft_curve"], order["verify_curve"])

import vllm.v1.worker.gpu.spec_decode.adaptive_verification as adaptive  # noqa: E402
from vllm import LLM, SamplingParams  # noqa: E402
from vllm.v1.worker.gpu.spec_decode import acceptance_estimator  # noqa: E402

Estimator = acceptance_estimator.OnlineAcceptanceEstimator
Estimator.REFIT_INTERVAL = order["refit"]
probes = {"taught": [], "allocated": [], "coefficients": []}
step, allocate = Estimator.step, adaptive.AdaptiveVerificationManager.reallocate_drafts


def probed_step(self, idx_mapping, num_sampled, num_rejected):
    rows = idx_mapping.long()
    probes["taught"].append(
        {
            "feature": self.features[rows].tolist(),
            "prediction": self.predictions[rows].tolist(),
            "sampled": num_sampled.tolist(),
            "rejected": num_rejected.tolist(),
        }
    )
    before = self._refits
    step(self, idx_mapping, num_sampled, num_rejected)
    if self._refits != before:
        probes["coefficients"].append([self.slope.item(), self.intercepts.tolist()])


def probed_allocate(self, req_ids, idx_mapping):
    drafts, _, budget = self._batch_budget
    confidence = self._confidence_probs[idx_mapping.long()].tolist()
    result = allocate(self, req_ids, idx_mapping)
    admitted = self._batch_draft_capacity[: len(req_ids)].tolist()
    scheduled = [drafts[each] for each in req_ids]
    probes["allocated"].append(
        {"confidence": confidence, "scheduled": scheduled, "budget": budget, "admitted": admitted}
    )
    return result


Estimator.step = probed_step
adaptive.AdaptiveVerificationManager.reallocate_drafts = probed_allocate

more = {"worker_extension_cls": order["extension"]} if order["extension"] else {}
llm = LLM(
    model=order["target"],
    skip_tokenizer_init=True,
    max_model_len=256,
    max_num_seqs=order["requests"],
    enforce_eager=True,
    dtype="float32",
    kv_cache_memory_bytes=16 << 20,
    enable_prefix_caching=False,
    seed=0,
    speculative_config={
        "method": "draft_model",
        "model": order["drafter"],
        "num_speculative_tokens": order["K"],
        "draft_sample_method": "probabilistic",
        "enable_adaptive_verification": order["adaptive"],
    },
    **more,
)
sampling = [
    SamplingParams(
        temperature=1.0, max_tokens=order["tokens"], ignore_eos=True, detokenize=False, seed=10 + i
    )
    for i in range(order["requests"])
]
answer = {"outputs": [], "drains": [], "about": [], "next": [], "starts": []}
if order["extension"] and not order["late"]:
    answer["about"] = llm.collective_rpc("avlab_begin")
    answer["drains"].append(llm.collective_rpc("avlab_drain")[0])
for hold in order["holds"]:
    answer["starts"].append({name: len(found) for name, found in probes.items()})
    if order["extension"].endswith("Switch"):
        answer["next"] += llm.collective_rpc("avlab_policy", args=(hold,))
    prompts = [{"prompt_token_ids": [5 + i, 6, 7, 8]} for i in range(order["requests"])]
    done = llm.generate(prompts, sampling, use_tqdm=False)
    answer["outputs"].append([list(each.outputs[0].token_ids) for each in done])
    if order["extension"]:
        answer["drains"].append(llm.collective_rpc("avlab_drain", args=(-1,))[0])
if order["extension"]:
    llm.collective_rpc(
        "destroy_worker_extension"
    )  # as vLLM 0.33 does at the end: the rest of a file is written
print(json.dumps(answer | {"probes": probes}))
