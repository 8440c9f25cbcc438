"""Two processes: norms of sharded tensors are global, gradients of data-parallel models the averaged ones."""

import json
import os
import sys
import traceback
import warnings

import pytest
import torch
import torch._dynamo
import torch.distributed as dist
from torch import nn

from tests.probe.oracle import call_norms, parameter_norms, plain_norm, watched_step

pytestmark = pytest.mark.skipif(
    not (hasattr(os, "fork") and dist.is_available()), reason="needs fork and torch.distributed"
)
assert torch._dynamo  # loaded once, here, and not in every fork


def on_two_ranks(work, folder):
    """Run a function on two ranks, in forks of this process; return what each returned."""
    children = []
    for rank in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            child = os.fork()
        if child == 0:
            _on_rank(work, folder, rank)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    errors = "".join(path.read_text() for path in sorted(folder.glob("error*")))
    assert codes == [0, 0], errors
    return [json.loads((folder / f"result{rank}").read_text()) for rank in range(2)]


def _on_rank(work, folder, rank):
    code = 1
    try:
        warnings.simplefilter("ignore")
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
        (folder / f"result{rank}").write_text(json.dumps(work(rank)))
        dist.barrier()
        code = 0
    except BaseException:
        (folder / f"error{rank}").write_text(traceback.format_exc())
    finally:
        sys.stdout.flush()
        os._exit(code)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def batch(rank):
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(rank + 1))


def averaged():
    grads = []
    for rank in range(2):
        model = net()
        model(batch(rank)).square().mean().backward()
        grads.append({n: p.grad for n, p in model.named_parameters()})
    return {n: plain_norm((grads[0][n] + grads[1][n]) / 2) for n in grads[0]}


def test_sharded_norms_are_global(tmp_path):
    def work(rank):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor

        from gradscope.probe.watching.rows import Rows

        mesh = init_device_mesh("cpu", (2,))
        x = torch.arange(10.0).reshape(5, 2) * 1e-25
        rows = Rows()
        handles = [rows.norm(distribute_tensor(x, mesh, [place])) for place in (Shard(0), Shard(1), Replicate())]
        sharded = distribute_tensor(x, mesh, [Shard(0)])
        handles += [rows.absmax(sharded), rows.dot(sharded, sharded)]
        numbers = rows.read()
        return [numbers[handle] for handle in handles]

    norm = sum((i * 1e-25) ** 2 for i in range(10)) ** 0.5
    for result in on_two_ranks(work, tmp_path):
        assert result == pytest.approx([norm, norm, norm, 9e-25, norm**2], rel=1e-5, abs=0)


def test_distributed_data_parallel(tmp_path):
    def work(rank):
        model = nn.parallel.DistributedDataParallel(net())
        loss, _, session = watched_step(model, lambda m: m(batch(rank)).square().mean())
        return [parameter_norms(session), len(call_norms(session)), loss.item()]

    for rank, (norms, num_calls, loss) in enumerate(on_two_ranks(work, tmp_path)):
        assert norms == pytest.approx({f"module.{n}": v for n, v in averaged().items()}, rel=1e-5)
        assert num_calls == 5
        assert loss == net()(batch(rank)).square().mean().item()


def test_fully_sharded_data_parallel(tmp_path):
    def work(rank):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        model = net()
        mesh = init_device_mesh("cpu", (2,))
        fully_shard(model[0], mesh=mesh)
        fully_shard(model, mesh=mesh)
        _, _, session = watched_step(model, lambda m: m(batch(rank)).square().mean())
        return [parameter_norms(session), len(call_norms(session))]

    for norms, num_calls in on_two_ranks(work, tmp_path):
        assert norms == pytest.approx(averaged(), rel=1e-5)
        assert num_calls == 4
