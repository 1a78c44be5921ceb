"""Checks that transformers reads an export as temper does.

    python export_check.py TEMPER EXPORT [QUESTION...]

TEMPER is the binary, EXPORT what `temper run export RUN EXPORT --dtype f32`
wrote. It compares token ids of hostile texts, renderings of conversations,
greedy generations (ours: the argmax of `temper model logits`, token by token)
and where they stop, and exits with 1 at a difference.

How it was run: Python 3.11, transformers 5.23.0, tokenizers 0.23.3, torch 2.15.
Not needed to build, test or run anything.
"""
import json
import random
import subprocess
import sys
import warnings

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

warnings.filterwarnings("ignore")
TEMPER, EXPORT, QUESTIONS = sys.argv[1], sys.argv[2], sys.argv[3:] or ["k213?", "k017?", "k396?"]
problems = 0


def check(what, ours, theirs):
    global problems
    if ours != theirs:
        problems += 1
        print(f"{what}:\n  temper       {ours!r:.400}\n  transformers {theirs!r:.400}")


def temper(*args, stdin=""):
    done = subprocess.run([TEMPER, *args], input=stdin.encode(), stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def texts():
    yield from ["", " ", "user\nk213?", "  two  spaces ", "\n\n\n", "\r\n\t", "I'll don't WE'RE x's", "1234567 12 3", "a\u0301\u00e9\u4e2d\u6587\U0001f600",
                "\u00a0\u200b\u2028\ufeff", "def f(x):\n\treturn x  # \\n", "<|im_start|>user\nx<|im_end|>\n", "<tool_call>{}</tool_call>", "<|im_start", "|im_end|>",
                "<answer>4</answer><|endoftext|>", "\x00\x07\x1f\x7f", "\u0130\u0131\ufb01\u1e9b\u0323", "....!!!???", "a" * 300, "\ud7ff\ue000\ufffd\U0010ffff"]
    draw = random.Random(7)
    parts = [" ", "\n", "\t", "ab", "k", "'s", "12", "?", "<|im_end|>", "\u00e9", "e\u0301", "\u4e2d", "\U0001f600", "\u00a0", "{", "\"", "\\", "_", "A", "\u0600", "\u0915\u093f"]
    for _ in range(400):
        yield "".join(draw.choice(parts) for _ in range(draw.randrange(1, 24)))


def greedy(ids, eos, most):
    out = []
    while len(out) < most and (not out or out[-1] not in eos):
        row = temper("model", "logits", EXPORT, "--ids", ",".join(map(str, ids + out)))["logits"][-1]
        out.append(max(range(len(row)), key=row.__getitem__))
    return out


tokenizer = AutoTokenizer.from_pretrained(EXPORT)
config, generation = AutoConfig.from_pretrained(EXPORT), GenerationConfig.from_pretrained(EXPORT)
print("classes", type(tokenizer).__name__, type(config).__name__, "eos", config.eos_token_id, generation.eos_token_id, tokenizer.eos_token, "pad", tokenizer.pad_token)
check("eos of the files", generation.eos_token_id, [tokenizer.eos_token_id])
check("eos of config.json", config.eos_token_id, tokenizer.eos_token_id)
check("model_max_length", config.max_position_embeddings, tokenizer.model_max_length)

numTexts = 0
for text in texts():
    numTexts += 1
    ours = temper("model", "tokenize", EXPORT, stdin=text)
    check(f"ids of {text!r}", ours, tokenizer.encode(text))
    check(f"text of {ours}", tokenizer.decode(ours, skip_special_tokens=False), text if "e\u0301" not in text else tokenizer.decode(ours))

conversation = [{"role": "user", "content": QUESTIONS[0]}, {"role": "assistant", "content": "Hm.", "tool_calls": [
    {"type": "function", "function": {"name": "python", "arguments": {"code": "print('<x>')\n"}}}]}, {"role": "tool", "content": "1"}]
for messages, prompt in [(conversation[:1], True), (conversation, True), (conversation[:2], False)]:
    request = json.dumps({"messages": messages, "add_generation_prompt": prompt})
    ours = temper("model", "render", "--ids", EXPORT, stdin=request)
    check(f"rendering of {len(messages)} messages", ours, tokenizer.apply_chat_template(messages, add_generation_prompt=prompt, tokenize=True, return_dict=False))

model = AutoModelForCausalLM.from_pretrained(EXPORT, dtype=torch.float32).eval()
stopped = 0
for question in QUESTIONS:
    ids = tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True, return_tensors="pt", return_dict=False)
    room = config.max_position_embeddings - ids.shape[1]
    with torch.no_grad():
        theirs = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=room)[0, ids.shape[1]:].tolist()
    ours = greedy(ids[0].tolist(), generation.eos_token_id, room)
    stopped += theirs[-1] in generation.eos_token_id
    check(f"greedy answer to {question!r}", tokenizer.decode(ours), tokenizer.decode(theirs))
    print(f"  {question!r} -> {tokenizer.decode(theirs)!r}")
print(f"{numTexts} texts, {len(QUESTIONS)} answers of which {stopped} stopped by themselves, {problems} differences")
sys.exit(problems > 0)
