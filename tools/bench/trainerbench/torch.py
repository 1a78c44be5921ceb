"""Training steps of a Qwen3-shaped network in PyTorch.

The first line of stdin is a JSON object that says which, each other line asks for one step.
Each step, and a first one that is made at once, is answered by a JSON object on a line.
"""

import json
import resource
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

c = json.loads(sys.stdin.readline())
device, half = c["device"], c["compute"] == "bfloat16"
torch.manual_seed(1)
if device == "cpu":
    torch.set_num_threads(c["threads"])
torch.set_float32_matmul_precision("high")  # TF32 on GPUs, as XLA multiplies by default


class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        y = x.float()
        return self.weight * (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + c["eps"])).to(x.dtype)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        q, kv = c["heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"]
        linear = lambda i, o: nn.Linear(i, o, bias=False)
        self.q, self.k, self.v, self.o = linear(c["hidden"], q), linear(c["hidden"], kv), linear(c["hidden"], kv), linear(q, c["hidden"])
        self.gate, self.up, self.down = linear(c["hidden"], c["feed"]), linear(c["hidden"], c["feed"]), linear(c["feed"], c["hidden"])
        self.before, self.after = Norm(c["hidden"]), Norm(c["hidden"])
        self.q_norm, self.k_norm = Norm(c["head_dim"]), Norm(c["head_dim"])

    def forward(self, x, cos, sin):
        y = self.before(x)
        split = lambda z, norm: rotate(norm(z.unflatten(-1, (-1, c["head_dim"]))).transpose(1, 2), cos, sin)
        q, k = split(self.q(y), self.q_norm), split(self.k(y), self.k_norm)
        v = self.v(y).unflatten(-1, (-1, c["head_dim"])).transpose(1, 2)
        groups = c["heads"] // c["kv_heads"]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        a = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).flatten(2))
        y = self.after(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(c["vocab"], c["hidden"])
        self.layers = nn.ModuleList(Layer() for _ in range(c["layers"]))
        self.norm = Norm(c["hidden"])
        self.head = nn.Linear(c["hidden"], c["vocab"], bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=c["init"])
        if c["tie"]:
            self.head.weight = self.embed.weight
        angle = torch.outer(torch.arange(c["tokens"]).float(), c["theta"] ** (-torch.arange(0, c["head_dim"], 2).float() / c["head_dim"]))
        angle = torch.cat((angle, angle), -1)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), targets.flatten())


network = Network().to(device)
adam = torch.optim.AdamW(network.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.01, fused=True)
loss_of = torch.compile(network) if c["mode"] == "compile" else network
text = torch.randint(c["vocab"], (c["rows"], c["tokens"] + 1), device=device)


def step():
    with torch.autocast(device, torch.bfloat16, enabled=half):
        loss = loss_of(text[:, :-1], text[:, 1:])
    loss.backward()
    nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    adam.step()
    adam.zero_grad(set_to_none=True)
    return loss.item()  # waits for the device


def answer():
    begin, cpu = time.perf_counter(), time.process_time()
    loss = step()
    wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
    if device == "cuda":
        peak, name = torch.cuda.max_memory_allocated(), torch.cuda.get_device_name(0)
    else:
        peak, name = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "cpu, %d threads" % torch.get_num_threads()
    print(json.dumps({"version": torch.__version__, "device": name, "wall": wall, "cpu": cpu, "loss": loss, "peak": peak}), flush=True)


answer()
for _ in sys.stdin:
    answer()
