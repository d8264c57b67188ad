import mindspore as ms
import mindspore.dataset as ds
from mindspore import Profiler, nn
from network import Net, generator

net = Net()
loss_fn = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
optimizer = nn.Momentum(net.trainable_params(), 1, 0.9)


def forward_fn(data, label):
    logits = net(data)
    loss = loss_fn(logits, label)
    return loss, logits


# Get gradient function
grad_fn = ms.value_and_grad(forward_fn, None, optimizer.parameters, has_aux=True)


@ms.jit
def train_step(data, label):
    """Define function of one-step training"""
    (loss, _), grads = grad_fn(data, label)
    optimizer(grads)
    return loss


profiler = Profiler(start_profile=False, output_path="profiler_data", profile_memory=True, data_simplification=False)
data_loader = ds.GeneratorDataset(generator, ["data", "label"]).batch(1).create_dict_iterator()

for i, data in enumerate(data_loader):
    train_step(data["data"][0], data["label"][0])
    if i == 1:
        profiler.start()
    if i == 4:
        profiler.stop()

profiler.analyse()
