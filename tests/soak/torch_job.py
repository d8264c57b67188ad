"""A PyTorch training that is the same to the last bit each time, and that notices a stray write.

`torch_job.py --form FORM --way WAY --steps N`. The last line on stdout is one JSON object: steps, loss_hash, param_hash, rss_start,
rss_max, rss_end, rss_slope, step_ms_median, step_ms_p90.
"""

import argparse
import contextlib
import hashlib
import json
import os
import queue
import struct
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import torch
from job import Training, parse_arguments, recording
from torch import nn
from torch.profiler import record_function
from torch.utils.checkpoint import checkpoint

FORMS = ("eager", "hooks", "compiled", "hf", "lightning", "ddp")
WIDTH = 32


class Gate(torch.autograd.Function):
    """A function with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        gate = torch.sigmoid(weight)
        ctx.save_for_backward(x, gate)
        return x * gate

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, gate = ctx.saved_tensors
        with record_function("gate backward"):
            return grads[0] * gate, (grads[0] * x * gate * (1 - gate)).sum(0)


@torch.library.custom_op("soak::twist", mutates_args=())
def twist(x: torch.Tensor) -> torch.Tensor:
    return x.flip(-1) * 0.5 + x


@twist.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


twist.register_autograd(lambda ctx, grad: grad.flip(-1) * 0.5 + grad)


class Block(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.linear, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.gate = nn.Parameter(torch.zeros(WIDTH))
        self.drop = nn.Dropout(0.1)

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(Gate.apply(nn.functional.gelu(self.norm(self.linear(x))), self.gate))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "plain":
            return x + self.inner(x)
        with record_function(f"block {self.kind}"), record_function("block inner"):
            if self.kind == "twist":
                return x + torch.ops.soak.twist(self.inner(x))
            return x + checkpoint(self.inner, x, use_reentrant=self.kind == "reentrant")


class Net(nn.Module):
    def __init__(self, *kinds: str) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(kind) for kind in kinds)
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Loss(nn.Module):
    """Made anew for each step, as many trainings do: whoever keeps modules by their id mixes them up, or keeps them for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("target", torch.full((4,), 0.25))
        self.register_buffer("ballast", torch.zeros(16_384))  # 64 KiB: a module that is kept shows in the memory

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.smooth_l1_loss(x, self.target.expand_as(x)) + 0.01 * x.pow(2).mean()


class Inference:
    """A second thread that now and then runs a model of its own, when it is told to: so the same calls are made each time."""

    def __init__(self, hash_: Any) -> None:
        self._net = Net("plain", "twist").eval()
        self._hash, self._generator = hash_, torch.Generator().manual_seed(7)
        self._asked: queue.Queue[bool] = queue.Queue()
        self._thread = threading.Thread(target=self._serve, name="inference", daemon=True)
        self._thread.start()

    def ask(self) -> None:
        self._asked.put(True)

    def close(self) -> None:
        self._asked.put(False)
        self._thread.join()

    def _serve(self) -> None:
        torch.set_num_threads(1)
        while self._asked.get():
            with torch.inference_mode(), record_function("inference"):
                self._hash.update(self._net(torch.randn(2, WIDTH, generator=self._generator)).numpy().tobytes())


class TorchTraining(Training):
    """Keeps the allocator busy, too."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(args)
        self._served = hashlib.sha256()
        self._churn = torch.Generator().manual_seed(3)
        self._kept: list[list[torch.Tensor]] = []
        self._inference = Inference(self._served)

    def stepped(self, loss: float) -> bool:
        """A step is over. False when it was the last."""
        self.losses.update(struct.pack("<d", loss))
        if self.steps % 7 == 6:
            self._inference.ask()
        # Many small blocks that live for some steps: freed memory is used again soon, and a stray write into it is noticed.
        self._kept = [*self._kept, [torch.randn(50, generator=self._churn) for _ in range(20)]][-50:]
        self.losses.update(self._kept[0][0].numpy().tobytes())
        return self.end_step()

    def finish(self, parameters: Iterator[torch.Tensor]) -> dict[str, Any]:
        self._inference.close()
        values = hashlib.sha256(self._served.digest())
        for parameter in parameters:
            values.update(parameter.detach().contiguous().numpy().tobytes())
        return self.result(values)


KINDS = ("plain", "twist", "reentrant", "saved", "plain")


def eager(training: TorchTraining) -> Iterator[torch.Tensor]:
    net = Net(*KINDS)
    return _loop(training, net, torch.optim.AdamW(net.parameters(), 1e-3, foreach=False))


def hooks(training: TorchTraining) -> Iterator[torch.Tensor]:
    """Each parameter is updated as soon as its gradient is there, inside the backward pass."""
    net = Net(*KINDS)
    optimizers = {parameter: torch.optim.AdamW([parameter], 1e-3, foreach=False) for parameter in net.parameters()}

    def update(parameter: torch.Tensor) -> None:
        optimizers[parameter].step()  # type: ignore[index]
        optimizers[parameter].zero_grad()  # type: ignore[index]

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    return _loop(training, net, None)


def compiled(training: TorchTraining) -> Iterator[torch.Tensor]:
    net = Net("plain", "twist", "plain")
    return _loop(training, net, torch.optim.AdamW(net.parameters(), 1e-3, foreach=False), torch.compile(net, backend="inductor"))


def ddp(training: TorchTraining) -> Iterator[torch.Tensor]:
    torch.distributed.init_process_group("gloo")
    # A checkpoint that is reentrant starts a backward within the backward, which DDP does not follow.
    net = Net("plain", "twist", "saved", "plain")
    wrapped = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.01)
    return _loop(training, net, torch.optim.AdamW(net.parameters(), 1e-3, foreach=False), wrapped)


def _loop(training: TorchTraining, net: nn.Module, optimizer: torch.optim.Optimizer | None, called: Any = None) -> Iterator[torch.Tensor]:
    called = net if called is None else called  # the model in its wrapper
    batches = torch.Generator().manual_seed(11 + int(os.environ.get("RANK", "0")))
    many = torch.distributed.is_initialized()
    goes_on = True
    while goes_on:
        with record_function(f"iteration {training.steps}"):
            batch = torch.randn(8, WIDTH, generator=batches).requires_grad_()
            with record_function("forward and backward"):
                loss = Loss()(called(batch))
                loss.backward()
            if optimizer is not None:
                optimizer.step()
                optimizer.zero_grad()
        goes_on = training.stepped(loss.item())
        if many:  # all ranks end after the same step
            vote = torch.tensor([int(goes_on)])
            torch.distributed.all_reduce(vote, torch.distributed.ReduceOp.MIN)
            goes_on = bool(vote)
    return net.parameters()


def hf(training: TorchTraining) -> Iterator[torch.Tensor]:
    """Hugging Face's Trainer and a GPT-2 with random weights."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    net = GPT2LMHeadModel(GPT2Config(vocab_size=97, n_positions=16, n_embd=WIDTH, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0))
    words = torch.Generator().manual_seed(11)
    texts = [{"input_ids": (line := torch.randint(0, 97, (16,), generator=words)), "labels": line} for _ in range(512)]

    class Marked(Trainer):
        def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
            loss: torch.Tensor = super().training_step(*args, **kwargs)
            self.latest = float(loss)
            return loss

    class Steps(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            control.should_training_stop = not training.stepped(trainer.latest)

    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            folder,
            max_steps=training.most,
            per_device_train_batch_size=4,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            gradient_checkpointing=True,
            lr_scheduler_type="constant",  # or the number of steps would change every one of them
            seed=5,
        )
        trainer = Marked(net, settings, train_dataset=texts, callbacks=[Steps()])  # type: ignore[arg-type]
        with contextlib.redirect_stdout(sys.stderr):
            trainer.train()
    return net.parameters()


def lightning(training: TorchTraining) -> Iterator[torch.Tensor]:
    import lightning as pl
    from torch.utils.data import DataLoader, TensorDataset

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net(*KINDS)

        def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
            with record_function("training_step"):
                return Loss()(self.net(batch[0].requires_grad_()))  # type: ignore[no-any-return]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), 1e-3, foreach=False)

        def on_train_batch_end(self, outputs: Any, batch: Any, number: int) -> None:
            self.trainer.should_stop = not training.stepped(float(outputs["loss"]))

    data = torch.randn(512, WIDTH, generator=torch.Generator().manual_seed(11))
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    module = Module()
    with contextlib.redirect_stdout(sys.stderr), tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(max_steps=training.most, max_epochs=-1, accelerator="cpu", default_root_dir=folder, **quiet)  # type: ignore[arg-type]
        trainer.fit(module, DataLoader(TensorDataset(data), batch_size=8, num_workers=0))
    return module.parameters()


def main() -> None:
    args = parse_arguments(__doc__, FORMS)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    training = TorchTraining(args)
    with recording(training, args):
        parameters = globals()[args.form](training)
    result = training.finish(parameters)
    if int(os.environ.get("RANK", "0")) == 0:
        print(json.dumps(result), flush=True)
    if args.form == "ddp":
        torch.distributed.destroy_process_group()
        sys.stderr.flush()
        os._exit(0)  # a thread of gloo may still hold Python objects: PyTorch 2.13 then waits for ever, or aborts, as the interpreter goes


if __name__ == "__main__":
    main()
