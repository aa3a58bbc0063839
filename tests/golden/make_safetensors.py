"""Writes safetensors/python.safetensors with the reference implementation (pip install safetensors
numpy). runtime/safetensors_test.cpp knows the values."""

import pathlib

import numpy as np
from safetensors.numpy import save_file

tensors = {
    "f32": np.arange(6, dtype=np.float32).reshape(2, 3) / 4,
    "f16": np.array([1.5, -2.0, 65504.0], dtype=np.float16),
    "f64": np.array(0.1, dtype=np.float64),
    "i32": np.array([-7, 7], dtype=np.int32),
    "i64": np.array([-(2**40)], dtype=np.int64),
    "u8": np.array([1, 2, 255], dtype=np.uint8),
    "empty": np.zeros((0, 3), dtype=np.float32),
}
path = pathlib.Path(__file__).with_name("safetensors") / "python.safetensors"
save_file(tensors, path, metadata={"format": "np", 'k"ey': "é"})
