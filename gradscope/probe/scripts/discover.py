"""Find the models that a training script trains, by themselves, and follow each of them."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from copy import copy
from pathlib import Path
from types import FrameType

import torch
from torch import nn

from gradscope.probe.follow import Follower
from gradscope.probe.session import Session
from gradscope.probe.settings import Level
from gradscope.probe.watching import calling, optimizing
from gradscope.probe.watching.alive import alive, held_by, optimizers_of, parameter_ids
from gradscope.probe.watching.optimizing import OptimizerListener
from gradscope.probe.watching.source import is_user_file


class Discovery(OptimizerListener):
    """Follow every outermost module that is called with gradients and has parameters to train.

    A model is the called module, or the smallest module around it that holds everything its optimizer trains (a
    Lightning module whose `training_step` calls its parts), or all modules of one optimizer together.

    Args:
        wanted: Which steps to watch.
        ended: Told of every step that has ended, with the follower.
        level: params, default or deep.
        root: The folder source files are shown relative to.
    """

    def __init__(
        self, wanted: Callable[[int], bool], ended: Callable[[Follower], None], level: Level, root: Path
    ) -> None:
        self.followers: dict[str, Follower] = {}
        """By the name of the variable that holds the model, or its class."""
        self._wanted = wanted
        self._ended = ended
        self._level = level
        self._root = root
        self._known: dict[int, weakref.ref[nn.Module]] = {}
        self._idle: dict[int, weakref.ref[nn.Module]] = {}
        """Models that no optimizer trains, in a script whose others are trained by one."""
        self._optimizers: set[int] = set()
        self._called = False
        self._processes_before = _next_process()

    def start(self) -> None:
        """Begin to look."""
        calling.inform(self._noticed)
        optimizing.listen(self)

    def rest(self) -> None:
        """Look for no further models."""
        calling.dismiss(self._noticed)

    def stop(self) -> None:
        """Stop looking and following."""
        calling.dismiss(self._noticed)
        optimizing.forget(self)
        for follower in self.followers.values():
            follower.stop()

    def seen(self) -> str:
        """Tell what was seen of models where no step of any was."""
        if self.followers:
            names = ", ".join(f"`{name}`" for name in self.followers)
            return f"{names} ran, but no backward pass reached its parameters (those of torch.func are not watched)"
        if self._called:
            return "modules ran, but none that has parameters to train ran with gradients"
        if _next_process() > self._processes_before:
            return "it trains in processes of its own, which are not watched; let it train in the first, as one rank"
        return "no nn.Module ran; what plain tensors do is not watched"

    def follows(self, module: nn.Module) -> bool:
        """Tell whether a module is part of a model that is followed."""
        return any(id(module) in follower.session.tracker.names for follower in self.followers.values())

    def stepping(self, optimizer: torch.optim.Optimizer) -> None:
        """Look again at idle models where an optimizer that has not been seen before may train them."""
        if id(optimizer) not in self._optimizers:
            self._optimizers.add(id(optimizer))
            self._idle.clear()

    def _noticed(self, module: nn.Module) -> None:
        self._called = True
        if not torch.is_grad_enabled() or torch._C._current_graph_task_id() != -1:
            return
        if _holds(self._known, module) or _holds(self._idle, module):
            return
        if not any(parameter.requires_grad for parameter in module.parameters()):
            self._learn(module)  # a criterion, or a frozen teacher
            return
        if self._is_copy(module):
            self._learn(module)
            return
        if self._all_have_optimizers() and not any(optimizers_of(module)):
            _hold(self._idle, module)  # an average or a copy of the weights
            return
        self._follow(module)

    def _is_copy(self, module: nn.Module) -> bool:
        """Tell whether a module is another way to call a model that is followed, such as its traced copy."""
        own = {id(parameter) for parameter in module.parameters() if parameter.requires_grad}
        models = [follower.session.model for follower in self.followers.values()]
        return any(own <= parameter_ids(model) and not _shows_more(module, model) for model in models)

    def _follow(self, module: nn.Module) -> None:
        model = model_around(module)
        self._swallow(model)
        self._learn(model)
        self._learn(module)
        session = Session(model, self._level, self._root, guest=True)
        follower = Follower(session, self._wanted, lambda number, watched: self._step_ended(follower, number))
        self.followers[self._unique(name_of(model))] = follower
        follower.start()
        if self._level == "params":  # a compiled model must not come to see our way of looking at calls
            calling.dismiss(self._noticed)

    def _swallow(self, model: nn.Module) -> None:
        """Let go of parts of a model that ran alone while it was made, such as the parametrization of a weight.

        Of the model's traced copy as well, where that ran first.
        """
        parts, weights = {id(part) for part in model.modules()}, parameter_ids(model)
        for name, follower in list(self.followers.items()):
            other = follower.session.model
            is_part = id(other) in parts or (_shows_more(model, other) and parameter_ids(other) <= weights)
            if is_part and not (follower.number or follower.touched):
                follower.stop()
                del self.followers[name]

    def _step_ended(self, follower: Follower, number: int) -> None:
        if number == 0 and self._all_have_optimizers():
            self._retire()
        self._ended(follower)

    def _all_have_optimizers(self) -> bool:
        """Tell whether every model that has been trained so far is trained by a torch optimizer."""
        trained = [follower for follower in self.followers.values() if follower.number]
        return bool(trained) and all(follower.optimizers for follower in trained)

    def _retire(self) -> None:
        """Let go of models that were called but that nothing trains, as a target network."""
        for name, follower in list(self.followers.items()):
            model = follower.session.model
            if not (follower.number or follower.touched or any(optimizers_of(model))):
                follower.stop()
                del self.followers[name]
                for module in model.modules():
                    self._known.pop(id(module), None)
                    _hold(self._idle, module)

    def _learn(self, model: nn.Module) -> None:
        for module in model.modules():
            _hold(self._known, module)

    def _unique(self, name: str) -> str:
        taken = sum(other == name or other.startswith(f"{name}-") for other in self.followers)
        return f"{name}-{taken + 1}" if taken else name


def _shows_more(module: nn.Module, other: nn.Module) -> bool:
    """Tell whether of two ways to call a model one runs in Python, and the other in TorchScript."""
    return isinstance(other, torch.jit.ScriptModule) and not isinstance(module, torch.jit.ScriptModule)


def _next_process() -> int:
    """Return the number that multiprocessing gives to the next process: it grows with each that was started."""
    module = sys.modules.get("multiprocessing.process")
    return 1 if module is None else next(copy(module._process_counter))


def _hold(modules: dict[int, weakref.ref[nn.Module]], module: nn.Module) -> None:
    # Not a WeakSet: modules may define what equality and hash mean, as metrics do.
    modules[id(module)] = weakref.ref(module)


def _holds(modules: dict[int, weakref.ref[nn.Module]], module: nn.Module) -> bool:
    held = modules.get(id(module))
    return held is not None and held() is module


def model_around(module: nn.Module) -> nn.Module:
    """Return the model that a called module belongs to."""
    needed = {key for optimizer in optimizers_of(module) for key in held_by(optimizer)}
    missing = needed - parameter_ids(module)
    if not missing:
        return module
    holders = [other for other in alive(nn.Module) if _is_ordinary(other)]
    around = [m for m in holders if needed <= parameter_ids(m) and any(child is module for child in m.modules())]
    if around:
        return min(around, key=lambda m: sum(1 for _ in m.modules()))
    return _together(module, [m for m in holders if set() < parameter_ids(m) <= missing])


def name_of(model: nn.Module) -> str:
    """Return the variable that a running function of the user's holds the model in, else the name of its class."""
    frame = sys._getframe(1)
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            own = _self_of(frame, model)
            for name, value in [*frame.f_locals.items(), *frame.f_globals.items()]:
                if value is model and name != own and not name.startswith("_"):
                    return name
        frame = frame.f_back  # type: ignore[assignment]
    return type(model).__name__


def _self_of(frame: FrameType, model: nn.Module) -> str:
    """Return what a running method of the model calls it, "" where the function is none of its methods."""
    code = frame.f_code
    return code.co_varnames[0] if code.co_argcount and hasattr(type(model), code.co_name) else ""


def _together(module: nn.Module, others: list[nn.Module]) -> nn.Module:
    """Return modules that one optimizer trains as one model."""
    inner = {id(child) for other in others for child in list(other.modules())[1:]}
    parts = [module, *(other for other in others if id(other) not in inner)]
    joint = nn.ModuleDict()
    for part in parts:
        name = name_of(part)
        joint[name if name not in joint else f"{name}-{len(joint)}"] = part
    joint.training = module.training
    return joint


def _is_ordinary(module: nn.Module) -> bool:
    return "_parameters" in vars(module) and "_modules" in vars(module)
