#!/usr/bin/env python3
"""Exports the golden models to GGUF, and compares with llama.cpp's own reader, quantizer and logits.

  pip install gguf llama-cpp-python
  tests/tools/gguf_check.py build/bin/tessera

By hand: CI has neither package, and gguf_test.cpp reads the files with a parser written for it. The golden
logits are Transformers' (tests/golden/README.md).
"""
import ctypes
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import gguf
import llama_cpp
import numpy as np

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
# llama.cpp looks GELU up in a table of f16 values, so its GPT-2 is less exact than its Llama.
MODELS = {"gpt2/plain": 2e-3, "gpt2/one_layer": 2e-3, "llama/llama3": 1e-4, "llama/odd": 1e-4, "llama/qwen2": 1e-4,
          "llama/qwen3": 1e-4, "qwen3_moe/typical": 1e-4}
QUIET = llama_cpp.llama_log_callback(lambda *_: None)  # llama.cpp keeps the pointer


def tensors_of(path):
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    kinds = {"F32": np.float32, "I32": np.int32, "I64": np.int64}
    tensors = {}
    for name, info in json.loads(raw[8:8 + length]).items():
        if name != "__metadata__" and info["dtype"] in kinds:
            begin, end = (8 + length + at for at in info["data_offsets"])
            tensors[name] = np.frombuffer(raw[begin:end], kinds[info["dtype"]]).reshape(info["shape"])
    return tensors


def with_tokenizer(name, folder):
    """The golden model with a tokenizer of its first printable characters."""
    shutil.copytree(GOLDEN / name, folder)
    vocabulary = {chr(33 + i): i for i in range(60)}
    (folder / "tokenizer.json").write_text(json.dumps(
        {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None,
         "decoder": {"type": "Fuse"}, "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}))
    return folder


def export(program, model, out, *options):
    subprocess.run([program, "export", "--model", model, "--out", out, "--format", "gguf", *options], check=True,
                   stdout=subprocess.DEVNULL)


def logits_of(path, tokens):
    """llama.cpp's logits after every token."""
    params = llama_cpp.llama_model_default_params()
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    assert model, f"llama.cpp does not load {path}"
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 512
    params.type_k = params.type_v = 0  # f32
    params.flash_attn_type = 0  # off: it computes in f16
    context = llama_cpp.llama_init_from_model(model, params)
    assert context, f"llama.cpp does not run {path}"
    batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = int(token), i, 1, 0, 1
    assert llama_cpp.llama_decode(context, batch) == 0
    vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    rows = [np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, i), (vocabulary,)).copy()
            for i in range(len(tokens))]
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return np.stack(rows)


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    llama_cpp.llama_log_set(QUIET, ctypes.c_void_p(0))
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        for name, bound in MODELS.items():
            folder = with_tokenizer(name, pathlib.Path(temporary) / name.replace("/", "_"))
            plain, blocks = folder / "f32.gguf", folder / "q8_0.gguf"
            export(program, folder, plain)
            export(program, folder, blocks, "--dtype", "q8_0")
            expected = tensors_of(folder / "expected.safetensors")
            tokens = expected["input_ids"][0]
            ours = logits_of(plain, tokens)
            scale = np.abs(expected["logits"][0]).max()
            difference = np.abs(ours - expected["logits"][0]).max() / scale
            read = {tensor.name: tensor for tensor in gguf.GGUFReader(plain).tensors}
            quantized = 0
            for tensor in gguf.GGUFReader(blocks).tensors:
                if tensor.tensor_type != gguf.GGMLQuantizationType.Q8_0:
                    continue
                quantized += 1
                wanted = gguf.quants.quantize(read[tensor.name].data.astype(np.float32), tensor.tensor_type)
                if not np.array_equal(wanted.reshape(-1), np.asarray(tensor.data).reshape(-1)):
                    failed += 1
                    print(f"{name}: {tensor.name} differs from gguf's q8_0")
            failed += difference > bound
            print(f"{name}: logits differ by {difference:.1e} of the largest (allowed {bound:.0e}); "
                  f"{quantized} matrices in q8_0 as gguf has them")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
