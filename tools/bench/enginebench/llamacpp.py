"""Serves one GGUF file with llama.cpp's server, from the package xllamacpp.

It takes the options of llama-server that Temper's tests and measurements use. The settings
are its fast ones: a cache for each sequence, in float16, and flash attention where the
processor has it. With --precise log-probabilities are those of float32, and sequences share
one cache; the fast ones are off by up to 5e-3.
"""
import argparse
import threading

import xllamacpp

p = argparse.ArgumentParser()
p.add_argument("--model", required=True)
p.add_argument("--host", default="127.0.0.1")
p.add_argument("--port", type=int, required=True)
p.add_argument("--ctx-size", type=int, default=4096)
p.add_argument("--parallel", type=int, default=16)
p.add_argument("--threads", type=int, default=1)
p.add_argument("--precise", action="store_true")
a = p.parse_args()

params = xllamacpp.CommonParams()
params.model.path = a.model
params.hostnames = [a.host]
params.port = a.port
params.n_ctx = a.ctx_size
params.n_parallel = a.parallel
params.cpuparams.n_threads = a.threads
params.cpuparams_batch.n_threads = a.threads
params.kv_unified = a.precise
if a.precise:
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.cache_type_k = xllamacpp.ggml_type.GGML_TYPE_F32
    params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
params.cache_ram_mib = 0
params.cont_batching = True
params.endpoint_slots = True
params.endpoint_metrics = True
params.warmup = False
params.ui = False
params.fit_params = False
server = xllamacpp.Server(params)
print("listening on", server.listening_address, flush=True)
threading.Event().wait()
