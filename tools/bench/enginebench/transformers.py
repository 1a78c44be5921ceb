"""Decodes with a loop of transformers: one line of JSON in, one line out."""
import json
import resource
import sys
import time

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

torch.set_num_threads(1)
torch.manual_seed(1)
model = Qwen3ForCausalLM(Qwen3Config(**json.loads(sys.stdin.readline()))).eval()


def cpu():
    r = resource.getrusage(resource.RUSAGE_SELF)
    return r.ru_utime + r.ru_stime


def sample(logits):
    logprobs = torch.log_softmax(logits[:, -1].float(), -1)
    ids = torch.multinomial(logprobs.exp(), 1)
    logprobs.gather(1, ids)
    return ids


for line in sys.stdin:
    work = json.loads(line)
    begin = time.time()
    with torch.inference_mode():
        out = model(torch.tensor(work["prompts"]), use_cache=True)
        ids = sample(out.logits)
        first = time.time() - begin
        begin, used = time.time(), cpu()
        for _ in range(work["new_tokens"] - 1):
            out = model(ids, past_key_values=out.past_key_values, use_cache=True)
            ids = sample(out.logits)
    print(json.dumps({"first_s": first, "wall_s": time.time() - begin, "cpu_s": cpu() - used,
                      "peak_rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}), flush=True)
