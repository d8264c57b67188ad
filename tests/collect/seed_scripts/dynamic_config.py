from mindspore.profiler import DynamicProfilerMonitor
from network import Net, train

if __name__ == "__main__":
    profile_callback = DynamicProfilerMonitor(cfg_path="./dyn_cfg", output_path="./dynprof_data")
    train(Net(), epochs=2, callbacks=[profile_callback])
