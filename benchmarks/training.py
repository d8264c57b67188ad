"""The training loops that recording is measured on: small models of PyTorch and MindSpore, with a function that makes one step."""

from collections.abc import Callable, Iterator
from typing import Any


def torch_training(name: str) -> tuple[str, Callable[[], None]]:
    """Where it runs, and a function that makes one step."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(1)  # what is measured is small: threads that wait for one another would hide it
    torch.manual_seed(0)
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    if name == "small operators":
        return _where(), _small_operators(device)
    if name.startswith("GPT"):
        layers, width, heads, length, batch = (12, 768, 12, 512, 8) if on_gpu else (4, 128, 4, 64, 4)
        inputs = torch.randint(1000, (batch * 64, length + 1))
        data, model = TensorDataset(inputs[:, :-1], inputs[:, 1:]), _gpt(layers, width, heads, length)
    else:
        size, batch = (224, 64) if on_gpu else (32, 4)
        data = TensorDataset(torch.randn(batch * 4, 3, size, size), torch.randint(10, (batch * 4,)))
        model = _resnet([3, 4, 6, 3], 64) if on_gpu else _resnet([1, 1, 1, 1], 8)
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=on_gpu)
    if name == "GPT compiled":
        model = torch.compile(model)
    loss_of = nn.CrossEntropyLoss()

    def endless() -> Iterator[Any]:
        while True:
            yield from DataLoader(data, batch_size=batch, shuffle=True)

    batches = endless()

    def step() -> None:
        inputs, labels = (one.to(device) for one in next(batches))
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=on_gpu):
            outputs = model(inputs)
            loss = loss_of(outputs.flatten(0, -2), labels.flatten())
        loss.backward()
        optimizer.step()
        loss.item()  # as loops that print it: on a GPU the step is over when its kernels are

    return _where(), step


def _where() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU, one thread"


def _small_operators(device: Any) -> Callable[[], None]:
    """Nothing but launches: what recording adds to each shows at its worst."""
    import torch

    weight = torch.ones(64, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1e-3)
    inputs = torch.randn(64, device=device)

    def step() -> None:
        x = inputs
        for _ in range(100):
            x = torch.relu(x * weight + 0.01)
        optimizer.zero_grad()
        x.sum().backward()
        optimizer.step()
        x.sum().item()

    return step


def _gpt(layers: int, width: int, heads: int, length: int) -> Any:
    import torch
    from torch import nn

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(mixed.transpose(1, 2).flatten(2))

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.attention, self.between = nn.LayerNorm(width), Attention(), nn.LayerNorm(width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + self.attention(self.before(x))
            return x + self.mlp(self.between(x))

    class Gpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(1000, width), nn.Embedding(length, width)
            self.layers = nn.Sequential(*(Layer() for _ in range(layers)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000, bias=False)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
            return self.head(self.norm(self.layers(x)))

    return Gpt()


def _resnet(blocks: list[int], channels: int) -> Any:
    import torch
    from torch import nn

    def layer(before: int, after: int, size: int, stride: int = 1) -> Any:
        return nn.Sequential(nn.Conv2d(before, after, size, stride, size // 2, bias=False), nn.BatchNorm2d(after))

    class Bottleneck(nn.Module):
        def __init__(self, before: int, inner: int, stride: int) -> None:
            super().__init__()
            self.one, self.two, self.three = layer(before, inner, 1), layer(inner, inner, 3, stride), layer(inner, 4 * inner, 1)
            self.past = layer(before, 4 * inner, 1, stride) if stride > 1 or before != 4 * inner else nn.Identity()
            self.relu = nn.ReLU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.relu(self.past(x) + self.three(self.relu(self.two(self.relu(self.one(x))))))

    parts = [layer(3, channels, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = channels
    for number, count in enumerate(blocks):
        inner = channels << number
        for index in range(count):
            parts.append(Bottleneck(before, inner, 2 if number and not index else 1))
            before = 4 * inner
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))


def mindspore_training(mode: str) -> tuple[str, Callable[[], None]]:
    """Where it runs, and a function that makes one step."""
    import mindspore
    import numpy as np
    from mindspore import nn

    mindspore.set_context(mode=mindspore.GRAPH_MODE if mode == "graph" else mindspore.PYNATIVE_MODE)
    if mode.endswith("launch_blocking"):
        mindspore.runtime.launch_blocking()  # else threads wait for one another by spinning, and on few cores no two steps are alike
    mindspore.set_seed(0)
    layers = [layer for _ in range(6) for layer in (nn.Dense(512, 512), nn.ReLU(), nn.LayerNorm((512,)))]
    net = nn.SequentialCell(*layers, nn.Dense(512, 10))
    optimizer = nn.Momentum(net.trainable_params(), 1e-4, 0.9)
    cell = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), optimizer).set_train()
    generator = np.random.default_rng(0)
    inputs = mindspore.Tensor(generator.standard_normal((64, 512), np.float32))
    labels = mindspore.Tensor(generator.integers(10, size=64).astype(np.int32))

    def step() -> None:
        cell(inputs, labels).asnumpy()

    return "CPU", step
