"""Two ranks that reduce their gradients, each recorded: msrun ... mindspore_ranks.py OUT MODE"""

import os
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.communication import init

from stepscope.model import captures
from stepscope.recording.collectors.mindspore import collector as collect
from stepscope.recording.collectors.options import Options

out, mode = Path(sys.argv[1]), sys.argv[2]
ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
ms.set_device("CPU")
init()
ms.set_auto_parallel_context(parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True)
ms.set_seed(1)
rank = int(os.environ["RANK_ID"])
collector = collect.Collector(Options())
net = nn.SequentialCell(nn.Dense(64, 128), nn.ReLU(), nn.Dense(128, 10))
loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
train = nn.TrainOneStepCell(nn.WithLossCell(net, loss), nn.Momentum(net.trainable_params(), 0.01, 0.9))
x, y = ms.Tensor(np.ones((16, 64), np.float32)), ms.Tensor(np.zeros(16, np.int32))
capture = captures.Capture(out / f"rank{rank}.capture", {"rank": rank, "world_size": 2, "pid": os.getpid()})
collector.start(capture)
for _ in range(3):
    float(train(x, y))
collector.stop()
capture.finish()
