"""How much of the zoo can be inspected given nothing but its target string. Not collected by default.

    python tests/target/coverage_zoo.py torchvision [NAME ...]     (needs torchvision, timm and transformers)
    python tests/target/coverage_zoo.py timm --families            (the smallest model of every file of timm)
    python tests/target/coverage_zoo.py hf --known catalog.csv     (only the ids that a catalogue lists)

Prints one line per model: whether it builds, finds inputs, and gives a finite loss with gradients, and the seconds.
Each model runs in a child process of its own, with a limit on its time.
"""

from __future__ import annotations

import argparse
import csv
import os
import resource
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")
sys.path.insert(0, str(Path(__file__).parents[2]))

import torch  # noqa: E402

from gradscope.errors import GradscopeError  # noqa: E402
from gradscope.target import load  # noqa: E402

LIMIT_S = 600
LIMIT_CPU_S = 90
MOST_BYTES = 5 * 2**30


def names_of(library: str, families: bool) -> list[str]:
    """Every name that a library's targets may have."""
    if library == "torchvision":
        import torchvision

        return torchvision.models.list_models()
    if library == "hf":
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

        return list(CONFIG_MAPPING_NAMES)
    import timm
    from timm.models._registry import _module_to_models

    if not families:
        return timm.list_models()
    return [sorted(models, key=_size_hint)[0] for models in _module_to_models.values()]


def _size_hint(name: str) -> tuple[int, str]:
    words = ("test", "nano", "pico", "femto", "atto", "tiny", "xxs", "_s", "small", "050", "18")
    return next((i for i, word in enumerate(words) if word in name), len(words)), name


def check(target: str) -> str:
    """Load a target and take one forward and backward; returns what came of it."""
    start = time.perf_counter()
    try:
        subject = load(target)
        loaded = time.perf_counter() - start
        torch.manual_seed(0)
        batch = next(iter(subject.batches))
        loss = subject.loss(subject.call(batch), batch)
        loss.backward()
    except GradscopeError as error:
        return f"FAIL {type(error).__name__}: {error}"
    except Exception as error:
        return f"FAIL step: {type(error).__name__}: {error}"
    grads = [p.grad for p in subject.model.parameters() if p.requires_grad]
    missing = sum(g is None for g in grads)
    finite = bool(torch.isfinite(loss)) and all(bool(torch.isfinite(g).all()) for g in grads if g is not None)
    state = (
        "ok" if finite and missing < len(grads) else "FAIL non-finite" if missing < len(grads) else "FAIL no gradient"
    )
    step = time.perf_counter() - start - loaded
    size = sum(p.numel() for p in subject.model.parameters()) / 1e6
    return (
        f"{state} loss={loss.item():.4g} load={loaded:.1f}s step={step:.1f}s params={size:.1f}M "
        f"none={missing}/{len(grads)} "
        f"| {type(subject.model).__name__} | {subject.inputs_origin.text} | {subject.loss_origin.text}"
    )


def in_child(target: str) -> str:
    """Run `check` in a forked child, so that one model's crash or hunger is its own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_CPU_S, LIMIT_CPU_S))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.write(write, check(target).replace("\n", " ")[:4000].encode())
        os._exit(0)
    os.close(write)
    deadline, result = time.monotonic() + LIMIT_S, b""
    import select

    while time.monotonic() < deadline:
        ready, _, _ = select.select([read], [], [], 1.0)
        if ready:
            part = os.read(read, 65536)
            if not part:
                break
            result += part
    else:
        os.kill(child, 9)
        result = result or f"FAIL more than {LIMIT_S} s".encode()
    os.close(read)
    _, status = os.waitpid(child, 0)
    return result.decode(errors="replace") or f"FAIL the process died ({status})"


def known_ids(path: str, library: str) -> Iterator[str]:
    """The names of one library that a catalogue lists."""
    with open(path) as file:
        for row in csv.DictReader(file):
            source, _, name = row["id"].partition("/")
            if source == library and "+" not in name:
                yield name


def main() -> None:
    """Run the check over a library and print the share."""
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=["torchvision", "timm", "hf"])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--families", action="store_true")
    parser.add_argument("--known")
    parser.add_argument("--shard", default="0/1")
    options = parser.parse_args()
    names = options.names or (
        list(known_ids(options.known, options.library))
        if options.known
        else names_of(options.library, options.families)
    )
    shard, num_shards = map(int, options.shard.split("/"))
    names = names[shard::num_shards]
    __import__({"hf": "transformers.models.auto.modeling_auto"}.get(options.library, options.library))
    if options.library == "hf":
        __import__("transformers.models.bert.modeling_bert")
    good = 0
    for name in names:
        result = in_child(f"{options.library}:{name}")
        good += result.startswith("ok")
        print(name, result, flush=True)
    print(f"{good} of {len(names)}: {good / max(len(names), 1):.1%}")


if __name__ == "__main__":
    main()
