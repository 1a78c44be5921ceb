"""Checks that transformers renders each case of source_golden.json to its text.

How it was run: Python 3.11, transformers 5.23.0, jinja2 3.1.6; `python
source_check.py` in this folder, after `go test -run Source -update ..`. It
exits with 1 where a text differs. Not needed to build, test or run anything.
"""
import json
import pathlib
import sys

from transformers.utils import chat_template_utils as hf

file = json.loads((pathlib.Path(__file__).parent / "source_golden.json").read_text())
cases = file["cases"]
bad = 0
for case in cases:
    texts, _ = hf.render_jinja_template([case["messages"]], chat_template=file["sources"][case["source"]], add_generation_prompt=case["prompt"])
    if texts[0] != case["text"]:
        bad += 1
        print(f"{case['name']} of {case['source']}:\n  transformers {texts[0]!r}\n  the format   {case['text']!r}")
print(f"{len(cases) - bad} of {len(cases)} equal")
sys.exit(bad > 0)
