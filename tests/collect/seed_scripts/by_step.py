import os

import mindspore as ms
from mindspore import Profiler
from mindspore.communication import get_rank
from network import Net, train


def get_real_rank():
    """get rank id"""
    try:
        return get_rank()
    except RuntimeError:
        return int(os.getenv("RANK_ID", "0"))


class StopAtStep(ms.Callback):
    def __init__(self, start_step, stop_step):
        super().__init__()
        self.start_step = start_step
        self.stop_step = stop_step
        # Set the path for performance data to disks as rank_id
        rank_id = get_real_rank()
        output_path = os.path.join("profiler_data", f"rank_{rank_id}")  # noqa: PTH118
        self.profiler = Profiler(start_profile=False, output_path=output_path, profile_memory=True, data_simplification=False)

    def on_train_step_begin(self, run_context):
        cb_params = run_context.original_args()
        step_num = cb_params.cur_step_num
        if step_num == self.start_step:
            self.profiler.start()

    def on_train_step_end(self, run_context):
        cb_params = run_context.original_args()
        step_num = cb_params.cur_step_num
        if step_num == self.stop_step:
            self.profiler.stop()
            self.profiler.analyse()


if __name__ == "__main__":
    train(Net(), callbacks=[StopAtStep(2, 4)])
