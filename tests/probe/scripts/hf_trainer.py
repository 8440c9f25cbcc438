"""The Trainer of transformers on a GPT-2 of a few thousand weights."""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

if __name__ == "__main__":
    torch.manual_seed(0)
    config = GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=50, n_positions=16, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config)
    ids = torch.randint(0, 50, (48, 12))
    rows = [{"input_ids": row, "labels": row} for row in ids]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=4, max_steps=12, logging_steps=1, report_to=[], use_cpu=True, seed=0,
            disable_tqdm=True, save_strategy="no", max_grad_norm=0.1,
        )  # fmt: skip
        trainer = Trainer(model, arguments, train_dataset=rows)
        trainer.remove_callback(PrinterCallback)  # prints how long it took
        trainer.train()
        for entry in trainer.state.log_history:
            if "loss" in entry:
                print(entry["step"], repr(entry["loss"]), repr(entry["grad_norm"]))
