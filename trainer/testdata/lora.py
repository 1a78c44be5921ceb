"""Trains adapters with PEFT, for TestLoRAFollowsPEFT.

    TEMPER_LORA_OUT=/tmp/adapter go test ./trainer -run TestLoRAFollowsPEFT
    python lora.py ../hf/testdata/tied /tmp/adapter > lora.golden.json

The first line writes adapters as `temper run export --adapter` does; PEFT loads them.
How it was run: Python 3.11, torch 2.15.0, transformers 5.23.0, peft 0.21.2. Not needed to build, test or run anything.
"""
import json
import sys

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

base, adapter = sys.argv[1:]
torch.set_num_threads(1)
model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager")
model = PeftModel.from_pretrained(model, adapter, is_trainable=True)
trained = [p for p in model.parameters() if p.requires_grad]
adam = torch.optim.AdamW(trained, lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.01)
losses = []
for step in range(20):
    rows = [[(7 * at + i * 13 + step * 5 + at * at * i) % 64 for at in range(24)] for i in range(4)]
    ids = torch.tensor(rows)
    loss = torch.nn.functional.cross_entropy(model(ids).logits[:, :-1].reshape(-1, 64), ids[:, 1:].reshape(-1))
    adam.zero_grad()
    loss.backward()
    adam.step()
    losses.append(loss.item())
adapters = {}
for name, p in model.named_parameters():
    if ".layers.1." in name and p.requires_grad and ("q_proj" in name or "down_proj" in name):
        adapters[name.removeprefix("base_model.model.").replace(".default", "")] = p.detach().flatten().tolist()
print(json.dumps({"losses": losses, "adapters": adapters}))
