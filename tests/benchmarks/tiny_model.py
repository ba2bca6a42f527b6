"""A tiny model of random weights, for servers that need one to start.

    python tests/benchmarks/tiny_model.py transformers FOLDER
    python tests/benchmarks/tiny_model.py gguf FILE

It runs in the environment of the server: with `transformers` and `tokenizers`, or with
`gguf` and `numpy`. What it says has no sense, which is not what is looked at.
"""

import sys
from typing import Any

TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
)
CONTEXT_TOKENS = 2048
WIDTH, INNER, N_LAYERS, N_HEADS = 128, 256, 2, 2  # heads as wide as vLLM takes
WORDS = "tide the is high low moon sea and of water day night rises falls far near sun"


def for_transformers(folder: str) -> None:
    """Write a model and its tokenizer as `transformers` reads them."""
    import tokenizers  # type: ignore[import-not-found]  # noqa: PLC0415 - in the server's environment only
    import transformers  # noqa: PLC0415 - as above

    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}
    tokenizer: Any = tokenizers.Tokenizer(tokenizers.models.BPE())
    by_bytes = tokenizers.pre_tokenizers.ByteLevel
    tokenizer.pre_tokenizer = by_bytes(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<unk>", "<s>", "</s>"],
        initial_alphabet=by_bytes.alphabet(),
    )
    tokenizer.train_from_iterator([WORDS] * 50, trainer)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    config = transformers.LlamaConfig(
        vocab_size=len(fast),
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=N_LAYERS,
        num_attention_heads=N_HEADS,
        num_key_value_heads=N_HEADS,
        max_position_embeddings=CONTEXT_TOKENS,
        bos_token_id=1,
        eos_token_id=2,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def as_gguf(file: str) -> None:
    """Write a model in one file, as llama.cpp reads it."""
    import gguf  # noqa: PLC0415 - in the server's environment only
    import numpy as np  # noqa: PLC0415 - as above

    words = [b"\xe2\x96\x81" + word.encode() for word in WORDS.split()]
    tokens = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % n for n in range(256)), *words]
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(CONTEXT_TOKENS)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(N_LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(N_HEADS)
    writer.add_head_count_kv(N_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // N_HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * 259 + [-1.0] * len(words))
    writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * len(words)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)
    random = np.random.default_rng(0)
    shapes = {"token_embd": (len(tokens), WIDTH), "output": (len(tokens), WIDTH)}
    norms = ["output_norm"]
    for layer in range(N_LAYERS):
        block = f"blk.{layer}"
        names = ("attn_q", "attn_k", "attn_v", "attn_output")
        shapes |= {f"{block}.{name}": (WIDTH, WIDTH) for name in names}
        shapes |= {f"{block}.ffn_{name}": (INNER, WIDTH) for name in ("gate", "up")}
        shapes[f"{block}.ffn_down"] = (WIDTH, INNER)
        norms += [f"{block}.attn_norm", f"{block}.ffn_norm"]
    for name, shape in shapes.items():
        weights = random.standard_normal(shape).astype(np.float32) * 0.05
        writer.add_tensor(f"{name}.weight", weights)
    for name in norms:
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    {"transformers": for_transformers, "gguf": as_gguf}[sys.argv[1]](sys.argv[2])
