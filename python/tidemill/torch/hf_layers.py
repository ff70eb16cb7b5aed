"""Models of Hugging Face as lists of layers, for pipelines (tidemill.torch.Pipeline)."""

from __future__ import annotations

import copy
import inspect
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch import nn
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask, create_sliding_window_causal_mask

from tidemill.errors import UsageError

Ties = List[Tuple[Tuple[int, str], Tuple[int, str]]]


class _Gpt2Embedding(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.wte, self.wpe, self.drop = model.transformer.wte, model.transformer.wpe, model.transformer.drop

    def forward(self, ids: torch.Tensor, mask: Optional[torch.Tensor] = None) -> Any:
        x = self.drop(self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device)))
        return x if mask is None else (x, mask)


class _Gpt2Head(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.ln_f, self.lm_head = model.transformer.ln_f, _apart(model.lm_head)

    def forward(self, x: torch.Tensor, mask: Optional[torch.Tensor] = None) -> torch.Tensor:
        return self.lm_head(self.ln_f(x))


class _BertHead(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.cls = _apart(model.cls)

    def forward(self, x: torch.Tensor, mask: Optional[torch.Tensor] = None) -> torch.Tensor:
        return self.cls(x)


class _BertEmbedding(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.embeddings = model.bert.embeddings

    def forward(self, ids: torch.Tensor, mask: Optional[torch.Tensor] = None) -> Any:
        x = self.embeddings(input_ids=ids)
        return x if mask is None else (x, mask)


class _VitEmbedding(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.embeddings = model.vit.embeddings

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.embeddings(pixels.to(self.embeddings.patch_embeddings.projection.weight.dtype))


class _VitHead(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.layernorm, self.classifier = model.vit.layernorm, model.classifier

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.layernorm(x)[:, 0, :])


class _Block(nn.Module):
    """A block that takes and gives hidden states, without padding."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.block(x)
        return out[0] if isinstance(out, tuple) else out


class _PaddedBlock(_Block):
    """The same, and where the data has a mask of what is padded, with the mask that the whole model would make of it."""

    def __init__(self, block: nn.Module, config: Any) -> None:
        super().__init__(block)
        self._config = config

    def forward(self, x: torch.Tensor, mask: Optional[torch.Tensor] = None) -> Any:
        if mask is None:
            return super().forward(x)
        out = self.block(x, attention_mask=self._seen(x, mask))
        return out[0] if isinstance(out, tuple) else out, mask

    def _seen(self, x: torch.Tensor, mask: torch.Tensor) -> Any:
        return create_bidirectional_mask(config=self._config, inputs_embeds=x, attention_mask=mask)


class _CausalBlock(_PaddedBlock):
    def _seen(self, x: torch.Tensor, mask: torch.Tensor) -> Any:
        places = torch.arange(x.shape[1], device=x.device).unsqueeze(0)
        return create_causal_mask(config=self._config, inputs_embeds=x, attention_mask=mask, past_key_values=None, position_ids=places)


def _apart(module: nn.Module) -> nn.Module:
    """A copy with its own weights: in a pipeline a tied weight exists at both ends."""
    return copy.deepcopy(module)


def _is_tied(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a is b or a.data_ptr() == b.data_ptr()


def _gpt2(model: Any) -> Tuple[List[nn.Module], Ties]:
    if model.config._attn_implementation == "eager":
        raise UsageError("a GPT-2 with eager attention needs a mask that only the whole model makes: load it with "
                         "attn_implementation=\"sdpa\"")
    tied = _is_tied(model.lm_head.weight, model.transformer.wte.weight)
    layers = [_Gpt2Embedding(model), *[_CausalBlock(b, model.config) for b in model.transformer.h], _Gpt2Head(model)]
    last = len(layers) - 1
    return layers, [((0, "wte.weight"), (last, "lm_head.weight"))] if tied else []


def _bert(model: Any) -> Tuple[List[nn.Module], Ties]:
    tied = _is_tied(model.cls.predictions.decoder.weight, model.bert.embeddings.word_embeddings.weight)
    layers = [_BertEmbedding(model), *[_PaddedBlock(b, model.config) for b in model.bert.encoder.layer], _BertHead(model)]
    last = len(layers) - 1
    ends = ((0, "embeddings.word_embeddings.weight"), (last, "cls.predictions.decoder.weight"))
    return layers, [ends] if tied else []


def _vit(model: Any) -> Tuple[List[nn.Module], Ties]:
    return [_VitEmbedding(model), *[_Block(b) for b in model.vit.layers], _VitHead(model)], []


class _DecoderEmbedding(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.embed_tokens = model.model.embed_tokens

    def forward(self, ids: torch.Tensor, mask: Optional[torch.Tensor] = None) -> Any:
        x = self.embed_tokens(ids)
        return x if mask is None else (x, mask)


class _DecoderBlock(nn.Module):
    """A block with the positions and the mask that the whole model would give it."""

    def __init__(self, model: Any, number: int) -> None:
        super().__init__()
        self.block, self.rotary = model.model.layers[number], _apart(model.model.rotary_emb)
        self._config = config = model.config
        types = getattr(config, "layer_types", None)
        self._type = types[number] if types else None
        sliding = self._type == "sliding_attention" or (types is None and getattr(config, "sliding_window", None) is not None)
        self._mask_of = create_sliding_window_causal_mask if sliding else create_causal_mask
        self._typed = "layer_type" in inspect.signature(type(self.rotary).forward).parameters

    def forward(self, x: torch.Tensor, mask: Optional[torch.Tensor] = None) -> Any:
        places = torch.arange(x.shape[1], device=x.device).unsqueeze(0)
        seen = self._mask_of(config=self._config, inputs_embeds=x, attention_mask=mask, past_key_values=None, position_ids=places)
        turned = self.rotary(x, places, self._type) if self._typed else self.rotary(x, places)
        out = self.block(x, attention_mask=seen, position_ids=places, position_embeddings=turned, past_key_values=None)
        out = out[0] if isinstance(out, tuple) else out
        return out if mask is None else (out, mask)


class _DecoderHead(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.norm, self.lm_head = model.model.norm, _apart(model.lm_head)
        self._cap = getattr(model.config, "final_logit_softcapping", None)

    def forward(self, x: torch.Tensor, mask: Optional[torch.Tensor] = None) -> torch.Tensor:
        logits = self.lm_head(self.norm(x))
        return logits if self._cap is None else torch.tanh(logits / self._cap) * self._cap


def _decoder(model: Any) -> Tuple[List[nn.Module], Ties]:
    if getattr(model.config, "use_bidirectional_attention", False):
        raise UsageError(f"a {type(model).__name__} with use_bidirectional_attention has masks that layers_of does not make")
    tied = _is_tied(model.lm_head.weight, model.model.embed_tokens.weight)
    blocks = [_DecoderBlock(model, number) for number in range(model.config.num_hidden_layers)]
    layers = [_DecoderEmbedding(model), *blocks, _DecoderHead(model)]
    return layers, [((0, "embed_tokens.weight"), (len(layers) - 1, "lm_head.weight"))] if tied else []


_DECODERS = ("Llama", "Mistral", "Qwen2", "Qwen3", "Gemma", "Gemma2", "Gemma3")
_KINDS: Dict[str, Callable[[Any], Tuple[List[nn.Module], Ties]]] = {
    "GPT2LMHeadModel": _gpt2, "BertForMaskedLM": _bert, "ViTForImageClassification": _vit,
    **{f"{name}ForCausalLM": _decoder for name in _DECODERS}}


def layers_of(model: nn.Module) -> Tuple[List[nn.Module], Ties]:
    """A causal language model of the families Llama, Mistral, Qwen (2, 3) and Gemma (1 to 3), a GPT2LMHeadModel, a
    BertForMaskedLM or a ViTForImageClassification as (layers, ties) for tidemill.torch.Pipeline:

        layers, tied = layers_of(model)
        pipeline = Pipeline(job, layers, loss=token_loss, optimizer=..., tied=tied)

    The first layer takes token numbers (batch, length), the last gives logits. The data set gives (ids, targets), or, for
    sequences that are padded, ((ids, mask), targets), with a mask as transformers' attention_mask. Of a ViT the first layer takes images (batch, channels, height, width), and the last gives a logit for each class. The
    layers are the model's own, but for the head, which gets a copy of a tied weight. `layers:` of the job's file is their number,
    blocks + 2.
    """
    kind = type(model).__name__
    if kind not in _KINDS:
        raise UsageError(f"layers_of knows {', '.join(sorted(_KINDS))}, not {kind}: give Pipeline a list of its layers, each "
                         "of which takes what the one before it gives")
    return _KINDS[kind](model)


def token_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross entropy per token; targets as wide as the logits (already shifted), -100 at positions to ignore."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)


__all__ = ["layers_of", "token_loss"]
