"""Models of which a part is trained: adapters of PEFT, frozen backbones. What never changes is compared, and not moved."""
import torch
from torch.nn import functional as F

import patterns
from check_patterns import compare, plan_of, train
from cluster import Trouble, need
from tidemill.errors import UsageError


def adapted():
    import transformers
    from peft import LoraConfig, get_peft_model

    transformers.set_seed(5)
    base = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        num_hidden_layers=2, hidden_size=64, num_attention_heads=4, num_key_value_heads=2, intermediate_size=96, vocab_size=64,
        max_position_embeddings=32, bos_token_id=0, eos_token_id=0, pad_token_id=0))
    return get_peft_model(base, LoraConfig(r=2, lora_alpha=4, lora_dropout=0.1, target_modules=["q_proj", "v_proj"]))


def test_lora(build, folder):
    """Only the adapters are state; the same bits through kills, and a checkpoint that has the whole model."""
    need("peft")
    sizes = []

    class Ids(torch.utils.data.Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, i):
            return torch.randint(0, 64, (10,), generator=torch.Generator().manual_seed(i))

    def script(job):
        model = adapted()
        job.attach(model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 0.01), clip=1.0)
        sizes.append((sum(layer.size for layer in job._state.layers), sum(p.nbytes for p in model.parameters())))
        for ids in job.batches(Ids()):
            job.backward(model(input_ids=ids, labels=ids).loss)
        assert job.done()
        job.save(folder / "saved")
        return patterns.state(model)

    alone = train(script)
    compare("LoRA", alone, train(script, plan_of(3)))
    state, whole = sizes[0]
    trained = sum(v.nbytes for k, v in alone.items() if "lora_" in k)
    assert trained * 3 < state < whole / 2, (state, whole)  # with AdamW's two moments, and room for notes

    def other(job):
        model = adapted()
        with torch.no_grad():
            for p in model.parameters():
                p.add_(1.0)
        job.attach(model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 0.01), start=folder / "saved")
        return patterns.state(model)

    compare("a checkpoint", alone, train(other))


def test_frozen_parts(build, folder):
    """Base weights that differ between workers are seen, and a frozen parameter that changes is refused."""
    def digest(more):
        job = patterns.begin()
        model = patterns.net()
        model[0].requires_grad_(False)
        with torch.no_grad():
            model[0].weight[0, 0] += more
        job.attach(model, torch.optim.SGD(model[2].parameters(), 0.1))
        assert not any(p.name.startswith("0.") for layer in job._state.layers for p in layer.params)
        return job._state.digest()

    assert digest(0.0) == digest(0.0) != digest(0.5)

    def changes(job):
        model = patterns.net()
        model[0].requires_grad_(False)
        job.attach(model, torch.optim.SGD(model[2].parameters(), 0.1))

        def body(n, x, y):
            with torch.no_grad():
                model[0].weight.mul_(0.9)
            job.backward(F.cross_entropy(model(x), y))

        patterns.loop(job, model, body)

    try:
        train(changes)
    except UsageError as error:
        assert "0.weight" in str(error), error
    else:
        raise Trouble("a frozen weight was changed")


test_lora.slow = True
