"""One watched step under each tool, as its own documentation writes it, every step watched.

Each function takes a task and a scratch folder and returns the step together with what takes the tool off again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.watching import Step, plain_step, watched_step
from benchmarks.workloads import Task

Off = Callable[[], None]


class Way(NamedTuple):
    """A tool, or one of its levels.

    Attributes:
        name: In the table.
        package: Whose version is told; "" for a recipe of a few lines.
        measures: What one step yields, in words.
        make: Returns the step and what takes the tool off.
    """

    name: str
    package: str
    measures: str
    make: Callable[[Task, Path], tuple[Step, Off]]


def _gradscope(level: Any) -> Callable[[Task, Path], tuple[Step, Off]]:
    return lambda task, folder: (watched_step(task, level), lambda: None)


def _lightning(task: Task, folder: Path) -> tuple[Step, Off]:
    from lightning.pytorch.utilities import grad_norm

    plain = plain_step(task)

    def step() -> None:
        plain()
        norms = grad_norm(task.model, norm_type=2)
        [float(norm) for norm in norms.values()]  # as its loggers do

    return step, lambda: None


def _module_monitor(*, activations: bool) -> Callable[[Task, Path], tuple[Step, Off]]:
    def make(task: Task, folder: Path) -> tuple[Step, Off]:
        from torch_module_monitor import ModuleMonitor

        monitor = ModuleMonitor(monitor_step_fn=lambda _: True)
        monitor.set_module(task.model)
        if activations:
            monitor.add_activation_metric("norm", lambda x: x.norm())
        monitor.add_gradient_metric("norm", lambda x: x.norm())
        plain, number = plain_step(task), iter(range(10**9))

        def step() -> None:
            monitor.begin_step(next(number))
            plain()
            monitor.monitor_gradients()
            monitor.end_step()

        return step, lambda: monitor.remove_all_hooks() if hasattr(monitor, "remove_all_hooks") else None

    return make


def _ormas(task: Task, folder: Path) -> tuple[Step, Off]:
    from ormas_monitor import Monitor

    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.0)
    monitor = Monitor(task.model, optimizer, out=folder / "ormas", check_every=1, verbose=False, overwrite=True)

    def step() -> None:
        task.model.zero_grad(set_to_none=True)
        loss = task.loss()
        loss.backward()
        monitor.step(loss)

    return step, monitor.close


def _wandb(task: Task, folder: Path) -> tuple[Step, Off]:
    import wandb

    run = wandb.init(mode="offline", dir=str(folder), project="benchmark")
    run.watch(task.model, log="gradients", log_freq=1)
    plain = plain_step(task)

    def step() -> None:
        plain()
        run.log({"step": 1})

    def off() -> None:
        run.unwatch(task.model)
        run.finish()

    return step, off


def _instruments(task: Task, folder: Path) -> tuple[Step, Off]:
    from torchinstruments import inject_observer, remove_observer

    inject_observer(task.model, interval=timedelta(microseconds=1), output_dir=folder / "instruments")
    return plain_step(task), lambda: remove_observer(task.model)


def _torchlens(task: Task, folder: Path) -> tuple[Step, Off]:
    import torchlens
    from torchlens.debug import gradient_flow_audit_rows

    def step() -> None:
        task.model.zero_grad(set_to_none=True)
        trace = torchlens.trace(task.model, task.inputs, capture=torchlens.options.CaptureOptions(save_grads=True))
        trace.log_backward(task.loss_of(trace[trace.output_layers[0]].out))
        gradient_flow_audit_rows(trace)

    return step, lambda: None


def _full_hooks(task: Task, folder: Path) -> tuple[Step, Off]:
    norms: dict[str, float] = {}
    handles = []

    def watch(name: str) -> Callable[..., None]:
        def hook(module: Any, inputs: Any, outputs: Any) -> None:
            if outputs[0] is not None:
                norms[name] = outputs[0].norm().item()

        return hook

    for name, module in task.model.named_modules():
        if not any(True for _ in module.children()):
            handles.append(module.register_full_backward_hook(watch(name)))

    def off() -> None:
        for handle in handles:
            with suppress(KeyError):
                handle.remove()

    return plain_step(task), off


OURS = "gradscope"
WAYS = (
    Way("gradscope params", OURS, "norm of every parameter's gradient", _gradscope("params")),
    Way("Lightning `grad_norm`", "lightning", "norm of every parameter's gradient", _lightning),
    Way("torch-module-monitor, gradients", "torch-module-monitor", "norm of every parameter's gradient",
        _module_monitor(activations=False)),
    Way("wandb.watch", "wandb", "histogram of every parameter's gradient", _wandb),
    Way("ormas-monitor", "ormas-monitor", "parameter gradients, dead and decayed units, spikes", _ormas),
    Way("torch-module-monitor, both", "torch-module-monitor",
        "norm of every parameter's gradient and of every module's output", _module_monitor(activations=True)),
    Way("full backward hooks", "", "norm of the gradient of every leaf module's output", _full_hooks),
    Way("gradscope default", OURS, "norm of every module's output and its gradient and of every parameter's gradient; "
        "skip and branch of every residual addition; histograms, dead units, attention entropy, rank",
        _gradscope("default")),
    Way("torchinstruments", "torchinstruments", "nine statistics and a histogram of every module's output and gradient",
        _instruments),
    Way("TorchLens `gradient_flow_audit`", "torchlens", "gradient of every operation, first bad operation", _torchlens),
)  # fmt: skip
