"""Which test holds each of the things that must not fool the watcher; the list is complete and the tests exist."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
TRAPS = {
    "checkpointing without re-entry": "probe/test_traps.py::test_nonreentrant_checkpointing",
    "checkpointing with re-entry":
        "probe/test_traps.py::test_reentrant_checkpointing_counts_calls_once_and_finds_inner_gradients",
    "additions that run twice under checkpointing": "structure/test_traps.py::test_recomputation_counts_once",
    "a compiled model": "probe/test_script.py::test_compiled_model_runs_eagerly_and_confesses",
    "a compiled module inside": "probe/test_traps.py::test_compiled_child_runs_eagerly_and_is_confessed",
    "DistributedDataParallel": "probe/test_ranks.py::test_distributed_data_parallel",
    "FSDP2": "probe/test_ranks.py::test_fully_sharded_data_parallel",
    "norms of sharded tensors": "probe/test_ranks.py::test_sharded_norms_are_global",
    "autocast": "probe/test_traps.py::test_autocast",
    "GradScaler": "probe/test_traps.py::test_gradients_scaled_by_a_grad_scaler_are_told_unscaled",
    "gradient accumulation": "probe/test_traps.py::test_gradient_accumulation_over_micro_batches",
    "tied parameters, shared modules": "probe/test_traps.py::test_tied_parameters_and_shared_module",
    "frozen and unused parameters, stale gradients": "probe/test_traps.py::test_frozen_unused_and_stale",
    "outputs that are dicts, dataclasses or None": "probe/test_traps.py::test_nested_outputs_and_none",
    "several losses and backward passes": "probe/test_traps.py::test_several_losses_and_several_backward_passes",
    "custom autograd functions, double backward":
        "probe/test_traps.py::test_custom_autograd_function_and_gradient_penalty",
    "additions in custom autograd functions": "structure/test_traps.py::test_hidden_addition_is_confessed",
    "double backward adds no sites": "structure/test_lookalikes.py::test_gradient_penalty_adds_nothing",
    "nested tensors": "probe/test_traps.py::test_nested_tensors",
    "complex and sparse gradients": "probe/test_traps.py::test_sparse_and_complex_gradients",
    "quantised and meta tensors": "probe/test_traps.py::test_meta_and_quantised_parts",
    "data-dependent control flow":
        "probe/test_traps.py::test_data_dependent_control_flow_and_module_swapped_during_forward",
    "branches skipped at random": "structure/test_traps.py::test_branch_that_is_skipped_at_random",
    "exceptions half-way": "probe/test_traps.py::test_exception_half_way_leaves_the_numbering_intact",
    "nothing left behind by them": "structure/test_traps.py::test_nothing_is_left_behind_after_an_exception",
    "a first skip that is the raw input": "structure/test_forms.py::test_first_block_on_raw_input",
    "autograd.grad inside the forward": "probe/test_traps.py::test_inner_loop_with_its_own_gradients",
    "vmap": "probe/test_traps.py::test_vmap_over_an_ensemble",
    "no values read inside vmap": "structure/test_traps.py::test_values_inside_vmap_are_not_read",
    "models that test `out is x`":
        "probe/test_traps.py::test_module_that_returns_nothing_and_module_that_returns_its_input",
    "models nested hundreds deep": "probe/test_traps.py::test_deeply_nested_modules_need_no_deeper_stack",
    "lazy modules":
        "probe/test_measure.py::test_lazy_modules_take_their_shapes_in_the_watched_step_and_are_lazy_again",
    "data-dependent initialisation":
        "probe/test_measure.py::test_data_dependent_initialisation_happens_in_the_watched_step",
    "modules used without being called": "probe/test_traps.py::test_modules_used_without_being_called_and_attention",
    "optimizers that step in the backward": "probe/test_traps.py::test_optimizer_that_steps_inside_the_backward",
    "TorchScript": "structure/test_traps.py::test_scripted_child",
    "fused encoder layers":
        "structure/test_traps.py::test_fused_path_of_frozen_encoder_layers_is_taken_and_confessed",
    "additions and activations in place": "probe/test_traps.py::test_inplace_relu_and_inplace_residual",
}  # fmt: skip


@pytest.mark.parametrize("trap", TRAPS)
def test_every_trap_has_its_test(trap):
    file, name = TRAPS[trap].split("::")
    assert re.search(rf"^def {name}\(", (TESTS / file).read_text(), re.MULTILINE)
