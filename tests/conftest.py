"""Fixtures that several packages of tests share."""

import importlib.util

import pytest

WORDS = ["move", "insert", "pick", "up", "the", "cube"]  # others are <unk>


@pytest.fixture(scope="session")
def vlm(tmp_path_factory):
    """Return a folder with a tiny SmolVLM of the real classes (configuration, processor, tokenizer), as ``policy.vlm_model_name``."""
    if not all(importlib.util.find_spec(package) for package in ("transformers", "num2words")):
        pytest.skip("SmolVLA needs the extra vla: pip install -e '.[vla]'")
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, SmolVLMConfig, SmolVLMImageProcessor, SmolVLMProcessor, SmolVLMVideoProcessor

    special = {"image_token": "<image>", "fake_image_token": "<fake>", "global_image_token": "<global>", "end_of_utterance_token": "<end>"}
    words = {word: i for i, word in enumerate(["<pad>", "<unk>", *special.values(), *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "extra_special_tokens": special}
    text = {"model_type": "llama", "vocab_size": len(words), "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2}
    text |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0}
    vision = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 64,
        "patch_size": 16,
    }
    folder = tmp_path_factory.mktemp("vlm")
    config = {"text_config": text, "vision_config": vision, "scale_factor": 2, "image_token_id": words["<image>"], "pad_token_id": 0}
    SmolVLMConfig(**config).save_pretrained(folder)
    parts = {"image_processor": SmolVLMImageProcessor(), "video_processor": SmolVLMVideoProcessor()}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    SmolVLMProcessor(tokenizer=tokenizer, image_seq_len=4, **parts).save_pretrained(folder)
    return folder
