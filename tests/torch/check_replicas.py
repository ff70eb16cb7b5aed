"""Scripts whose workers go apart only where there are two (pair.py, together.py): refused by name, or with the weights of one alone."""
import torch

import pair
import together
from check_patterns import compare, train
from cluster import Trouble
from tidemill.errors import UsageError
from tidemill.torch.agreement import Agreement, Print, print_of


def test_agreement(build, folder):
    """Numbers of several workers, added up, tell whether all have said the same."""
    def heard(*told, near=0.0):
        cells = torch.zeros(6, dtype=torch.float64)
        for value in told:
            agreement, mine = Agreement(["other", "it"]), torch.zeros(6, dtype=torch.float64)
            agreement.say("it", value, near)
            agreement.put(mine)
            cells += mine
        agreement.say("it", told[0], near)
        return list(agreement.odd(cells))

    assert heard(7, 7) == heard(None, 7, 7) == heard(None, 3) == heard(None, None) == []
    assert heard(7, 8) == heard(None, 7, 8) == heard(*[1048572] * 900, 1048571) == ["it"]
    assert heard(*[1048572] * 1000) == heard(1.0, 1.0 + 1e-6, near=1e-4) == heard(0.0, 0.0, near=1e-4) == []
    assert heard(1.0, 1.01, near=1e-4) == heard(0.0, 1e-30, near=1e-4) == ["it"]


def test_prints(build, folder):
    """Items that are alike have the same, others another; floats nearly the same."""
    import numpy

    x = torch.arange(12.0).reshape(3, 4)
    items = [x, x.T.contiguous(), x + 1, (x, 1), (x, 2), {"ids": [1, 2, 3]}, {"ids": [1, 3, 2]}, "a text", "another", b"ab", 3, 3.5,
             numpy.arange(4), numpy.arange(4)[::-1], (1.0, 2.0), (2.0, 1.0), x.long(), torch.eye(3).to_sparse()]
    for exact in (True, False):
        numbers = [Print(item, exact).numbers for item in items]
        assert len(set(numbers)) == len(items), numbers
        assert numbers == [Print(item, exact).numbers for item in items]
    assert Print(x, True) != Print(x * (1 + 1e-6), True)
    assert Print(x, False).numbers[0] == Print(x * (1 + 1e-6), False).numbers[0]
    assert Print("/tmp/here/1.png", True) == Print("/data/1.png", True)
    image = torch.randint(0, 255, (3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    decoded = image + (torch.arange(3 * 32 * 32).view(3, 32, 32) % 1000 == 0).byte()  # by another library
    first, other = Print(image, False).numbers, Print(decoded, False).numbers
    assert first[0] == other[0] and 0 < abs(first[1] - other[1]) < 1e-3 * first[1] and Print(image, True) != Print(decoded, True)
    assert print_of({1: object()}, True) is not None


def test_layers_that_are_shared_and_checkpointed(build, folder):
    """As ALBERT: one layer several times, each in a backward pass of its own (use_reentrant=True). Sums of floats begin when gradients are whole."""
    from torch.nn import functional as F
    from torch.utils.checkpoint import checkpoint

    import patterns

    def script(reentrant, times=lambda job: 3):
        def run(job):
            torch.manual_seed(3)
            layer, last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 3)
            model = torch.nn.ModuleList([layer, last])
            job.attach(model, patterns.sgd(model))

            def body(n, x, y):
                x = F.pad(x, (0, 2)).requires_grad_()
                for _ in range(times(job)):
                    x = checkpoint(lambda x: torch.tanh(layer(x)), x, use_reentrant=reentrant)
                job.backward(F.cross_entropy(last(x), y))

            patterns.loop(job, model, body)
            return patterns.state(model)
        return run

    expected = train(script(False))
    for micro_batch in (2, 8):
        found = [script(True)(patterns.begin(determinism="fast", micro_batch=micro_batch))]
        if micro_batch == 2:
            found += pair.train_two(script(True), 4, determinism="fast")
        for result in found:
            for name, value in expected.items():
                torch.testing.assert_close(result[name], value, rtol=1e-4, atol=1e-5, msg=lambda text: f"{name}: {text}")
    try:
        script(True, lambda job: 1 + 2 * (job.committed_step > 5))(patterns.begin(determinism="fast", micro_batch=8))
    except UsageError as error:
        assert "use_reentrant=False" in str(error), error
    else:
        raise Trouble("a part that comes late was not seen")


def try_all(names):
    wrong = []
    for name in names:
        verdict, joins, function = together.PATTERNS[name]
        try:
            alone = train(function)  # nothing is wrong with it as long as it is alone
            if verdict == "kept":
                for result in pair.train_two(function, joins):
                    compare(name, alone, result)
                continue
            try:
                pair.train_two(function, joins)
            except UsageError as error:
                missing = [part for part in verdict if part not in str(error)]
                assert not missing, f"{missing} not in: {error}"
            else:
                raise Trouble("was not refused")
        except Exception as error:  # noqa: BLE001
            wrong.append(f"{name}: {type(error).__name__}: {error}")
    if wrong:
        raise Trouble("\n".join(wrong))


def test_together(build, folder):
    names = list(together.PATTERNS)
    try_all(names[::2])


def test_together_rest(build, folder):
    names = list(together.PATTERNS)
    try_all(names[1::2])
