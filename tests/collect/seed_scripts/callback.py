from mindspore.profiler import Profiler
from mindspore.train.callback import Callback
from network import Net, train


class StopAtStep(Callback):
    def __init__(self, start_step, stop_step):
        super().__init__()
        self.start_step = start_step
        self.stop_step = stop_step
        self.already_analysed = False

    def step_begin(self, run_context):
        cb_params = run_context.original_args()
        step_num = cb_params.cur_step_num
        if step_num == self.start_step:
            self.profiler = Profiler(output_path="profiler_data", profile_memory=True, data_simplification=False)

    def step_end(self, run_context):
        cb_params = run_context.original_args()
        step_num = cb_params.cur_step_num
        if step_num == self.stop_step and not self.already_analysed:
            self.profiler.analyse()
            self.already_analysed = True

    def end(self, run_context):
        if not self.already_analysed:
            self.profiler.analyse()


if __name__ == "__main__":
    train(Net(), callbacks=[StopAtStep(2, 4)])
