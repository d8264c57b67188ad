import mindspore as ms
from mindspore import Profiler
from network import Net, train


class StopAtEpoch(ms.Callback):
    def __init__(self, start_epoch, stop_epoch):
        super().__init__()
        self.start_epoch = start_epoch
        self.stop_epoch = stop_epoch
        self.profiler = Profiler(start_profile=False, output_path="profiler_data", profile_memory=True, data_simplification=False)

    def on_train_epoch_begin(self, run_context):
        cb_params = run_context.original_args()
        epoch_num = cb_params.cur_epoch_num
        if epoch_num == self.start_epoch:
            self.profiler.start()

    def on_train_epoch_end(self, run_context):
        cb_params = run_context.original_args()
        epoch_num = cb_params.cur_epoch_num
        if epoch_num == self.stop_epoch:
            self.profiler.stop()
            self.profiler.analyse()


if __name__ == "__main__":
    train(Net(), epochs=3, callbacks=[StopAtEpoch(2, 2)])
