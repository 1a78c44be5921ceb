"""Writes qwen_tokenizer.json, qwen_golden.jsonl and unicode_golden.json beside this file.

Run once with Python 3.11, tokenizers 0.23.3 (pip install tokenizers==0.23.3):

    python make_qwen_golden.py

The tokenizer has the components of Qwen3's: NFC, the Split pattern with its
lookahead, ByteLevel, and the same added tokens; its vocabulary is learned from
the texts below. Each line of the golden file is a text with its ids: "ids" with
added tokens recognised, "plain" with none of them known, and "text", what the
ids decode to. The last file has digests of what the library knows of each code
point, so that a change of Go's tables is noticed.
"""

import hashlib
import json
import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONTROL = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>",
]
OTHER = [
    "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>",
    "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>",
]

TRAINING = [
    "def main(args):\n    for i in range(10):\n        print(f'{i}: {args[i]}')\n    return None\n",
    "import numpy as np\n\n\nclass Solver:\n\tdef __init__(self, n):\n\t\tself.n = n  # size\n",
    "func (t *Tokenizer) Encode(text string) []int32 {\n\treturn t.appendPlain(nil, text)\n}\n",
    "if (x >= 0 && y != z) { return x->next[0]; } else { throw new Error(\"bad\"); }\r\n",
    "\\begin{equation}\n  \\int_0^\\infty e^{-x^2}\\,dx = \\frac{\\sqrt{\\pi}}{2}\n\\end{equation}\n",
    "Let $f(x) = \\sum_{k=0}^{n} \\binom{n}{k} x^k$ and $\\alpha \\in \\mathbb{R}$. Then $\\boxed{42}$.\n",
    "We're sure they'll say it's what I've done, I'd think; don't you? I'm not. WE'RE, IT'S, DON'T.\n",
    "The quick brown fox jumps over the lazy dog. The answer is 3.14159 and 2,718,281.\n",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01\u8fd9\u662f\u4e00\u4e2a\u6d4b\u8bd5\u3002\u8bf7\u4e00\u6b65\u4e00\u6b65\u63a8\u7406\u3002\n",
    "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c\u3002\u30c6\u30b9\u30c8\u3067\u3059\u3002 \uc548\ub155\ud558\uc138\uc694 \uc138\uacc4. \ud55c\uad6d\uc5b4\n",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645\u060c \u0647\u0630\u0627 \u0627\u062e\u062a\u0628\u0627\u0631. \u0661\u0662\u0663\n",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u041a\u0430\u043a \u0434\u0435\u043b\u0430? caf\u00e9 na\u00efve \u00fcber stra\u00dfe\n",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e \u0967\u0968\u0969 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01\n",
    "\U0001f600\U0001f602 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f44d\U0001f3fd \u2764\ufe0f \U0001f1e9\U0001f1ea\n",
    '{"name": "python", "arguments": {"code": "print(1 + 1)"}}\n',
    "    \n\t\t\n        indented\n                more\n   \r\n\r\n",
]

# What each class of the pattern begins and ends with, and what looks like it.
EDGES = [
    "a", "Z", "\u00e9", "\u01c5", "\u02b0", "\u4e2d", "\u0627", "\u00aa", "\U00010400", "\U0002a6df",
    "0", "9", "\u0663", "\u0969", "\u00b2", "\u2167", "\u3007", "\u00bd", "\U0001d7d8",
    " ", "\t", "\n", "\r", "\r\n", "\x0b", "\x0c", "\x85", "\u00a0", "\u1680", "\u2003", "\u2028", "\u2029", "\u202f",
    "\u205f", "\u3000", "\u180e", "\u200b", "\u200d", "\ufeff", "\x1c", "\x00", "\x7f",
    "!", "'", "\"", "_", "-", "\u2019", "\u0301", "\u0327", "\u093e", "\u20dd", "\ufe0f", "\u00ad", "\ufffd", "\U0001f600",
    "\ue000", "\u0378", "\U000e0041",
]
WORDS = [
    "'s", "'S", "'\u017f", "'t", "'T", "'re", "'RE", "'rE", "'ve", "'Ve", "'m", "'M", "'ll", "'lL", "'LL", "'d", "'D", "''s",
    "'r", "'v", "'l", "'le", "'\u212a", "'k", " 's", "x's", "'sx", "\u2019s",
    "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_start", "|im_end|>", "<think",
    "<|endoftext|>", "<<think>>", "<tool_call><tool_call>",
    "e\u0301", "\u0041\u030a", "\u212b", "\u0958", "\uac01", "\u1100\u1161\u11a8", "\u0344", "\u0f73", "a\u0323\u0302", "a\u0302\u0323",
    "\u2126", "\uf900", "\ufb01", "\U0001d15e", "a\u0897\u0301", "\u0b47\u0b3e", "\U000105d2\u0307", "\u088f", "\U000323b0",
    "hello", "world", "return", "\\frac{1}{2}", "$x^2$", "==", "!=\n", "    ", "\t\t", "\n\n\n", "12345", "\U0001f468\u200d\U0001f469\u200d\U0001f467",
]


def tokenizer():
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tok.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tok.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tok.train_from_iterator(
        TRAINING * 3 + EDGES * 2 + WORDS * 2,
        trainers.BpeTrainer(vocab_size=900, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False),
    )
    tok.add_tokens([AddedToken(s, normalized=False, special=True) for s in CONTROL])
    tok.add_tokens([AddedToken(s, normalized=False, special=False) for s in OTHER])
    return tok


def texts():
    rng = random.Random(4)
    yield from TRAINING
    yield from EDGES
    yield from WORDS
    yield ""
    yield "a" * 200 + " " * 200 + "\n" * 70 + "ab" * 100
    yield "e" + "\u0301\u0316" * 40 + "z"  # more combining marks than a stream-safe text has
    for a in EDGES:  # each class before, between and after letters, numbers and spaces
        yield f"x{a}y {a} 1{a}2 {a}{a}.{a}\n{a}"
    for _ in range(400):
        yield "".join(rng.choice(rng.choice((EDGES, WORDS))) for _ in range(rng.randint(2, 14)))


def digests():
    runes = [chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    kinds = dict.fromkeys(runes, "-")
    for kind, pattern in (("L", r"\p{L}"), ("N", r"\p{N}"), ("S", r"\s")):
        split = pre_tokenizers.Split(Regex(pattern), behavior="removed", invert=True)
        for start in range(0, len(runes), 20000):
            for piece, _ in split.pre_tokenize_str("".join(runes[start:start + 20000])):
                if len(piece) == 1:
                    kinds[piece] = kind
    word = Tokenizer(models.BPE(vocab={}, merges=[]))
    word.add_tokens([AddedToken("<>", normalized=False, single_word=True)])
    nfc = normalizers.NFC()
    assigned = [r for r in runes if ord(r) < 0x34000 or 0xE0000 <= ord(r) < 0xE1000]  # planes 4 to 13 are empty, 15 and 16 private
    texts = {
        "classes": (kinds[r] for r in runes),
        "words": ("-" if word.encode(r + "<>").ids else "w" for r in runes),
        "nfc": (nfc.normalize_str(f"{r} a{r}\u0301{r}\u0345\u0334\n") for r in assigned),
    }
    return {name: hashlib.sha256("".join(parts).encode()).hexdigest() for name, parts in texts.items()}


def main():
    tok = tokenizer()
    tok.save(str(HERE / "qwen_tokenizer.json"), pretty=False)
    spec = json.loads(tok.to_str())
    spec["added_tokens"] = []
    plain = Tokenizer.from_str(json.dumps(spec))
    with open(HERE / "qwen_golden.jsonl", "w", encoding="utf-8") as out:
        for text in texts():
            ids = tok.encode(text).ids
            row = {"in": text, "ids": ids, "plain": plain.encode(text).ids, "text": tok.decode(ids, skip_special_tokens=False)}
            out.write(json.dumps(row) + "\n")
    (HERE / "unicode_golden.json").write_text(json.dumps(digests(), indent=1) + "\n")


if __name__ == "__main__":
    main()
