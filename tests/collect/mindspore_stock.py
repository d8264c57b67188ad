"""Drives MindSpore's own collection as on Ascend, on whatever device there is, in two windows: mindspore_stock.py OUT"""

import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn

from stepscope.model import captures
from stepscope.recording.collectors.mindspore.ascend import Recording
from stepscope.recording.collectors.options import Options

ms.set_context(mode=ms.GRAPH_MODE)
net, x = nn.Dense(4, 4), ms.Tensor(np.ones((2, 4), np.float32))
for number in (1, 2):
    capture = captures.Capture(Path(sys.argv[1]) / f"{number}.capture", {"base": "mindspore", "rank": 0, "mode": "graph"})
    recording = Recording(Options(profile_memory=True))
    recording.start(capture)
    for _ in range(number):
        net(x).asnumpy()
    kept = recording.stop(capture)
    capture.finish(keep=[folder.name for folder in kept])
